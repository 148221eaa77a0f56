"""Blobs as files: the suite, and what only a file system can get wrong."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from esker.errors import EskerError, InvalidError, UnavailableError
from esker.stores.blob import BlobStore
from esker.stores.blob_local import TEMPORARY, TEMPORARY_AGE_MAX_MS, LocalBlobs
from esker.stores.open_blobs import open_blobs
from esker.testing.blob_suite import BlobSuite, names
from esker.world import REAL


class TestLocalBlobs(BlobSuite):
    examples = 100

    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        return LocalBlobs(tmp_path / "lake")


class TestLocalBlobsBelowALink(BlobSuite):
    examples = 10
    stream_bytes = 8 << 20

    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")
        return LocalBlobs(tmp_path / "link")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def store(root: Path) -> Iterator[LocalBlobs]:
    store = LocalBlobs(root)
    yield store
    assert not [*(root / TEMPORARY).glob("*")], "something unfinished was left"
    store.close()


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A directory beside the root, which must stay as it is."""
    outside = tmp_path / "lake2"
    (outside / "dir").mkdir(parents=True)
    for path in ("secret", "dir/secret"):
        (outside / path).write_bytes(b"secret")
    yield outside
    assert sorted(str(path.relative_to(outside)) for path in outside.rglob("*")) == ["dir", "dir/secret", "secret"]
    for path in ("secret", "dir/secret"):
        assert (outside / path).read_bytes() == b"secret"


WRITES: list[Callable[[LocalBlobs, str], object]] = [
    lambda store, name: store.put(name, b"x"),
    lambda store, name: store.put_stream(name, [b"x"]),
    lambda store, name: store.copy("kept", name),
]


def test_a_name_is_the_path_of_a_file(store: LocalBlobs, root: Path) -> None:
    store.put("some/dir/blob", b"x")
    assert (root / "some/dir/blob").read_bytes() == b"x"
    assert store.url == f"file://{root}"


def test_a_link_to_a_directory_leads_nowhere(store: LocalBlobs, root: Path, outside: Path) -> None:
    store.put("kept", b"x")
    for link, target in (("direct", outside), ("relative", Path("../lake2")), ("up", Path("..")), ("self", root)):
        (root / link).symlink_to(target)
        for below in ("secret", "dir/secret", "lake2/secret", "kept"):
            name = f"{link}/{below}"
            assert store.get(name) is None
            assert store.get_range(name, 0, 1) is None
            assert store.stream(name) is None
            assert store.head(name) is None
            assert store.copy(name, "copy") is False
            store.delete([name])
            for write in WRITES:
                with pytest.raises(InvalidError, match="link"):
                    write(store, name)
        assert names(store, f"{link}/") == names(store, f"{link}/dir/") == []
        assert names(store) == ["kept"]


def test_a_link_to_a_file_is_no_blob(store: LocalBlobs, root: Path, outside: Path) -> None:
    store.put("kept", b"x")
    for number, write in enumerate(WRITES):
        link = root / f"link{number}"
        link.symlink_to(outside / "secret")
        assert store.get(link.name) is None
        assert store.head(link.name) is None
        assert store.stream(link.name) is None
        assert not store.copy(link.name, "copy")
        assert names(store) == ["kept", *(f"link{earlier}" for earlier in range(number))]
        write(store, link.name)  # replaces the link
        assert store.get(link.name) == b"x"
    (root / "link").symlink_to(outside / "secret")
    store.delete(["link"])
    assert not (root / "link").is_symlink()


def test_a_link_in_place_of_the_temporary_directory_is_not_followed(tmp_path: Path, root: Path, outside: Path) -> None:
    root.mkdir()
    (root / TEMPORARY).symlink_to(outside)
    os.utime(outside / "secret", (0, 0))
    store = LocalBlobs(root)  # sweeps nothing there
    with pytest.raises(UnavailableError, match="Not a directory"):
        store.put("blob", b"mine")
    store.close()


