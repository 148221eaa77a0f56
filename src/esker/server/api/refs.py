"""Refs: the log, differences between two of them, and merging one into a branch."""

from datetime import UTC, datetime
from typing import Literal

from esker.auth import Need
from esker.engine import changes, log, merge, refs
from esker.errors import InvalidError, Kind
from esker.model import CommitID
from esker.refs import history
from esker.server import wire
from esker.server.api.answers import commit_answer, diff_list
from esker.server.call import Call, NoQuery, Operation
from esker.server.paging import PageQuery, PrefixQuery, pagination
from esker.tree.merge import Strategy


class LogQuery(PageQuery, frozen=True, kw_only=True):
    """Which commits."""

    objects: tuple[str, ...] = ()
    """Those that changed one of these paths,"""
    prefixes: tuple[str, ...] = ()
    """or something under one of these."""
    limit: bool = False
    """Whether there is no next page."""
    first_parent: bool = False
    since: datetime | None = None
    stop_at: str = ""
    """The last commit to show."""


class DiffRefsQuery(PrefixQuery, frozen=True, kw_only=True):
    """Which changes."""

    delimiter: str = ""
    type: Literal["two_dot", "three_dot"] = "three_dot"
    include_right_stats: bool = False


def log_commits(call: Call[LogQuery, None]) -> wire.CommitList:
    """The commits that a ref descends from, newest first."""
    query, repo = call.query, call.repo
    page = log.log(
        call.lake,
        repo,
        call.path["ref"],
        first_parent=query.first_parent,
        after=refs.commit_of(call.lake, repo, query.after) if query.after else None,
        amount=query.size,
        since_ms=_milliseconds(query.since) if query.since else None,
        paths=query.objects,
        prefixes=query.prefixes,
    )
    items, following = page.items, page.next
    if query.stop_at:
        last = refs.commit_of(call.lake, repo, query.stop_at)
        at = next((at for at, (name, _) in enumerate(items) if name == last), None)
        if at is not None:
            items, following = items[: at + 1], None
    return wire.CommitList(
        pagination=pagination(items, None if query.limit else following),
        results=[commit_answer(name, commit) for name, commit in items],
    )


def diff_refs(call: Call[DiffRefsQuery, None]) -> wire.DiffList:
    """What leads from one ref to another; with three dots, what merging the right into the left would bring."""
    query = call.query
    page = changes.between(
        call.lake,
        call.repo,
        call.path["leftRef"],
        call.path["rightRef"],
        three_dot=query.type == "three_dot",
        prefix=query.prefix,
        after=query.after,
        delimiter=query.delimiter,
        amount=query.size,
    )
    return diff_list(page, stats=query.include_right_stats)


def find_merge_base(call: Call[NoQuery, None]) -> wire.MergeBase:
    """The commits of both sides, and the one that they have in common."""
    repo = call.repo
    source = refs.commit_of(call.lake, repo, call.path["sourceRef"])
    branch = refs.commit_of(call.lake, repo, call.path["destinationBranch"])
    base = history.merge_base(call.lake.commits(repo).get, source, branch)
    if base is None:
        raise InvalidError(Kind.NO_MERGE_BASE, f"{source[:12]} and {branch[:12]} of {repo.name!r} share no history")
    return wire.MergeBase(source_commit_id=source, destination_commit_id=branch, base_commit_id=base)


def merge_into_branch(call: Call[NoQuery, wire.Merge | None]) -> wire.MergeResult:
    """Bring what a ref has changed into a branch. 409 names the paths that both changed."""
    body = call.body or wire.Merge()
    made = merge.merge(
        call.lake,
        call.writable_repo(force=bool(body.force)),
        call.path["sourceRef"],
        call.path["destinationBranch"],
        strategy=Strategy(body.strategy or ""),
        message=body.message or "",
        committer=call.identity.user,
        metadata=body.metadata or {},
        squash=bool(body.squash_merge),
        allow_empty=bool(body.allow_empty),
        expected_head=CommitID(body.expected_head) if body.expected_head else None,
        hint=body.hint or None,
    )
    return wire.MergeResult(reference=made)


def _milliseconds(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


_MERGE = "/repositories/{repository}/refs/{sourceRef}/merge/{destinationBranch}"

OPERATIONS = [
    Operation(
        id="logCommits",
        method="GET",
        path="/repositories/{repository}/refs/{ref}/commits",
        need=Need.READ,
        handler=log_commits,
    ),
    Operation(
        id="mergeIntoBranch",
        method="POST",
        path=_MERGE,
        need=Need.WRITE,
        handler=merge_into_branch,
        statuses=(409, 412),
    ),
    Operation(id="findMergeBase", method="GET", path=_MERGE, need=Need.READ, handler=find_merge_base),
    Operation(
        id="diffRefs",
        method="GET",
        path="/repositories/{repository}/refs/{leftRef}/diff/{rightRef}",
        need=Need.READ,
        handler=diff_refs,
    ),
]
