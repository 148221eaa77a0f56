"""Is there an order of the operations on one path that explains every answer? (Wing and Gong; memory as Lowe.)

The state of a path is a value, nothing, or that there is no such branch. An operation happens at one moment between its
begin and its end; one whose outcome is unknown happens at some moment after its begin, or never.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

FOREVER: Final = 1 << 60


class Kind(Enum):
    READ = "read"
    """Saw one of `values`."""
    WRITE = "write"
    """Left one of `values`, where there is a branch."""
    CREATE = "create"
    """Left one of `values`, where nothing was."""
    EXISTS = "exists"
    """Saw something."""
    DROP = "drop"
    """The branch is gone after it, and was there before."""
    BRANCH = "branch"
    """Brought the branch into being, its path with one of `values`."""
    THERE = "there"
    """Saw that there is a branch."""


GONE: Final = "<no branch>"
State = str | None


class Step(NamedTuple):
    """An operation, as one path sees it."""

    begin: int
    end: int
    kind: Kind
    values: tuple[State, ...] = ()
    sure: bool = True
    """Whether it happened at all."""
    what: str = ""

    def __str__(self) -> str:
        end = "..." if self.end == FOREVER else self.end
        return f"[{self.begin}, {end}] {'' if self.sure else '(perhaps) '}{self.what} {self.kind.value} {self.values}"


def following(state: State, step: Step) -> tuple[State, ...]:
    """The states that the operation may leave; none if it cannot happen here."""
    kind = step.kind
    if kind is Kind.READ:
        return (state,) if state in step.values else ()
    if kind is Kind.WRITE:
        return () if state == GONE else step.values
    if kind is Kind.CREATE:
        return step.values if state is None else ()
    if kind is Kind.EXISTS:
        return (state,) if state is not None and state != GONE else ()
    if kind is Kind.DROP:
        return () if state == GONE else (GONE,)
    if kind is Kind.BRANCH:
        return step.values if state == GONE else ()
    return () if state == GONE else (state,)


_SEES: Final = frozenset({Kind.READ, Kind.EXISTS, Kind.THERE})


def explains(initial: State, steps: Sequence[Step]) -> bool:
    """Whether some order does."""
    steps = sorted(steps, key=lambda step: step.begin)
    n = len(steps)
    must = 0
    for at, step in enumerate(steps):
        if step.sure:
            must |= 1 << at
    seen: set[tuple[int, State]] = set()
    waiting: list[tuple[int, State]] = [(0, initial)]
    while waiting:
        done, state = waiting.pop()
        # What only looks, and may come next and agrees, may as well come next: it changes nothing.
        while True:
            limit = FOREVER + 1
            left = must & ~done
            if not left:
                return True
            for at in range(n):
                if left >> at & 1 and steps[at].end < limit:
                    limit = steps[at].end
            looked = False
            for at in range(n):
                step = steps[at]
                if step.begin > limit:
                    break
                if left >> at & 1 and step.kind in _SEES and following(state, step):
                    done |= 1 << at
                    looked = True
            if not looked:
                break
        if (done, state) in seen:
            continue
        seen.add((done, state))
        for at in range(n):
            step = steps[at]
            if step.begin > limit:
                break
            if not done >> at & 1 and step.kind not in _SEES:
                waiting += [(done | 1 << at, state_after) for state_after in following(state, step)]
    return False


def stale(initial: State, steps: Sequence[Step]) -> Step | None:
    """The first look that saw what was certainly over by then, or was never written: the weaker promise of a store
    without guards, where a write may be seen, vanish, and take effect again until it is acknowledged."""
    writes = [step for step in steps if step.kind not in _SEES]
    writes.append(Step(-1, 0, Kind.WRITE, (initial,)))
    for look in steps:
        if look.kind is not Kind.READ or not look.sure:
            continue
        for value in look.values:
            if any(
                (value in write.values or (write.kind is Kind.DROP and value == GONE))
                and write.begin < look.end
                and not any(
                    later.sure and write.end < later.begin and later.end < look.begin and value not in later.values
                    for later in writes
                )
                for write in writes
            ):
                break
        else:
            return look
    return None