def test_a_directory_that_turns_into_a_link_and_back_leads_nowhere(
    store: LocalBlobs, root: Path, outside: Path, tmp_path: Path
) -> None:
    """The race that checks of paths lose."""
    (tmp_path / "away").mkdir()
    turns = 0
    done = threading.Event()

    def turn() -> None:
        nonlocal turns
        while not done.is_set():
            with suppress(OSError):  # a put may make the directory at any moment too
                (root / "dir").mkdir(exist_ok=True)
                (root / "dir").rename(tmp_path / f"away/{turns}")
                (root / "dir").symlink_to(outside / "dir")
                (root / "dir").unlink()
                turns += 1

    turner = threading.Thread(target=turn)
    calls: list[Callable[[], object]] = [
        lambda: store.put("dir/mine", b"mine"),
        lambda: store.delete(["dir/secret"]),
        lambda: store.copy("kept", "dir/copy"),
    ]
    store.put("kept", b"mine")
    turner.start()
    try:
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            assert store.get("dir/secret") is None
            assert store.head("dir/secret") is None
            assert not store.copy("dir/secret", "stolen")
            assert not any(name.endswith("secret") for name in names(store))
            for call in calls:
                with suppress(InvalidError, UnavailableError):
                    call()
    finally:
        done.set()
        turner.join()
    assert turns > 100


def test_a_fifo_or_a_socket_blocks_nobody(store: LocalBlobs, root: Path) -> None:
    os.mkfifo(root / "fifo")
    assert store.get("fifo") is None
    assert store.stream("fifo") is None
    assert store.head("fifo") is None
    assert names(store) == []


def test_what_a_file_system_cannot_hold_is_refused_clearly(store: LocalBlobs) -> None:
    store.put("file", b"x")
    store.put("dir/file", b"x")
    for name, why in (
        ("x" * 256, "too long"),
        ("d/" + "é" * 128 + "/x", "too long"),
        ("file/x", "file"),
        ("dir", "below"),
    ):
        with pytest.raises(InvalidError, match=why):
            store.put(name, b"x")
        with pytest.raises(InvalidError, match=why):
            store.copy("file", name)
        assert store.get(name) is None
        assert store.head(name) is None
        store.delete([name])
    assert names(store) == ["dir/file", "file"]


def test_the_temporary_directory_is_no_place_for_blobs(store: LocalBlobs) -> None:
    store.put("x", b"x")
    for name in (TEMPORARY, f"{TEMPORARY}/x"):
        with pytest.raises(InvalidError, match="unfinished"):
            store.put(name, b"")
        with pytest.raises(InvalidError, match="unfinished"):
            store.get(name)
        with pytest.raises(InvalidError, match="unfinished"):
            store.delete([name])
    assert names(store, TEMPORARY) == names(store, TEMPORARY + "/") == []


