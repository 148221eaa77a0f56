"""The counted store is a blob store like the one that it counts."""

from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from esker.stores.blob import BlobStore
from esker.stores.blob_local import LocalBlobs
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.blob_watched import WatchedBlobs
from esker.testing.blob_suite import BlobSuite


class TestWatchedBlobs(BlobSuite):
    examples = 20

    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        return WatchedBlobs(LocalBlobs(tmp_path / "lake"))


def test_every_call_is_passed_on() -> None:
    port = {name for name, value in vars(BlobStore).items() if callable(value) and not name.startswith("_")}
    assert port <= set(vars(WatchedBlobs))


def test_calls_and_bytes_are_counted() -> None:
    def counted(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(name, labels) or 0.0

    def counts() -> list[float]:
        return [
            counted("esker_blob_written_bytes_total"),
            counted("esker_blob_read_bytes_total"),
            counted("esker_blob_seconds_count", operation="put"),
        ]

    before = counts()
    store = WatchedBlobs(MemoryBlobs())
    store.put("a", b"12345")
    assert store.put_stream("b", iter([b"12", b"3"])) == 3
    assert store.get("a") == b"12345"
    assert b"".join(store.stream("b") or ()) == b"123"
    assert store.get_range("a", 1, 2) == b"23"
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [8, 10, 1]
