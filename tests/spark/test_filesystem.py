"""The contract of Hadoop's FileSystem, against a live server: create, delete, status, mkdir, open, rename, root."""

import os

import pytest

from tests.server.live import Live
from tests.spark.files import Files, drained

MISSING = "FileNotFoundException"
EXISTS = "FileAlreadyExistsException"


# create


@pytest.mark.parametrize("size", [0, 1, 64 << 10, (64 << 10) + 1, 300_000, 9 << 20])
def test_what_is_written_is_read(files: Files, size: int) -> None:
    data = os.urandom(size)
    files.write("a/file", data)
    assert files.read("a/file") == data
    status = files.status("a/file")
    assert (status.isFile(), status.getLen(), files.name(status.getPath())) == (True, size, "a/file")


def test_a_file_is_not_there_before_it_is_closed(files: Files) -> None:
    out = files.fs.create(files.path("f"))
    out.write(b"half", 0, 4)
    out.flush()
    assert not files.exists("f")
    out.close()
    assert files.read("f") == b"half"
    out.close()  # again is no error
    with files.refused("IOException"):
        out.write(b"more", 0, 4)


def test_an_aborted_file_is_never_there(files: Files) -> None:
    files.write("f", b"before")
    out = files.fs.create(files.path("f"), True)
    out.write(b"after", 0, 5)
    assert out.hasCapability("fs.capability.outputstream.abortable")
    out.abort()
    out.close()
    assert files.read("f") == b"before"


def test_a_file_takes_the_place_of_another_only_if_told(files: Files) -> None:
    files.write("f", b"one")
    with files.refused(EXISTS):
        files.write("f", b"two", overwrite=False)
    assert files.read("f") == b"one"
    files.write("f", b"three")
    assert files.read("f") == b"three"


def test_of_two_who_create_the_same_file_one_wins(files: Files) -> None:
    first = files.fs.create(files.path("f"), False)
    second = files.fs.create(files.path("f"), False)
    first.write(b"first", 0, 5)
    second.write(b"second", 0, 6)
    second.close()
    with files.refused(EXISTS):
        first.close()
    assert files.read("f") == b"second"


def test_a_directory_is_not_written_over(files: Files) -> None:
    files.make("empty")
    files.write("full/f")
    for name in ("empty", "full", ""):
        with files.refused(EXISTS, MISSING):
            files.write(name, b"x")
    assert files.is_directory("empty")
    assert files.is_directory("full")


def test_a_file_may_be_created_only_where_its_directory_is(files: Files) -> None:
    assert files.fs.createFile(files.path("new/f")).recursive().build().close() is None
    assert files.exists("new/f")
    with files.refused(MISSING):
        files.fs.createFile(files.path("none/f")).build()
    with files.refused("ParentNotDirectoryException"):
        files.fs.createFile(files.path("new/f/g")).build()
    files.fs.createFile(files.path("new/g")).build().close()
    assert files.listed("new") == ["new/f", "new/g"]


def test_nothing_is_appended(files: Files) -> None:
    files.write("f", b"x")
    with files.refused("UnsupportedOperationException"):
        files.fs.append(files.path("f"))


@pytest.mark.parametrize("name", ["a b", "a+b", "a%20b", "grün", "😀", "a=1,b=2", "x'y\"z", "a#b?c&d"])
def test_names_are_what_they_are(files: Files, name: str) -> None:
    files.write(f"in/{name}/{name}", name.encode())
    assert files.listed("in") == [f"in/{name}/"]
    assert files.every("in") == [f"in/{name}/{name}"]
    assert files.read(f"in/{name}/{name}") == name.encode()
    assert files.rename(f"in/{name}", f"out/{name}")
    assert files.read(f"out/{name}/{name}") == name.encode()
    assert files.delete(f"out/{name}", recursive=True)
    assert not files.exists("out")


# status


