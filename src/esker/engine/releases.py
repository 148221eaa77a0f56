"""Commits that retention rules have let go of: their records stay, for the log, and what they show may be gone.

A collection notes them before it touches the branches and looks what these reach; from then on nothing is built on
them, though this process may remember their trees. Whoever builds on a commit looks here after reading the record that
the swap replaces: so either the swap lands before the branch is touched, and the collection sees what it made, or it is
lost, and the next look finds the note. What a ref then stands on is taken back. Once let go of by a collection that has
marked, a commit stays so, whatever the rules say later.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from esker.engine.lake import Lake
from esker.errors import Kind, NotFoundError, OutcomeUnknownError, UnavailableError
from esker.model import CommitID, Repository
from esker.stores.kv import items

T = TypeVar("T")


def note(lake: Lake, repo: Repository, commits: Iterable[CommitID]) -> None:
    """Let go of these."""
    lake.kv.put_many(partition(repo), ((name.encode(), b"") for name in commits))


def take_back(lake: Lake, repo: Repository, commits: Iterable[CommitID]) -> None:
    """Let go of these no longer: only by who noted them, has deleted nothing since, and deletes nothing of theirs."""
    lake.kv.delete_many(partition(repo), (name.encode() for name in commits))


def every(lake: Lake, repo: Repository) -> Iterator[CommitID]:
    """All that were let go of, in order."""
    for item in items(lake.kv, partition(repo)):
        yield CommitID(item.key.decode())


def noted(lake: Lake, repo: Repository, commit: CommitID) -> bool:
    """Whether it was let go of."""
    return lake.kv.get(partition(repo), commit.encode()) is not None


def check(lake: Lake, repo: Repository, *commits: CommitID) -> None:
    """NotFoundError if one of these was let go of."""
    for name in commits:
        if noted(lake, repo, name):
            raise NotFoundError(
                Kind.RELEASED,
                f"the retention rules of {repo.name!r} have let go of commit {name[:12]}: its record is kept, and the "
                "objects that it shows may be gone",
            )


def build_on(
    lake: Lake, repo: Repository, commits: Sequence[CommitID], make: Callable[[], T], undo: Callable[[T], object]
) -> T:
    """Make what keeps these commits from now on, where no swap tells a collection from it: looked for again afterwards,
    and undone if one was let go of meanwhile. NotFoundError if one was; OutcomeUnknownError if nobody can tell."""
    check(lake, repo, *commits)
    made = make()
    try:
        try:
            check(lake, repo, *commits)
        except NotFoundError:
            undo(made)
            raise
    except UnavailableError as error:
        raise OutcomeUnknownError(message=f"what was made may stay, or not: {error.message}") from error
    return made


def partition(repo: Repository) -> str:
    return f"released/{repo.uid}"
