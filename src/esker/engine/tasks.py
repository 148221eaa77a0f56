"""The repository's task list: long work, how far it is, and what came of it, for every process to see.

    with tasks.running(lake, repo, "gc") as work:
        work.add(listed=1000)
        work.summary = {"deleted": 12}

A record is advice: nothing safe depends on it, and work that nobody can note goes on. Whoever works gives signs of
life; after ten minutes without one, a task is shown as failed. To cancel is to say so in the record: the work stops
when it next looks. The newest tasks that are over are kept, and the others forgotten.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from esker.engine.lake import Lake
from esker.errors import (
    ConflictError,
    ContentionError,
    EskerError,
    Kind,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from esker.model import CommitID, Repository
from esker.refs import stored
from esker.refs.names import did_you_mean
from esker.stores.kv import KEY_BYTES_MAX, items

HISTORY_MAX: Final = 100
"""Tasks that are over and still shown: of each kind."""

SILENT_MS: Final = 10 * 60 * 1000
"""After so long without a sign of life, the process that did the work is taken for dead."""

BEAT_S: Final = 1.0
"""Between two signs of life, however often there is something to tell."""

_ID_BYTES: Final = 12
_TRIES_MAX: Final = 10

NOTHING: Final[Mapping[str, Any]] = {}
T = TypeVar("T")


class TaskState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Long work on a repository, under way or over."""

    id: str
    kind: str
    """`import`, `export`, `gc`, `statistics`, ..."""
    about: str = ""
    """For people: of what, to where."""
    started_ms: int
    seen_ms: int
    """When it last gave a sign of life, or ended."""
    state: TaskState = TaskState.RUNNING
    cancelled: bool = False
    """Somebody asked it to stop."""
    progress: dict[str, int] = {}
    summary: dict[str, int | str] = {}
    error: str = ""
    error_kind: str = ""
    """Of the error: text, since whoever failed may know more kinds."""
    error_class: str = ""
    """The name of its class, which is the remedy. Records made before it was kept have neither."""
    commits: tuple[CommitID, ...] = ()
    """What it reads: kept as long as it runs, whatever becomes of refs."""
    details: dict[str, Any] = {}
    """What the kind needs to do it: small, and nobody else's business."""
    format_version: int = 1

    @property
    def over(self) -> bool:
        return self.state is not TaskState.RUNNING

    @property
    def data(self) -> str:
        """Where files of its own may lie, below the repository's namespace: kept as long as it runs."""
        return f"_esker/tasks/{self.id}/"

    def details_as(self, kind: type[T]) -> T:
        """Its details, as they were given."""
        return msgspec.convert(self.details, kind)


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Task)


def cancelled(name: str) -> ConflictError:
    """What work raises that was told to stop."""
    return ConflictError(Kind.TASK_CANCELLED, f"task {name} was cancelled")


def start(
    lake: Lake,
    repo: Repository,
    kind: str,
    *,
    about: str = "",
    commits: tuple[CommitID, ...] = (),
    details: object = NOTHING,
) -> Task:
    """Write down work that is about to begin, and forget the oldest that is over."""
    now_ms = lake.world.now_ms()
    task = Task(
        id=lake.world.token(_ID_BYTES),
        kind=kind,
        about=about,
        started_ms=now_ms,
        seen_ms=now_ms,
        commits=commits,
        details=msgspec.to_builtins(details),
    )
    if not lake.kv.put_if(_partition(repo), task.id.encode(), _ENCODER.encode(task), None):
        raise ConflictError(Kind.TASK_OVER, f"task {task.id} exists already: try again")
    _forget(lake, repo, kind)
    return task


def get(lake: Lake, repo: Repository, name: str) -> Task:
    """The task. NotFoundError if there is none."""
    found = lake.kv.get(_partition(repo), name.encode(errors="replace")[:KEY_BYTES_MAX] or b"-")
    if found is None:
        close = did_you_mean(name, (task.id for task in every(lake, repo)))
        raise NotFoundError(Kind.TASK_NOT_FOUND, f"no task {name!r} in {repo.name!r}{close}")
    return _shown(lake, _decode(name, found.value))


def every(lake: Lake, repo: Repository, *, after: str = "") -> Iterator[Task]:
    """All that are known behind `after`, in order of id."""
    begin = after.encode(errors="replace") + b"\0" if after else b""
    for item in items(lake.kv, _partition(repo), begin[:KEY_BYTES_MAX]):
        yield _shown(lake, _decode(item.key.decode(), item.record.value))


def cancel(lake: Lake, repo: Repository, name: str) -> Task:
    """Have it stop. ConflictError if it is over; one that is stopping already stays so."""
    if get(lake, repo, name).over:
        raise ConflictError(Kind.TASK_OVER, f"task {name} of {repo.name!r} is over already")
    return _update(lake, repo, name, lambda task: msgspec.structs.replace(task, cancelled=True), sign=False)


def update(lake: Lake, repo: Repository, name: str, **progress: int) -> Task:
    """A sign of life, with counts that are to be shown. ConflictError if it was told to stop."""
    task = _update(
        lake, repo, name, lambda now: msgspec.structs.replace(now, progress={**now.progress, **progress}), sign=True
    )
    if task.cancelled:
        raise cancelled(name)
    return task


