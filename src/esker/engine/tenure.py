"""Whose a repository's place is: the records that last collected garbage there, or were restored there.

Others would take for garbage what they do not know: a copy of the key-value store that lags behind, or a second
repository in the same place. So they are refused, until these are restored there themselves, or the repository whose
place it is has been deleted.
"""

from typing import Final

import msgspec

from esker.engine.lake import Lake
from esker.errors import ForbiddenError, Kind
from esker.model import Repository

FILE: Final = "_esker/gc/last.json"


class Last(msgspec.Struct, frozen=True, kw_only=True):
    """By which records the place was last collected: how far its default branch was."""

    uid: str
    born: str = ""
    """Empty, of records that were restored and did not collect yet."""
    seq: int = 0


def take(lake: Lake, repo: Repository, *, born: str = "", seq: int = 0) -> None:
    """From here on, others that collect the place are refused."""
    lake.blobs(repo).put(FILE, msgspec.json.encode(Last(uid=repo.uid, born=born, seq=seq)))


def check(lake: Lake, repo: Repository) -> None:
    """ForbiddenError if the place is other records' than these, or that of what these will become."""
    last, main = _find(lake, repo), lake.branches(repo).get(repo.default_branch)
    if last and (last.uid != repo.uid or (last.born == main.born and last.seq > main.seq)):
        raise ForbiddenError(
            Kind.OTHER_RECORDS,
            f"{repo.namespace} was last collected by newer records of {repo.name!r}, or by another repository's: "
            f"what these do not know would go. If these are the only ones by now, delete {FILE} there",
        )


def leave(lake: Lake, repo: Repository) -> None:
    """The place is nobody's, if it was this repository's: for one that is created there next."""
    last = _find(lake, repo)
    if last and last.uid == repo.uid:
        lake.blobs(repo).delete([FILE])


def _find(lake: Lake, repo: Repository) -> Last | None:
    blobs = lake.blobs(repo)
    blobs.drop_cached(FILE)
    data = blobs.get(FILE)
    return None if data is None else msgspec.json.decode(data, type=Last)