def test_what_is_not_there_is_not_found(files: Files) -> None:
    files.write("file-and-more", b"x")
    for name in ("none", "file", "file-and-more/under", "none/at/all"):
        with files.refused(MISSING):
            files.status(name)
        with files.refused(MISSING):
            files.fs.open(files.path(name))
        with files.refused(MISSING):
            files.listed(name)
        with files.refused(MISSING):
            files.every(name)
        assert not files.exists(name)
    for root in ("lakefs://no-such-repo/main/f", files.root.replace("/main/", "/no-such-branch/f")):
        with files.refused(MISSING):
            files.path(root).getFileSystem(files.conf).getFileStatus(files.path(root))
        with files.refused(MISSING):  # or a typo would look like an empty place
            files.path(root).getFileSystem(files.conf).exists(files.path(root))


def test_a_directory_is_found_among_many_names_that_begin_like_it(files: Files, server: Live) -> None:
    repo = files.root.split("/")[2]
    for character in "!-.":
        server.put(repo, f"d{character}", b"x")
    files.write("d/in", b"x")
    assert files.is_directory("d")
    files.delete("d", recursive=True)
    assert not files.exists("d")
    files.write("d0", b"x")
    assert not files.exists("d")


def test_a_directory_is_found_behind_a_thousand_names_that_begin_like_it(files: Files, server: Live) -> None:
    repo = files.root.split("/")[2]
    status = server.put(repo, "seed", b"x").json
    for number in range(1001):
        made = server.ask(
            "PUT",
            f"/repositories/{repo}/branches/main/objects",
            query={"path": f"d-{number:04}"},
            body={"physical_address": _elsewhere(server), "checksum": "c", "size_bytes": 1},
        )
        assert made.status == 201, (made, status)
    assert not files.exists("d")
    files.write("d/in", b"x")
    assert files.is_directory("d")
    assert len(files.listed("")) == 1003


def _elsewhere(server: Live) -> str:
    place = server.elsewhere / "one-byte"
    place.write_bytes(b"1")
    return place.as_uri()


def test_statuses_have_etags_and_times(files: Files) -> None:
    files.write("d/f", b"hello")
    listed = files.fs.listStatus(files.path("d"))[0]
    flat = next(drained(files.fs.listFiles(files.path("d"), True)))
    for status in (files.status("d/f"), listed, flat):
        assert status.getEtag() == "5d41402abc4b2a76b9719d911017c592"
        assert status.getModificationTime() > 1_700_000_000_000
        assert status.getBlockSize() == 128 << 20
    assert files.fs.hasPathCapability(files.path("d/f"), "fs.capability.etags.available")
    files.rename("d/f", "d/g")
    assert files.status("d/g").getEtag() == "5d41402abc4b2a76b9719d911017c592"


def test_all_of_a_long_listing_is_listed(files: Files) -> None:
    for number in range(30):
        files.write(f"t/p={number % 3}/f{number:02}", b"x")
    assert files.listed("t") == ["t/p=0/", "t/p=1/", "t/p=2/"]
    assert len(files.every("t")) == 30
    assert len(files.every("")) == 30
    assert [files.name(one.getPath()) for one in drained(files.fs.listLocatedStatus(files.path("t/p=0")))][:1] == [
        "t/p=0/f00"
    ]


def test_globs_find_what_matches(files: Files) -> None:
    for name in ("t/a=1/f", "t/a=2/f", "t/b=1/g"):
        files.write(name, b"x")
    found = files.fs.globStatus(files.path("t/a=*/f"))
    assert [files.name(one.getPath()) for one in found] == ["t/a=1/f", "t/a=2/f"]


# mkdir


def test_a_made_directory_is_there_and_empty(files: Files) -> None:
    assert files.make("a/b")
    assert files.make("a/b")
    assert files.is_directory("a/b")
    assert files.is_directory("a")
    assert files.listed("a") == ["a/b/"]
    assert files.listed("a/b") == []
    assert files.every("") == []


