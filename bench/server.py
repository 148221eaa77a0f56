"""The server under load from other processes, against as little as will do on the same stack: `bench._bare`.

Both sides take turns within one run, and the best of each counts. Everything is as durable as it gets, and every answer
that was not good is shown.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from bench import _load
from bench._load import Outcome, Target
from bench._report import Report
from tests import services
from tests.server.running import Server, fresh_database, serving

ROOT: Final = Path(__file__).parents[1]
REPOSITORY: Final = "bench"
CLIENTS: Final = 64
OVERLOAD: Final = 10
CHUNK: Final = 1 << 20

STAT_SHARE: Final = 0.6
PAGES_A_SECOND: Final = 100.0
WRITES_TIMES: Final = 2.0
GOODPUT_SHARE: Final = 0.8
REFUSED_S: Final = 1.0
RSS_MB: Final = 200.0
COPY_SHARE: Final = 0.5
FLUSH_MS: Final = 1.0
"""What a flush takes on a disk that has no battery behind its cache, or is reached over a network: 0.5 to 5 ms. Shared
machines answer within 0.05 ms in one minute and 5 ms in the next, which would make two runs two worlds."""


class Scale:
    """How long, and how much."""

    def __init__(self, *, quick: bool) -> None:
        self.seconds = 0.5 if quick else 4.0
        self.turns = 1 if quick else 3
        self.objects = 2000 if quick else _load.OBJECTS
        self.flushes = (f"{FLUSH_MS} ms",) if quick else ("", f"{FLUSH_MS} ms")
        self.chunks = 128 if quick else 2048


def main(arguments: list[str]) -> int:
    """How many promises were missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter runs, files of 128 MB instead of 2 GB")
    scale = Scale(quick=parser.parse_args(arguments).quick)
    report = Report()
    # Not in /tmp, which may be memory: an fsync there would cost nothing.
    where = ROOT / "build"
    where.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=where) as directory:
        here = Path(directory)
        _reads(report, scale, here / "reads")
        _large(report, scale, here / "large")
        for flush in scale.flushes:
            with _flushes(here, flush), services.postgres() as postgres:
                _writes(report, scale, here / f"sqlite {flush}", "sqlite", flush)
                _writes(report, scale, here / f"postgresql {flush}", "postgresql", flush, fresh_database(postgres))
    return report.missed


def _reads(report: Report, scale: Scale, directory: Path) -> None:
    with _both(directory) as (ours, bare, _):
        _load.prepare(ours, REPOSITORY, f"local://{REPOSITORY}", scale.objects)
        stats = _load.stats(ours, REPOSITORY, scale.objects)
        plain = [bare.request("GET", f"/stat?path={number:06d}") for number in range(1000)]
        ours_best, bare_best = _turns(scale, (ours, stats), (bare, plain))
        report.note("a bare route", str(bare_best))
        share = ours_best.rate / bare_best.rate
        report.at_least("stat on a clean branch, against it", share, STAT_SHARE, note=str(ours_best))
        listed = _best(scale, ours, _load.pages(ours, REPOSITORY, scale.objects))
        report.at_least(f"pages of {_load.PAGE:,}, listed", listed.rate, PAGES_A_SECOND, "/s", str(listed))
        _overload(report, scale, "stat", ours, stats)


def _writes(report: Report, scale: Scale, directory: Path, name: str, flush: str, postgres: str = "") -> None:
    """What is promised is promised of disks whose flushes take time: then it is flushes that a service has to save. On
    one that flushes for nothing, a plain upsert is as fast as a bare route, and nothing is twice as fast as that."""
    with _both(directory, postgres) as (ours, bare, _):
        _load.prepare(ours, REPOSITORY, f"local://{REPOSITORY}", 1)
        links = _load.links(ours, REPOSITORY, (directory / "elsewhere" / "object").as_uri(), 1)
        bodies = [link.partition(b"\r\n\r\n")[2] for link in links]
        upserts = [bare.request("PUT", f"/upsert/{number:06d}", body) for number, body in enumerate(bodies)]
        ours_best, bare_best = _turns(scale, (ours, links), (bare, upserts))
        times = ours_best.rate / bare_best.rate
        name = f"{name}, a flush {flush or 'as it is'}"
        report.note(f"{name}: a plain upsert", str(bare_best))
        if flush:
            report.at_least(f"{name}: staged write, against it", times, WRITES_TIMES, note=str(ours_best))
            _overload(report, scale, f"{name}: staged write", ours, links)
        else:
            report.note(f"{name}: staged write, against it", f"{times:.2f} x; {ours_best}")
        report.note(f"{name}: uploads of 100 bytes", str(_best(scale, ours, _load.uploads(ours, REPOSITORY))))


