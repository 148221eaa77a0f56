"""The smallest plan that still fails, so that a person can read what happened."""

import random
from collections.abc import Iterator
from typing import Final, NamedTuple

from esker.testing.simulation.plans import Plan, size
from esker.testing.simulation.run import Result, simulate
from esker.testing.simulation.scheduler import Violation
from esker.testing.simulation.stores import NO_FAULTS

_TRIES: Final = 150
"""Orders to try of each smaller plan: dropping an operation changes who goes when."""


class Failure(NamedTuple):
    plan: Plan
    seed: int
    violation: Violation


def shrink(failure: Failure) -> Failure:
    """Drop clients, operations and faults as long as any order of the rest fails in the same way."""
    smaller = True
    while smaller:
        smaller = False
        for plan in _smaller(failure.plan):
            found = _fails(plan, failure)
            if found is not None:
                failure, smaller = found, True
                break
    return min((found for found in _shorter(failure)), key=lambda found: found[1])[0]


def replay(failure: Failure) -> Result:
    return simulate(failure.plan, failure.seed, trace=True)


def story(failure: Failure) -> str:
    """What happened, step by step."""
    result = replay(failure)
    plan = failure.plan
    lines = [
        f"{plan.theme}: {len(plan.clients)} clients, {size(plan)} operations, {result.steps} steps, "
        f"{'guards' if plan.guards else 'no guards'}, grace {plan.grace_s:g} s, {plan.faults}"
    ]
    lines += [
        f"    {client.name} on server {client.server}: {'; '.join(map(str, client.ops))}" for client in plan.clients
    ]
    lines += [f"  {step:5} {client:14} {text}" for step, client, text in result.trace]
    lines.append(str(result.failure))
    return "\n".join(lines)


def _smaller(plan: Plan) -> Iterator[Plan]:
    clients = plan.clients
    if plan.faults != NO_FAULTS:
        yield plan._replace(faults=NO_FAULTS)
    if len(clients) > 1:
        for at in range(len(clients)):
            yield plan._replace(clients=clients[:at] + clients[at + 1 :])
    for at, client in enumerate(clients):
        for number in range(len(client.ops)):
            if len(client.ops) > 1:
                fewer = type(client)(client.name, client.server, client.ops[:number] + client.ops[number + 1 :])
                yield plan._replace(clients=(*clients[:at], fewer, *clients[at + 1 :]))


def _fails(plan: Plan, failure: Failure) -> Failure | None:
    for seed in _seeds(failure.seed):
        violation = simulate(plan, seed).failure
        if violation is not None and violation.oracle == failure.violation.oracle:
            return Failure(plan, seed, violation)
    return None


def _shorter(failure: Failure) -> Iterator[tuple[Failure, int]]:
    for seed in _seeds(failure.seed):
        result = simulate(failure.plan, seed)
        if result.failure is not None and result.failure.oracle == failure.violation.oracle:
            yield Failure(failure.plan, seed, result.failure), result.steps


def _seeds(first: int) -> Iterator[int]:
    yield first
    dice = random.Random(first)
    for _ in range(_TRIES):
        yield dice.getrandbits(48)
