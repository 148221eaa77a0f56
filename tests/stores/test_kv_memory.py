"""The memory store keeps the port's promises."""

import pytest

from esker.stores.kv_memory import MemoryKV
from esker.testing.kv_suite import Connect, GuardedKVSuite


class TestMemoryKV(GuardedKVSuite):
    examples = 200

    @pytest.fixture
    def connect(self) -> Connect:
        store = MemoryKV()
        return lambda: store
