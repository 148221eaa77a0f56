"""Commits: make one, look at one."""

import falcon

from esker.auth import Need
from esker.engine import commit, refs
from esker.server import wire
from esker.server.api.answers import commit_of
from esker.server.call import Call, NoQuery, Operation


class CommitQuery(NoQuery, frozen=True, kw_only=True):
    """What to commit."""

    source_metarange: str = ""


def make_commit(call: Call[CommitQuery, wire.CommitCreation]) -> wire.Commit:
    """Commit all that was staged on a branch before this call."""
    if call.query.source_metarange:
        raise falcon.HTTPNotImplemented(
            description="committing a metarange is not there yet: stage objects, and commit"
        )
    body = call.body
    repo = call.writable_repo(force=bool(body.force))
    made = commit.commit(
        call.lake,
        repo,
        call.path["branch"],
        body.message,
        committer=call.identity.user,
        metadata=body.metadata or {},
        date_ms=None if body.date is None else body.date * 1000,
        allow_empty=bool(body.allow_empty),
    )
    return commit_of(call.lake, repo, made)


def get_commit(call: Call[NoQuery, None]) -> wire.Commit:
    """The commit that an id, or any other ref, names."""
    repo = call.repo
    return commit_of(call.lake, repo, refs.commit_of(call.lake, repo, call.path["commitId"]))


OPERATIONS = [
    Operation(
        id="commit",
        method="POST",
        path="/repositories/{repository}/branches/{branch}/commits",
        need=Need.WRITE,
        handler=make_commit,
        status=201,
        statuses=(501,),
    ),
    Operation(
        id="getCommit",
        method="GET",
        path="/repositories/{repository}/commits/{commitId}",
        need=Need.READ,
        handler=get_commit,
    ),
]