@contextmanager
def _flushes(directory: Path, least: str) -> Iterator[None]:
    """Programs that are started inside wait so long for each flush to the disk, at least."""
    if not least:
        yield
        return
    library = directory / "slow_fsync.so"
    source = Path(__file__).with_name("_slow_fsync.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    directory.chmod(0o755)  # PostgreSQL runs as somebody else
    os.environ |= {"LD_PRELOAD": str(library), "BENCH_FSYNC_US": str(int(FLUSH_MS * 1000))}
    try:
        yield
    finally:
        del os.environ["LD_PRELOAD"], os.environ["BENCH_FSYNC_US"]


def _overload(report: Report, scale: Scale, name: str, target: Target, requests: list[bytes]) -> None:
    peak, over = 0.0, 0.0
    slowest = 0.0
    for _ in range(scale.turns):
        peak = max(peak, _run(scale, target, requests, CLIENTS).rate)
        found = _run(scale, target, requests, OVERLOAD * CLIENTS)
        if found.rate > over:
            over, told, refused = found.rate, str(found), sorted(found.refused_s)
            slowest = refused[int(0.99 * len(refused))] if refused else 0.0
    report.at_least(f"{name}, {OVERLOAD * CLIENTS} clients, against {CLIENTS}", over / peak, GOODPUT_SHARE, note=told)
    report.at_most(f"{name}, {OVERLOAD * CLIENTS} clients: turned away within", slowest, REFUSED_S, "s", "p99")


def _large(report: Report, scale: Scale, directory: Path) -> None:
    with _both(directory) as (ours, bare, server):
        _load.prepare(ours, REPOSITORY, f"local://{REPOSITORY}", 1)
        where = f"{_load.API}/repositories/{REPOSITORY}"
        size = scale.chunks * CHUNK
        rates: dict[str, list[float]] = {"up": [], "down": [], "bare up": [], "bare down": []}
        with _peak_rss(server) as peak_mb:
            for _ in range(scale.turns):
                rates["bare up"].append(_transfer(_up, bare, "PUT", "/file", scale.chunks))
                rates["up"].append(
                    _transfer(_up, ours, "POST", f"{where}/branches/main/objects?path=large", scale.chunks)
                )
                rates["bare down"].append(_transfer(_down, bare, "/file", size))
                rates["down"].append(_transfer(_down, ours, f"{where}/refs/main/objects?path=large", size))
        best = {name: max(found) for name, found in rates.items()}
        for name, way in (("upload", "up"), ("download", "down")):
            report.at_least(
                f"{name} of {size >> 20:,} MB, against a plain file copy",
                best[way] / best[f"bare {way}"],
                COPY_SHARE,
                note=f"{best[way]:,.0f} MB/s, plain {best[f'bare {way}']:,.0f}",
            )
        report.at_most("memory of a worker meanwhile", peak_mb[0], RSS_MB, "MB")


def _up(target: Target, method: str, path: str, chunks: int) -> None:
    assert _load.upload(target, method, path, os.urandom(CHUNK), chunks) == 201


def _down(target: Target, path: str, size: int) -> None:
    assert _load.download(target, path) == size


def _transfer(work: Callable[..., None], *arguments: object) -> float:
    """MB a second, sent or received by another process."""
    chunks = arguments[-1]
    assert isinstance(chunks, int)
    size_mb = chunks if work is _up else chunks / CHUNK
    process = get_context("fork").Process(target=work, args=arguments)
    start = time.perf_counter()
    process.start()
    process.join()
    assert process.exitcode == 0
    return size_mb / (time.perf_counter() - start)


@contextmanager
def _peak_rss(server: Server) -> Iterator[list[float]]:
    """The most that one worker has in memory while the block lasts, in MB: looked at often."""
    peak, ended = [0.0], threading.Event()

    def look() -> None:
        while not ended.wait(0.05):
            for worker in workers:
                pages = int(Path(f"/proc/{worker}/statm").read_text().split()[1])
                peak[0] = max(peak[0], pages * os.sysconf("SC_PAGE_SIZE") / 1e6)

    workers = server.workers()
    assert workers
    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def _turns(scale: Scale, one: tuple[Target, list[bytes]], other: tuple[Target, list[bytes]]) -> tuple[Outcome, Outcome]:
    """The best of each."""
    found = [[_run(scale, *side, CLIENTS) for side in (one, other)] for _ in range(scale.turns)]
    best = [max(outcomes, key=lambda outcome: outcome.rate) for outcomes in zip(*found, strict=True)]
    return best[0], best[1]


def _best(scale: Scale, target: Target, requests: list[bytes]) -> Outcome:
    outcomes = [_run(scale, target, requests, CLIENTS) for _ in range(scale.turns)]
    return max(outcomes, key=lambda outcome: outcome.rate)


def _run(scale: Scale, target: Target, requests: list[bytes], clients: int) -> Outcome:
    return _load.run(target, requests, clients=clients, seconds=scale.seconds)


@contextmanager
def _both(directory: Path, postgres: str = "") -> Iterator[tuple[Target, Target, Server]]:
    """Our server, the bare one, and ours again to be looked at."""
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir(parents=True)
    (elsewhere / "object").write_bytes(b"x")
    with ExitStack() as stack:
        settings = {"workers": 2, "sources": elsewhere.as_uri(), "log_format": "json"} | (
            {"kv": postgres} if postgres else {}
        )
        server = stack.enter_context(serving(directory, **settings))
        port = services.free_port()
        command: list[str | Path] = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "bench._bare", str(port)]
        command += [directory, *([postgres] if postgres else [])]
        died = stack.enter_context(services.running(command, directory / "bare.log", stop=signal.SIGTERM))
        services.wait(lambda: services.accepts(port), died)
        yield _load.target_of(server.url, server.key), _load.target_of(f"http://127.0.0.1:{port}"), server


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
