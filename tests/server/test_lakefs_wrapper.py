"""The `lakefs` package, as people use it, against a live server: through every feature that it has."""

import io
from datetime import timedelta
from typing import Any

import pytest

from tests.server.live import Live, lakefs

errors = lakefs.exceptions


@pytest.fixture(scope="module")
def client(server: Live) -> Any:
    return server.wrapper()


@pytest.fixture
def made(client: Any, repo: str) -> Any:
    return lakefs.Repository(repo, client)


@pytest.fixture
def main(made: Any) -> Any:
    return made.branch("main")


def paths(ref: Any, **kwargs: Any) -> list[str]:
    return [found.path for found in ref.objects(**kwargs)]


def test_the_version_is_one_that_clients_can_compare(client: Any) -> None:
    assert tuple(map(int, client.version.split("."))) >= (1, 3, 1)
    assert client.storage_config.pre_sign_support
    assert client.storage_config.blockstore_type == "local"


def test_a_wrong_secret_is_not_authorized(server: Live) -> None:
    stranger = lakefs.Client(host=server.url, username=server.key_id, password="wrong-secret-wrong")
    with pytest.raises(errors.NotAuthorizedException):
        list(lakefs.repositories(client=stranger))


def test_repositories_are_created_listed_and_deleted(client: Any) -> None:
    repo = lakefs.Repository("wrapped-1", client).create(storage_namespace="local://wrapped-1", default_branch="trunk")
    assert repo.properties.default_branch == "trunk"
    assert repo.properties.storage_namespace.endswith("/wrapped-1")
    with pytest.raises(errors.ConflictException):
        repo.create(storage_namespace="local://wrapped-1")
    again = lakefs.Repository("wrapped-1", client).create(storage_namespace="local://wrapped-1", exist_ok=True)
    assert again.properties == repo.properties
    assert [branch.id for branch in repo.branches()] == ["trunk"]
    assert repo.metadata == {}
    lakefs.Repository("wrapped-2", client).create(storage_namespace="local://elsewhere/wrapped-2")
    assert [found.id for found in lakefs.repositories(client=client, prefix="wrapped-")] == ["wrapped-1", "wrapped-2"]
    assert [found.id for found in lakefs.repositories(client=client, prefix="wrapped-", after="wrapped-1")] == [
        "wrapped-2"
    ]
    repo.delete()
    with pytest.raises(errors.NotFoundException):
        _ = lakefs.Repository("wrapped-1", client).properties


def test_branches_are_created_listed_and_deleted(made: Any, main: Any) -> None:
    dev = made.branch("dev").create("main")
    made.branch("hidden").create("main", hidden=True)
    with pytest.raises(errors.ConflictException):
        made.branch("dev").create("main")
    assert made.branch("dev").create("main", exist_ok=True).id == "dev"
    assert dev.head.id == main.head.id
    assert [branch.id for branch in made.branches()] == ["dev", "main"]
    assert [branch.id for branch in made.branches(show_hidden=True)] == ["dev", "hidden", "main"]
    assert [branch.id for branch in made.branches(prefix="ma")] == ["main"]
    assert [branch.id for branch in made.branches(after="dev")] == ["main"]
    assert [branch.id for branch in made.branches(max_amount=1)] == ["dev"]
    dev.delete()
    with pytest.raises(errors.NotFoundException):
        _ = dev.head
    with pytest.raises(errors.ForbiddenException):
        main.delete()
    with pytest.raises(errors.NotFoundException):
        made.branch("other").create("nowhere")
    with pytest.raises(errors.BadRequestException):
        made.branch("no/slash").create("main")


@pytest.mark.parametrize("pre_sign", [False, True])
def test_objects_are_written_and_read(main: Any, pre_sign: bool) -> None:
    obj = main.object("dir/a file.txt")
    assert not obj.exists()
    obj.upload("grüße", content_type="text/plain", metadata={"made-by": "test"}, pre_sign=pre_sign)
    assert obj.exists()
    with obj.reader("r", pre_sign=pre_sign) as reader:
        assert reader.read() == "grüße"
    with obj.reader("rb", pre_sign=pre_sign) as reader:
        assert reader.read() == "grüße".encode()
    stat = main.object("dir/a file.txt").stat()
    assert stat.size_bytes == 7
    assert stat.content_type == "text/plain"
    assert stat.metadata == {"made-by": "test"}
    assert len(stat.checksum) == 32
    obj.delete()
    assert not obj.exists()
    with pytest.raises(errors.ObjectNotFoundException):
        main.object("dir/a file.txt").stat()


