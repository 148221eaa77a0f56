"""Branches: create, list, delete; what is staged on them; reset, revert, cherry-pick."""

from itertools import islice

from esker.auth import Need
from esker.engine import branches, changes, merge, reset
from esker.errors import InvalidError, Kind
from esker.server import wire
from esker.server.api.answers import commit_of, diff_list
from esker.server.api.repositories import ForceQuery
from esker.server.call import Call, NoQuery, Operation
from esker.server.paging import PrefixQuery, pagination


class BranchesQuery(PrefixQuery, frozen=True, kw_only=True):
    """Which branches."""

    show_hidden: bool = False


class DiffQuery(PrefixQuery, frozen=True, kw_only=True):
    """Which changes."""

    delimiter: str = ""


class HardResetQuery(NoQuery, frozen=True, kw_only=True):
    """Where to."""

    ref: str
    force: bool = False


def list_branches(call: Call[BranchesQuery, None]) -> wire.RefList:
    """Branches in order of their names."""
    query = call.query
    found = (
        (name, record)
        for name, record in branches.every(call.lake, call.repo, after=query.after, hidden=query.show_hidden)
        if name.startswith(query.prefix)
    )
    page = list(islice(found, query.size + 1))
    shown = page[: query.size]
    return wire.RefList(
        pagination=pagination(shown, shown[-1][0] if len(page) > query.size else None),
        results=[wire.Ref(id=name, commit_id=record.commit) for name, record in shown],
    )


def create_branch(call: Call[NoQuery, wire.BranchCreation]) -> str:
    """A branch at the commit that `source` names: its id."""
    body = call.body
    repo = call.writable_repo(force=bool(body.force))
    return branches.create(call.lake, repo, body.name, body.source, hidden=bool(body.hidden))


def get_branch(call: Call[NoQuery, None]) -> wire.Ref:
    """A branch, and the commit that it is at."""
    name = call.path["branch"]
    return wire.Ref(id=name, commit_id=call.lake.branches(call.repo).get(name).commit)


def delete_branch(call: Call[ForceQuery, None]) -> None:
    """Delete a branch and what is staged on it."""
    branches.delete(call.lake, call.writable_repo(force=call.query.force), call.path["branch"])


def diff_branch(call: Call[DiffQuery, None]) -> wire.DiffList:
    """What is staged on a branch, against its commit."""
    query = call.query
    page = changes.uncommitted(
        call.lake,
        call.repo,
        call.path["branch"],
        prefix=query.prefix,
        after=query.after,
        delimiter=query.delimiter,
        amount=query.size,
    )
    return diff_list(page)


def reset_branch(call: Call[NoQuery, wire.ResetCreation]) -> None:
    """Drop what is staged: all of it, of one path, or under a prefix."""
    body, branch = call.body, call.path["branch"]
    repo = call.writable_repo(force=bool(body.force))
    call.lake.branches(repo).get(branch)
    if body.type == "reset":
        reset.reset(call.lake, repo, branch)
    elif body.path is None:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"a reset of type {body.type!r} needs a path")
    elif body.type == "object":
        reset.reset_path(call.lake, repo, branch, body.path)
    else:
        reset.reset_prefix(call.lake, repo, branch, body.path)


def hard_reset_branch(call: Call[HardResetQuery, None]) -> None:
    """Point a branch, on which nothing may be staged, at any commit."""
    repo = call.writable_repo(force=call.query.force)
    merge.move(call.lake, repo, call.path["branch"], call.query.ref)


def revert_branch(call: Call[NoQuery, wire.RevertCreation]) -> None:
    """Undo on a branch what a commit changed, in a commit of its own."""
    body = call.body
    overrides = body.commit_overrides or wire.CommitOverrides()
    merge.revert(
        call.lake,
        call.writable_repo(force=bool(body.force)),
        call.path["branch"],
        body.ref,
        parent=body.parent_number,
        message=overrides.message or "",
        committer=call.identity.user,
        metadata=overrides.metadata or {},
        allow_empty=bool(body.allow_empty),
    )


def cherry_pick(call: Call[NoQuery, wire.CherryPickCreation]) -> wire.Commit:
    """Make on a branch the change that a commit made, in a commit of its own."""
    body = call.body
    overrides = body.commit_overrides or wire.CommitOverrides()
    repo = call.writable_repo(force=bool(body.force))
    made = merge.cherry_pick(
        call.lake,
        repo,
        call.path["branch"],
        body.ref,
        parent=body.parent_number or 0,
        message=overrides.message or "",
        committer=call.identity.user,
        metadata=overrides.metadata or {},
    )
    return commit_of(call.lake, repo, made)


_ALL = "/repositories/{repository}/branches"
_ONE = f"{_ALL}/{{branch}}"

OPERATIONS = [
    Operation(id="listBranches", method="GET", path=_ALL, need=Need.READ, handler=list_branches),
    Operation(
        id="createBranch",
        method="POST",
        path=_ALL,
        need=Need.WRITE,
        handler=create_branch,
        status=201,
        statuses=(409,),
    ),
    Operation(id="getBranch", method="GET", path=_ONE, need=Need.READ, handler=get_branch),
    Operation(
        id="deleteBranch",
        method="DELETE",
        path=_ONE,
        need=Need.WRITE,
        handler=delete_branch,
        status=204,
    ),
    Operation(
        id="resetBranch",
        method="PUT",
        path=_ONE,
        need=Need.WRITE,
        handler=reset_branch,
        status=204,
    ),
    Operation(
        id="hardResetBranch",
        method="PUT",
        path=f"{_ONE}/hard_reset",
        need=Need.WRITE,
        handler=hard_reset_branch,
        status=204,
    ),
    Operation(
        id="revertBranch",
        method="POST",
        path=f"{_ONE}/revert",
        need=Need.WRITE,
        handler=revert_branch,
        status=204,
        statuses=(409,),
    ),
    Operation(
        id="cherryPick",
        method="POST",
        path=f"{_ONE}/cherry-pick",
        need=Need.WRITE,
        handler=cherry_pick,
        status=201,
        statuses=(409,),
    ),
    Operation(id="diffBranch", method="GET", path=f"{_ONE}/diff", need=Need.READ, handler=diff_branch),
]
