"""Long work that a request begins and does not wait for: in threads of the process that the request came to."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from esker.errors import ContentionError, EskerError, Kind

RUNNING_MAX: Final = 16
"""That a process does at once. They mostly wait for the store."""

_LOG: Final = logging.getLogger("esker.server")
_PLACES: Final = threading.BoundedSemaphore(RUNNING_MAX)


def begin(start: Callable[[], str], run: Callable[[str], object]) -> str:
    """Have the task that `start` writes down be done: its id. What becomes of it, errors of ours included, is in its
    record. ContentionError if this process has enough to do."""
    if not _PLACES.acquire(blocking=False):
        raise ContentionError(Kind.CONTENTION, f"{RUNNING_MAX} tasks are running here already: try again later")
    try:
        name = start()
        # A daemon: who stops a server does not wait for its tasks. Each can be started again.
        threading.Thread(target=_run, args=(run, name), name=f"task-{name}", daemon=True).start()
    except BaseException:
        _PLACES.release()
        raise
    return name


def _run(run: Callable[[str], object], name: str) -> None:
    try:
        run(name)
    except EskerError as error:
        _LOG.warning("task %s: %s", name, error.message)
    except Exception:
        _LOG.exception("task %s failed", name)
        raise
    finally:
        _PLACES.release()
