"""Key-value stores: reads and durable writes, one at a time and from 32 threads; ratios within one run.

`python -m bench.kv [--quick] [URL ...]`; without URLs: memory, SQLite and a private PostgreSQL.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench._report import Report
from esker.stores.kv import KVStore
from esker.stores.kv_sqlite import SQLiteKV
from esker.stores.open_kv import open_kv, sqlite_url
from esker.world import REAL
from tests import services

ROOT: Final = Path(__file__).parents[1]
THREADS: Final = 32
VALUE: Final = b"v" * 200
RECORDS: Final = 1000

SPEEDUP: Final = 5.0


def main(arguments: list[str]) -> int:
    """How many promises were not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("urls", nargs="*")
    options = parser.parse_args(arguments)
    report = Report()
    with ExitStack() as stack:
        for url in options.urls or _at_hand(stack):
            _measure(report, url, 0.3 if options.quick else 3.0)
    return report.missed


def _measure(report: Report, url: str, seconds: float) -> None:
    name = url.partition(":")[0]
    kv = open_kv(url)
    partition = "bench/" + REAL.token(8)
    keys = [b"%06d" % number for number in range(RECORDS)]
    kv.put_many(partition, [(key, VALUE) for key in keys])
    gets = _rate(1, seconds, lambda thread, number: kv.get(partition, keys[number % RECORDS]))
    one, _ = _puts(kv, partition, 1, seconds)
    many, shared = _puts(kv, partition, THREADS, seconds)
    start = time.monotonic()
    kv.put_many(partition, ((b"batch %06d" % number, VALUE) for number in range(5 * RECORDS)))
    batched = 5 * RECORDS / (time.monotonic() - start)
    report.note(f"{name}: gets", f"{gets:,.0f}/s")
    report.note(f"{name}: durable puts, one at a time", f"{one:,.0f}/s")
    report.note(f"{name}: durable puts, {THREADS} threads", f"{many:,.0f}/s, {many / one:.1f} times as many")
    report.note(f"{name}: durable puts, batched", f"{batched:,.0f}/s")
    if name == "sqlite":
        report.at_least("sqlite: writes that share an fsync", shared, SPEEDUP)
        report.at_least(f"sqlite: {THREADS} threads against one at a time", many / one, SPEEDUP)
    kv.close()


def _puts(kv: KVStore, partition: str, threads: int, seconds: float) -> tuple[float, float]:
    """Puts a second, and where the store tells, writes a transaction."""
    writes, transactions = kv.counts.writes["bench"], _transactions(kv)
    rate = _rate(threads, seconds, lambda thread, number: kv.put(partition, b"%d %d" % (thread, number), VALUE))
    transactions = _transactions(kv) - transactions
    return rate, (kv.counts.writes["bench"] - writes) / transactions if transactions else 0


def _transactions(kv: KVStore) -> int:
    return kv.transactions if isinstance(kv, SQLiteKV) else 0


def _rate(threads: int, seconds: float, call: Callable[[int, int], object]) -> float:
    """Calls a second, of all threads together."""
    counts = [0] * threads
    start = threading.Barrier(threads + 1)

    def run(thread: int) -> None:
        start.wait()
        number = 0
        while time.monotonic() < deadline:
            call(thread, number)
            number += 1
        counts[thread] = number

    workers = [threading.Thread(target=run, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    deadline = time.monotonic() + seconds
    began = time.monotonic()
    start.wait()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.monotonic() - began)


def _at_hand(stack: ExitStack) -> Iterator[str]:
    # Not in /tmp, which may be memory: an fsync there would cost nothing.
    (ROOT / "build").mkdir(exist_ok=True)
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=ROOT / "build"))
    yield "memory://"
    yield sqlite_url(Path(directory) / "kv.db")
    yield stack.enter_context(services.postgres())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
