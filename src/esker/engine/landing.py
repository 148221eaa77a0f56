"""Landing commits on a branch: all that want to follow its head at once, each on top of the one before, in one swap.

    1. work      ahead, while others of this process are landing on the branch: what then is not to be done in turn
    2. wait      in line, until it is their turn, or somebody has landed them all
    3. look      at the head, which must be clean
    4. make      a commit for each that waits, on top of the one before it
    5. swap      the branch onto the last
    6. tell      each what became of it

Those who work ahead leave alone what another is at already: it will have changed when it is their turn.

If the swap is lost, all are made again on the new head, from what they have worked out already. One that fails, on a
conflict say, leaves the others alone; it is told only when the swap has landed, since what it was in conflict with may
otherwise never have been there.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Final, NamedTuple

from esker.activity import began_ms, check_age, since, step
from esker.engine import metrics
from esker.engine.commit import drop, fold
from esker.engine.lake import Lake, kept
from esker.engine.snapshots import folding
from esker.errors import ContentionError, EskerError, InvalidError, Kind, PreconditionError
from esker.format.names import digest_of
from esker.model import CommitID, Digest, Repository
from esker.refs.records import Branch

_TRIES_MAX: Final = 60
"""Others in this process wait in line; to lose so often takes many other processes that do nothing but land."""

_BATCH_MAX: Final = 64
_PAUSE_MAX_S: Final = 0.1


class Already(NamedTuple):
    """What was to be landed is among the commits below the head."""

    commit: CommitID


Make = Callable[[CommitID], CommitID | Already]
"""From a head, the commit that is to follow it. May be called several times, and each time costs less."""

Ahead = Callable[[CommitID, Callable[[Digest], bool]], object]
"""From a head, work out what will make `Make` cheaper, in those ranges of its tree of which it is told that they are
for it to do."""


class _Request:
    def __init__(self, lake: Lake, make: Make, expected: CommitID | None, wanted: Callable[[], object] | None) -> None:
        self.begun_ms = began_ms(lake.world.now_ms())
        self.make = make
        self.wanted = wanted
        self.expected = expected
        self.outcome: CommitID | EskerError | None = None
        self.woken = lake.world.event()
        """Set when there is an outcome, or when it is this one's turn to land those that wait."""
        self.ahead: list[Digest] = []


