"""PostgreSQL, its primary only: one table, every call one statement.

- Each statement is a transaction (autocommit) under READ COMMITTED, where a condition that had to wait for another
  writer is looked at again on what that writer left. Stronger levels would raise serialization failures instead.
- Durable: `synchronous_commit` is on, or stronger, whatever the server's default.
- A guard is locked FOR SHARE by the statement that depends on it: a sealer waits for the guarded puts under way, and
  those that come later wait for the sealer and then see what it wrote. FOR KEY SHARE would let both pass.
- Group commit: guarded puts under one guard that come while another is under way go into the next statement together,
  and share its lock on the guard, its round trip and its flush.
- Serialization failures and deadlocks (40001, 40P01) certainly rolled back, and are tried again. A connection lost
  during a write leaves its outcome unknown. Any other error is one statement rolled back: nothing changed.
- Keys are `bytea` and partitions COLLATE "C": no locale decides an order.
- Settings belong to a session, so no proxy that pools by transaction may stand between.
"""

# ruff: noqa: S608 - statements are put together from the constants below, never from what a caller gave

from collections.abc import Callable, Sequence
from typing import Any, Final, LiteralString, TypeVar

from esker.errors import EskerError, InvalidError, Kind, OutcomeUnknownError, UnavailableError
from esker.stores.kv import ANYTHING, Anything, Guard, Guarded, Item, KVStore, Put, Record, Version
from esker.stores.together import Together
from esker.world import REAL, World

try:
    import psycopg
    import psycopg_pool
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict
except ImportError as missing:
    raise InvalidError(Kind.MISSING_EXTRA, "PostgreSQL needs more packages: pip install 'esker[postgres]'") from missing

CONNECTIONS_MAX: Final = 32
"""Of one instance; further threads wait. PostgreSQL itself allows 100 by default, for all clients."""

CONNECTION_TIMEOUT_S: Final = 30.0

ATTEMPTS_MAX: Final = 20
"""Of a statement that deadlocked, or of a read whose connection was lost."""

BATCH_MAX: Final = 500
"""Records in one statement: at the largest values 190 MB, below PostgreSQL's limit of 1 GB on a message."""

LOCK_ID: Final = 0x45534B52
"""`ESKR`: the advisory lock under which the table is created. IF NOT EXISTS alone fails when two do it at once."""

_CONNECTION_DEFAULTS: Final[dict[str, str | int]] = {
    "connect_timeout": 10,
    "target_session_attrs": "read-write",
    "application_name": "esker",
    "tcp_user_timeout": 30_000,
    "keepalives_idle": 30,
}

CONNECTION_ENDED: Final = ("40003", "08000", "08003", "08006", "08007", "57P01", "57P02", "57P03", "57P05")
"""What a server says last: the statement may have been committed before."""

_SETTINGS: Final = """
    SELECT set_config('default_transaction_isolation', 'read committed', false),
        CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
        THEN set_config('synchronous_commit', 'on', false) END
"""
_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS esker_kv (
        partition text COLLATE "C" NOT NULL, key bytea NOT NULL, version bytea NOT NULL, value bytea NOT NULL,
        PRIMARY KEY (partition, key)
    )
"""
_GET: Final = "SELECT value, version FROM esker_kv WHERE partition = %(partition)s AND key = %(key)b"
_SCAN: Final = """
    SELECT key, value, version FROM esker_kv WHERE partition = %(partition)s AND key >= %(start)b
    ORDER BY key LIMIT %(limit)s
"""
_REPLACE: Final = "ON CONFLICT (partition, key) DO UPDATE SET value = excluded.value, version = excluded.version"
_ROW: Final = "%(partition)s, %(key)b, %(value)b, %(version)b"
_COLUMNS: Final = "esker_kv (partition, key, value, version)"
_RECORD: Final = "esker_kv.partition = %(partition)s AND esker_kv.key = %(key)b"

_PUT: Final = f"INSERT INTO {_COLUMNS} VALUES ({_ROW}) {_REPLACE}"
_INSERT: Final = f"INSERT INTO {_COLUMNS} VALUES ({_ROW}) ON CONFLICT DO NOTHING"
_SWAP: Final = (
    f"UPDATE esker_kv SET value = %(value)b, version = %(version)b WHERE {_RECORD} AND version = %(expected)b"
)
_DELETE: Final = f"DELETE FROM esker_kv WHERE {_RECORD}"
_DELETE_IF: Final = f"{_DELETE} AND version = %(expected)b"

# Rows are locked in the order of their keys, so that batches seldom deadlock.
_PUT_MANY: Final = f"""
    INSERT INTO {_COLUMNS} SELECT %(partition)s, key, value, %(version)b
    FROM unnest(%(keys)b::bytea[], %(values)b::bytea[]) AS batch (key, value) ORDER BY key {_REPLACE}
