"""What a repository's rules forbid: writes to a read-only repository, and to protected branches."""

import hashlib
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from esker.engine.lake import Lake
from esker.errors import ForbiddenError, InvalidError, Kind, PreconditionError
from esker.model import Repository


class Action(StrEnum):
    STAGING_WRITE = "staging_write"
    COMMIT = "commit"


class Rule(msgspec.Struct, frozen=True):
    """Actions that are blocked on the branches whose names match the glob `pattern`."""

    pattern: str
    blocked: tuple[Action, ...] = (Action.STAGING_WRITE, Action.COMMIT)


_KEY: Final = b"branch_protection"
_AGE_MAX_S: Final = 3.0
"""A rule takes effect within so long: reading it at each write would double the writes' cost."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(tuple[Rule, ...])


def rules(lake: Lake, repo: Repository) -> tuple[Rule, ...]:
    """The rules as they are now."""
    found = lake.kv.get(f"settings/{repo.uid}", _KEY)
    return _DECODER.decode(found.value) if found else ()


def set_rules(lake: Lake, repo: Repository, new: tuple[Rule, ...], *, expected: str | None = None) -> None:
    """Replace all rules; with `expected`, PreconditionError unless the `checksum` of those there now is that. Other
    processes follow within a few seconds."""
    check_writable(repo)
    if not all(isinstance(rule, Rule) for rule in new):
        raise InvalidError(Kind.INVALID_ARGUMENT, "branch protection takes rules, such as Rule('main')")
    partition = f"settings/{repo.uid}"
    if expected is None:
        lake.kv.put(partition, _KEY, _ENCODER.encode(new))
    else:
        found = lake.kv.get(partition, _KEY)
        there = checksum(_DECODER.decode(found.value) if found else ())
        version = found.version if found else None
        if there != expected or not lake.kv.put_if(partition, _KEY, _ENCODER.encode(new), version):
            raise PreconditionError(
                Kind.RULES_CHANGED, f"the rules of {repo.name!r} are no longer {expected!r}: read them again"
            )
    lake.remembered.pop((repo.uid, _KEY), None)


def checksum(some: tuple[Rule, ...]) -> str:
    """Equal for equal rules."""
    return hashlib.sha256(_ENCODER.encode(some)).hexdigest()[:32]


def check(lake: Lake, repo: Repository, branch: str, action: Action) -> None:
    """ForbiddenError if the repository's rules block this."""
    check_writable(repo)
    for rule in _remembered(lake, repo):
        if action in rule.blocked and fnmatchcase(branch, rule.pattern):
            raise ForbiddenError(
                Kind.PROTECTED_BRANCH,
                f"branch {branch!r} of {repo.name!r} is protected by the rule {rule.pattern!r}, which blocks {action}: "
                "write to another branch and merge it",
            )


def check_writable(repo: Repository) -> None:
    """ForbiddenError if the repository is read-only."""
    if repo.read_only:
        raise ForbiddenError(Kind.READ_ONLY, f"repository {repo.name!r} is read-only")


def _remembered(lake: Lake, repo: Repository) -> tuple[Rule, ...]:
    now = lake.world.monotonic_s()
    found = lake.remembered.get((repo.uid, _KEY))
    if found is None or now - found[0] > _AGE_MAX_S:
        found = lake.remembered[repo.uid, _KEY] = (now, rules(lake, repo))
    return found[1]
