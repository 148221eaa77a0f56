"""`serve`: one command, several processes, one port.

    1. key      the lake's secret key is found, or made
    2. admin    the first start makes the first user, and tells its key
    3. workers  each a process of its own, which opens the lake for itself: nothing is shared across a fork
    4. stop     SIGTERM or SIGINT: no new requests; those that run get `stop_s` to finish, as does what runs in the
                background; the lake is closed

Workers that die are started again; workers whose parent died stop. Servers on one lake need nothing of each other: all
that they share is in its stores, and the secret key.
"""

import errno
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Final
from wsgiref.types import WSGIApplication

from granian.constants import HTTPModes, Interfaces
from granian.server import MPServer
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from esker import activity, counting
from esker.auth import Directory
from esker.auth.secret_key import secret_key_of
from esker.engine.background import Background
from esker.engine.opening import database_of, directory_of, open_stores
from esker.errors import ConflictError, InvalidError, Kind
from esker.server import logs
from esker.server.app import create_app
from esker.server.gate import Gate
from esker.server.watching import Watching, traces_to
from esker.settings import ServerSettings, share_metrics
from esker.stores.open_kv import open_kv
from esker.world import REAL

ADMIN: Final = "admin"
"""The first user's name."""

CONNECTIONS_MAX: Final = 4096
"""Of a worker. Those beyond wait in the kernel."""

STREAMS: Final = 112
"""Answers that a worker sends at a time, beside the requests that it works on."""

TURNING_AWAY: Final = 16
"""Threads of a worker that are left when all else is at work."""

SWITCH_S: Final = 0.02
"""How long a thread of a worker may work before it gives up the interpreter. Dozens wait for it, and each asks for it
again and again: with Python's 5 ms, that takes a seventh of a busy worker's time."""


def serve(settings: ServerSettings, *, tell: Callable[[str], object] = sys.stdout.write) -> None:
    """Serve a lake until told to stop by a signal. `tell` is told, once in a lake's life, the first user's key."""
    key = secret_key_of(settings, directory_of(settings.lake))
    _check_shareable(settings)
    _check_free(settings.host, settings.port)
    _first_start(settings, key, tell)
    _allow_connections()
    multiprocessing.set_start_method("spawn", force=True)  # what this process has opened is no child's to use
    metrics = Path(tempfile.mkdtemp(prefix="esker-metrics-"))
    share_metrics(metrics)
    try:
        stack(settings).serve(target_loader=partial(_worker, settings, key, metrics), wrap_loader=False)
    finally:
        shutil.rmtree(metrics, ignore_errors=True)


def stack(settings: ServerSettings) -> MPServer:
    """What is between the network and the application, which is not in it yet."""
    return MPServer(
        "esker",
        settings.host,
        settings.port,
        interface=Interfaces.WSGI,
        http=HTTPModes.http1,
        websockets=False,
        workers=settings.workers,
        blocking_threads=settings.requests + STREAMS + TURNING_AWAY,
        backlog=CONNECTIONS_MAX,
        backpressure=CONNECTIONS_MAX,
        workers_kill_timeout=settings.stop_s,
        respawn_failed_workers=True,
        log_dictconfig=logs.config(settings.log_format),
    )


def _worker(settings: ServerSettings, key: bytes, metrics: Path) -> WSGIApplication:
    """What a worker serves: called in its process."""
    sys.setswitchinterval(SWITCH_S)
    threading.Thread(target=_stop_with_parent, args=(metrics,), name="parent", daemon=True).start()
    counting.gather(metrics)
    lake, close = open_stores(settings.lake, kv=settings.kv or None, settings=settings)
    background = Background(lake, look_first=True)
    background.start()

    log = logs.Requests(settings.log_format, REAL)
    traces = traces_to(settings.otlp_endpoint, settings.trace_ratio)
    if traces or settings.slow_s:
        activity.watch(Watching(settings.slow_s, log, traces))

    def stop() -> None:
        background.stop()
        close()
        if traces:
            traces.close()
        log.close()
        counting.settle()

    Finalize(None, stop, exitpriority=0)  # not at exit: a process of `multiprocessing` ends without that
    directory = Directory(lake.kv, REAL, key, login_s=settings.login_s)
    registry = CollectorRegistry()
    registry.register(_OfWorkers(metrics))
    app = create_app(
        lake,
        storage=settings.lake,
        directory=directory,
        sources=settings.sources,
        targets=settings.targets,
        metrics=registry,
    )
    return Gate(app, requests=settings.requests, streams=STREAMS, log=log, world=REAL)


class _OfWorkers(Collector):
    """The metrics of all workers, added up: what workers that died counted, too (without the last moment of those that
    were killed), and not what they were at. What was counted before the question is in the answer, unless a worker is
    so busy that it has not told of it for seconds."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._all = MultiProcessCollector(None, str(directory))  # type: ignore[no-untyped-call]

    def collect(self) -> Iterable[Metric]:
        counting.settled(self._directory)
        for file in self._directory.glob("gauge_live*.db"):
            if not Path("/proc", file.stem.rpartition("_")[2]).exists():
                file.unlink(missing_ok=True)
        found: Iterable[Metric] = self._all.collect()  # type: ignore[no-untyped-call]
        return found


def _stop_with_parent(metrics: Path) -> None:
    """Nobody else would stop a worker whose parent was killed, and it would keep the port."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    shutil.rmtree(metrics, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)


def _first_start(settings: ServerSettings, key: bytes, tell: Callable[[str], object]) -> None:
    kv = open_kv(settings.kv or database_of(settings.lake))
    try:
        directory = Directory(kv, REAL, key)
        if directory.is_set_up() or not settings.create_admin:
            return
        made = directory.set_up(ADMIN)
    except ConflictError:  # another server was first, and told its key there
        return
    finally:
        kv.close()
    tell(
        f"This lake has its first user now, {ADMIN!r}. This is their key, shown this once:\n"
        f"  access key id      {made.key.id}\n"
        f"  secret access key  {made.secret}\n"
    )


def _check_shareable(settings: ServerSettings) -> None:
    """InvalidError if the workers would each have a lake of their own."""
    if any(url.startswith("memory:") for url in (settings.lake, settings.kv)):
        raise InvalidError(
            Kind.INVALID_URL, "the processes of a server cannot share memory://: name a directory, file:///data/lake"
        )


def _allow_connections() -> None:
    """As many open files as this user may have: systems start processes with far fewer than a server has clients."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _check_free(host: str, port: int) -> None:
    """InvalidError if somebody listens there. The workers would not notice: they let each other listen, too."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error
        other = "port (ESKER_PORT)" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "host (ESKER_HOST)"
        message = f"cannot listen on {host} port {port}: {why}; set another {other}"
        raise InvalidError(Kind.INVALID_ARGUMENT, message) from None
