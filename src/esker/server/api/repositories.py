"""Repositories and their settings."""

from itertools import islice

import falcon

from esker.auth import Need
from esker.engine import dumps, protection, repositories, retention
from esker.engine.protection import Rule
from esker.engine.retention import BranchRetention, Retention
from esker.errors import ConflictError, InvalidError, Kind, NotFoundError
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
    """What is said of the repository."""
    return repositories.metadata(call.lake, call.repo)


def set_repository_metadata(call: Call[NoQuery, wire.RepositoryMetadataSet]) -> None:
    """Say something of the repository, beside what is said under other keys."""
    repositories.change_metadata(call.lake, call.repo, lambda said: said | call.body.metadata)


def delete_repository_metadata(call: Call[NoQuery, wire.RepositoryMetadataKeys]) -> None:
    """Say no longer what is said under these keys."""
    gone = set(call.body.keys)
    repositories.change_metadata(
        call.lake, call.repo, lambda said: {key: value for key, value in said.items() if key not in gone}
    )


def get_branch_protection(call: Call[NoQuery, None]) -> list[wire.BranchProtectionRule]:
    """The branch protection rules. The header ETag names them as they are."""
    rules = protection.rules(call.lake, call.repo)
    call.response.etag = protection.checksum(rules)
    return [wire.BranchProtectionRule(pattern=rule.pattern) for rule in rules]


def set_branch_protection(call: Call[NoQuery, list[wire.BranchProtectionRule]]) -> None:
    """Replace the branch protection rules; with If-Match, only those that it names."""
    expected = call.request.get_header("If-Match")
    rules = tuple(_rule(rule.pattern) for rule in call.body)
    protection.set_rules(call.lake, call.repo, rules, expected=expected.strip('"') if expected else None)


def add_branch_protection(call: Call[NoQuery, wire.BranchProtectionRule]) -> None:
    """Add a branch protection rule. 409 if there is one of this pattern."""
    pattern = call.body.pattern
    rules = protection.rules(call.lake, call.repo)
    if any(rule.pattern == pattern for rule in rules):
        raise ConflictError(Kind.RULE_EXISTS, f"{call.repo.name!r} has a rule for {pattern!r} already")
    protection.set_rules(call.lake, call.repo, (*rules, _rule(pattern)), expected=protection.checksum(rules))


def delete_branch_protection(call: Call[NoQuery, wire.BranchProtectionRule]) -> None:
    """Delete the branch protection rule of this pattern."""
    pattern = call.body.pattern
    rules = protection.rules(call.lake, call.repo)
    kept = tuple(rule for rule in rules if rule.pattern != pattern)
    if len(kept) == len(rules):
        raise NotFoundError(Kind.RULES_NOT_FOUND, f"{call.repo.name!r} has no rule for {pattern!r}")
    protection.set_rules(call.lake, call.repo, kept, expected=protection.checksum(rules))


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


def _rule(pattern: str) -> Rule:
    if not pattern:
        raise InvalidError(Kind.INVALID_ARGUMENT, "a rule needs a pattern, such as 'main' or 'release-*'")
    return Rule(pattern)


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
        id="setRepositoryMetadata",
        method="POST",
        path=f"{_ONE}/metadata",
        need=Need.ADMIN,
        handler=set_repository_metadata,
        status=201,
    ),
    Operation(
        id="deleteRepositoryMetadata",
        method="DELETE",
        path=f"{_ONE}/metadata",
        need=Need.ADMIN,
        handler=delete_repository_metadata,
        status=204,
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
    # as older clients ask for them
    Operation(
        id="internalGetGarbageCollectionRules",
        method="GET",
        path=f"{_ONE}/gc/rules",
        need=Need.READ,
        handler=get_gc_rules,
    ),
    Operation(
        id="internalSetGarbageCollectionRules",
        method="POST",
        path=f"{_ONE}/gc/rules",
        need=Need.ADMIN,
        handler=set_gc_rules,
        status=204,
    ),
    Operation(
        id="internalDeleteGarbageCollectionRules",
        method="DELETE",
        path=f"{_ONE}/gc/rules",
        need=Need.ADMIN,
        handler=delete_gc_rules,
        status=204,
    ),
    Operation(
        id="internalGetBranchProtectionRules",
        method="GET",
        path=f"{_ONE}/branch_protection",
        need=Need.READ,
        handler=get_branch_protection,
    ),
    Operation(
        id="internalCreateBranchProtectionRule",
        method="POST",
        path=f"{_ONE}/branch_protection",
        need=Need.ADMIN,
        handler=add_branch_protection,
        status=204,
        statuses=(409, 412),
    ),
    Operation(
        id="internalDeleteBranchProtectionRule",
        method="DELETE",
        path=f"{_ONE}/branch_protection",
        need=Need.ADMIN,
        handler=delete_branch_protection,
        status=204,
        statuses=(412,),
    ),
]