@pytest.mark.parametrize("pre_sign", [False, True])
def test_an_exclusive_writer_finds_what_is_there(main: Any, pre_sign: bool) -> None:
    first = main.object("once").writer("xb", pre_sign=pre_sign)
    second = main.object("once").writer("xb", pre_sign=pre_sign)
    first.write(b"first")
    second.write(b"second")
    first.close()
    with pytest.raises(errors.ObjectExistsException):
        second.close()
    with pytest.raises(errors.ObjectExistsException):
        main.object("once").writer("x", pre_sign=pre_sign)
    assert main.object("once").reader(pre_sign=pre_sign).read() == b"first"


@pytest.mark.parametrize("pre_sign", [False, True])
def test_a_reader_seeks_and_ends_where_the_object_ends(main: Any, pre_sign: bool) -> None:
    main.object("numbers").upload(b"0123456789", pre_sign=pre_sign)
    with main.object("numbers").reader("rb", pre_sign=pre_sign) as reader:
        assert reader.read(3) == b"012"
        assert reader.tell() == 3
        assert reader.read(0) == b""
        reader.seek(-2, io.SEEK_END)
        assert reader.read() == b"89"
        assert reader.read() == b""
        reader.seek(5)
        reader.seek(1, io.SEEK_CUR)
        assert reader.read(100) == b"6789"
        reader.seek(100)
        assert reader.read(1) == b""
        with pytest.raises(OSError, match="non-negative"):
            reader.seek(-1)
    main.object("nothing").upload(b"", pre_sign=pre_sign)
    with main.object("nothing").reader("rb", pre_sign=pre_sign) as reader:
        assert reader.read(5) == b""
        assert reader.read() == b""


def test_a_reader_goes_line_by_line(main: Any) -> None:
    main.object("lines").upload("one\ntwo\n\nfour")
    with main.object("lines").reader("r") as reader:
        assert list(reader) == ["one\n", "two\n", "\n", "four"]


def test_a_writer_that_fails_leaves_nothing(main: Any) -> None:

    def fail() -> None:
        with main.object("never").writer("w") as writer:
            writer.write("some")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    writer = main.object("never").writer("w")
    writer.write("some")
    writer.discard()
    assert not main.object("never").exists()


def test_a_large_object_is_streamed(main: Any) -> None:
    data = bytes(range(256)) * (40 * 4096)  # 40 MiB: beyond what the writer keeps in memory
    with main.object("large").writer("wb", pre_sign=False) as writer:
        writer.write(data)
    assert main.object("large").stat().size_bytes == len(data)
    with main.object("large").reader("rb", pre_sign=False) as reader:
        reader.seek(len(data) - 300)
        assert reader.read() == data[-300:]
        reader.seek(0)
        assert reader.read() == data


def test_objects_are_copied_with_bytes_of_their_own(made: Any, main: Any) -> None:
    main.object("a").upload("data", metadata={"k": "v"}, content_type="text/csv")
    made.branch("dev").create("main")
    copied = main.object("a").copy("dev", "b")
    assert copied.reader("r").read() == "data"
    assert copied.stat().metadata == {"k": "v"}
    assert copied.stat().physical_address != main.object("a").stat().physical_address
    with pytest.raises(errors.NotFoundException):
        main.object("nothing").copy("dev", "b")