def test_nothing_unfinished_is_listed(store: LocalBlobs, root: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"first"
        assert len([*(root / TEMPORARY).iterdir()]) == 1
        assert names(store) == names(store, ".") == []
        assert store.get("blob") is None
        yield b"second"

    store.put_stream("blob", chunks())
    assert names(store) == ["blob"]


def test_what_a_killed_writer_left_is_swept_when_old(root: Path) -> None:
    LocalBlobs(root).put("blob", b"x")
    for name, age_s in (("old", TEMPORARY_AGE_MAX_MS / 1000 + 60), ("young", 60)):
        (root / TEMPORARY / name).write_bytes(b"half")
        os.utime(root / TEMPORARY / name, (REAL.now_ms() / 1000 - age_s,) * 2)
    store = LocalBlobs(root)
    assert [path.name for path in (root / TEMPORARY).iterdir()] == ["young"]
    assert names(store) == ["blob"]


WRITER = """
import sys
from esker.stores.blob_local import LocalBlobs
store = LocalBlobs(sys.argv[1])
for number in range(1_000_000):
    data = bytes([number % 251]) * 300_000
    store.put(f"{number % 3}/{number % 7}", data)
    store.put_stream(f"{number % 3}/s{number % 7}", [data[:100_000], data[100_000:]])
    print(number, flush=True)
"""


def test_a_writer_killed_at_any_moment_leaves_only_whole_blobs(root: Path) -> None:
    for round_ in range(4):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"0\n"
            time.sleep(0.005 * round_ + 0.003)
            writer.send_signal(signal.SIGKILL)
        store = LocalBlobs(root)
        seen = [*store.list()]
        assert seen
        for info in seen:
            data = store.get(info.name)
            assert data is not None
            assert data == data[:1] * 300_000
            assert info.size == 300_000


def test_acknowledged_means_flushed_up_to_the_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    fsync = os.fsync

    def watch(fd: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", watch)
    store = LocalBlobs(root)
    assert flushed == [str(root.parent)]
    store.put("a/b/c", b"x")
    flushed.clear()
    store.put("a/b/d", b"x")
    assert [path.startswith(f"{root}/{TEMPORARY}/") for path in flushed] == [True, False]
    assert flushed[1:] == [f"{root}/a/b"], "of what is known to be durable, only the blob's own directory"
    flushed.clear()
    LocalBlobs(root).put("a/b/e", b"x")
    assert {str(root), f"{root}/a", f"{root}/a/b"} <= {*flushed}, "another process may have made these a moment ago"
    store.delete(["a/b/c", "a/b/d", "a/b/e"])
    assert not (root / "a").exists()
    flushed.clear()
    store.put("a/b/c", b"x")
    assert {str(root), f"{root}/a", f"{root}/a/b"} <= {*flushed}


def test_a_copy_is_as_young_as_it_is(store: LocalBlobs, root: Path) -> None:
    store.put("source", b"x" * 3_000_000)
    os.utime(root / "source", (0, 0))
    store.copy("source", "copy")
    info = store.head("copy")
    assert info is not None
    assert abs(info.mtime_ms - REAL.now_ms()) < 60_000


def test_a_copy_works_where_the_kernel_has_no_shortcut(store: LocalBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    store.put("source", bytes(range(256)) * 10_000)
    assert store.copy("source", "copy")
    assert store.get("copy") == bytes(range(256)) * 10_000


def test_a_full_disk_is_unavailable_and_leaves_nothing(store: LocalBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    for call in ("write", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(UnavailableError, match="No space left"):
                store.put("blob", b"x")
    assert names(store) == []


def test_files_of_others_are_not_listed(store: LocalBlobs, root: Path) -> None:
    for name in (b"invalid \xff", b"new\nline"):
        with open(os.fsencode(root) + b"/" + name, "wb"):
            pass
    os.mkdir(os.fsencode(root) + b"/dir\xfe")
    (root / "empty").mkdir()
    store.put("mine", b"")
    assert names(store) == ["mine"]


def test_a_root_that_is_gone_is_unavailable(root: Path) -> None:
    store = LocalBlobs(root)
    root.rename(root.parent / "moved")
    os.rmdir(root.parent / "moved")
    assert store.get("x") is None
    with pytest.raises(UnavailableError):
        store.put("x", b"")


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for root in (tmp_path / "file", tmp_path / "file/below"):
        with pytest.raises(InvalidError, match="not a directory"):
            LocalBlobs(root)


def test_descriptors_are_given_back(store: LocalBlobs) -> None:
    def use() -> None:
        store.put("a/b/c", bytes(3_000_000))
        store.get("a/b/c")
        store.stream("a/b/c")
        next(store.stream("a/b/c") or iter(()))
        next(store.list())
        names(store)
        store.copy("a/b/c", "a/d")
        for name in ("a", "a/b", "a/b/c/d", "x/" + "y" * 256):
            store.get(name)
            with suppress(EskerError):
                store.put(name, b"")
        store.delete(["a/b/c"])

    use()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        use()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "url", ["", "lake", "/data/lake", "file://lake", "file:///", "file://", "ftp://x", "s3://", "S3:/b"]
)
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidError, match="file:///absolute"):
        open_blobs(url)


def test_stores_open_by_url(tmp_path: Path) -> None:
    url = (tmp_path / "my lake").as_uri()
    store = open_blobs(url)
    assert store.url == url
    store.put("x", b"")
    assert (tmp_path / "my lake/x").exists()
    assert open_blobs("memory://").url == "memory://"
    with pytest.raises(InvalidError, match="endpoint"):
        open_blobs(url, {"endpoint": "http://x"})
    with pytest.raises(InvalidError):
        open_blobs("s3://bucket/../x")


@pytest.mark.parametrize("name", [b"new\nline", b"no-utf-8-\xff"])
def test_a_listing_of_all_names_what_a_listing_passes_over(root: Path, store: LocalBlobs, name: bytes) -> None:
    store.put("d/a", b"")
    with open(os.fsencode(root) + b"/d/" + name, "w"):
        pass
    assert [info.name for info in store.list()] == ["d/a"]
    with pytest.raises(InvalidError, match="d/n"):
        list(store.list_all("d/"))
