"""What the server is measured against: the same stack below the application, and in it as little as will do.

    GET  /stat         a small answer in JSON
    PUT  /upsert/KEY   a durable upsert of the body, which is JSON, into one table of SQLite or PostgreSQL
    PUT  /file         write the body to a file
    GET  /file         send that file

`python -m bench._bare PORT DIRECTORY [POSTGRES-URL]`
"""

import multiprocessing
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import falcon
import msgspec
import psycopg_pool

from esker.server.serve import stack
from esker.settings import LogFormat, ServerSettings
from esker.stores.kv_postgres import CONNECTIONS_MAX

_CHUNK: Final = 1 << 20
_WAIT_S: Final = 60.0


class Stat(msgspec.Struct):
    path: str
    physical_address: str
    checksum: str
    size_bytes: int
    mtime: int
    content_type: str


class Linked(msgspec.Struct):
    physical_address: str
    checksum: str
    size_bytes: int
    mtime_ns: int = 0
    """Without it a row would be replaced by its equal, and SQLite writes nothing then."""


class StatRoute:
    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        response.content_type = falcon.MEDIA_JSON
        path = request.get_param("path", required=True)
        response.data = msgspec.json.encode(Stat(path, "data/00/0123456789abcdef", "0" * 32, 100, 0, "text/plain"))


class UpsertRoute:
    def __init__(self, upsert: Callable[[str, bytes], None]) -> None:
        self._upsert = upsert
        self._decoder = msgspec.json.Decoder(Linked)

    def on_put(self, request: falcon.Request, response: falcon.Response, key: str) -> None:
        linked = self._decoder.decode(request.bounded_stream.read())
        linked.mtime_ns = time.time_ns()
        self._upsert(key, msgspec.msgpack.encode(linked))
        response.content_type = falcon.MEDIA_JSON
        response.status = 201
        response.data = msgspec.json.encode(linked)


class FileRoute:
    def __init__(self, directory: Path) -> None:
        self._path = directory / "file"

    def on_put(self, request: falcon.Request, response: falcon.Response) -> None:
        # A new file, as a copy is: to write over an old one takes half the time, for its pages are there.
        fresh = self._path.with_name(f"file-{time.time_ns()}")
        with fresh.open("wb") as file:
            while chunk := request.bounded_stream.read(_CHUNK):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        link = fresh.with_suffix(".link")
        link.hardlink_to(fresh)
        link.replace(self._path)
        response.status = 201

    def on_get(self, _: falcon.Request, response: falcon.Response) -> None:
        response.content_type = "application/octet-stream"
        response.content_length = self._path.stat().st_size
        response.stream = iter(partial(self._path.open("rb").read, _CHUNK), b"")


def sqlite_upserts(path: Path) -> Callable[[str, bytes], None]:
    own = threading.local()

    def connected() -> sqlite3.Connection:
        if not hasattr(own, "db"):
            own.db = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
            own.db.execute("PRAGMA journal_mode = WAL")
            own.db.execute("PRAGMA synchronous = FULL")
            own.db.execute("CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value BLOB)")
        db: sqlite3.Connection = own.db
        return db

    def upsert(key: str, value: bytes) -> None:
        connected().execute(
            "INSERT INTO entries VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value)
        )

    connected()
    return upsert


def postgres_upserts(url: str) -> Callable[[str, bytes], None]:
    pool = psycopg_pool.ConnectionPool(
        url, min_size=1, max_size=CONNECTIONS_MAX, timeout=_WAIT_S, kwargs={"autocommit": True}, open=True
    )

    def upsert(key: str, value: bytes) -> None:
        with pool.connection() as connection:
            connection.execute(
                "INSERT INTO bare VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value)
            )

    with pool.connection() as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(1)")  # of two workers that make one table at once, one fails
        connection.execute("CREATE TABLE IF NOT EXISTS bare (key text PRIMARY KEY, value bytea)")
    return upsert


def _application(directory: Path, postgres_url: str) -> falcon.App[Any, Any]:
    app: falcon.App[Any, Any] = falcon.App()
    app.add_route("/stat", StatRoute())
    upsert = postgres_upserts(postgres_url) if postgres_url else sqlite_upserts(directory / "bare.db")
    app.add_route("/upsert/{key}", UpsertRoute(upsert))
    app.add_route("/file", FileRoute(directory))
    return app


def main(arguments: list[str]) -> int:
    port, directory, *rest = arguments
    multiprocessing.set_start_method("spawn", force=True)
    settings = ServerSettings(lake="", port=int(port), log_format=LogFormat.JSON)
    loader = partial(_application, Path(directory), rest[0] if rest else "")
    stack(settings).serve(target_loader=loader, wrap_loader=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
