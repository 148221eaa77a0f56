"""Repositories and their settings."""

from itertools import islice

import falcon

from esker.auth import Need
from esker.engine import dumps, protection, repositories, retention
from esker.engine.protection import Rule
from esker.engine.retention import BranchRetention, Retention
from esker.errors import InvalidError, Kind
from esker.model import Repository
from esker.refs.names import check_branch
from esker.server import places, wire
from esker.server.call import Call, NoQuery, Operation
from esker.server.paging import PrefixQuery, pagination


class RepositoriesQuery(PrefixQuery, frozen=True, kw_only=True):
    """Which repositories."""

    search: str = ""
    """Part of the name."""


class CreateQuery(NoQuery, frozen=True, kw_only=True):
    """How to create."""

    bare: bool = False


class ForceQuery(NoQuery, frozen=True, kw_only=True):
    """Whether to do it to a read-only repository, too."""

    force: bool = False


def list_repositories(call: Call[RepositoriesQuery, None]) -> wire.RepositoryList:
    """Repositories in order of their names: those that the caller may read."""
    query = call.query
    found = (
        repo
        for repo in repositories.every(call.lake, after=query.after)
        if repo.name.startswith(query.prefix) and query.search in repo.name and call.identity.may(Need.READ, repo.name)
    )
    page = list(islice(found, query.size + 1))
    shown = page[: query.size]
    return wire.RepositoryList(
        pagination=pagination(shown, shown[-1].name if len(page) > query.size else None),
        results=[_repository(repo) for repo in shown],
    )


def create_repository(call: Call[CreateQuery, wire.RepositoryCreation]) -> wire.Repository:
    """A new repository, with one branch of one empty commit; a bare one, to restore a dump into, without."""
    body = call.body
    if body.sample_data:
        raise falcon.HTTPNotImplemented(description="there are no sample data: leave sample_data out")
    storage = places.namespace(call.server.storage, body.name, body.storage_namespace)
    default_branch, metadata, read_only = body.default_branch or "main", body.metadata or {}, bool(body.read_only)
    if call.query.bare:
        made = dumps.create_bare(
            call.lake, body.name, storage, default_branch=default_branch, metadata=metadata, read_only=read_only
        )
    else:
        made = repositories.create(
            call.lake,
            body.name,
            storage,
            default_branch=default_branch,
            committer=call.identity.user,
            metadata=metadata,
            read_only=read_only,
        )
    return _repository(made)


def get_repository(call: Call[NoQuery, None]) -> wire.Repository:
    """A repository."""
    return _repository(call.repo)


def delete_repository(call: Call[ForceQuery, None]) -> None:
    """Forget a repository. Its objects stay in the store."""
    repo = call.writable_repo(force=call.query.force)
    protection.check_writable(repo)
    call.server.known.delete(repo.name)


def get_repository_metadata(call: Call[NoQuery, None]) -> dict[str, str]:
    """What was said of the repository when it was created."""
    return call.repo.metadata


def get_branch_protection(call: Call[NoQuery, None]) -> list[wire.BranchProtectionRule]:
    """The branch protection rules. The header ETag names them as they are."""
    rules = protection.rules(call.lake, call.repo)
    call.response.etag = protection.checksum(rules)
    return [wire.BranchProtectionRule(pattern=rule.pattern) for rule in rules]


def set_branch_protection(call: Call[NoQuery, list[wire.BranchProtectionRule]]) -> None:
    """Replace the branch protection rules; with If-Match, only those that it names."""
    expected = call.request.get_header("If-Match")
    rules = tuple(Rule(rule.pattern) for rule in call.body)
    if any(not rule.pattern for rule in rules):
        raise InvalidError(Kind.INVALID_ARGUMENT, "a rule needs a pattern, such as 'main' or 'release-*'")
    protection.set_rules(call.lake, call.repo, rules, expected=expected.strip('"') if expected else None)


def get_gc_rules(call: Call[NoQuery, None]) -> wire.GarbageCollectionRules:
    """How long what was committed and then deleted is kept."""
    rules = retention.rules(call.lake, call.repo)
    return wire.GarbageCollectionRules(
        default_retention_days=rules.default_days,
        branches=[
            wire.GarbageCollectionRule(branch_id=rule.branch, retention_days=rule.days) for rule in rules.branches
        ],
    )


def set_gc_rules(call: Call[NoQuery, wire.GarbageCollectionRules]) -> None:
    """Say how long what was committed and then deleted is kept."""
    branches = tuple(BranchRetention(check_branch(rule.branch_id), rule.retention_days) for rule in call.body.branches)
    retention.set_rules(call.lake, call.repo, Retention(call.body.default_retention_days, branches))


def delete_gc_rules(call: Call[NoQuery, None]) -> None:
    """Keep everything."""
    retention.delete_rules(call.lake, call.repo)


def may_set_rules(call: Call[NoQuery, None]) -> None:
    """Whether the caller may set rules of this repository."""
    protection.check_writable(call.repo)


def _repository(repo: Repository) -> wire.Repository:
    return wire.Repository(
        id=repo.name,
        creation_date=repo.created_ms // 1000,
        default_branch=repo.default_branch,
        storage_id="",
        storage_namespace=repo.namespace,
        read_only=repo.read_only,
    )


_ONE = "/repositories/{repository}"

OPERATIONS = [
    Operation(
        id="listRepositories",
        method="GET",
        path="/repositories",
        need=Need.READ,
        handler=list_repositories,
    ),
    Operation(
        id="createRepository",
        method="POST",
        path="/repositories",
        need=Need.OWNER,
        handler=create_repository,
        status=201,
        statuses=(409, 501),
    ),
    Operation(id="getRepository", method="GET", path=_ONE, need=Need.READ, handler=get_repository),
    Operation(
        id="deleteRepository",
        method="DELETE",
        path=_ONE,
        need=Need.OWNER,
        handler=delete_repository,
        status=204,
    ),
    Operation(
        id="getRepositoryMetadata",
        method="GET",
        path=f"{_ONE}/metadata",
        need=Need.READ,
        handler=get_repository_metadata,
    ),
    Operation(
        id="getGCRules",
        method="GET",
        path=f"{_ONE}/settings/gc_rules",
        need=Need.READ,
        handler=get_gc_rules,
    ),
    Operation(
        id="setGCRules",
        method="PUT",
        path=f"{_ONE}/settings/gc_rules",
        need=Need.ADMIN,
        handler=set_gc_rules,
        status=204,
    ),
    Operation(
        id="deleteGCRules",
        method="DELETE",
        path=f"{_ONE}/settings/gc_rules",
        need=Need.ADMIN,
        handler=delete_gc_rules,
        status=204,
    ),
    Operation(
        id="setGarbageCollectionRulesPreflight",
        method="GET",
        path=f"{_ONE}/gc/rules/set_allowed",
        need=Need.ADMIN,
        handler=may_set_rules,
        status=204,
    ),
    Operation(
        id="getBranchProtectionRules",
        method="GET",
        path=f"{_ONE}/settings/branch_protection",
        need=Need.READ,
        handler=get_branch_protection,
    ),
    Operation(
        id="setBranchProtectionRules",
        method="PUT",
        path=f"{_ONE}/settings/branch_protection",
        need=Need.ADMIN,
        handler=set_branch_protection,
        headers=("If-Match",),
        status=204,
        statuses=(412,),
    ),
    Operation(
        id="createBranchProtectionRulePreflight",
        method="GET",
        path=f"{_ONE}/branch_protection/set_allowed",
        need=Need.ADMIN,
        handler=may_set_rules,
        status=204,
    ),
]
