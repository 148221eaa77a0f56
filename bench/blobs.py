"""Local blobs against what the file system itself takes: write, fsync, rename, fsync; and open, read.

`python -m bench.blobs [--quick] [DIRECTORY]`; ratios within one run, the two sides taking turns.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

from bench._report import Report
from esker.stores.blob_local import LocalBlobs
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.cache import DiskCache, MemoryCache

ROOT: Final = Path(__file__).parents[1]
SIZES: Final = {"600 KB": 600_000, "1 KB": 1_000}
NAME: Final = "_esker/ranges/ab/0123456789abcdef"

PUT_OVERHEAD: Final = 1.25
GET_US: Final = 30.0
HIT_US: Final = 2.0


def main(arguments: list[str]) -> int:
    """How many promises were not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("directory", nargs="?")
    options = parser.parse_args(arguments)
    report = Report()
    # Not in /tmp, which may be memory: an fsync there would cost nothing.
    where = Path(options.directory or ROOT / "build")
    where.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=where) as directory:
        for label, size in SIZES.items():
            _files(report, Path(directory) / label, label, os.urandom(size), 60 if options.quick else 400)
        _caches(report, Path(directory) / "cache", 2_000 if options.quick else 50_000)
    return report.missed


def _files(report: Report, directory: Path, label: str, data: bytes, rounds: int) -> None:
    store = LocalBlobs(directory / "lake")
    store.put(NAME, data)
    floor = directory / "floor"
    floor.mkdir()
    (floor / "blob").write_bytes(data)
    folder = os.open(floor, os.O_RDONLY)

    def raw_put() -> None:
        fd = os.open(floor / "temporary", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(fd, data)
        os.fsync(fd)
        os.close(fd)
        os.rename(floor / "temporary", floor / "blob")
        os.fsync(folder)

    def raw_get() -> None:
        fd = os.open(floor / "blob", os.O_RDONLY)
        os.read(fd, os.fstat(fd).st_size)
        os.close(fd)

    raw, ours = _turns(rounds, raw_put, lambda: store.put(NAME, data))
    report.note(f"{label}: raw durable put", f"{raw:,.0f} us")
    report.at_most(f"{label}: put, against raw", ours / raw, PUT_OVERHEAD, note=f"{ours:,.0f} us")
    raw, ours = _turns(20 * rounds, raw_get, lambda: store.get(NAME))
    report.note(f"{label}: raw get", f"{raw:.1f} us")
    if len(data) < 10_000:
        report.at_most(f"{label}: get", ours, GET_US, "us", f"{ours / raw:.1f} x raw")
    else:
        report.note(f"{label}: get", f"{ours:.1f} us, {ours / raw:.2f} x raw")
    os.close(folder)
    store.close()


def _caches(report: Report, directory: Path, rounds: int) -> None:
    memory = MemoryCache[str, bytes](1 << 20)
    memory.get_or_load("key", lambda: (b"value", 5))
    remote = MemoryBlobs()
    remote.put("blob", os.urandom(600_000))
    disk = DiskCache(remote, directory, 10_000_000)
    disk.get("blob")
    hit, kept = _turns(rounds, lambda: memory.get_or_load("key", lambda: (b"", 1)), lambda: disk.get("blob"))
    report.at_most("memory cache: hit", hit, HIT_US, "us")
    report.note("disk cache: hit, 600 KB", f"{kept:.1f} us")


def _turns(rounds: int, one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """Microseconds that each takes, by the median: a disk has its moments, and they come to both."""
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for work, seconds in ((one, took[0]), (other, took[1])):
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
    return median(took[0]) * 1e6, median(took[1]) * 1e6


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
