"""Run schedules, replay one, or hunt the mutants."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from esker.testing.simulation.mutants import MUTANTS, hunt
from esker.testing.simulation.plans import THEMES, Wishes, draw
from esker.testing.simulation.run import simulate
from esker.testing.simulation.shrink import Failure, failing, shrink, story, tell

_SHOWN_MAX = 3
"""Failures told as a story; the rest are counted."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m esker.testing.simulation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run schedules of the engine as it is")
    runs.add_argument("--schedules", type=int, default=20_000)
    runs.add_argument("--seconds", type=float, help="go on for so long, instead of a number of schedules")
    runs.add_argument("--first", type=int, default=0, help="the seed to begin with")
    runs.add_argument("--seed", type=int, help="replay this one, step by step")
    runs.add_argument("--whole", action="store_true", help="with --seed: do not make a failure smaller")
    runs.add_argument("--guards", action=argparse.BooleanOptionalAction, help="stores with guarded puts, or without")
    runs.add_argument("--faults", type=float, help="chance that a store's call fails")
    runs.add_argument("--theme", choices=THEMES)
    runs.add_argument("--stored", action="store_true", help="real trees of files, not dicts")
    hunts = commands.add_parser("mutants", help="plant weaknesses; fails if one survives")
    hunts.add_argument("names", nargs="*", metavar="mutant")
    hunts.add_argument("--schedules", type=int, default=20_000, help="to look at for each, at most")
    hunts.add_argument("--story", action="store_true", help="tell how each was caught")
    hunts.add_argument("--blind", action="store_true", help="catch them by what clients were answered alone")
    options = parser.parse_args(arguments)
    logging.getLogger("esker").setLevel(logging.ERROR)  # that a compaction failed is what the dice wanted
    if options.command == "mutants":
        return _mutants(options)
    wishes = Wishes(options.guards, options.faults, options.theme, options.stored)
    if options.seed is not None:
        return _replay(options.seed, wishes, options.whole)
    return _run(options.first, options.schedules, options.seconds, wishes)


def _run(first: int, schedules: int, seconds: float | None, wishes: Wishes) -> int:
    failures: list[Failure] = []
    steps = done = 0
    start_s = time.perf_counter()
    with suppress(KeyboardInterrupt):  # whoever has seen enough wants to know what was seen
        while done < schedules if seconds is None else time.perf_counter() - start_s < seconds:
            seed = first + done
            plan = draw(seed, wishes)
            result = simulate(plan, seed)
            steps += result.steps
            done += 1
            if result.failure is not None:
                print(f"seed {seed}: {result.failure}", file=sys.stderr)
                failures.append(Failure(plan, seed, result.script, result.failure))
    took_s = time.perf_counter() - start_s
    print(f"{done} schedules of {steps / max(1, done):.0f} steps in {took_s:.1f} s: {done / took_s * 60:.0f} a minute")
    for failure in failures[:_SHOWN_MAX]:
        print(f"\nseed {failure.seed}: {failure.violation}\n{story(shrink(failure))}")
    if failures:
        print(f"\n{len(failures)} failed: seeds {', '.join(str(failure.seed) for failure in failures[:20])}")
    return 1 if failures else 0


def _replay(seed: int, wishes: Wishes, whole: bool) -> int:
    plan = draw(seed, wishes)
    failure = failing(plan, seed)
    if failure is None:
        print(tell(plan, simulate(plan, seed, trace=True)))
        return 0
    print(story(failure if whole else shrink(failure)))
    return 1


def _mutants(options: argparse.Namespace) -> int:
    survived = 0
    print(f"{'mutant':45} {'caught by':10} {'schedules':>9} {'seconds':>8}")
    for name in options.names or MUTANTS:
        start_s = time.perf_counter()
        caught = hunt(MUTANTS[name], schedules=options.schedules, blind=options.blind)
        took_s = time.perf_counter() - start_s
        if caught is None:
            survived += 1
            print(f"{name:45} {'SURVIVES':10} {options.schedules:9} {took_s:8.2f}")
            continue
        print(f"{name:45} {caught.failure.violation.oracle:10} {caught.schedules:9} {took_s:8.2f}")
        if options.story:
            with MUTANTS[name].plant():
                print(f"\n{MUTANTS[name].what}\n{story(shrink(caught.failure))}\n")
    print(f"{survived} survive" if survived else "none survives")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