def test_objects_are_listed_in_order_and_folded_by_a_delimiter(main: Any) -> None:
    for path in ("a/1", "a/2", "a/b/3", "c", "a-b"):
        main.object(path).upload(path)
    assert paths(main) == ["a-b", "a/1", "a/2", "a/b/3", "c"]
    assert paths(main, prefix="a/") == ["a/1", "a/2", "a/b/3"]
    assert paths(main, after="a/1") == ["a/2", "a/b/3", "c"]
    assert paths(main, max_amount=2) == ["a-b", "a/1"]
    folded = list(main.objects(delimiter="/"))
    assert [(type(found) is lakefs.models.CommonPrefix, found.path) for found in folded] == [
        (False, "a-b"),
        (True, "a/"),
        (False, "c"),
    ]
    assert paths(main, prefix="a/", delimiter="/") == ["a/1", "a/2", "a/b/"]
    assert paths(main, amount=2) == ["a-b", "a/1", "a/2", "a/b/3", "c"]  # over several pages
    assert paths(main, delimiter="/", amount=1) == ["a-b", "a/", "c"]
    signed = next(iter(main.objects(presign=True)))
    assert signed.physical_address.startswith("http")
    assert signed.physical_address_expiry > 0


def test_many_objects_are_deleted_at_once(main: Any) -> None:
    for at in range(5):
        main.object(f"o{at}").upload("x")
    main.delete_objects(["o0", "o1", "was-never-there"])
    main.delete_objects(main.object("o2"))
    main.delete_objects({main.object("o3")})
    assert paths(main) == ["o4"]


def test_changes_are_seen_committed_and_logged(main: Any) -> None:
    main.object("a").upload("1")
    main.object("b/c").upload("12")
    changes = list(main.uncommitted())
    assert [(c.type, c.path, c.path_type, c.size_bytes) for c in changes] == [
        ("added", "a", "object", 1),
        ("added", "b/c", "object", 2),
    ]
    assert [c.path for c in main.uncommitted(prefix="b/")] == ["b/c"]
    assert [c.path for c in main.uncommitted(after="a", max_amount=5)] == ["b/c"]
    assert [(c.type, c.path) for c in main.uncommitted(delimiter="/")] == [("added", "a"), ("prefix_changed", "b/")]
    ref = main.commit("first", metadata={"who": "me"})
    assert not list(main.uncommitted())
    commit = ref.get_commit()
    assert (commit.message, commit.metadata, commit.committer) == ("first", {"who": "me"}, "admin")
    assert main.get_commit() == commit
    assert main.head.id == commit.id
    assert len(commit.meta_range_id) == 64
    with pytest.raises(errors.BadRequestException):
        main.commit("nothing")
    main.commit("empty", allow_empty=True)
    main.object("a").upload("2")
    main.commit("second")
    assert [c.message for c in main.log()] == ["second", "empty", "first", "Repository created"]
    assert [c.message for c in main.log(max_amount=2)] == ["second", "empty"]
    assert [c.message for c in main.log(amount=1)] == ["second", "empty", "first", "Repository created"]
    assert [c.message for c in main.log(objects=["b/c"])] == ["first"]
    assert [c.message for c in main.log(prefixes=["a", "nope"])] == ["second", "first"]
    assert [c.message for c in main.log(stop_at=commit.id)] == ["second", "empty", "first"]
    assert [c.message for c in main.log(limit=True, amount=2)] == ["second", "empty"]


def test_a_commit_takes_the_date_that_it_is_given(main: Any) -> None:
    main.object("a").upload("1")
    ref = main.commit("old", date=1_000_000_000)
    assert ref.get_commit().creation_date == 1_000_000_000


def test_resets_drop_what_is_staged(main: Any) -> None:
    for path in ("a/1", "a/2", "b"):
        main.object(path).upload(path)
    main.reset_changes("object", "b")
    assert paths(main) == ["a/1", "a/2"]
    main.object("b").upload("again")
    main.reset_changes("common_prefix", "a/")
    assert paths(main) == ["b"]
    main.reset_changes()
    assert paths(main) == []


