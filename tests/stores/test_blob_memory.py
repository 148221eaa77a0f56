"""The memory store."""

import pytest

from esker.stores.blob import BlobStore
from esker.stores.blob_memory import MemoryBlobs
from esker.testing.blob_suite import BlobSuite


class TestMemoryBlobs(BlobSuite):
    examples = 200
    stream_memory_bytes = None

    @pytest.fixture
    def store(self) -> BlobStore:
        return MemoryBlobs()
