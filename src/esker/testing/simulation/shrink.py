"""The smallest plan that still fails, so that a person can read what happened.

What happened is kept as a script: who was next each time, and which calls failed. A smaller plan follows it as far as
it can, so most of what has nothing to do with the failure can be dropped without losing it.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from esker.testing.simulation.plans import Plan, size
from esker.testing.simulation.run import LAST, Result, simulate
from esker.testing.simulation.scheduler import Script, Violation

_RUNS_MAX: Final = 3_000
"""A few seconds."""


class Failure(NamedTuple):
    plan: Plan
    seed: int
    script: Script
    violation: Violation


def failing(plan: Plan, seed: int) -> Failure | None:
    """The failure of a seed, if it fails."""
    result = simulate(plan, seed)
    return None if result.failure is None else Failure(plan, seed, result.script, result.failure)


def shrink(failure: Failure) -> Failure:
    """Drop clients, operations, faults and changes of turn as long as the rest fails in the same way."""
    runs = 0
    smaller = True
    while smaller and runs < _RUNS_MAX:
        smaller = False
        for plan, script in _smaller(failure):
            runs += 1
            result = simulate(plan, failure.seed, script=script)
            if result.failure is not None and result.failure.oracle == failure.violation.oracle:
                failure = Failure(plan, failure.seed, result.script, result.failure)
                smaller = True
                break
            if runs >= _RUNS_MAX:
                break
    return failure


def story(failure: Failure) -> str:
    """What happened, step by step."""
    return tell(failure.plan, simulate(failure.plan, failure.seed, script=failure.script, trace=True))


def tell(plan: Plan, result: Result) -> str:
    """What happened in a run that was traced."""
    lines = [
        (
            f"{plan.theme}: {len(plan.clients)} clients, {size(plan)} operations, {result.steps} steps, "
            f"{'guards' if plan.guards else 'no guards'}, grace {plan.grace_s:g} s, "
            f"the dirty flag {'is' if plan.dirty_read_optimization else 'is not'} relied on"
        )
    ]
    lines += [
        f"    {client.name} on server {client.server}: {'; '.join(map(str, client.ops))}" for client in plan.clients
    ]
    lines += [
        f"  {step:5} {client:14} {text}"
        for step, client, text in result.trace
        if client != LAST or text.startswith("ends") or _writes_a_record(text)
    ]
    lines.append(str(result.failure or "nothing is wrong"))
    return _short("\n".join(lines))


def _writes_a_record(text: str) -> bool:
    return text.startswith("put_if branches/")


def _short(text: str) -> str:
    """Without the zeros of counted ids, and with the first digits of digests."""
    return re.sub(r"\b([0-9a-f]{8})[0-9a-f]{56}\b", r"\1", re.sub(r"\b0{8,}([0-9a-f])", r"\1", text))


def _smaller(failure: Failure) -> Iterator[tuple[Plan, Script]]:
    plan, script = failure.plan, failure.script
    clients = plan.clients
    if len(clients) > 1:
        for at in range(len(clients)):
            yield plan._replace(clients=clients[:at] + clients[at + 1 :]), script
    for at, client in enumerate(clients):
        for number in range(len(client.ops)):
            if len(client.ops) > 1:
                fewer = msgspec.structs.replace(client, ops=client.ops[:number] + client.ops[number + 1 :])
                yield plan._replace(clients=(*clients[:at], fewer, *clients[at + 1 :])), script
    for place in script.fates:
        yield plan, Script(script.turns, {other: fate for other, fate in script.fates.items() if other != place})
    turns = script.turns
    for at in range(1, len(turns) - 1):
        # Whoever was next goes on instead of giving way: one change of turn less.
        if turns[at - 1] != turns[at]:
            later = next((n for n in range(at + 1, len(turns)) if turns[n] == turns[at - 1]), None)
            if later is not None:
                yield plan, Script([*turns[:at], turns[later], *turns[at:later], *turns[later + 1 :]], script.fates)