def test_refs_name_commits_in_many_ways(made: Any, main: Any) -> None:
    ids = []
    for at in range(3):
        main.object("a").upload(str(at))
        ids.append(main.commit(f"c{at}").id)
    assert made.ref("main~1").get_commit().id == ids[1]
    assert made.ref("main~2").get_commit().id == ids[0]
    assert made.ref("main^").get_commit().id == ids[1]
    assert made.ref(ids[0][:10]).get_commit().id == ids[0]
    assert made.commit(ids[1]).object("a").reader("r").read() == "1"
    main.object("a").upload("staged")
    assert made.ref("main@").object("a").reader("r").read() == "2"
    assert made.ref("main").object("a").reader("r").read() == "staged"
    with pytest.raises(errors.NotFoundException):
        made.ref("main~9").get_commit()


def test_diffs_and_merges(made: Any, main: Any) -> None:
    main.object("a").upload("1")
    main.object("b").upload("1")
    main.commit("base")
    dev = made.branch("dev").create("main")
    dev.object("a").upload("2!")
    dev.object("b").delete()
    dev.object("c/d").upload("new")
    dev.commit("work")
    expected = [("changed", "a"), ("removed", "b"), ("added", "c/d")]
    assert [(c.type, c.path) for c in main.diff(dev)] == expected
    assert [(c.type, c.path) for c in main.diff("dev", type="two_dot")] == expected
    assert [(c.type, c.path) for c in main.diff(dev, prefix="c/")] == [("added", "c/d")]
    assert [(c.type, c.path) for c in main.diff(dev, delimiter="/", after="b")] == [("prefix_changed", "c/")]
    assert not list(dev.diff(main))
    merged = dev.merge_into(main, message="bring it", metadata={"k": "v"})
    commit = made.commit(merged).get_commit()
    assert (commit.message, commit.metadata, len(commit.parents)) == ("bring it", {"k": "v"}, 2)
    assert paths(main) == ["a", "c/d"]
    with pytest.raises(errors.BadRequestException):
        dev.merge_into(main)
    squashed = made.branch("more").create("main")
    squashed.object("e").upload("e")
    squashed.commit("e")
    assert len(made.commit(squashed.merge_into("main", squash_merge=True)).get_commit().parents) == 1


def test_a_conflict_stops_a_merge_unless_a_side_is_to_win(made: Any, main: Any) -> None:
    main.object("a").upload("base")
    main.commit("base")
    dev = made.branch("dev").create("main")
    dev.object("a").upload("theirs")
    dev.commit("theirs")
    main.object("a").upload("ours")
    main.commit("ours")
    assert [(c.type, c.path) for c in main.diff(dev)] == [("conflict", "a")]
    with pytest.raises(errors.ConflictException) as conflict:
        dev.merge_into(main)
    assert conflict.value.body["conflicts"] == ["a"]
    assert conflict.value.body["reference"] == ""
    dev.merge_into(main, strategy="dest-wins")
    assert main.object("a").reader("r").read() == "ours"
    dev.object("a").upload("theirs again")
    dev.commit("again")
    main.object("a").upload("ours again")
    main.commit("again")
    dev.merge_into(main, strategy="source-wins")
    assert main.object("a").reader("r").read() == "theirs again"


def test_reverts_and_cherry_picks(made: Any, main: Any) -> None:
    main.object("a").upload("1")
    main.commit("one")
    dev = made.branch("dev").create("main")
    main.object("b").upload("2")
    two = main.commit("two", metadata={"k": "v"})
    reverted = main.revert(two)
    assert reverted.message.startswith("Revert")
    assert paths(main) == ["a"]
    with pytest.warns(lakefs.branch.LakeFSDeprecationWarning), pytest.raises(errors.BadRequestException):
        main.revert(None, reference_id=two.id)  # nothing of it is left to revert
    picked = dev.cherry_pick(two)
    assert picked.message == "two"
    assert picked.metadata == {"k": "v", "cherry-pick-origin": two.id, "cherry-pick-committer": "admin"}
    assert paths(dev) == ["a", "b"]
    dev.merge_into(main, message="merge")
    with pytest.raises(errors.ConflictException):
        main.revert("main")
    main.revert("main", parent_number=1)
    with pytest.raises(errors.BadRequestException):
        dev.cherry_pick(made.ref("main~1"))


