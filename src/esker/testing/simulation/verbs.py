"""How operations are carried out: the one place of the simulator that knows the engine's signatures."""

from typing import Final, NamedTuple

from esker.engine import branches, commit, compaction, entries, layers, merge, repositories, reset, stashes
from esker.engine.cleaning import Cleaner
from esker.engine.lake import Lake
from esker.engine.policy import Compaction
from esker.engine.refs import commit_of
from esker.errors import ConflictError, EskerError, Kind, NotFoundError
from esker.model import CommitID, Entry, Repository
from esker.streams.entries import changes_of
from esker.streams.listing import Page
from esker.streams.rows import Changes
from esker.testing.simulation.plans import AHEAD, COMMITTED, LANDING, MAIN, SIDE, Op, Verb
from esker.tree.merge import Strategy

NOTHING: Final = "nothing to commit"
EXISTS: Final = "exists"
NO_BRANCH: Final = "no branch"
NO_REF: Final = "no ref"
NO_STASH: Final = "no stash"
DIRTY: Final = "dirty"
HEAD_MOVED: Final = "head moved"


class Conflict(NamedTuple):
    paths: tuple[str, ...]


Answer = str | None | Page | Conflict


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
                return NO_REF if op.verb in LANDING else NO_BRANCH
            if error.kind is Kind.OBJECT_NOT_FOUND and op.verb is Verb.GET:
                return None
            if error.kind is Kind.STASH_NOT_FOUND:
                return NO_STASH
            raise
        except ConflictError as error:
            if error.kind is Kind.MERGE_CONFLICT:
                return Conflict(tuple(error.paths))
            if error.kind in (Kind.BRANCH_EXISTS, Kind.STASH_EXISTS):
                return EXISTS
            raise
        except EskerError as error:
            told = _TOLD.get(error.kind)
            if told is None:
                raise
            return told

    def _run(self, op: Op) -> Answer:
        lake, repo = self._lake, self._repo
        match op.verb:
            case Verb.PUT | Verb.PUT_IF_ABSENT:
                entries.put(lake, repo, op.branch, entry(op.path, op.value), if_absent=op.verb is Verb.PUT_IF_ABSENT)
            case Verb.DELETE:
                entries.delete(lake, repo, op.branch, op.path)
            case Verb.DELETE_PREFIX:
                entries.delete_prefix(lake, repo, op.branch, op.path)
            case Verb.APPEND:
                rows = changes_of([entry(path, op.value) for path in op.puts], op.gone)
                layers.append(lake, repo, op.branch, Changes(rows, op.deletes))
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
            case Verb.MINOR | Verb.MAJOR:
                compaction.compact(lake, repo, op.branch, Compaction(op.verb.value), force=op.force)
            case Verb.STASH:
                stashes.stash(lake, repo, op.branch, op.value)
            case Verb.POP:
                stashes.pop(lake, repo, op.branch, op.value, strategy=Strategy(op.strategy))
            case Verb.DROP_STASH:
                stashes.drop(lake, repo, op.branch, op.value)
            case Verb.CLEAN:
                self._cleaner.run()
                if op.seconds:
                    lake.world.sleep(op.seconds * lake.settings.grace_s)
                    self._cleaner.run()
            case Verb.CREATE_BRANCH:
                branches.create(lake, repo, op.branch, MAIN)
            case Verb.DELETE_BRANCH:
                branches.delete(lake, repo, op.branch)
            case Verb.MERGE | Verb.REVERT | Verb.CHERRY_PICK | Verb.MOVE:
                return self._land(op)
        return None

    def _land(self, op: Op) -> str | None:
        lake, repo = self._lake, self._repo
        if op.verb is Verb.MOVE:
            merge.move(lake, repo, op.branch, op.source)
            return None
        if op.verb is Verb.MERGE:
            expected: CommitID | None = lake.branches(repo).get(op.branch).commit if op.expects else None
            return merge.merge(
                lake,
                repo,
                op.source,
                op.branch,
                strategy=Strategy(op.strategy),
                message=op.value,
                squash=op.squash,
                expected_head=expected,
            )
        changed = commit_of(lake, repo, op.source)
        parent = 1 if len(lake.commits(repo).get(changed).parents) > 1 else 0
        verb = merge.revert if op.verb is Verb.REVERT else merge.cherry_pick
        return verb(lake, repo, op.branch, changed, parent=parent, message=op.value)


_TOLD: Final = {
    Kind.NO_CHANGES: NOTHING,
    Kind.OBJECT_EXISTS: EXISTS,
    Kind.DIRTY_BRANCH: DIRTY,
    Kind.HEAD_MOVED: HEAD_MOVED,
}


def entry(path: str, value: str) -> Entry:
    """What a put of `value` stages: the value is told from its checksum."""
    return Entry(path=path, address=f"data/{value}", size=len(value), checksum=value, mtime_ms=0)


def create(lake: Lake) -> Repository:
    """A repository with something committed, and two branches, the second one commit ahead."""
    repo = repositories.create(lake, "sim", "memory://")
    for branch, ahead in ((MAIN, COMMITTED), (SIDE, AHEAD)):
        if branch != MAIN:
            branches.create(lake, repo, branch, MAIN)
        for path, value in ahead.items():
            entries.put(lake, repo, branch, entry(path, value))
        commit.commit(lake, repo, branch, "first", committer="sim")
    return repo
