"""Blobs as files: the suite, and what only a file system can get wrong."""

from pathlib import Path

import pytest

from esker.stores.blob import BlobStore
from esker.stores.blob_local import LocalBlobs
from esker.testing.blob_suite import BlobSuite


class TestLocalBlobs(BlobSuite):
    examples = 100

    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        return LocalBlobs(tmp_path / "lake")
