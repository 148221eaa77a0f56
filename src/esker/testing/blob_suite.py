"""The suite that defines the blob port. A backend passes it, or is none:

    class TestMyBlobs(BlobSuite):
        @pytest.fixture
        def store(self, tmp_path: Path) -> BlobStore:
            return MyBlobs(tmp_path)

The store is empty at first. No test needs a name to be a blob and a directory at once: a file system cannot have both.
"""

import hashlib
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from esker.errors import InvalidError
from esker.stores.blob import CHUNK_BYTES, NAME_BYTES_MAX, BlobStore
from esker.testing.kv_suite import together
from esker.world import REAL

ODD_NAMES: Final = [
    *("with space", " lead", "trail ", "a+b", "100%", "a%20b", "%2e%2e/x", "%2F", "~t", "a=b&c", "q?x", "h#x", "-dash"),
    *(
        "back\\slash",
        "quote\"'",
        "[x]{y}",
        "<x>&amp;",
        "semi;colon:x",
        "x*y|z^`$!@,",
        ".hidden",
        "...",
        "..x/y..",
        "é/ü",
    ),
    *("日本語/データ", "😀", "\u2028", "\xa0", "\U0010fffd", "a" * 255, "é" * 127, "/".join(["d" * 200] * 4)),
]
BAD_NAMES: Final = [
    *(
        "",
        "/",
        ".",
        "..",
        "/etc/passwd",
        "../x",
        "a/../b",
        "a/..",
        "a/.",
        "./a",
        "a//b",
        "a/",
        "\0",
        "a\0b",
        "new\nline",
    ),
    *("\x7f", "lone\udcff", "x" * (NAME_BYTES_MAX + 1), "é" * (NAME_BYTES_MAX // 2 + 1)),
]
SORTED_NAMES: Final = [
    *("A", "a!z", "a-/x", "a-b", "a.b", "a/-", "a/b-", "a/b/c", "a/b/é", "a/b0", "a0/b/c", "aa", "b", "~", "é", "ﬀ"),
    *("\uff5e", "\U00010000", "\U0001f600/x"),
]
"""In byte order of UTF-8: not the order of a walk by directories, nor that of UTF-16."""


class BlobSuite:
    examples: ClassVar[int] = 50
    stream_bytes: ClassVar[int] = 24 << 20
    stream_memory_bytes: ClassVar[int | None] = 6 << 20
    """What a stream of `stream_bytes` may hold of it at once in Python; None for a store that is itself in memory."""

    @pytest.fixture
    def store(self) -> BlobStore:
        raise NotImplementedError

    @pytest.mark.parametrize("data", [b"", b"\0", b"bytes \xff\x00" * 1000, bytes(3_000_000)], ids=len)
    def test_what_was_put_is_what_is_got(self, store: BlobStore, data: bytes) -> None:
        before = REAL.now_ms()
        store.put("some/blob", data)
        assert store.get("some/blob") == data
        info = store.head("some/blob")
        assert info is not None
        assert info[:2] == ("some/blob", len(data))
        assert abs(info.mtime_ms - before) < 60_000
        assert list(store.list()) == [info]

    def test_memory_of_any_type_can_be_put(self, store: BlobStore) -> None:
        store.put("bytes", memoryview(b"0123")[1:3])
        store.put("words", memoryview(b"01234567").cast("I"))
        assert store.get("bytes") == b"12"
        assert store.get("words") == b"01234567"

    def test_missing_is_none(self, store: BlobStore) -> None:
        store.put("dir/blob", b"x")
        for name in ("missing", "dir", "dir/missing", "missing/x", "dir/blob/below"):
            assert store.get(name) is None
            assert store.get_range(name, 0, 1) is None
            assert store.get_range(name, 0, 0) is None
            assert store.stream(name) is None
            assert store.stream(name, 0, 0) is None
            assert store.head(name) is None
            assert store.copy(name, "copy") is False
        assert names(store) == ["dir/blob"]

    def test_put_replaces(self, store: BlobStore) -> None:
        store.put("blob", b"a long first value")
        store.put("blob", b"second")
        assert store.get("blob") == b"second"
        assert store.put_stream("blob", [b"th", b"", b"ird"]) == 5
        assert store.get("blob") == b"third"
        assert names(store) == ["blob"]

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_odd_names_are_names(self, store: BlobStore, name: str) -> None:
        store.put(name, b"put")
        assert store.get(name) == b"put"
        store.put_stream(name, [b"streamed"])
        assert store.get_range(name, 1, 2) == b"tr"
        assert names(store) == [name]
        assert names(store, prefix=name) == [name]
        assert names(store, prefix=name[:-1]) == [name]
        assert names(store, after=name) == []
        assert store.copy(name, "other")
        store.delete([name])
        assert names(store) == ["other"]

    @pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
    def test_bad_names_are_refused(self, store: BlobStore, name: str) -> None:
        store.put("blob", b"x")
        calls: list[Callable[[], object]] = [
            lambda: store.get(name),
            lambda: store.get_range(name, 0, 1),
            lambda: store.stream(name),
            lambda: store.put(name, b"x"),
            lambda: store.put_stream(name, [b"x"]),
            lambda: store.head(name),
            lambda: store.delete([name]),
            lambda: store.copy(name, "copy"),
            lambda: store.copy("blob", name),
        ]
        for call in calls:
            with pytest.raises(InvalidError):
                call()
        assert names(store) == ["blob"]

    @pytest.mark.parametrize(
        ("start", "length"), [(0, 10), (0, 4), (3, 4), (9, 1), (9, 100), (0, 1 << 40), (10, 1), (11, 5), (1 << 40, 1)]
    )
    def test_a_range_is_what_there_is_of_it(self, store: BlobStore, start: int, length: int) -> None:
        store.put("blob", b"0123456789")
        expected = b"0123456789"[start : start + length]
        assert store.get_range("blob", start, length) == expected
        assert b"".join(store.stream("blob", start, length) or [b"missing"]) == expected
        assert store.get_range("blob", start, 0) == b""
        assert b"".join(store.stream("blob", start) or [b"missing"]) == b"0123456789"[start:]

    def test_an_empty_blob_has_empty_ranges(self, store: BlobStore) -> None:
        store.put("blob", b"")
        assert store.get_range("blob", 0, 5) == b""
        stream = store.stream("blob")
        assert stream is not None
        assert b"".join(stream) == b""

    def test_a_negative_range_is_refused(self, store: BlobStore) -> None:
        store.put("blob", b"0123456789")
        for start, length in ((-1, 1), (0, -1)):
            with pytest.raises(InvalidError):
                store.get_range("blob", start, length)
            with pytest.raises(InvalidError):
                store.stream("blob", start, length)

    def test_streams_are_cut_small_and_held_in_part(self, store: BlobStore) -> None:
        made, got = hashlib.sha256(), hashlib.sha256()

        def chunks() -> Iterator[bytes]:
            for index in range(self.stream_bytes >> 18):
                chunk = index.to_bytes(4, "big") * (1 << 16)
                made.update(chunk)
                yield chunk

        tracemalloc.start()
        try:
            assert store.put_stream("big", chunks()) == self.stream_bytes
            stream = store.stream("big")
            assert stream is not None
            for chunk in stream:
                assert 0 < len(chunk) <= CHUNK_BYTES
                got.update(chunk)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert got.digest() == made.digest()
        assert self.stream_memory_bytes is None or peak < self.stream_memory_bytes

    def test_a_stream_may_be_left_early_or_never_begun(self, store: BlobStore) -> None:
        store.put("big", bytes(3 * CHUNK_BYTES))
        for _ in range(20):
            begun, never = store.stream("big"), store.stream("big")
            assert begun is not None
            assert never is not None
            assert len(next(begun)) <= CHUNK_BYTES
        assert store.get("big") == bytes(3 * CHUNK_BYTES)

    def test_no_chunks_make_an_empty_blob(self, store: BlobStore) -> None:
        assert store.put_stream("empty", []) == 0
        assert store.get("empty") == b""

    def test_what_is_written_may_be_read_from_a_store_meanwhile(self, store: BlobStore) -> None:
        data = bytes(range(256)) * 5000
        store.put("from", data)
        chunks = store.stream("from")
        assert chunks is not None
        assert store.put_stream("to", chunks) == len(data)
        assert store.get("to") == data

    @pytest.mark.parametrize("error", [KeyError("mine"), FileNotFoundError("mine"), InterruptedError("mine")], ids=repr)
    def test_a_stream_that_fails_leaves_nothing(self, store: BlobStore, error: Exception) -> None:
        def chunks() -> Iterator[bytes]:
            yield bytes(100_000)
            raise error

        store.put("old", b"old")
        for name in ("new", "old"):
            with pytest.raises(type(error), match="mine"):
                store.put_stream(name, chunks())
        assert store.get("new") is None
        assert store.get("old") == b"old"
        assert names(store) == ["old"]

    def test_listing_is_in_byte_order_of_whole_names(self, store: BlobStore) -> None:
        assert sorted(SORTED_NAMES, key=str.encode) == SORTED_NAMES
        for name in reversed(SORTED_NAMES):
            store.put(name, name.encode())
        assert names(store) == SORTED_NAMES
        texts = ["", "0", "a", "a-", "a/", "a/b", "a/b/", "a/b/d", "a//", "a0", "a0/c", "aa", "b0", "é", "\U0010ffff"]
        prefixes = [*texts, *SORTED_NAMES, "a/b/\x1f", "a/./", "../", "..", ".", "/", "/a", "a/../b", "a\0", "x" * 300]
        for prefix in prefixes:
            for after in texts:
                expected = [name for name in SORTED_NAMES if name.startswith(prefix) and name > after]
                assert names(store, prefix, after) == expected, (prefix, after)
        for after in SORTED_NAMES:
            assert names(store, after=after) == SORTED_NAMES[SORTED_NAMES.index(after) + 1 :]

    def test_listing_goes_on_over_pages(self, store: BlobStore) -> None:
        expected = [f"page/{index:04}" for index in range(1100)]
        for name in expected:
            store.put(name, b"")
        assert names(store) == expected
        assert names(store, "page/1") == expected[1000:]
        assert names(store, after="page/1098") == expected[1099:]

    def test_listings_see_all_that_was_there_whatever_comes_and_goes(self, store: BlobStore) -> None:
        stays = [f"{folder}/{index}/stays" for folder in "abc" for index in range(4)]
        for name in stays:
            store.put(name, b"")
        done = threading.Event()

        def come_and_go() -> None:
            try:
                for round_ in range(12):
                    fleeting = [f"{folder}/{round_}/{leaf}" for folder in "abc" for leaf in ("fleeting", "too")]
                    for name in fleeting:
                        store.put(name, b"")
                    store.delete(fleeting)
            finally:
                done.set()

        def look() -> None:
            while not done.is_set():
                seen = names(store)
                assert seen == sorted(seen)
                assert [name for name in seen if name.endswith("stays")] == stays

        together([come_and_go, look])
        assert names(store) == stays

    def test_delete(self, store: BlobStore) -> None:
        doomed = [f"dir/{index % 3}/{index}" for index in range(12)]
        for name in [*doomed, "dir/0/kept", "kept"]:
            store.put(name, b"x")
        store.delete([])
        store.delete(iter([*doomed[:6], "missing", "dir/missing", "dir", "kept/below", doomed[0], *doomed]))
        assert names(store) == ["dir/0/kept", "kept"]
        assert store.get(doomed[0]) is None
        store.put(doomed[1], b"again")
        assert store.get(doomed[1]) == b"again"

    def test_a_directory_that_was_emptied_is_no_obstacle(self, store: BlobStore) -> None:
        store.put("a/b/c", b"x")
        store.delete(["a/b/c"])
        store.put("a", b"now a blob")
        assert names(store) == ["a"]
        store.delete(["a"])
        store.put("a/b", b"y")
        assert names(store) == ["a/b"]

    def test_a_copy_is_a_blob_of_its_own(self, store: BlobStore) -> None:
        data = bytes(range(256)) * 5000
        store.put("source", data)
        store.put("dir/old", b"replaced")
        assert store.copy("source", "dir/new")
        assert store.copy("source", "dir/old")
        assert store.copy("source", "source")
        store.put("source", b"changed")
        assert store.get("dir/new") == data
        store.delete(["source"])
        assert store.get("dir/old") == data

    def test_readers_of_a_name_see_one_put_or_another(self, store: BlobStore) -> None:
        """Each value says by its first byte how it goes on."""
        values = [bytes([index]) * (1000 + 70_000 * index) for index in range(4)]
        store.put("blob", values[0])

        def write(value: bytes) -> None:
            for round_ in range(10):
                if round_ % 2:
                    store.put("blob", value)
                else:
                    store.put_stream("blob", [value[:500], value[500:]])

        def read() -> None:
            for _ in range(40):
                data = store.get("blob")
                assert data is not None
                assert data == values[data[0]]
                stream = store.stream("blob")
                assert stream is not None
                data = b"".join(stream)
                assert data == values[data[0]]

        jobs: list[Callable[[], None]] = [partial(write, value) for value in values[1:]]
        together([*jobs, read, read])

    def test_puts_survive_deletes_beside_them(self, store: BlobStore) -> None:
        """Where names are paths: a delete that takes its empty directory along must not take a put with it."""

        def work(worker: int) -> None:
            for round_ in range(15):
                name = f"shared/dir/{worker}-{round_}"
                store.put(name, b"x" * round_)
                assert store.get(name) == b"x" * round_
                store.delete([name])
                assert store.get(name) is None

        together([partial(work, worker) for worker in range(4)])
        assert names(store) == []

    def test_drop_cached_loses_nothing(self, store: BlobStore) -> None:
        store.put("blob", b"x")
        store.drop_cached("blob")
        store.drop_cached("missing")
        assert store.get("blob") == b"x"

    def test_a_store_is_a_dict(self, store: BlobStore) -> None:
        @settings(max_examples=self.examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(steps=st.lists(_STEPS, max_size=20))
        def check(steps: list[tuple[str, str, str, bytes]]) -> None:
            root = REAL.token(6)
            model: dict[str, bytes] = {}
            for verb, name, other, data in steps:
                path, other_path = f"{root}/{name}", f"{root}/{other}"
                match verb:
                    case "put":
                        store.put(path, data)
                        model[path] = data
                    case "stream":
                        assert store.put_stream(path, [data[:2], data[2:]]) == len(data)
                        model[path] = data
                    case "delete":
                        store.delete([path, other_path])
                        model.pop(path, None)
                        model.pop(other_path, None)
                    case "copy":
                        assert store.copy(path, other_path) == (path in model)
                        if path in model:
                            model[other_path] = model[path]
                    case "get":
                        assert store.get(path) == model.get(path)
                        info = store.head(path)
                        assert (None if info is None else info.size) == (len(model[path]) if path in model else None)
                    case "list":
                        prefix, after = path.removesuffix(_LEAF), other_path
                        expected = sorted(key for key in model if key.startswith(prefix) and key > after)
                        assert names(store, prefix, after) == expected
            assert {info.name: info.size for info in store.list(root + "/")} == {
                name: len(data) for name, data in model.items()
            }
            assert {name: store.get(name) for name in model} == model
            store.delete(model)

        check()


def names(store: BlobStore, prefix: str = "", after: str = "") -> list[str]:
    return [info.name for info in store.list(prefix, after)]


_LEAF: Final = ".blob"
_PART: Final = st.sampled_from(["a", "a-", "a!", "a0", "b", "~", "é", "\uff5e", "\U00010000", "a b", "%41"])
_NAME: Final = st.lists(_PART, min_size=1, max_size=3).map(lambda parts: "/".join(parts) + _LEAF)
_STEPS: Final = st.tuples(
    st.sampled_from(["put", "put", "stream", "delete", "copy", "get", "list"]), _NAME, _NAME, st.binary(max_size=5)
)