def test_a_made_directory_outlives_the_files_in_it(files: Files) -> None:
    files.make("d")
    files.write("d/f")
    files.write("e/f")
    for name in ("d/f", "e/f"):
        assert files.delete(name)
    assert files.is_directory("d")
    assert not files.exists("e")


def test_no_directory_is_made_where_a_file_is_or_below_one(files: Files) -> None:
    files.write("f", b"x")
    with files.refused(EXISTS):
        files.make("f")
    with files.refused("ParentNotDirectoryException"):
        files.make("f/d")
    with files.refused("ParentNotDirectoryException"):
        files.make("f/d/deeper")
    assert files.read("f") == b"x"


# delete


def test_a_deleted_file_is_gone(files: Files) -> None:
    files.write("f", b"x")
    files.write("g", b"x")
    assert files.delete("f")
    assert not files.exists("f")
    assert files.listed("") == ["g"]
    assert not files.delete("f")
    assert not files.delete("none", recursive=True)


def test_a_full_directory_is_deleted_only_recursively(files: Files) -> None:
    files.write("d/a/f", b"x")
    files.write("d-and-more", b"x")
    files.make("empty")
    with files.refused("PathIsNotEmptyDirectoryException"):
        files.delete("d")
    assert files.exists("d/a/f")
    assert files.delete("d", recursive=True)
    assert files.delete("empty")
    assert files.listed("") == ["d-and-more"]


def test_many_files_are_deleted_at_once(files: Files) -> None:
    for name in ("d/a", "d/b", "d/c", "other"):
        files.write(name, b"x")
    bulk = files.fs.createBulkDelete(files.path("d"))
    assert bulk.pageSize() == 1000
    paths = files.list_of(files.path("d/a"), files.path("d/b"), files.path("d/none"))
    assert bulk.bulkDelete(paths).size() == 0
    assert files.every("") == ["d/c", "other"]
    assert bulk.bulkDelete(files.list_of()).size() == 0
    with files.refused("IllegalArgumentException"):
        bulk.bulkDelete(files.list_of(files.path("other")))
    with files.refused("IllegalArgumentException"):
        bulk.bulkDelete(files.list_of(*(files.path(f"d/{n}") for n in range(1001))))
    bulk.close()


# rename


def test_a_file_is_renamed(files: Files) -> None:
    files.write("a/f", b"data")
    assert files.rename("a/f", "b/c/g")
    assert files.every("") == ["b/c/g"]
    assert files.read("b/c/g") == b"data"


def test_a_directory_is_renamed_with_all_that_is_in_it(files: Files) -> None:
    files.make("d/empty")
    for name in ("d/f", "d/x/g", "d-and-more"):
        files.write(name, name.encode())
    assert files.rename("d", "e")
    assert files.every("") == ["d-and-more", "e/f", "e/x/g"]
    assert files.is_directory("e/empty")
    assert files.read("e/x/g") == b"d/x/g"


def test_into_a_directory_that_is_there_goes_what_is_renamed(files: Files) -> None:
    files.write("f", b"x")
    files.write("d/g", b"x")
    files.make("there")
    assert files.rename("f", "there")
    assert files.rename("d", "there")
    assert files.every("") == ["there/d/g", "there/f"]


def test_what_cannot_be_renamed_stays(files: Files) -> None:
    files.write("f", b"f")
    files.write("g", b"g")
    files.write("d/x", b"x")
    files.write("e/d/y", b"y")
    before = files.every("")
    assert not files.rename("none", "any")
    assert not files.rename("f", "g")
    assert not files.rename("d", "g")
    assert not files.rename("d", "d/below")
    assert not files.rename("d", "e")
    assert not files.rename("f", "g/below")
    assert not files.rename("d", "d")
    assert not files.rename("", "d")
    assert files.rename("f", "f")
    assert files.every("") == before


def test_between_branches_nothing_is_renamed(files: Files, server: Live) -> None:
    repo = files.root.split("/")[2]
    server.ask("POST", f"/repositories/{repo}/branches", body={"name": "other", "source": "main"})
    files.write("f", b"x")
    with files.refused("IOException"):
        files.rename("f", files.root.replace("/main/", "/other/") + "f")
    assert files.exists("f")


