"""What clients do in one schedule: data, drawn from a seed, that can be printed and cut down.

Each schedule has a theme, so that few operations meet often, rather than all kinds meeting seldom. Every value that is
ever written is unique: whoever reads one knows who wrote it.
"""

import random
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from esker.testing.simulation.stores import NO_FAULTS, Faults

MAIN: Final = "main"
SIDE: Final = "side"
PATHS: Final = ("a/1", "a/2", "a/b/1", "b/1", "c")
PREFIXES: Final = ("a/", "a/", "a/b/", "b", "")
COMMITTED: Final = {"a/1": "old-a1", "a/b/1": "old-ab1", "c": "old-c"}
"""On the branch before the first client comes."""


class Verb(StrEnum):
    PUT = "put"
    PUT_IF_ABSENT = "put-if-absent"
    DELETE = "delete"
    DELETE_PREFIX = "delete-prefix"
    GET = "get"
    LIST = "list"
    COMMIT = "commit"
    RESET = "reset"
    RESET_PATH = "reset-path"
    RESET_PREFIX = "reset-prefix"
    CLEAN = "clean"
    CREATE_BRANCH = "create-branch"
    DELETE_BRANCH = "delete-branch"


class Op(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a client asks for."""

    verb: Verb
    branch: str = MAIN
    path: str = ""
    """Or a prefix."""
    value: str = ""
    """Of a put: unique. Of a commit: its message, unique too."""
    delimiter: str = ""
    amount: int = 1000
    after: str = ""
    seconds: float = 0.0
    allow_empty: bool = False
    """Of a commit."""
    number: int = 0
    """Among its client's."""

    def __str__(self) -> str:
        words = [self.verb.value]
        words += [] if self.branch == MAIN else [f"on {self.branch}"]
        words += [repr(self.path)] if self.path else []
        words += [f"= {self.value}"] if self.value else []
        words += [f"delimiter {self.delimiter!r}"] if self.delimiter else []
        words += [f"after {self.after!r} at most {self.amount}"] if self.verb is Verb.LIST else []
        return " ".join(words)


class ClientPlan(msgspec.Struct, frozen=True):
    name: str
    server: int
    ops: tuple[Op, ...]


class Plan(NamedTuple):
    """Everything but who goes next."""

    theme: str
    clients: tuple[ClientPlan, ...]
    guards: bool = True
    dirty_read_optimization: bool = True
    grace_s: float = 3600.0
    faults: Faults = NO_FAULTS
    stored: bool = False
    """With real trees, of files on a memory store."""
    blind: bool = False
    """Judged by answers alone: no step is looked at."""


class Wishes(NamedTuple):
    """What a caller may fix, and else the seed draws."""

    guards: bool | None = None
    faults: float | None = None
    theme: str | None = None
    stored: bool = False
    blind: bool = False


ANY: Final = Wishes()

_WRITES: Final = (Verb.PUT, Verb.PUT, Verb.PUT, Verb.DELETE)

THEMES: Final[dict[str, tuple[Verb, ...]]] = {
    "commit": (*_WRITES, *_WRITES, Verb.COMMIT, Verb.COMMIT, Verb.COMMIT, Verb.GET, Verb.LIST),
    "if-absent": (
        *(Verb.PUT_IF_ABSENT,) * 4,
        Verb.PUT,
        Verb.DELETE,
        Verb.DELETE,
        Verb.DELETE_PREFIX,
        Verb.COMMIT,
        Verb.COMMIT,
        Verb.GET,
    ),
    "prefix": (
        *_WRITES,
        *_WRITES,
        *(Verb.DELETE_PREFIX,) * 3,
        Verb.COMMIT,
        Verb.COMMIT,
        Verb.GET,
        Verb.LIST,
        Verb.LIST,
    ),
    "reset": (
        *_WRITES,
        *_WRITES,
        Verb.RESET,
        Verb.RESET_PATH,
        Verb.RESET_PREFIX,
        Verb.COMMIT,
        Verb.COMMIT,
        Verb.GET,
        Verb.GET,
        Verb.DELETE_PREFIX,
    ),
    "clean": (
        *_WRITES,
        Verb.COMMIT,
        Verb.COMMIT,
        Verb.CLEAN,
        Verb.CLEAN,
        Verb.CLEAN,
        Verb.GET,
        Verb.LIST,
        Verb.LIST,
        Verb.RESET,
        Verb.DELETE_PREFIX,
        Verb.PUT_IF_ABSENT,
    ),
    "slow": (
        *(Verb.PUT,) * 4,
        *(Verb.PUT_IF_ABSENT,) * 4,
        *(Verb.COMMIT,) * 3,
        *(Verb.CLEAN,) * 3,
        Verb.DELETE,
        Verb.RESET_PATH,
        Verb.RESET_PREFIX,
    ),
    "branch": (
        *_WRITES,
        *_WRITES,
        Verb.CREATE_BRANCH,
        Verb.CREATE_BRANCH,
        Verb.DELETE_BRANCH,
        Verb.DELETE_BRANCH,
        Verb.COMMIT,
        Verb.GET,
        Verb.CLEAN,
        Verb.PUT_IF_ABSENT,
        Verb.RESET,
    ),
    "all": (
        *_WRITES,
        *_WRITES,
        Verb.PUT_IF_ABSENT,
        Verb.PUT_IF_ABSENT,
        Verb.DELETE_PREFIX,
        Verb.COMMIT,
        Verb.COMMIT,
        Verb.RESET,
        Verb.RESET_PREFIX,
        Verb.GET,
        Verb.LIST,
        Verb.CLEAN,
    ),
}

CLEANING: Final = frozenset({"clean", "slow", "branch", "all"})
"""Themes with a cleaner, and a grace time that a client can outsleep."""
SHORT_GRACE_S: Final = 0.03
"""Thirty turns: long enough to read in, short enough for a client that stands still to be overtaken by the cleaner."""


def draw(seed: int, wishes: Wishes = ANY) -> Plan:
    """The plan of a seed."""
    dice = random.Random(seed)
    theme = wishes.theme or dice.choice(tuple(THEMES))
    verbs = THEMES[theme]
    paths = PATHS[: dice.choice((1, 2, 3, len(PATHS)))]
    if theme == "slow":
        paths = PATHS[1 : dice.choice((2, 3))]
    servers = dice.choice((1, 2, 2, 3))
    hot = dice.random() < 0.7
    clients = []
    for number in range(dice.choice((3, 3, 4, 4, 5, 6))):
        favourite = dice.choice(verbs) if dice.random() < 0.4 else None
        ops = tuple(
            _op(
                dice,
                favourite if favourite and dice.random() < 0.6 else dice.choice(verbs),
                theme,
                paths,
                hot,
                number,
                i,
            )
            for i in range(dice.choice((2, 3, 3, 4)))
        )
        clients.append(ClientPlan(f"c{number}", number % servers, ops))
    guards = dice.random() < 0.8 if wishes.guards is None else wishes.guards
    grace_s = SHORT_GRACE_S * dice.choice((1, 2, 4, 1000)) if theme in CLEANING else 3600.0
    grace_s = SHORT_GRACE_S if theme == "slow" else grace_s
    calls = dice.choice((0.0, 0.0, 0.02, 0.05)) if wishes.faults is None else wishes.faults
    stalls = dice.choice((0.0, 0.03)) if theme in CLEANING else 0.0
    stalls = 0.15 if theme == "slow" else stalls
    return Plan(
        theme=theme,
        clients=tuple(clients),
        guards=guards,
        dirty_read_optimization=dice.random() < 0.85,
        grace_s=grace_s,
        faults=Faults(calls, crashes=0.15, stalls=stalls, stall_s=grace_s * 5),
        stored=wishes.stored,
        blind=wishes.blind,
    )


def _op(dice: random.Random, verb: Verb, theme: str, paths: Sequence[str], hot: bool, client: int, number: int) -> Op:
    branch = MAIN if theme != "branch" else SIDE
    path = paths[0] if hot and dice.random() < 0.6 else dice.choice(paths)
    value = f"v{client}.{number}"
    op = _drawn(dice, verb, branch, path, value)
    return msgspec.structs.replace(op, number=number)


def _drawn(dice: random.Random, verb: Verb, branch: str, path: str, value: str) -> Op:
    match verb:
        case Verb.PUT | Verb.PUT_IF_ABSENT:
            return Op(verb, branch, path, value)
        case Verb.DELETE | Verb.GET | Verb.RESET_PATH:
            return Op(verb, branch, path)
        case Verb.DELETE_PREFIX | Verb.RESET_PREFIX:
            return Op(verb, branch, dice.choice(PREFIXES) if verb is Verb.RESET_PREFIX else dice.choice(PREFIXES[:-1]))
        case Verb.LIST:
            return Op(
                verb,
                branch,
                dice.choice(("", "", "a/")),
                delimiter=dice.choice(("", "/")),
                amount=dice.choice((1, 2, 1000, 1000)),
                after=dice.choice(("", "", "a/1")),
            )
        case Verb.COMMIT:
            return Op(verb, branch, value=f"m{value[1:]}", allow_empty=dice.random() < 0.2)
        case Verb.CLEAN:
            return Op(verb, branch, seconds=dice.choice((0.0, 1.0, 1.0, 3.0)))
        case _:
            return Op(verb, branch)


def size(plan: Plan) -> int:
    return sum(len(client.ops) for client in plan.clients)