class Line:
    """Those who wait to land on one branch. One of them lands for all, until its own request is done."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: deque[_Request] = deque()
        self.leader: _Request | None = None
        self.ahead: dict[Digest, _Request] = {}
        """Ranges, and who works at them ahead of its turn."""

    def take(self, request: _Request, range_id: Digest) -> bool:
        """Whether the range is for this one to work at: nobody else who has not landed yet is."""
        with self.lock:
            if self.ahead.setdefault(range_id, request) is not request:
                return False
            request.ahead.append(range_id)
            return True


def land(
    lake: Lake,
    repo: Repository,
    branch: str,
    make: Make,
    *,
    ahead: Ahead | None = None,
    expected: CommitID | None = None,
    wanted: Callable[[], object] | None = None,
) -> CommitID:
    """Move `branch` from its head to what `make` makes of it: the commit. With `expected`, PreconditionError unless
    that is the head. `wanted` raises once it is not to land any more; it is asked after the record that the swap
    replaces was read. What protects the branch is for the caller to check."""
    line: Line = kept(lake.lines, (repo.uid, branch), Line)
    request = _Request(lake, make, expected, wanted)
    try:
        if ahead and line.leader:
            with step("work ahead"), suppress(EskerError):  # it will come up again in turn, if it is still there
                ahead(lake.branches(repo).get(branch).commit, partial(line.take, request))
        with line.lock:
            line.waiting.append(request)
            if line.leader is None:
                line.leader = request
                request.woken.set()
        with step("wait in line"):
            request.woken.wait()
        while request.outcome is None:
            with line.lock:
                batch = [line.waiting.popleft() for _ in range(min(len(line.waiting), _BATCH_MAX))]
            _serve(lake, repo, branch, batch)
    finally:
        _hand_over(line, request)
    if isinstance(request.outcome, EskerError):
        raise request.outcome
    return request.outcome


def _hand_over(line: Line, request: _Request) -> None:
    """Leave the line, and let the next land if it was this one that did."""
    with line.lock:
        for range_id in request.ahead:
            del line.ahead[range_id]
        if request in line.waiting:
            line.waiting.remove(request)  # interrupted before its turn
        if line.leader is request:
            line.leader = line.waiting[0] if line.waiting else None
            if line.leader:
                line.leader.woken.set()


def _serve(lake: Lake, repo: Repository, branch: str, batch: Sequence[_Request]) -> None:
    """Land the commits of all these, and tell each."""
    outcomes: list[CommitID | EskerError] = []
    try:
        outcomes = _land_all(lake, repo, branch, batch)
    except EskerError as error:
        outcomes = [copy(error) for _ in batch]  # each is raised in a thread of its own, which may add to it
    finally:
        interrupted = ContentionError(Kind.CONTENTION, "whoever was landing this was interrupted: try again")
        for at, request in enumerate(batch):
            request.outcome = outcomes[at] if outcomes else interrupted
            request.woken.set()


def _land_all(lake: Lake, repo: Repository, branch: str, batch: Sequence[_Request]) -> list[CommitID | EskerError]:
    for attempt in range(_TRIES_MAX):
        head = clean_head(lake, repo, branch)
        at = head
        outcomes: list[CommitID | EskerError] = []
        aboard: list[_Request] = []
        with lake.commits(repo).writing_behind(), lake.past(repo).writing_behind():
            for request in batch:
                try:
                    with since(request.begun_ms):
                        check_age(lake.world.now_ms())
                        made = _follow(repo, branch, request, at)
                except EskerError as error:
                    outcomes.append(error)
                    continue
                if isinstance(made, Already):
                    outcomes.append(made.commit)
                else:
                    at = made
                    outcomes.append(made)
                    aboard.append(request)
        if at == head:
            return outcomes
        with step("advance"), since(min(request.begun_ms for request in aboard)):
            landed = lake.branches(repo).update(branch, partial(_moved, aboard, at, head))
        metrics.landing(repo.name, landed=landed is not None)
        if landed:
            return outcomes
        lake.world.sleep(lake.world.chance() * min(_PAUSE_MAX_S, 0.001 * 2**attempt))
    raise ContentionError(
        Kind.CONTENTION, f"branch {branch!r} of {repo.name!r} moved on through {_TRIES_MAX} tries: try again"
    )


def _moved(aboard: Sequence[_Request], at: CommitID, head: CommitID, record: Branch) -> Branch | None:
    return record.moved(at, base=head) if all(map(_is_wanted, aboard)) else None


def _is_wanted(request: _Request) -> bool:
    try:
        if request.wanted:
            request.wanted()
    except EskerError:
        return False  # made again, it is told why
    return True


def _follow(repo: Repository, branch: str, request: _Request, head: CommitID) -> CommitID | Already:
    if request.expected is not None and request.expected != head:
        raise PreconditionError(
            Kind.HEAD_MOVED,
            f"branch {branch!r} of {repo.name!r} is at {head[:12]}, not at {request.expected[:12]} as was expected",
        )
    return request.make(head)


def clean_head(lake: Lake, repo: Repository, branch: str) -> CommitID:
    """The commit of a clean branch. Layers that net to nothing are dropped; InvalidError if they change something."""
    branches = lake.branches(repo)
    for _ in range(_TRIES_MAX):
        record = branches.get(branch)
        if record.clean:
            return record.commit
        sealed = branches.update(branch, lambda record: record.rotated(branches.fresh_token()))
        assert sealed is not None
        basis = sealed.basis()
        tree = lake.commits(repo).get(sealed.commit).tree
        with folding(lake, repo, branch, basis):
            folded = fold(lake, repo, tree, basis)
        if digest_of(folded) != digest_of(tree):
            if not branches.get(branch).holds(basis):
                continue  # what fell off meanwhile may be gone, unnoticed
            raise InvalidError(
                Kind.DIRTY_BRANCH, f"branch {branch!r} of {repo.name!r} has uncommitted changes: commit or reset them"
            )
        drop(lake, repo, branch, basis)
    raise ContentionError(Kind.CONTENTION, f"branch {branch!r} of {repo.name!r} kept changing: try again")
