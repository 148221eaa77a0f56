"""Logs: JSON for machines, lines for people; all to standard error. One line a request, when its last byte has gone,
and one more of what took long.

A line names the operation and its path's template, never the path, the query or a header: whatever is secret travels in
those. Signed URLs are good for as long as they are valid, so they are secrets too.
"""

import logging
import os
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from esker.activity import Activity
from esker.settings import LogFormat
from esker.world import World

_STDERR: Final = 2

_PIPE_BYTES: Final = 4096
_FILE_BYTES: Final = 1 << 20
"""Written at once: a pipe takes so many whole, and a file any number, so that workers do not write into each other's
lines."""

_WAITING_MAX: Final = 100_000
"""Lines. Where nobody reads them as fast as they come, the oldest are lost: a log holds up no request."""

_PAUSE_S: Final = 0.01
"""From the first line that waits to the write: the others of this time go with it."""

_JSON: Final = msgspec.json.Encoder()


class Note:
    """What the app tells of a request, for the log: nothing that came with it and may be secret."""

    __slots__ = ("path", "request_id", "user")

    def __init__(self) -> None:
        self.path = ""
        """The template."""
        self.user = ""
        self.request_id = ""


class Line(msgspec.Struct, kw_only=True, gc=False):
    """Of a request."""

    time: datetime
    level: str = "info"
    logger: str = "esker.requests"
    message: str = "request"
    method: str
    path: str
    status: int
    duration_ms: float
    request_id: str
    user: str


class Slow(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True):
    """Of what took long: a request, until its answer began, or work in the background."""

    time: datetime
    level: str
    logger: str
    message: str
    duration_ms: float
    about: dict[str, str | int | float]
    """Its request's id, say, or its repository."""
    calls: dict[str, int]
    store_ms: dict[str, float]
    """Spent waiting for the stores; of several threads, added up."""
    steps_ms: dict[str, float]
    failed: str = ""
    trace_id: str = ""


class Requests:
    """Logs requests: past `logging`, which would take more time than all else that a quick request costs.

    Lines wait for a thread of the log's own, which writes what there is every few milliseconds: a write by each request
    would give up the interpreter each time.
    """

    def __init__(self, form: LogFormat, world: World) -> None:
        self._is_text = is_text(form)
        self._line: Callable[[Line], bytes] = _text_line if self._is_text else _JSON.encode
        self._world = world
        self._waiting: deque[bytes] = deque(maxlen=_WAITING_MAX)
        self._any = threading.Event()
        self._ended = False
        self._writer = threading.Thread(target=self._write, name="log", daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Write what waits."""
        self._ended = True
        self._any.set()
        self._writer.join()

    def log(self, method: str, note: Note, status: int, duration_s: float) -> None:
        line = Line(
            time=datetime.fromtimestamp(self._world.now_ms() / 1000, UTC),
            method=method,
            path=note.path,
            status=status,
            duration_ms=round(duration_s * 1000, 3),
            request_id=note.request_id,
            user=note.user,
        )
        self._add(self._line(line))

    def slow(self, activity: Activity, steps_ms: dict[str, float], trace: str) -> None:
        """Log something that took long."""
        line = Slow(
            time=datetime.fromtimestamp(self._world.now_ms() / 1000, UTC),
            level="warning",
            logger="esker.slow",
            message=f"slow: {activity.whole.name}",
            duration_ms=round(activity.whole.took_s * 1000, 3),
            about=activity.whole.attributes,
            calls=activity.calls,
            store_ms={store: round(spent_s * 1000, 3) for store, spent_s in activity.seconds.items()},
            steps_ms=steps_ms,
            failed=activity.whole.failed,
            trace_id=trace,
        )
        self._add(_slow_text(line) if self._is_text else _JSON.encode(line))

    def _add(self, line: bytes) -> None:
        self._waiting.append(line)
        if not self._any.is_set():
            self._any.set()

    def _write(self) -> None:
        ended = False
        while not ended:
            self._any.wait()
            self._world.sleep(_PAUSE_S)
            self._any.clear()  # before it looks for what there is: what comes now sets it again
            ended = self._ended
            lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
            for text in _joined(lines, _FILE_BYTES if _is_file(_STDERR) else _PIPE_BYTES):
                with suppress(OSError):  # nobody reads any more
                    os.write(_STDERR, text)


def _is_file(fd: int) -> bool:
    with suppress(OSError):
        return stat.S_ISREG(os.fstat(fd).st_mode)
    return False


def _joined(lines: Iterable[bytes], size_max: int) -> Iterator[bytes]:
    """The lines, as many together as make up no more than `size_max`, but at least one."""
    text = bytearray()
    for line in lines:
        if text and len(text) + len(line) >= size_max:
            yield bytes(text)
            text.clear()
        text += line + b"\n"
    if text:
        yield bytes(text)


def _text_line(line: Line) -> bytes:
    told = f"{line.time:%H:%M:%S} {line.status} {line.duration_ms:8.1f} ms  {line.method} {line.path or '-'}"
    return f"{told}  {line.user} {line.request_id}".rstrip().encode()


def _slow_text(line: Slow) -> bytes:
    told = {**line.about, **line.calls, **{f"{step} ms": took_ms for step, took_ms in line.steps_ms.items()}}
    said = ", ".join(f"{name} {value}" for name, value in told.items())
    return f"{line.time:%H:%M:%S} {line.message} {line.duration_ms:.1f} ms  {said} {line.failed}".rstrip().encode()


class JSONFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["trace"] = self.formatException(record.exc_info)
        return _JSON.encode(said).decode()


class NotOfThreads(logging.Filter):
    """Granian advises against many threads at every start. Most of ours wait, and the gate bounds those that work."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("Configuration allows spawning up to")


def is_text(form: LogFormat) -> bool:
    """Whether people read it."""
    return form is LogFormat.TEXT or (form is LogFormat.AUTO and sys.stderr.isatty())


def config(form: LogFormat) -> dict[str, Any]:
    """For `logging.config.dictConfig`: what is not of a request, Granian's lines too."""
    text = {"format": "%(asctime)s %(levelname)s %(message)s", "datefmt": "%H:%M:%S"}
    handler = {"class": "logging.StreamHandler", "formatter": "esker", "filters": ["threads"]}
    own = {"handlers": ["esker"], "level": "INFO", "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"esker": text if is_text(form) else {"()": f"{__name__}.{JSONFormatter.__name__}"}},
        "filters": {"threads": {"()": f"{__name__}.{NotOfThreads.__name__}"}},
        "handlers": {"esker": {**handler, "stream": "ext://sys.stderr"}},
        "root": {"handlers": ["esker"], "level": "WARNING"},
        "loggers": {"esker": own, "_granian": own},
    }
