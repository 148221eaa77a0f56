"""A URL opens the store that it names, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from esker.errors import InvalidError, Kind
from esker.stores.kv_memory import MemoryKV
from esker.stores.kv_postgres import PostgresKV
from esker.stores.kv_sqlite import SQLiteKV
from esker.stores.open_kv import open_kv, sqlite_url


def test_memory() -> None:
    assert isinstance(open_kv("memory://"), MemoryKV)


def test_sqlite_at_any_path(tmp_path: Path) -> None:
    path = tmp_path / "a b?#%20ü" / "kv.db"
    store = open_kv(sqlite_url(path))
    assert isinstance(store, SQLiteKV)
    assert path.exists()
    store.close()


def test_postgresql(postgres_url: str) -> None:
    store = open_kv(postgres_url)
    assert isinstance(store, PostgresKV)
    store.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "kv.db",
        "/abs/kv.db",
        "memory://x",
        "sqlite://",
        "sqlite://host/kv.db",
        "sqlite:///kv.db?mode=ro",
        "redis://:secret@host/0",
        "http://[",
    ],
)
def test_any_other_url_is_refused_with_what_is_accepted(url: str) -> None:
    with pytest.raises(InvalidError, match=r"memory://.*sqlite:///.*postgresql://.*dynamodb://") as refused:
        open_kv(url)
    assert refused.value.kind is Kind.INVALID_URL
    assert "secret" not in refused.value.message


@pytest.mark.parametrize(
    ("module", "url", "extra"),
    [("psycopg", "postgresql:///d", "esker[postgres]"), ("boto3", "dynamodb://table", "esker[aws]")],
)
def test_a_missing_package_is_named_with_its_extra(module: str, url: str, extra: str) -> None:
    program = f"""
import sys
sys.modules["{module}"] = None
from esker.errors import InvalidError, Kind
from esker.stores.open_kv import open_kv
open_kv("memory://")
try:
    open_kv("{url}")
except InvalidError as error:
    assert error.kind is Kind.MISSING_EXTRA
    assert "pip install '{extra}'" in error.message
else:
    raise AssertionError("opened")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
