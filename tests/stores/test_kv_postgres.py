"""The PostgreSQL store, on a real server: the port's promises, and schedules that locks and lost connections decide."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from esker.errors import InvalidError, OutcomeUnknownError, UnavailableError
from esker.stores.kv import Guard, Guarded, Put
from esker.stores.kv_postgres import PostgresKV
from esker.testing.kv_suite import Connect, GuardedKVSuite, fresh_partition, in_forked_child, together, value, version
from tests.services import wait

Session = psycopg.Connection[tuple[Any, ...]]


class TestPostgresKV(GuardedKVSuite):
    @pytest.fixture
    def connect(self, postgres_url: str) -> Connect:
        return lambda: PostgresKV(postgres_url)


@pytest.fixture
def kv(postgres_url: str) -> Iterator[PostgresKV]:
    store = PostgresKV(postgres_url)
    yield store
    store.close()


@pytest.fixture
def session(postgres_url: str, kv: PostgresKV) -> Iterator[Session]:
    """Somebody else's session, for holding locks."""
    with psycopg.connect(postgres_url) as connection:
        yield connection


@pytest.fixture
def partition() -> str:
    return fresh_partition()


class Background(threading.Thread):
    """A call in a thread; `result` waits for it."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.call = call
        self.outcome: object = None
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self.call()
        except Exception as error:  # noqa: BLE001 - it is the outcome
            self.outcome = error

    def result(self) -> object:
        self.join(30)
        assert not self.is_alive()
        return self.outcome


def blocked_backends(url: str, at_least: int = 1) -> list[int]:
    """The processes of sessions that wait for another's lock, once there are so many."""
    deadline = time.monotonic() + 30
    with psycopg.connect(url, autocommit=True) as connection:
        while time.monotonic() < deadline:
            query = "SELECT pid FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
            if len(found := connection.execute(query).fetchall()) >= at_least:
                return [pid for (pid,) in found]
    raise AssertionError("nobody waits for a lock")


def seal(session: Session, partition: str) -> None:
    session.execute("UPDATE esker_kv SET value = 'sealed' WHERE partition = %s AND key = 'g'", [partition])


def test_a_guarded_put_waits_for_a_seal_under_way_and_is_refused(
    kv: PostgresKV, session: Session, postgres_url: str, partition: str
) -> None:
    kv.put(partition, b"g", b"open")
    kv.put(partition, b"there", b"v")
    there = version(kv, partition, b"there")
    seal(session, partition)
    guarded = partial(kv.put_guarded, partition, guard=Guard(partition, b"g", b"open"))
    puts = [
        Background(partial(guarded, b"any", b"v")),
        Background(partial(guarded, b"absent", b"v", expected=None)),
        Background(partial(guarded, b"there", b"w", expected=there)),
    ]
    blocked_backends(postgres_url, at_least=3)
    session.commit()
    assert [put.result() for put in puts] == [Guarded.REFUSED] * 3
    assert [(item.key, item.record.value) for item in kv.scan(partition)] == [(b"g", b"sealed"), (b"there", b"v")]


def test_a_guarded_put_waits_for_a_seal_that_is_rolled_back_and_is_stored(
    kv: PostgresKV, session: Session, postgres_url: str, partition: str
) -> None:
    kv.put(partition, b"g", b"open")
    seal(session, partition)
    put = Background(partial(kv.put_guarded, partition, b"k", b"v", guard=Guard(partition, b"g", b"open")))
    blocked_backends(postgres_url)
    session.rollback()
    assert put.result() is Guarded.STORED


