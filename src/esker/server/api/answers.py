"""What several groups answer with, made from what the engine has."""

from esker.engine.changes import Change, ChangeKind, ChangePage
from esker.engine.lake import Lake
from esker.engine.tasks import Task
from esker.format.names import digest_of
from esker.model import Commit, CommitID, Entry, Repository
from esker.server import wire
from esker.server.paging import pagination

COMMON_PREFIX = "common_prefix"
OBJECT = "object"


def commit_of(lake: Lake, repo: Repository, commit: CommitID) -> wire.Commit:
    """The commit of this id."""
    return commit_answer(commit, lake.commits(repo).get(commit))


def commit_answer(name: CommitID, commit: Commit) -> wire.Commit:
    return wire.Commit(
        id=name,
        parents=list(commit.parents),
        committer=commit.committer,
        message=commit.message,
        creation_date=commit.date_ms // 1000,
        meta_range_id=digest_of(commit.tree),
        metadata=commit.metadata,
        generation=commit.generation,
        version=1,
    )


def task_error(task: Task) -> wire.Error | None:
    """What went wrong with a task, if anything did."""
    return wire.Error(message=task.error, kind=task.error_kind or None) if task.error else None


def diff_list(page: ChangePage, *, stats: bool = False) -> wire.DiffList:
    """With `stats`, what is on the right is told too."""
    return wire.DiffList(
        pagination=pagination(page.items, page.next), results=[_diff(change, stats) for change in page.items]
    )


def _diff(change: Change, stats: bool) -> wire.Diff:
    entry = change.entry
    right = _right(entry) if stats and entry and change.kind is not ChangeKind.REMOVED else None
    return wire.Diff(
        type=change.kind,
        path=change.path,
        path_type=COMMON_PREFIX if entry is None else OBJECT,
        size_bytes=entry.size if entry else None,
        right=right,
    )


def _right(entry: Entry) -> wire.DiffObjectStat:
    return wire.DiffObjectStat(
        checksum=entry.checksum,
        mtime=entry.mtime_ms // 1000,
        content_type=entry.content_type,
        metadata=entry.metadata,
    )
