"""From a URL to a key-value store. A backend is imported when it is asked for, so its packages may be missing."""

import os
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from esker.errors import InvalidError, Kind
from esker.stores.kv import KVStore
from esker.world import REAL, World

ACCEPTED: Final = "memory://, sqlite:///absolute/path.db, postgresql://user@host/database, dynamodb://table?region=.."


def open_kv(url: str, world: World = REAL) -> KVStore:
    """The store at `url`, made where it is missing. Whoever opens it closes it."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidError(Kind.INVALID_URL, f"not a URL ({error}): use {ACCEPTED}") from error
    match parts.scheme:
        case "memory" if not parts.netloc and not parts.path:
            from esker.stores.kv_memory import MemoryKV

            return MemoryKV()
        case "sqlite" if not parts.netloc and parts.path.startswith("/") and not parts.query and not parts.fragment:
            from esker.stores.kv_sqlite import SQLiteKV

            return SQLiteKV(unquote(parts.path), world)
        case "postgresql" | "postgres":
            from esker.stores.kv_postgres import PostgresKV

            return PostgresKV(url, world)
        case "dynamodb":
            from esker.stores.kv_dynamodb import DynamoDBKV

            return DynamoDBKV(url, world)
    # A URL may hold a password, so only its scheme is told.
    raise InvalidError(Kind.INVALID_URL, f"no key-value store for a URL of scheme {parts.scheme!r}: use {ACCEPTED}")


def sqlite_url(path: str | os.PathLike[str]) -> str:
    """The URL of a SQLite store at `path`."""
    return f"sqlite://{quote(os.path.abspath(path))}"