def test_a_seal_waits_for_guarded_puts_under_way(
    kv: PostgresKV, session: Session, postgres_url: str, partition: str
) -> None:
    """Two of them hold the guard together, each waiting for a record that `session` holds; the sealer comes last."""
    kv.put(partition, b"g", b"open")
    kv.put_many(partition, [(b"a", b"old"), (b"b", b"old")])
    open_version = version(kv, partition, b"g")
    session.execute("SELECT FROM esker_kv WHERE partition = %s AND key IN ('a', 'b') FOR UPDATE", [partition])
    guard = Guard(partition, b"g", b"open")
    other = PostgresKV(postgres_url)  # those of one instance take turns
    writers = [(kv, b"a"), (other, b"b")]
    puts = [Background(partial(writer.put_guarded, partition, key, b"new", guard=guard)) for writer, key in writers]
    blocked_backends(postgres_url, at_least=2)
    sealer = Background(partial(kv.put_if, partition, b"g", b"sealed", open_version))
    blocked_backends(postgres_url, at_least=3)
    assert value(kv, partition, b"g") == b"open"
    session.rollback()
    assert [put.result() for put in puts] == [Guarded.STORED] * 2
    assert sealer.result() is True
    assert [item.record.value for item in kv.scan(partition)] == [b"new", b"new", b"sealed"]
    other.close()


def test_guarded_puts_that_come_meanwhile_go_together(
    kv: PostgresKV, session: Session, postgres_url: str, partition: str
) -> None:
    """In one statement, with one flush: a put waits for a record that `session` holds, and others come."""
    kv.put_many(partition, [(b"g", b"open"), (b"first", b"old")])
    session.execute("SELECT FROM esker_kv WHERE partition = %s AND key = 'first' FOR UPDATE", [partition])
    guard = Guard(partition, b"g", b"open")
    first = Background(partial(kv.put_guarded, partition, b"first", b"new", guard=guard))
    blocked_backends(postgres_url)
    keys = [b"%d" % (number % 10) for number in range(20)]
    meanwhile = [Background(partial(kv.put_guarded, partition, key, b"new", guard=guard)) for key in keys]
    refused = Background(partial(kv.put_guarded, partition, b"x", b"new", guard=guard._replace(value=b"other")))
    assert refused.result() is Guarded.REFUSED, "what is under another guard waits for nobody"
    line = kv._guarded_puts._lines[partition, guard]
    wait(lambda: len(line.waiting) == len(keys), lambda: None)
    session.rollback()
    assert [put.result() for put in (first, *meanwhile)] == [Guarded.STORED] * 21
    stored = [item.record for item in kv.scan(partition) if item.key in keys]
    assert [record.value for record in stored] == [b"new"] * 10
    assert len({record.version for record in stored}) == 1
    assert not kv._guarded_puts._lines


def test_a_swap_that_had_to_wait_looks_again(
    kv: PostgresKV, session: Session, postgres_url: str, partition: str
) -> None:
    kv.put(partition, b"k", b"old")
    old = version(kv, partition, b"k")
    where = "WHERE partition = %s AND key = 'k'"
    session.execute(f"UPDATE esker_kv SET value = 'theirs', version = 'x' {where}", [partition])
    losers = [
        Background(partial(kv.put_if, partition, b"k", b"mine", old)),
        Background(partial(kv.put_if, partition, b"k", b"mine", old, [Put(partition, b"also", b"v")])),
        Background(partial(kv.delete_if, partition, b"k", old)),
    ]
    blocked_backends(postgres_url, at_least=3)
    session.commit()
    assert [loser.result() for loser in losers] == [False] * 3
    assert [(item.key, item.record.value) for item in kv.scan(partition)] == [(b"k", b"theirs")]


def test_a_lost_connection_leaves_a_write_unknown_and_a_read_tries_again(
    kv: PostgresKV, session: Session, postgres_url: str, partition: str
) -> None:
    kv.put(partition, b"k", b"v")
    current = version(kv, partition, b"k")
    session.execute("SELECT FROM esker_kv WHERE partition = %s FOR UPDATE", [partition])
    writes = [
        Background(partial(kv.put_if, partition, b"k", b"w", current)),
        Background(partial(kv.put, partition, b"k", b"w")),
        Background(partial(kv.put_many, partition, [(b"k", b"w")])),
        Background(partial(kv.put_guarded, partition, b"k", b"w", guard=Guard(partition, b"k", b"v"))),
    ]
    for pid in blocked_backends(postgres_url, at_least=4):
        session.execute("SELECT pg_terminate_backend(%s)", [pid])
    assert [type(write.result()) for write in writes] == [OutcomeUnknownError] * 4
    session.rollback()
    session.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'esker' AND pid <> %s",
        [session.info.backend_pid],
    )
    assert value(kv, partition, b"k") == b"v"
    assert kv.put_if(partition, b"k", b"w", current), "one lost connection told of the others"