def test_tags_name_commits_for_good(made: Any, main: Any) -> None:
    main.object("a").upload("1")
    ref = main.commit("one")
    tag = made.tag("v1").create(ref)
    assert tag.get_commit().id == ref.id
    with pytest.raises(errors.ConflictException):
        made.tag("v1").create("main")
    assert made.tag("v1").create("main", exist_ok=True).id == "v1"
    made.tag("v2").create("main")
    assert [found.id for found in made.tags()] == ["v1", "v2"]
    assert [found.id for found in made.tags(after="v1", prefix="v", max_amount=3)] == ["v2"]
    assert made.tag("v1").object("a").reader("r").read() == "1"
    tag.delete()
    with pytest.raises(errors.NotFoundException):
        tag.delete()
    with pytest.raises(errors.BadRequestException):
        made.tag("no..tag").create("main")


def test_a_transaction_lands_whole_or_not_at_all(made: Any, main: Any) -> None:
    main.object("old").upload("old")
    main.commit("base")
    with main.transact(commit_message="both", commit_metadata={"k": "v"}, tag="done") as tx:
        tx.object("a").upload("1")
        tx.object("b").upload("2")
        for obj in tx.objects(prefix="old"):
            tx.object(obj.path).delete()
        assert paths(main) == ["old"]
    assert paths(main) == ["a", "b"]
    merge = main.get_commit()
    assert made.commit(merge.parents[1]).get_commit().message == "both"
    assert made.commit(merge.parents[1]).get_commit().metadata == {"k": "v"}
    assert made.tag("done").get_commit().id == main.head.id
    assert [branch.id for branch in made.branches(show_hidden=True)] == ["main"]


def test_a_transaction_that_fails_or_loses_leaves_nothing(made: Any, main: Any) -> None:
    def fail() -> None:
        with main.transact(commit_message="never") as tx:
            tx.object("a").upload("tx")
            raise ZeroDivisionError

    def lose() -> None:
        with main.transact(commit_message="loses") as tx:
            tx.object("a").upload("tx")
            main.object("a").upload("main")
            main.commit("first")

    with pytest.raises(ZeroDivisionError):
        fail()
    assert paths(main) == []
    with pytest.raises(errors.TransactionException):
        lose()
    assert main.object("a").reader("r").read() == "main"


@pytest.fixture
def source(server: Live, repo: str) -> str:
    """A directory of the test's own that may be imported from, as a URL."""
    directory = server.elsewhere / repo
    (directory / "deep").mkdir(parents=True)
    (directory / "one.txt").write_bytes(b"one")
    (directory / "deep" / "two.txt").write_bytes(b"two!")
    (directory.parent / f"{repo}-neighbour").mkdir()
    (directory.parent / f"{repo}-neighbour" / "other").write_bytes(b"not to be imported")
    return directory.as_uri()


POLL = timedelta(milliseconds=20)


def test_an_import_brings_entries_for_what_lies_elsewhere(server: Live, main: Any, source: str) -> None:
    main.object("in/stale").upload("replaced")
    main.object("instead").upload("stays")
    main.commit("base")
    importer = main.import_data("imported", {"k": "v"})
    importer.prefix(source, "in/").object(f"{source}/one.txt", "single")
    status = importer.run(POLL)
    assert status.completed
    assert status.ingested_objects == 3
    assert status.error is None
    assert status.commit.message == "imported"
    assert status.commit.metadata == {"k": "v"}
    assert status.commit.id == main.head.id
    assert paths(main) == ["in/deep/two.txt", "in/one.txt", "instead", "single"]
    assert main.object("in/deep/two.txt").reader().read() == b"two!"
    assert main.object("single").reader(pre_sign=False).read() == b"one"
    again = main.import_data("again").prefix(source, "in/").run(POLL)
    assert again.commit.id == status.commit.id  # nothing has changed
    (server.elsewhere / main.repo_id / "one.txt").unlink()
    main.import_data("less").prefix(f"{source}/", "in").run(POLL)
    assert paths(main, prefix="in/") == ["in/deep/two.txt"]


def test_an_import_refuses_a_branch_with_changes(main: Any, source: str) -> None:
    main.object("staged").upload("x")
    with pytest.raises(errors.BadRequestException):
        main.import_data().prefix(source, "in/").start()
