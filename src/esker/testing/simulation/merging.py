"""Afterwards: is each merge, revert and cherry-pick whole or absent, and what a fresh one would have been?

What landed is computed anew, from dicts: the tree of the head that it landed on, with what the source had changed
since the base. So is what an operation was told instead: each conflict, "nothing to merge", and "dirty" has to be true
of some head that was there while it ran.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Protocol, TypeVar

from esker.errors import EskerError
from esker.model import CommitID
from esker.testing.simulation.linear import FOREVER
from esker.testing.simulation.plans import LANDING, Op, Verb
from esker.testing.simulation.scheduler import Violation
from esker.testing.simulation.verbs import DIRTY, HEAD_MOVED, NO_REF, NOTHING, Answer, Conflict
from esker.testing.simulation.watch import Landing, View, Watch, three_way


class Event(Protocol):
    """An operation that is over."""

    op: Op
    begin: int
    end: int
    answer: Answer
    error: EskerError | None

    @property
    def answered(self) -> bool: ...


class Merging:
    """Looks at one finished run."""

    def __init__(self, events: Sequence[Event], watch: Watch) -> None:
        self._events = [event for event in events if event.op.verb in LANDING]
        self._watch = watch
        self._landed: dict[str, list[Landing]] = {}
        for landing in watch.landed:
            self._landed.setdefault(watch.peek.commit(landing.commit).message, []).append(landing)

    def verdict(self) -> None:
        """Raises the first violation."""
        for event in self._events:
            if event.op.verb is Verb.MOVE:
                continue
            landed = self._landed.get(event.op.value, [])
            self._check_times(event, landed)
            for landing in landed:
                self._check_content(event, landing)
            if event.answered and not landed:
                self._check_refusal(event)

    def _check_times(self, event: Event, landed: Sequence[Landing]) -> None:
        if len(landed) > 1:
            raise Violation("merge", f"landed {len(landed)} times: {event}")
        told = event.answer
        refused = event.error is not None and event.end != FOREVER
        if landed and (refused or (event.answered and told != landed[0].commit)):
            raise Violation("merge", f"landed, but its client was told otherwise: {event}")
        acknowledged = event.answered and isinstance(told, str) and told not in (NOTHING, DIRTY, HEAD_MOVED, NO_REF)
        if acknowledged and not landed and not self._moved(event):
            raise Violation("merge", f"was acknowledged and did not land: {event}")

    def _moved(self, event: Event) -> bool:
        """Whether somebody moved the branch meanwhile: what lands in the same swap, before a move, nobody sees."""
        return any(
            other.op.verb is Verb.MOVE
            and other.op.branch == event.op.branch
            and other.begin < event.end
            and other.end > event.begin
            for other in self._events
        )

    def _check_content(self, event: Event, landing: Landing) -> None:
        commit = self._watch.peek.commit(landing.commit)
        head = commit.parents[0]
        shown = self._watch.committed(landing.commit)
        sources = self._sources(event, landing.moment)
        if event.op.verb is Verb.MERGE and not event.op.squash:
            if commit.parents[1] not in sources:
                raise Violation("merge", f"merged what {event.op.source} was not at: {event}")
            sources = {commit.parents[1]}
        if landing.branch != event.op.branch:
            raise Violation("merge", f"landed on {landing.branch}: {event}")
        if not any(self._made(event.op, source, head) == (shown, []) for source in sources):
            fresh = [self._made(event.op, source, head) for source in sources]
            raise Violation("merge", f"brought {shown}, where a fresh one brings one of {fresh}: {event}")

    def _check_refusal(self, event: Event) -> None:
        told, op = event.answer, event.op
        heads = self._heads(op.branch, event.begin, event.end)
        if self._moved(event):
            return
        made = [(*at, *self._made(op, *at)) for at in product(self._sources(event, event.end), heads)]
        if isinstance(told, Conflict):
            right = any(tuple(conflicts) == told.paths for *_, conflicts in made)
        elif told == NOTHING and op.verb is Verb.MERGE:
            right = any(
                source in self._watch.ancestors(head)
                or (op.squash and not conflicts and view == self._watch.committed(head))
                for source, head, view, conflicts in made
            )
        elif told == NOTHING:
            right = any(not conflicts and view == self._watch.committed(head) for _, head, view, conflicts in made)
        elif told == DIRTY:
            right = self._was_dirty(op.branch, event.begin, event.end)
        else:
            right = told != HEAD_MOVED or len(heads) > 1
        if not right:
            raise Violation("merge", f"was never so: {event}")

    def _made(self, op: Op, source: CommitID, head: CommitID) -> tuple[View, list[str]]:
        """What a fresh one comes to, and its conflicts."""
        show = self._watch.committed
        if op.verb is Verb.MERGE:
            return three_way(show(self._base(source, head)), show(source), show(head), op.strategy)
        parent = next(iter(self._watch.peek.commit(source).parents), None)
        before = {} if parent is None else show(parent)
        sides = (show(source), before) if op.verb is Verb.REVERT else (before, show(source))
        return three_way(*sides, show(head), "")

    def _base(self, one: CommitID, other: CommitID) -> CommitID:
        """The best common ancestor: of the latest generation, then date, then the smallest id."""
        both = self._watch.ancestors(one) & self._watch.ancestors(other)
        commit = self._watch.peek.commit
        return min(both, key=lambda at: (-commit(at).generation, -commit(at).date_ms, at))

    def _sources(self, event: Event, end: int) -> set[CommitID]:
        """All that the operation's source may have stood for."""
        name, _, back = event.op.source.partition("~")
        found = set(self._heads(name, event.begin, end))
        for _ in range(int(back or 0)):
            found = {parent for at in found for parent in self._watch.peek.commit(at).parents[:1]}
        return found

    def _heads(self, branch: str, begin: int, end: int) -> list[CommitID]:
        """Where a branch was during some time, those included that landed in one swap with others."""
        return [head for head in _during(self._watch.heads[branch], begin, end) if head is not None]

    def _was_dirty(self, branch: str, begin: int, end: int) -> bool:
        views, heads = self._watch.views[branch], self._watch.heads[branch]
        moments = {begin, *(moment for moment, _ in views if begin <= moment <= end)}
        for moment in moments:
            view, head = _at(views, moment), _at(heads, moment)
            if view is not None and head is not None and view != self._watch.committed(head):
                return True
        return False


T = TypeVar("T")
Timeline = Sequence[tuple[int, T]]


def _at(timeline: Timeline[T], moment: int) -> T:
    return timeline[max(0, bisect_right(timeline, moment, key=lambda entry: entry[0]) - 1)][1]


def _during(timeline: Timeline[T], begin: int, end: int) -> Iterator[T]:
    first = max(0, bisect_right(timeline, begin, key=lambda entry: entry[0]) - 1)
    for moment, what in timeline[first:]:
        if moment > end:
            return
        yield what