"""
_DELETE_MANY: Final = """
    WITH doomed AS MATERIALIZED (
        SELECT key FROM esker_kv WHERE partition = %(partition)s AND key = ANY(%(keys)b::bytea[])
        ORDER BY key FOR UPDATE
    )
    DELETE FROM esker_kv USING doomed WHERE partition = %(partition)s AND esker_kv.key = doomed.key
"""

# `stored` is done before `also`, which reads it.
_ALSO: Final = f"""
    , also AS (
        INSERT INTO {_COLUMNS} SELECT batch.partition, key, value, %(version)b
        FROM unnest(%(also_partitions)s::text[], %(also_keys)b::bytea[], %(also_values)b::bytea[])
            AS batch (partition, key, value)
        WHERE EXISTS (SELECT FROM stored) ORDER BY batch.partition, key {_REPLACE}
    )
    SELECT EXISTS (SELECT FROM stored)
"""
_INSERT_ALSO: Final = f"WITH stored AS ({_INSERT} RETURNING 1) {_ALSO}"
_SWAP_ALSO: Final = f"WITH stored AS ({_SWAP} RETURNING 1) {_ALSO}"

_GUARD: Final = """
    WITH guard AS MATERIALIZED (
        SELECT FROM esker_kv WHERE partition = %(guard_partition)s AND key = %(guard_key)b AND value = %(guard_value)b
        FOR SHARE
    )
"""
_GUARDED: Final = "SELECT EXISTS (SELECT FROM guard), EXISTS (SELECT FROM stored)"
_PUT_GUARDED: Final = f"""
    {_GUARD}, stored AS (INSERT INTO {_COLUMNS} SELECT {_ROW} FROM guard {_REPLACE} RETURNING 1) {_GUARDED}
"""
_PUT_MANY_GUARDED: Final = f"""
    {_GUARD}, stored AS (
        INSERT INTO {_COLUMNS} SELECT %(partition)s, key, value, %(version)b
        FROM guard, unnest(%(keys)b::bytea[], %(values)b::bytea[]) AS batch (key, value) ORDER BY key
        {_REPLACE} RETURNING 1
    ) {_GUARDED}
"""
_INSERT_GUARDED: Final = f"""
    {_GUARD}, stored AS (INSERT INTO {_COLUMNS} SELECT {_ROW} FROM guard ON CONFLICT DO NOTHING RETURNING 1) {_GUARDED}
"""
_SWAP_GUARDED: Final = f"""
    {_GUARD}, stored AS (
        UPDATE esker_kv SET value = %(value)b, version = %(version)b FROM guard
        WHERE {_RECORD} AND version = %(expected)b RETURNING 1
    ) {_GUARDED}