def finish(lake: Lake, repo: Repository, name: str, summary: Mapping[str, int | str] = NOTHING) -> Task:
    """It is done."""
    return _end(lake, repo, name, TaskState.DONE, summary=dict(summary))


def fail(lake: Lake, repo: Repository, name: str, error: EskerError) -> Task:
    """It is over, and not done."""
    state = TaskState.CANCELLED if error.kind is Kind.TASK_CANCELLED else TaskState.FAILED
    return _end(lake, repo, name, state, **_told(error))


class Work:
    """A task, in the hands of whoever does it."""

    def __init__(self, lake: Lake, repo: Repository, task: Task) -> None:
        self.task = task
        self.counts: Counter[str] = Counter(task.progress)
        self.summary: dict[str, int | str] = {}
        self._lake = lake
        self._repo = repo
        self._told_s = lake.world.monotonic_s()

    def add(self, **more: int) -> None:
        """So many more were done. ConflictError if it was told to stop, which shows about a second late."""
        self.counts.update(more)
        self.beat()

    def reached(self, **counts: int) -> None:
        """So many were done altogether. ConflictError, as of `add`."""
        self.counts |= counts
        self.beat()

    def check(self) -> None:
        """A sign of life, now. ConflictError if it was told to stop."""
        self._told_s = self._lake.world.monotonic_s()
        self.task = update(self._lake, self._repo, self.task.id, **self.counts)

    def beat(self) -> None:
        """A sign of life, if it is time. ConflictError, as of `add`."""
        if self._lake.world.monotonic_s() - self._told_s >= BEAT_S:
            self.check()


@contextmanager
def running(lake: Lake, repo: Repository, kind: str, *, about: str = "", details: object = NOTHING) -> Iterator[Work]:
    """A new task, which ends as what is done inside does."""
    with working(lake, repo, start(lake, repo, kind, about=about, details=details)) as work:
        yield work


@contextmanager
def working(lake: Lake, repo: Repository, task: Task) -> Iterator[Work]:
    """A task that was started, which ends as what is done inside does. Errors go on to whoever is outside."""
    work = Work(lake, repo, task)
    try:
        yield work
    except EskerError as error:
        _end_of(work, lake, repo, error)
        raise
    except Exception:
        message = f"the {task.kind} failed by a mistake of esker's own: see the log"
        _end_of(work, lake, repo, OutcomeUnknownError(message=message))
        raise
    except BaseException:
        _end_of(work, lake, repo, ConflictError(Kind.TASK_CANCELLED, "interrupted"))
        raise
    else:
        _note_counts(work, lake, repo)
        work.task = finish(lake, repo, task.id, work.summary)


def _end_of(work: Work, lake: Lake, repo: Repository, error: EskerError) -> None:
    """Note how it ended, if the store lets us: the error itself is what matters more."""
    try:
        _note_counts(work, lake, repo)
        work.task = fail(lake, repo, work.task.id, error)
    except EskerError:
        return


def _note_counts(work: Work, lake: Lake, repo: Repository) -> None:
    if work.counts:
        counts = dict(work.counts)
        _update(lake, repo, work.task.id, lambda now: msgspec.structs.replace(now, progress=counts), sign=True)


def _end(lake: Lake, repo: Repository, name: str, state: TaskState, **changes: Any) -> Task:
    return _update(lake, repo, name, lambda now: msgspec.structs.replace(now, state=state, **changes), sign=True)


def _update(lake: Lake, repo: Repository, name: str, change: Callable[[Task], Task], *, sign: bool) -> Task:
    for _ in range(_TRIES_MAX):
        found = lake.kv.get(_partition(repo), name.encode())
        if found is None:
            raise NotFoundError(Kind.TASK_NOT_FOUND, f"no task {name!r} in {repo.name!r}")
        task = change(_decode(name, found.value))
        if sign:
            task = msgspec.structs.replace(task, seen_ms=lake.world.now_ms())
        if lake.kv.put_if(_partition(repo), name.encode(), _ENCODER.encode(task), found.version):
            return task
    raise ContentionError(Kind.CONTENTION, f"the record of task {name!r} of {repo.name!r} kept changing: try again")


def _forget(lake: Lake, repo: Repository, kind: str) -> None:
    """All but the newest of a kind that are over."""
    over = [task for task in every(lake, repo) if task.kind == kind and task.over]
    for task in sorted(over, key=lambda task: task.seen_ms)[: max(0, len(over) - HISTORY_MAX)]:
        lake.kv.delete(_partition(repo), task.id.encode())


def _shown(lake: Lake, task: Task) -> Task:
    """As failed, if whoever does it is silent."""
    if task.over or lake.world.now_ms() - task.seen_ms <= SILENT_MS:
        return task
    error = UnavailableError(Kind.TASK_STOPPED, f"the process that ran this {task.kind} stopped: start it again")
    return msgspec.structs.replace(task, state=TaskState.FAILED, **_told(error))


def _told(error: EskerError) -> dict[str, str]:
    return {"error": error.message, "error_kind": error.kind.value, "error_class": type(error).__name__}


def _decode(name: str, value: bytes) -> Task:
    return stored.decode(_DECODER, f"the record of task {name!r}", value)


def _partition(repo: Repository) -> str:
    return f"tasks/{repo.uid}"