def test_a_deadlock_is_tried_again(kv: PostgresKV, session: Session, postgres_url: str, partition: str) -> None:
    kv.put_many(partition, [(b"a", b"old"), (b"b", b"old")])
    session.execute("SET deadlock_timeout = '1h'")  # so that ours is the one that the server finds, and cancels
    session.execute("SELECT FROM esker_kv WHERE partition = %s AND key = 'b' FOR UPDATE", [partition])
    put = Background(partial(kv.put_many, partition, [(b"a", b"new"), (b"b", b"new")]))
    blocked_backends(postgres_url)
    session.execute("UPDATE esker_kv SET value = 'theirs' WHERE partition = %s AND key = 'a'", [partition])
    session.commit()
    assert put.result() is None
    assert [item.record.value for item in kv.scan(partition)] == [b"new", b"new"]


def test_an_error_of_one_statement_changed_nothing(
    kv: PostgresKV, session: Session, postgres_url: str, partition: str
) -> None:
    kv.put(partition, b"k", b"v")
    session.execute("SELECT FROM esker_kv WHERE partition = %s FOR UPDATE", [partition])
    put = Background(partial(kv.put, partition, b"k", b"w"))
    [pid] = blocked_backends(postgres_url)
    session.execute("SELECT pg_cancel_backend(%s)", [pid])
    assert isinstance(put.result(), UnavailableError)
    session.rollback()
    assert value(kv, partition, b"k") == b"v"


def test_batches_in_opposite_order_all_end(kv: PostgresKV, partition: str) -> None:
    keys = [b"%d" % number for number in range(50)]

    def write(writer: int) -> None:
        order = keys if writer % 2 else keys[::-1]
        for _ in range(10):
            kv.put_many(partition, [(key, b"%d" % writer) for key in order])
            kv.delete_many(partition, order[:25])

    together([partial(write, writer) for writer in range(8)])


def test_settings_do_not_depend_on_the_servers(postgres_url: str, partition: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("CREATE DATABASE careless")
        admin.execute("ALTER DATABASE careless SET synchronous_commit = off")
        admin.execute("ALTER DATABASE careless SET default_transaction_isolation = serializable")
    kv = PostgresKV(postgres_url.replace("/postgres?", "/careless?"))
    settings = kv._read("SELECT current_setting('synchronous_commit'), current_setting('transaction_isolation')", {})
    assert settings == [("on", "read committed")]
    kv.close()


def test_several_processes_may_be_first(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("CREATE DATABASE fresh")
    url = postgres_url.replace("/postgres?", "/fresh?")
    program = "import sys; from esker.stores.kv_postgres import PostgresKV; PostgresKV(sys.argv[1]).close()"
    processes = [subprocess.Popen([sys.executable, "-c", program, url]) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    together([lambda: PostgresKV(url).close()] * 4)


def test_without_a_server_the_store_is_unavailable(tmp_path: object) -> None:
    with pytest.raises(UnavailableError):
        PostgresKV(f"postgresql:///esker?host={tmp_path}")


def test_an_url_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidError):
        PostgresKV("postgresql://host/database?no_such_parameter=1")


def test_an_instance_is_refused_in_a_forked_child(kv: PostgresKV, partition: str) -> None:
    kv.put(partition, b"k", b"v")
    assert in_forked_child(lambda: kv.get(partition, b"k")) == InvalidError.__name__
    assert in_forked_child(lambda: kv.put(partition, b"k", b"w")) == InvalidError.__name__
    assert value(kv, partition, b"k") == b"v"
