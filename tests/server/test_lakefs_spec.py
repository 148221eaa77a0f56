"""`lakefs-spec`: repositories as a file system for fsspec."""

from pathlib import Path

import pytest
from lakefs_spec import LakeFSFileSystem

from tests.server.live import Live


@pytest.fixture(params=[None, False], ids=["presigned", "direct"])
def fs(server: Live, request: pytest.FixtureRequest) -> LakeFSFileSystem:
    return LakeFSFileSystem(
        host=server.url,
        username=server.key_id,
        password=server.secret,
        pre_sign=request.param,
        skip_instance_cache=True,
        use_listings_cache=False,
    )


def test_files_are_written_read_and_described(fs: LakeFSFileSystem, repo: str) -> None:
    root = f"lakefs://{repo}/main"
    fs.pipe(f"{root}/dir/a.txt", b"hello")
    assert fs.cat(f"{root}/dir/a.txt") == b"hello"
    info = fs.info(f"{root}/dir/a.txt")
    assert (info["type"], info["size"], info["name"]) == ("file", 5, f"{repo}/main/dir/a.txt")
    assert info["checksum"] == fs.checksum(f"{root}/dir/a.txt") == "5d41402abc4b2a76b9719d911017c592"
    assert fs.info(f"{root}/dir")["type"] == "directory"
    assert fs.exists(f"{root}/dir/a.txt")
    assert fs.exists(f"{root}/dir")
    assert fs.exists(f"{root}/")
    assert not fs.exists(f"{root}/nothing")
    assert not fs.exists(f"lakefs://{repo}/nobranch/")
    with pytest.raises(FileNotFoundError):
        fs.info(f"{root}/nothing")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/nothing", "rb")


def test_files_are_opened_in_all_modes(fs: LakeFSFileSystem, repo: str) -> None:
    path = f"{repo}/main/modes.txt"
    with fs.open(path, "xt") as file:
        file.write("one\ntwo\n")
    with pytest.raises(FileExistsError):
        fs.open(path, "xb")
    with fs.open(path, "rb") as file:
        assert file.read(3) == b"one"
        file.seek(4)
        assert file.read() == b"two\n"
    with fs.open(path, "rt") as file:
        assert file.readline() == "one\n"
    with fs.open(path, "wb", content_type="text/plain", metadata={"k": "v"}) as file:
        file.write(b"three")
    assert fs.info(path)["content-type"] == "text/plain"
    assert fs.info(path)["metadata"] == {"k": "v"}
    assert fs.tail(path, 3) == b"ree"
    fs.touch(f"{repo}/main/empty")
    assert fs.info(f"{repo}/main/empty")["size"] == 0


def test_directories_are_listed_and_walked(fs: LakeFSFileSystem, repo: str) -> None:
    for path in ("a/1", "a/b/2", "a/b/3", "ab", "c"):
        fs.pipe(f"{repo}/main/{path}", path.encode())
    root = f"{repo}/main"
    assert fs.ls(f"{root}/", detail=False) == [f"{root}/a/", f"{root}/ab", f"{root}/c"]
    assert fs.ls(f"{root}/a", detail=False) == [f"{root}/a/1", f"{root}/a/b/"]
    everything = {found["name"] for found in fs.ls(f"{root}/", recursive=True) if found["type"] == "file"}
    assert everything == {f"{root}/{path}" for path in ("a/1", "a/b/2", "a/b/3", "ab", "c")}
    assert sorted(fs.find(f"{root}/a/")) == [f"{root}/a/1", f"{root}/a/b/2", f"{root}/a/b/3"]


def test_files_go_up_and_come_down(fs: LakeFSFileSystem, repo: str, tmp_path: Path) -> None:
    tree = tmp_path / "up"
    (tree / "deep").mkdir(parents=True)
    (tree / "one").write_bytes(b"1" * 100)
    (tree / "deep" / "two").write_bytes(b"2" * 200)
    fs.put(str(tree) + "/", f"lakefs://{repo}/main/tree/", recursive=True)
    fs.put_file(tree / "one", f"{repo}/main/tree/one")  # equal already: nothing is sent
    fs.get(f"lakefs://{repo}/main/tree/", str(tmp_path / "down") + "/", recursive=True)
    assert (tmp_path / "down" / "deep" / "two").read_bytes() == b"2" * 200
    fs.get_file(f"{repo}/main/tree/one", tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == b"1" * 100


def test_files_are_copied_moved_and_removed(fs: LakeFSFileSystem, repo: str) -> None:
    root = f"{repo}/main"
    fs.pipe(f"{root}/a", b"a")
    fs.cp_file(f"{root}/a", f"{root}/b")
    fs.mv(f"{root}/b", f"{root}/d/c")
    assert fs.cat(f"{root}/d/c") == b"a"
    assert not fs.exists(f"{root}/b")
    fs.rm(f"{root}/a")
    assert not fs.exists(f"{root}/a")
    fs.rm(f"{root}/d/", recursive=True)
    assert fs.ls(f"{root}/") == []


def test_a_branch_is_made_when_it_is_written_to(fs: LakeFSFileSystem, repo: str) -> None:
    fs.pipe(f"{repo}/fresh/a", b"a")
    assert fs.cat(f"{repo}/fresh/a") == b"a"
    assert not fs.exists(f"{repo}/main/a")


def test_a_transaction_lands_whole_or_not_at_all(fs: LakeFSFileSystem, repo: str) -> None:
    with fs.transaction(repo, "main") as tx:
        fs.pipe(f"{repo}/{tx.branch.id}/a", b"1")
        first = tx.commit("first", metadata={"k": "v"})
        fs.pipe(f"{repo}/{tx.branch.id}/a", b"2")
        tx.commit("second")
        assert tx.rev_parse(tx.branch).message == "second"
        tx.tag(first, "first")
        assert not fs.exists(f"{repo}/main/a")
    assert fs.cat(f"{repo}/main/a") == b"2"
    assert fs.cat(f"{repo}/first/a") == b"1"
    with fs.transaction(repo, "main") as tx:
        tx.revert(tx.branch, "main", parent_number=1)
    assert not fs.exists(f"{repo}/main/a")

    def fail() -> None:
        with fs.transaction(repo, "main", delete="always") as tx:
            fs.pipe(f"{repo}/{tx.branch.id}/never", b"1")
            tx.commit("never")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not fs.exists(f"{repo}/main/never")
