"""How operations are carried out: the one place of the simulator that knows the engine's signatures."""

from typing import Final

from esker.engine import branches, commit, entries, repositories, reset
from esker.engine.cleaning import Cleaner
from esker.engine.lake import Lake
from esker.errors import EskerError, Kind, NotFoundError
from esker.model import Entry, Repository
from esker.streams.listing import Page
from esker.testing.simulation.plans import COMMITTED, MAIN, SIDE, Op, Verb

NOTHING: Final = "nothing to commit"
EXISTS: Final = "exists"
NO_BRANCH: Final = "no branch"

Answer = str | None | Page


class Server:
    """A process: what it keeps in memory is lost when it dies."""

    def __init__(self, lake: Lake, repo: Repository) -> None:
        self._lake = lake
        self._repo = repo
        self._cleaner = Cleaner(lake, repo)

    def run(self, op: Op) -> Answer:
        """Carry out an operation. Answers that tell something of the branch are returned, all other errors raised."""
        try:
            return self._run(op)
        except NotFoundError as error:
            if error.kind in (Kind.BRANCH_NOT_FOUND, Kind.REF_NOT_FOUND):
                return NO_BRANCH
            if error.kind is Kind.OBJECT_NOT_FOUND and op.verb is Verb.GET:
                return None
            raise
        except EskerError as error:
            if error.kind is Kind.NO_CHANGES:
                return NOTHING
            if error.kind in (Kind.OBJECT_EXISTS, Kind.BRANCH_EXISTS):
                return EXISTS
            raise

    def _run(self, op: Op) -> Answer:
        lake, repo = self._lake, self._repo
        match op.verb:
            case Verb.PUT | Verb.PUT_IF_ABSENT:
                entries.put(lake, repo, op.branch, entry(op.path, op.value), if_absent=op.verb is Verb.PUT_IF_ABSENT)
            case Verb.DELETE:
                entries.delete(lake, repo, op.branch, op.path)
            case Verb.DELETE_PREFIX:
                entries.delete_prefix(lake, repo, op.branch, op.path)
            case Verb.GET:
                return entries.get(lake, repo, op.branch, op.path).checksum
            case Verb.LIST:
                return entries.listing(
                    lake, repo, op.branch, prefix=op.path, after=op.after, delimiter=op.delimiter, amount=op.amount
                )
            case Verb.COMMIT:
                return str(commit.commit(lake, repo, op.branch, op.value, committer="sim", allow_empty=op.allow_empty))
            case Verb.RESET:
                reset.reset(lake, repo, op.branch)
            case Verb.RESET_PATH:
                reset.reset_path(lake, repo, op.branch, op.path)
            case Verb.RESET_PREFIX:
                reset.reset_prefix(lake, repo, op.branch, op.path)
            case Verb.CLEAN:
                self._cleaner.run()
                if op.seconds:
                    lake.world.sleep(op.seconds * lake.settings.grace_s)
                    self._cleaner.run()
            case Verb.CREATE_BRANCH:
                branches.create(lake, repo, op.branch, MAIN)
            case Verb.DELETE_BRANCH:
                branches.delete(lake, repo, op.branch)
        return None


def entry(path: str, value: str) -> Entry:
    """What a put of `value` stages: the value is told from its checksum."""
    return Entry(path=path, address=f"data/{value}", size=len(value), checksum=value, mtime_ms=0)


def create(lake: Lake) -> Repository:
    """A repository with something committed, and two branches."""
    repo = repositories.create(lake, "sim", "memory://")
    for path, value in COMMITTED.items():
        entries.put(lake, repo, MAIN, entry(path, value))
    commit.commit(lake, repo, MAIN, "first", committer="sim")
    branches.create(lake, repo, SIDE, MAIN)
    return repo
