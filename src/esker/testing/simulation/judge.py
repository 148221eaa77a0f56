"""Afterwards: does one story explain all answers, and is what was promised there?"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from esker.errors import CorruptError, EskerError
from esker.model import CommitID
from esker.streams.listing import Page
from esker.testing.simulation.linear import FOREVER, GONE, Kind, State, Step, explains, stale
from esker.testing.simulation.merging import Merging
from esker.testing.simulation.plans import LANDING, PATHS, Op, Verb
from esker.testing.simulation.scheduler import Violation
from esker.testing.simulation.verbs import EXISTS, NO_BRANCH, NOTHING, Answer, Conflict
from esker.testing.simulation.watch import View, Watch

FIRST: Final = "first"
"""The message of what was committed before the first client came."""


class Outcome(Enum):
    ANSWERED = "answered"
    FAILED = "failed: changed nothing"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Event:
    """One operation of one client, from its first turn to its answer."""

    client: str
    server: int
    op: Op
    begin: int
    end: int = FOREVER
    outcome: Outcome = Outcome.UNKNOWN
    answer: Answer = None
    error: EskerError | None = None
    last: bool = False
    """Asked after all faults were over."""
    landings: dict[str, int] = field(default_factory=dict)

    @property
    def answered(self) -> bool:
        return self.outcome is Outcome.ANSWERED

    def __str__(self) -> str:
        if self.outcome is Outcome.ANSWERED:
            answer = "" if self.answer is None and self.op.verb is not Verb.GET else f" -> {spell(self.answer)}"
        else:
            answer = f" -> {type(self.error).__name__ if self.error else 'died'}"
        return f"{self.client}: {self.op}{answer}"


def spell(answer: Answer) -> str:
    if isinstance(answer, Page):
        items = [item if isinstance(item, str) else f"{item.path}={item.checksum}" for item in answer.items]
        return f"{items}, next {answer.next!r}"
    return str(answer)


class Judge:
    """Looks at one finished run."""

    def __init__(self, events: Sequence[Event], watch: Watch, *, guards: bool) -> None:
        self._events = events
        self._watch = watch
        self._guards = guards
        self._landed: dict[str, list[tuple[int, CommitID]]] = {}
        for landing in watch.landed:
            message = watch.peek.commit(landing.commit).message
            if message != FIRST:
                self._landed.setdefault(message, []).append((landing.moment, landing.commit))

    def verdict(self) -> None:
        """Raises the first violation."""
        self._answers()
        self._histories()
        self._commits()
        Merging(self._events, self._watch).verdict()
        if self._guards:
            self._pages()
        for branch in self._watch.views:
            self._linear(branch)

    def _answers(self) -> None:
        for event in self._events:
            if event.last and event.outcome is not Outcome.ANSWERED:
                raise Violation("answers", f"nothing fails any more, but {event}: {event.error}")
            if isinstance(event.error, CorruptError):
                raise Violation("answers", f"nothing is damaged, but {event}: {event.error}")

    def _histories(self) -> None:
        """From each head to the first commit: every commit that landed on it, once, each followed by its child."""
        for branch, heads in self._watch.heads.items():
            since = max((at for at, (_, head) in enumerate(heads) if head is None), default=-1)
            born = heads[since + 1][0] if since + 1 < len(heads) else FOREVER
            chain: list[CommitID] = []
            head = heads[-1][1]
            while head is not None:
                chain.append(head)
                self._watch.committed(head)
                head = next(iter(self._watch.peek.commit(head).parents), None)
            born = max((moment for moment, where in self._watch.moved if where == branch), default=born)
            for moment, where, commit_id, _ in self._watch.landed:
                if where == branch and moment > born and chain.count(commit_id) != 1:
                    raise Violation("history", f"a commit that landed on {branch!r} is not in its history, once")

    def _commits(self) -> None:
        for event in self._events:
            if event.op.verb is not Verb.COMMIT:
                continue
            landed = self._landed.get(event.op.value, [])
            if len(landed) > 1:
                raise Violation("commit", f"landed {len(landed)} times: {event}")
            if event.outcome is Outcome.FAILED and landed:
                raise Violation("commit", f"was to have changed nothing, but landed: {event}: {event.error}")
            if event.outcome is Outcome.ANSWERED and event.answer in (NOTHING, NO_BRANCH) and landed:
                raise Violation("commit", f"landed, but its client was told otherwise: {event}")
            acknowledged = event.outcome is Outcome.ANSWERED and event.answer not in (NOTHING, NO_BRANCH)
            if acknowledged and [commit_id for _, commit_id in landed] != [event.answer]:
                raise Violation("commit", f"was acknowledged and did not land: {event}")

    def _pages(self) -> None:
        """Each page is what the branch showed at some moment of the call."""
        for event in self._events:
            if event.op.verb is not Verb.LIST or event.outcome is not Outcome.ANSWERED:
                continue
            answer = _seen(event.answer)
            if not any(model_page(view, event.op) == answer for view in self._shown(event)):
                raise Violation("page", f"was never shown: {event}")

    def _shown(self, event: Event) -> Iterable[View | None]:
        views = self._watch.views[event.op.branch]
        first = max(0, bisect_right(views, event.begin, key=lambda entry: entry[0]) - 1)
        for moment, view in views[first:]:
            if moment > event.end:
                return
            yield view

    def _linear(self, branch: str) -> None:
        first = self._watch.views[branch][0][1]
        events = [event for event in self._events if event.op.branch == branch]
        effects = [effect for effect in self._watch.effects if effect.branch == branch and _is_seen(effect.event)]
        paths = {path for event in events for path in (event.op.path, *event.op.puts) if path in PATHS}
        paths |= {path for effect in effects for path in (*effect.before, *effect.after)}
        for path in sorted(paths | (first or {}).keys()):
            initial: State = GONE if first is None else first.get(path)
            steps = [step for event in events for step in self._steps(event, path)]
            for moment, _, event, before, after in effects:
                if before.get(path) != after.get(path):
                    what = f"{event.op.verb} of {event.op.value}" if event else ""
                    steps.append(Step(moment, moment, Kind.WRITE, (after.get(path),), what=what))
            exact = self._guards or not any(
                event.op.verb in (Verb.PUT, Verb.DELETE) and event.op.path == path for event in events
            )
            if exact and not explains(initial, steps):
                raise Violation(*self._why(branch, path, initial, steps))
            if not exact and (look := stale(initial, steps)):
                raise Violation("stale", f"{path!r} on {branch!r}, then {initial}: {look}\n" + _lines(steps))

    def _why(self, branch: str, path: str, initial: State, steps: list[Step]) -> tuple[str, str]:
        where = f"{path!r} on {branch!r}, at first {initial}, no order explains:\n{_lines(steps)}"
        if explains(initial, [step for step in steps if not step.what.startswith("commit")]):
            return "commit", where
        if explains(initial, [step for step in steps if not step.what.startswith("finally")]):
            return "lost", where
        return "linear", where

    def _steps(self, event: Event, path: str) -> list[Step]:
        """The operation as one path sees it."""
        op, begin, end = event.op, event.begin, event.end
        sure = event.outcome is Outcome.ANSWERED
        if event.outcome is Outcome.FAILED:
            return []
        if sure and event.answer == NO_BRANCH:
            gone = Step(begin, end, Kind.READ, (GONE,), what=event.client)
            if self._guards or op.verb not in (Verb.PUT, Verb.DELETE) or op.path != path:
                return [gone]
            # Written, and then looked for the branch: until it was gone, the write may have been seen.
            return [gone, Step(begin, end, Kind.WRITE, (op.value or None,), sure=False, what=event.client)]
        what = f"{'finally' if event.last else event.client}"
        match op.verb:
            case Verb.PUT if op.path == path:
                return [Step(begin, end, Kind.WRITE, (op.value,), sure, what)]
            case Verb.PUT_IF_ABSENT if op.path == path:
                if sure and event.answer == EXISTS:
                    return [Step(begin, end, Kind.EXISTS, what=what)]
                return [Step(begin, end, Kind.CREATE, (op.value,), sure, what)]
            case Verb.DELETE if op.path == path:
                return [Step(begin, end, Kind.WRITE, (None,), sure, what)]
            case Verb.APPEND if path in op.puts:
                return [Step(begin, end, Kind.WRITE, (op.value,), sure, what)]
            case Verb.APPEND if path in op.gone or path.startswith(op.deletes):
                return [Step(begin, end, Kind.WRITE, (None,), sure, what)]
            case Verb.DELETE_PREFIX if path.startswith(op.path):
                return [Step(begin, end, Kind.WRITE, (None,), sure, what)]
            case Verb.RESET | Verb.RESET_PREFIX if path.startswith(op.path):
                return [Step(begin, end, Kind.WRITE, self._committed(event, path), sure, what)]
            case Verb.RESET_PATH if op.path == path:
                return [Step(begin, end, Kind.WRITE, self._committed(event, path), sure, what)]
            case Verb.GET if sure and op.path == path:
                return [Step(begin, end, Kind.READ, (_text(event.answer),), what=what)]
            case Verb.LIST if sure and (not self._guards or event.last) and not op.delimiter:
                return self._listed(event, path, what)
            case Verb.COMMIT:
                return self._commit(event, path)
            case Verb.STASH if sure and event.answer == NOTHING:
                return [Step(begin, end, Kind.READ, self._committed(event, path), what=what)]
            case Verb.CREATE_BRANCH:
                if sure and event.answer == EXISTS:
                    return [Step(begin, end, Kind.THERE, what=what)]
                return [Step(begin, end, Kind.BRANCH, self._committed(event, path, "main"), sure, what)]
            case Verb.DELETE_BRANCH:
                return [Step(begin, end, Kind.DROP, sure=sure, what=what)]
        return []

    def _listed(self, event: Event, path: str, what: str) -> list[Step]:
        page = event.answer
        assert isinstance(page, Page)
        if not path.startswith(event.op.path) or path <= event.op.after or (page.next is not None and path > page.next):
            return []
        seen = next((item.checksum for item in page.items if not isinstance(item, str) and item.path == path), None)
        return [Step(event.begin, event.end, Kind.READ, (seen,), what=f"{what} lists")]

    def _commit(self, event: Event, path: str) -> list[Step]:
        """A commit read the branch at some moment before it landed."""
        for moment, commit_id in self._landed.get(event.op.value, []):
            value = self._watch.committed(commit_id).get(path)
            return [Step(event.begin, moment, Kind.READ, (value,), what=f"commit of {event.client}")]
        if event.outcome is Outcome.ANSWERED and event.answer == NOTHING:
            values = self._committed(event, path)
            return [Step(event.begin, event.end, Kind.READ, values, what=f"commit of nothing of {event.client}")]
        return []

    def _committed(self, event: Event, path: str, branch: str = "") -> tuple[State, ...]:
        """What was committed at the path at some moment of the operation."""
        heads = self._watch.heads[branch or event.op.branch]
        first = max(0, bisect_right(heads, event.begin, key=lambda entry: entry[0]) - 1)
        found: list[State] = []
        for moment, head in heads[first:]:
            if moment > event.end:
                break
            value = None if head is None else self._watch.committed(head).get(path)
            if head is not None and value not in found:
                found.append(value)
        return tuple(found)


def _is_seen(event: object) -> bool:
    """Whether what an operation did is known from the swap that did it: it is more than one can tell beforehand."""
    return isinstance(event, Event) and (event.op.verb in LANDING or event.op.verb in (Verb.POP, Verb.STASH))


def model_page(view: View | None, op: Op) -> object:
    """The page that a listing of exactly this would give."""
    if view is None:
        return NO_BRANCH
    items: list[str] = []
    names: list[str] = []
    for path in sorted(view):
        if not path.startswith(op.path):
            continue
        cut = path.find(op.delimiter, len(op.path)) if op.delimiter else -1
        name = path if cut < 0 else path[: cut + len(op.delimiter)]
        if path <= op.after or (cut >= 0 and name == op.after):
            continue
        if not names or names[-1] != name:
            names.append(name)
            items.append(name if cut >= 0 else f"{path}={view[path]}")
    more = len(items) > op.amount
    return items[: op.amount], names[op.amount - 1] if more else None


def _seen(answer: Answer) -> object:
    if not isinstance(answer, Page):
        return answer
    return [item if isinstance(item, str) else f"{item.path}={item.checksum}" for item in answer.items], answer.next


def _text(answer: Answer) -> str | None:
    assert not isinstance(answer, Page | Conflict)
    return answer


def _lines(steps: Iterable[Step]) -> str:
    return "\n".join(f"    {step}" for step in sorted(steps, key=lambda step: step.begin))
