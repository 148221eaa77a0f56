"""How long a repository keeps what was committed and later deleted: rules for whoever collects garbage."""

from typing import Final

import msgspec

from esker.engine.lake import Lake
from esker.engine.protection import check_writable
from esker.errors import Kind, NotFoundError
from esker.model import Repository
from esker.refs import stored

_KEY: Final = b"retention"


class BranchRetention(msgspec.Struct, frozen=True):
    branch: str
    days: int


class Retention(msgspec.Struct, frozen=True):
    """Days since a commit ceased to be the head of a branch. What no commit that is kept names may go."""

    default_days: int
    branches: tuple[BranchRetention, ...] = ()
    format_version: int = 1


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Retention)


def rules(lake: Lake, repo: Repository) -> Retention:
    """The rules. NotFoundError if there are none, so that everything is kept."""
    found = lake.kv.get(f"settings/{repo.uid}", _KEY)
    if found is None:
        raise NotFoundError(Kind.RULES_NOT_FOUND, f"no retention rules are set for {repo.name!r}: all is kept")
    return stored.decode(_DECODER, f"the retention rules of {repo.name!r}", found.value)


def set_rules(lake: Lake, repo: Repository, new: Retention) -> None:
    """Replace all rules."""
    check_writable(repo)
    lake.kv.put(f"settings/{repo.uid}", _KEY, _ENCODER.encode(new))


def delete_rules(lake: Lake, repo: Repository) -> None:
    """Keep everything."""
    check_writable(repo)
    lake.kv.delete(f"settings/{repo.uid}", _KEY)