"""

T = TypeVar("T")
_Connection = psycopg.Connection[tuple[Any, ...]]
_Cursor = psycopg.Cursor[tuple[Any, ...]]


class PostgresKV(KVStore):
    """Threads may share an instance; each process opens its own. The table `esker_kv` is made where it is missing."""

    def __init__(self, url: str, world: World = REAL) -> None:
        super().__init__()
        self._world = world
        self._guarded_puts = Together(self._put_all_guarded)
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as error:
            raise InvalidError(Kind.INVALID_URL, f"not a PostgreSQL URL: {error}") from error
        options = {**_CONNECTION_DEFAULTS, **given, "autocommit": True}
        self._create(options)
        self._pool = psycopg_pool.ConnectionPool(
            kwargs=options,
            configure=_configure,
            min_size=1,
            max_size=CONNECTIONS_MAX,
            timeout=CONNECTION_TIMEOUT_S,
            open=True,
            name="esker",
        )

    def close(self) -> None:
        self._pool.close()

    def _get(self, partition: str, key: bytes) -> Record | None:
        rows = self._read(_GET, {"partition": partition, "key": key})
        return Record(*rows[0]) if rows else None

    def _scan(self, partition: str, start: bytes, limit: int) -> list[Item]:
        rows = self._read(_SCAN, {"partition": partition, "start": start, "limit": limit})
        return [Item(key, Record(value, version)) for key, value, version in rows]

    def _put(self, partition: str, key: bytes, value: bytes) -> None:
        self._write(_PUT, self._row(partition, key, value), _count)

    def _put_if(self, partition: str, key: bytes, value: bytes, expected: Version | None, also: Sequence[Put]) -> bool:
        row = self._row(partition, key, value) | {"expected": expected}
        if not also:
            return self._write(_INSERT if expected is None else _SWAP, row, _count) == 1
        row |= {
            "also_partitions": [put.partition for put in also],
            "also_keys": [put.key for put in also],
            "also_values": [put.value for put in also],
        }
        (swapped,) = self._write(_INSERT_ALSO if expected is None else _SWAP_ALSO, row, _one)
        return bool(swapped)

    def _put_guarded(
        self, partition: str, key: bytes, value: bytes, guard: Guard, expected: Version | None | Anything
    ) -> Guarded:
        if expected is ANYTHING:
            return self._guarded_puts.ask((partition, guard), (key, value))
        row = self._row(partition, key, value) | _guard(guard)
        sql = _INSERT_GUARDED
        if expected is not None:
            sql = _SWAP_GUARDED
            row["expected"] = expected
        held, stored = self._write(sql, row, _one)
        if not held:
            return Guarded.REFUSED
        return Guarded.STORED if stored else Guarded.TAKEN

    def _put_all_guarded(self, where: tuple[str, Guard], puts: Sequence[tuple[bytes, bytes]]) -> Guarded:
        """All under one guard, in one statement. Of several with one key the last stays, as if it had come last."""
        partition, guard = where
        last = dict(puts)
        if len(last) == 1:
            ((key, value),) = last.items()
            held, _ = self._write(_PUT_GUARDED, self._row(partition, key, value) | _guard(guard), _one)
        else:
            row = {"partition": partition, "version": self._version()} | _guard(guard)
            held, _ = self._write(_PUT_MANY_GUARDED, row | {"keys": [*last], "values": [*last.values()]}, _one)
        return Guarded.STORED if held else Guarded.REFUSED

    def _delete(self, partition: str, key: bytes) -> None:
        self._write(_DELETE, {"partition": partition, "key": key}, _count)

    def _delete_if(self, partition: str, key: bytes, expected: Version) -> bool:
        row = {"partition": partition, "key": key, "expected": expected}
        return self._write(_DELETE_IF, row, _count) == 1

    def _put_many(self, partition: str, items: dict[bytes, bytes]) -> None:
        row = {"partition": partition, "version": self._version()}
        self._write_many(_PUT_MANY, row, list(items), list(items.values()))

    def _delete_many(self, partition: str, keys: list[bytes]) -> None:
        self._write_many(_DELETE_MANY, {"partition": partition}, keys, [])

    def _write_many(self, sql: LiteralString, row: dict[str, Any], keys: list[bytes], values: list[bytes]) -> None:
        for first in range(0, len(keys), BATCH_MAX):
            part = slice(first, first + BATCH_MAX)
            try:
                self._write(sql, row | {"keys": keys[part], "values": values[part]}, _count)
            except UnavailableError as error:
                if first == 0:
                    raise
                raise OutcomeUnknownError(message=f"a batch was cut short: {error.message}") from error

    def _version(self) -> Version:
        return Version(bytes.fromhex(self._world.token(16)))

    def _row(self, partition: str, key: bytes, value: bytes) -> dict[str, Any]:
        return {"partition": partition, "key": key, "value": value, "version": self._version()}

    def _read(self, sql: LiteralString, arguments: dict[str, Any]) -> list[Any]:
        return self._run(sql, arguments, lambda cursor: cursor.fetchall(), writes=False)

    def _write(self, sql: LiteralString, arguments: dict[str, Any], answer: Callable[[_Cursor], T]) -> T:
        return self._run(sql, arguments, answer, writes=True)

    def _run(self, sql: LiteralString, arguments: dict[str, Any], answer: Callable[[_Cursor], T], *, writes: bool) -> T:
        self._check_process()
        for attempt in range(1, ATTEMPTS_MAX + 1):
            connection = self._lend()
            try:
                return answer(connection.execute(sql, arguments, binary=True))
            except psycopg.Error as error:
                failed = error
                lost = connection.broken or error.sqlstate is None or error.sqlstate in CONNECTION_ENDED
            finally:
                self._pool.putconn(connection)
            if lost:
                if writes:
                    raise OutcomeUnknownError(message=f"the connection was lost during a write: {failed}") from failed
                self._pool.check()  # its fellows are probably gone too
            elif not isinstance(failed, errors.SerializationFailure | errors.DeadlockDetected):
                raise _unavailable(failed) from failed
            self._world.sleep(0.01 * attempt * self._world.chance())
        raise _unavailable(failed) from failed

    def _lend(self) -> _Connection:
        try:
            return self._pool.getconn()
        except (psycopg.Error, psycopg_pool.PoolTimeout) as error:
            raise _unavailable(error) from error

    def _create(self, options: dict[str, Any]) -> None:
        """Also the first connection: it tells at once, and why, when there is no server."""
        try:
            with psycopg.connect(**options) as connection:
                _configure(connection)
                if connection.execute("SELECT to_regclass('esker_kv')").fetchone() != (None,):
                    return
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK_ID])
                    connection.execute(_SCHEMA)
        except psycopg.Error as error:
            raise _unavailable(error) from error


def _configure(connection: _Connection) -> None:
    connection.execute(_SETTINGS)


def _guard(guard: Guard) -> dict[str, Any]:
    return {"guard_partition": guard.partition, "guard_key": guard.key, "guard_value": guard.value}


def _count(cursor: _Cursor) -> int:
    return cursor.rowcount


def _one(cursor: _Cursor) -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None, "SELECT without FROM has one row"
    return row


def _unavailable(error: Exception) -> EskerError:
    return UnavailableError(Kind.STORE_UNAVAILABLE, f"PostgreSQL: {error}")