def test_a_file_takes_anothers_place_at_once_by_file_context(files: Files) -> None:
    """As streaming queries keep their checkpoints."""
    files.write("new", b"new")
    files.write("old", b"old")
    context = files.hadoop.FileContext.getFileContext(files.path("").toUri(), files.conf)
    kind = "org.apache.hadoop.fs.Options$Rename"
    options = files.jvm.java.lang.Class.forName(kind).getEnumConstants()
    none, overwrite = files.array(kind), files.array(kind, options[1])
    with files.refused(EXISTS):
        context.rename(files.path("new"), files.path("old"), none)
    context.rename(files.path("new"), files.path("old"), overwrite)
    assert files.read("old") == b"new"
    assert files.every("") == ["old"]


# root


def test_the_root_of_a_branch_is_always_there(files: Files) -> None:
    assert files.is_directory("")
    assert files.listed("") == []
    assert files.make("")
    files.write("a/f", b"x")
    files.write("g", b"x")
    with files.refused("PathIsNotEmptyDirectoryException"):
        files.delete("")
    assert files.delete("", recursive=True)
    assert files.is_directory("")
    assert files.listed("") == []


def test_in_the_root_of_a_repository_are_its_branches(files: Files, server: Live) -> None:
    repo = files.root.split("/")[2]
    server.ask("POST", f"/repositories/{repo}/branches", body={"name": "other", "source": "main"})
    top = f"lakefs://{repo}/"
    assert files.is_directory(top)
    assert files.listed(top) == [f"{top}main/", f"{top}other/"]
    assert not files.delete(top, recursive=True)
    assert files.is_directory("")
    with files.refused(MISSING):
        files.write(top + "f", b"x")


# refs


def test_any_ref_is_read_and_only_branches_are_written(files: Files, server: Live) -> None:
    repo = files.root.split("/")[2]
    files.write("f", b"one")
    first = server.commit(repo)
    server.ask("POST", f"/repositories/{repo}/tags", body={"id": "v1.0", "ref": "main"})
    files.write("f", b"two")
    server.commit(repo)
    files.write("f", b"three")
    for ref, data in (
        ("main", b"three"),
        ("main@", b"two"),
        ("main~1", b"one"),
        (first, b"one"),
        (first[:10], b"one"),
        ("v1.0", b"one"),
    ):
        at = f"lakefs://{repo}/{ref}/"
        assert files.read(at + "f") == data
        assert files.listed(at) == ["f" if ref == "main" else at + "f"]
        if ref != "main":
            with files.refused("IOException"):
                files.write(at + "g", b"x")
            with files.refused("IOException"):
                files.delete(at + "f")
            with files.refused("IOException"):
                files.rename(at + "f", at + "g")
    assert files.read("f") == b"three"


def test_a_protected_branch_is_not_written(files: Files, server: Live) -> None:
    repo = files.root.split("/")[2]
    files.write("f", b"x")
    server.ask("PUT", f"/repositories/{repo}/settings/branch_protection", body=[{"pattern": "main"}])
    for change in (
        lambda: files.write("g", b"x"),
        lambda: files.delete("f"),
        lambda: files.rename("f", "g"),
        lambda: files.make("d"),
    ):
        with files.refused("AccessControlException"):
            change()
    assert files.every("") == ["f"]


def test_who_is_not_known_is_told_so(files: Files) -> None:
    conf = files.jvm.org.apache.hadoop.conf.Configuration(files.conf)
    conf.set("fs.lakefs.secret.key", "not-the-secret-at-all")
    fs = files.hadoop.FileSystem.newInstance(files.path("").toUri(), conf)
    with files.refused("AccessControlException"):
        fs.getFileStatus(files.path("f"))
    conf.unset("fs.lakefs.endpoint")
    with files.refused("IOException"):
        files.hadoop.FileSystem.newInstance(files.path("").toUri(), conf)
