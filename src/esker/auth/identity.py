"""Who calls, and what they may do: roles, granted for repositories. What is not granted is refused.

An operation says what it needs, and of which repository; a user's grants decide. Nothing else is ever asked.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum
from fnmatch import fnmatchcase
from typing import Final

import msgspec


class Need(Enum):
    """What an operation takes. Of no repository in particular, READ is for everybody who is known, and the others for
    those who have the role everywhere."""

    PUBLIC = "public"
    """Nothing: not even to be known."""
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"
    """Rules and settings of a repository."""
    OWNER = "owner"
    """Admin everywhere: users, keys, and which repositories there are."""


class Role(StrEnum):
    """Each may do what the one before may."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"


EVERYWHERE: Final = "*"

_NEEDS: Final[dict[Role, frozenset[Need]]] = {
    Role.READER: frozenset({Need.READ}),
    Role.WRITER: frozenset({Need.READ, Need.WRITE}),
    Role.ADMIN: frozenset({Need.READ, Need.WRITE, Need.ADMIN}),
}


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A role in the repositories whose names match a pattern: a name, or one in which `*` stands for anything."""

    role: Role
    repositories: str

    def covers(self, need: Need, repository: str | None) -> bool:
        if need not in _NEEDS[self.role]:
            return False
        return self.repositories == EVERYWHERE or (
            repository is not None and fnmatchcase(repository, self.repositories)
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller who is known."""

    user: str
    grants: tuple[Grant, ...]

    def may(self, need: Need, repository: str | None) -> bool:
        """Whether they may do what needs this, in the repository of this name, or (None) in none in particular."""
        if need is Need.PUBLIC or (need is Need.READ and repository is None):
            return True
        if need is Need.OWNER:
            need, repository = Need.ADMIN, None
        return any(grant.covers(need, repository) for grant in self.grants)


def role_for(need: Need, repository: str | None) -> str:
    """The least role, and where, by which one may do what needs this: `writer:sales`."""
    if need is Need.OWNER:
        need, repository = Need.ADMIN, None
    role = next(role for role in Role if need in _NEEDS[role])
    return f"{role}:{repository or EVERYWHERE}"


OWNER: Final = Identity("owner", (Grant(role=Role.ADMIN, repositories=EVERYWHERE),))
"""Whoever opened the lake's stores in this process, and so needs nobody's leave."""
