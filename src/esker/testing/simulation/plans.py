"""What clients do in one schedule: data, drawn from a seed, that can be printed and cut down.

Each schedule has a theme, so that few operations meet often, rather than all kinds meeting seldom. Almost every value
that is written is unique, so that whoever reads one knows who wrote it; some are what was committed at first.
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
"""On the branches before the first client comes."""
AHEAD: Final = {"a/2": "side-a2", "b/1": "side-b1"}
"""On the side branch, in a commit of its own."""
STASHES: Final = ("s", "s", "t")


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
    APPEND = "append"
    MINOR = "minor"
    MAJOR = "major"
    STASH = "stash"
    POP = "pop"
    DROP_STASH = "drop-stash"
    MERGE = "merge"
    REVERT = "revert"
    CHERRY_PICK = "cherry-pick"
    MOVE = "move"


LANDING: Final = frozenset({Verb.MERGE, Verb.REVERT, Verb.CHERRY_PICK, Verb.MOVE})
"""Verbs that land a commit on a clean branch."""


STAGING: Final = frozenset({Verb.PUT, Verb.PUT_IF_ABSENT, Verb.DELETE, Verb.DELETE_PREFIX})
"""Verbs that a memstore gathers."""


class Memstore(StrEnum):
    """Which servers have one."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


class Op(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a client asks for."""

    verb: Verb
    branch: str = MAIN
    path: str = ""
    """Or a prefix."""
    value: str = ""
    """Of a put: mostly unique. Of what commits: the message, unique. Of what stashes: the stash's name."""
    delimiter: str = ""
    amount: int = 1000
    after: str = ""
    seconds: float = 0.0
    allow_empty: bool = False
    """Of a commit."""
    puts: tuple[str, ...] = ()
    """Of a layer: the paths that get its value, that are deleted, and that are deleted with what begins so."""
    gone: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    force: bool = False
    """Of a compaction: whoever else is at it loses."""
    source: str = ""
    """Of what lands: the ref that is merged, reverted, picked or moved to."""
    strategy: str = ""
    squash: bool = False
    expects: bool = False
    """Of a merge: only onto the head that was seen before."""
    number: int = 0
    """Among its client's."""

    def __str__(self) -> str:
        words = [self.verb.value]
        words += [] if self.branch == MAIN else [f"on {self.branch}"]
        words += [repr(self.path)] if self.path else []
        words += [f"{self.puts}"] if self.puts else []
        words += [f"= {self.value}"] if self.value else []
        words += [f"without {self.gone}"] if self.gone else []
        words += [f"over none of {self.deletes[:3]}"] if self.deletes else []
        words += [f"from {self.source}"] if self.source else []
        words += [self.strategy] if self.strategy else []
        words += [name for name in ("force", "squash", "expects") if getattr(self, name)]
        words += [f"delimiter {self.delimiter!r}"] if self.delimiter else []
        words += [f"after {self.after!r} at most {self.amount}"] if self.verb is Verb.LIST else []
        return " ".join(words)

    def laid_over(self, view: dict[str, str]) -> dict[str, str]:
        """A view with the layer over it."""
        laid = {path: value for path, value in view.items() if not path.startswith(self.deletes)}
        laid |= dict.fromkeys(self.puts, self.value)
        return {path: value for path, value in laid.items() if path not in self.gone}


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
    memstore: Memstore = Memstore.NONE
    small: bool = True
    """With tables of two rows, and two prefix deletes already in a table of their own."""
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
    "layers": (
        Verb.PUT,
        Verb.PUT,
        Verb.DELETE,
        Verb.DELETE,
        *(Verb.APPEND,) * 4,
        *(Verb.MINOR,) * 3,
        *(Verb.MAJOR,) * 2,
        Verb.DELETE_PREFIX,
        Verb.PUT_IF_ABSENT,
        *(Verb.COMMIT,) * 2,
        Verb.GET,
        Verb.LIST,
        Verb.RESET,
        Verb.RESET_PREFIX,
    ),
    "compact": (
        *(Verb.APPEND,) * 3,
        *(Verb.MINOR,) * 4,
        *(Verb.MAJOR,) * 3,
        *(Verb.COMMIT,) * 3,
        Verb.PUT,
        Verb.DELETE,
        Verb.DELETE_PREFIX,
        Verb.RESET_PATH,
        Verb.GET,
    ),
    "stash": (
        *_WRITES,
        *(Verb.APPEND,) * 2,
        *(Verb.STASH,) * 3,
        *(Verb.POP,) * 3,
        Verb.DROP_STASH,
        Verb.MINOR,
        *(Verb.MAJOR,) * 2,
        *(Verb.COMMIT,) * 2,
        Verb.DELETE_PREFIX,
        Verb.GET,
        Verb.RESET_PREFIX,
    ),
    "waste": (
        *(Verb.PUT,) * 2,
        Verb.DELETE,
        *(Verb.APPEND,) * 4,
        *(Verb.MINOR,) * 3,
        *(Verb.MAJOR,) * 3,
        *(Verb.COMMIT,) * 3,
        *(Verb.CLEAN,) * 5,
        *(Verb.GET,) * 2,
        Verb.LIST,
        Verb.RESET,
        *(Verb.STASH,) * 2,
        *(Verb.POP,) * 2,
        Verb.DROP_STASH,
    ),
    "gone": (
        *(Verb.APPEND,) * 3,
        Verb.PUT,
        Verb.DELETE,
        *(Verb.STASH,) * 2,
        Verb.POP,
        Verb.MINOR,
        Verb.MAJOR,
        Verb.COMMIT,
        *(Verb.CREATE_BRANCH,) * 2,
        *(Verb.DELETE_BRANCH,) * 2,
        Verb.CLEAN,
        Verb.CLEAN,
    ),
    "late": (
        *(Verb.APPEND,) * 4,
        *(Verb.MAJOR,) * 5,
        *(Verb.RESET,) * 3,
        Verb.MINOR,
        Verb.COMMIT,
        *(Verb.CLEAN,) * 4,
        *(Verb.GET,) * 5,
        Verb.LIST,
    ),
    "stall": (
        *(Verb.PUT,) * 4,
        Verb.DELETE,
        *(Verb.MINOR,) * 3,
        *(Verb.RESET_PATH,) * 3,
        *(Verb.RESET_PREFIX,) * 2,
        *(Verb.CLEAN,) * 4,
        Verb.COMMIT,
        Verb.STASH,
        Verb.MERGE,
        Verb.MERGE,
    ),
    "memstore": (
        *_WRITES,
        *_WRITES,
        *(Verb.PUT_IF_ABSENT,) * 5,
        *(Verb.DELETE_PREFIX,) * 2,
        *(Verb.GET,) * 2,
        Verb.LIST,
        *(Verb.COMMIT,) * 2,
        Verb.MINOR,
        Verb.MAJOR,
        Verb.RESET,
        Verb.RESET_PATH,
        Verb.STASH,
        Verb.POP,
        Verb.APPEND,
    ),
    "line": (
        *(Verb.MERGE,) * 4,
        *(Verb.REVERT,) * 4,
        *(Verb.CHERRY_PICK,) * 5,
        *(Verb.PUT,) * 2,
        Verb.DELETE,
        *(Verb.COMMIT,) * 2,
    ),
    "merge": (
        *(Verb.PUT,) * 4,
        Verb.DELETE,
        *(Verb.COMMIT,) * 5,
        *(Verb.MERGE,) * 6,
        Verb.REVERT,
        Verb.REVERT,
        Verb.CHERRY_PICK,
        Verb.MOVE,
        Verb.GET,
    ),
    "land": (
        *(Verb.PUT,) * 2,
        Verb.DELETE,
        Verb.APPEND,
        Verb.DELETE_PREFIX,
        *(Verb.MINOR, Verb.MAJOR, Verb.RESET) * 2,
        *(Verb.COMMIT,) * 3,
        *(Verb.MERGE,) * 5,
        Verb.REVERT,
        Verb.CHERRY_PICK,
        Verb.STASH,
        Verb.POP,
    ),
}

CLEANING: Final = frozenset({"clean", "slow", "branch", "all", "waste", "gone", "late", "stall"})
"""Themes with a cleaner, and a grace time that a client can outsleep."""
MERGING: Final = frozenset({"merge", "land", "line"})
"""Themes on both branches."""
_STALLING: Final = frozenset({"slow", "late", "stall"})
"""Themes whose clients often stand still for longer than the grace time."""
_MEMSTORES: Final = {
    "memstore": (Memstore.ALL, Memstore.ALL, Memstore.SOME),
    "layers": (Memstore.NONE, Memstore.NONE, Memstore.SOME),
    "stash": (Memstore.NONE, Memstore.NONE, Memstore.SOME),
    "land": (Memstore.NONE, Memstore.NONE, Memstore.SOME),
}
_ON_SIDE: Final = frozenset({"branch", "gone"})
_SIDE_VERBS: Final = frozenset({Verb.PUT, Verb.DELETE, Verb.APPEND, Verb.COMMIT, Verb.GET})
_FILLERS: Final = tuple(f"z/{number:02}/" for number in range(33))
"""Prefixes that nothing begins with: more of them than a record takes."""
SHORT_GRACE_S: Final = 0.03
"""Thirty turns: long enough to read in, short enough for a client that stands still to be overtaken by the cleaner."""


def draw(seed: int, wishes: Wishes = ANY) -> Plan:
    """The plan of a seed."""
    dice = random.Random(seed)
    theme = wishes.theme or dice.choice(tuple(THEMES))
    verbs = THEMES[theme]
    paths = PATHS[: dice.choice((1, 2, 3, len(PATHS)))]
    if theme in ("slow", "stall"):
        paths = PATHS[1 : dice.choice((2, 3))]
    servers = 2 if theme == "line" else dice.choice((1, 2, 2, 3))
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
            for i in range(6 if theme in ("late", "stall") else dice.choice((2, 3, 3, 4)))
        )
        server = int(number == 0) if theme == "line" else number % servers  # in line: on one server, but for one
        clients.append(ClientPlan(f"c{number}", server, ops))
    guards = dice.random() < 0.8 if wishes.guards is None else wishes.guards
    grace_s = SHORT_GRACE_S * dice.choice((1, 2, 4, 1000)) if theme in CLEANING else 3600.0
    grace_s = SHORT_GRACE_S if theme in _STALLING else grace_s
    calls = dice.choice((0.0, 0.0, 0.02, 0.05)) if wishes.faults is None else wishes.faults
    stalls = dice.choice((0.0, 0.03)) if theme in CLEANING else 0.0
    stalls = 0.15 if theme in _STALLING else stalls
    return Plan(
        theme=theme,
        clients=tuple(clients),
        guards=guards,
        dirty_read_optimization=dice.random() < 0.85,
        memstore=dice.choice(_MEMSTORES.get(theme, (Memstore.NONE,))),
        small=dice.random() < 0.8,
        grace_s=grace_s,
        faults=Faults(calls, crashes=0.15, stalls=stalls, stall_s=grace_s * 5),
        stored=wishes.stored,
        blind=wishes.blind,
    )


def branch_of(theme: str) -> str:
    """The one that is at stake."""
    return SIDE if theme in _ON_SIDE else MAIN


def _op(dice: random.Random, verb: Verb, theme: str, paths: Sequence[str], hot: bool, client: int, number: int) -> Op:
    branch = branch_of(theme)
    if theme in MERGING and verb in _SIDE_VERBS and dice.random() < 0.5:
        branch = SIDE
    path = paths[0] if hot and dice.random() < 0.6 else dice.choice(paths)
    value = f"v{client}.{number}"
    if theme not in _OLD and path in COMMITTED and dice.random() < 0.1:
        value = COMMITTED[path]
    op = _landing(dice, verb, branch, f"m{client}.{number}", theme == "line") if verb in LANDING else None
    op = op or _drawn(dice, verb, branch, path, value, paths, f"m{client}.{number}")
    return msgspec.structs.replace(op, number=number)


_OLD: Final = frozenset({"commit", "if-absent", "prefix", "reset", "clean", "slow", "branch", "all"})


def _drawn(
    dice: random.Random, verb: Verb, branch: str, path: str, value: str, paths: Sequence[str], message: str
) -> Op:
    match verb:
        case Verb.PUT | Verb.PUT_IF_ABSENT:
            return Op(verb, branch, path, value)
        case Verb.DELETE | Verb.GET | Verb.RESET_PATH:
            return Op(verb, branch, path)
        case Verb.DELETE_PREFIX | Verb.RESET_PREFIX:
            return Op(verb, branch, dice.choice(PREFIXES) if verb is Verb.RESET_PREFIX else dice.choice(PREFIXES[:-1]))
        case Verb.APPEND:
            return _layer(dice, branch, path, value, paths)
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
            return Op(verb, branch, value=message, allow_empty=dice.random() < 0.2)
        case Verb.CLEAN:
            return Op(verb, branch, seconds=dice.choice((0.0, 1.0, 1.0, 3.0)))
        case Verb.MINOR | Verb.MAJOR:
            return Op(verb, branch, force=dice.random() < 0.5)
        case Verb.STASH | Verb.POP | Verb.DROP_STASH:
            strategy = dice.choice(("", "", "source-wins", "dest-wins")) if verb is Verb.POP else ""
            return Op(verb, branch, value=dice.choice(STASHES), strategy=strategy)
        case _:
            return Op(verb, branch)


def _layer(dice: random.Random, branch: str, path: str, value: str, paths: Sequence[str]) -> Op:
    """Several changes at once."""
    others = [other for other in paths if other != path]
    puts = {path} | {other for other in others if dice.random() < 0.4} if dice.random() < 0.8 else set()
    gone = {other for other in paths if other not in puts and dice.random() < 0.4}
    deletes = tuple(prefix for prefix in dict.fromkeys(PREFIXES[:-1]) if dice.random() < 0.15)
    if dice.random() < 0.05:
        deletes += _FILLERS
    if not puts and not gone and not deletes:
        gone = {path}
    return Op(Verb.APPEND, branch, value=value, puts=tuple(sorted(puts)), gone=tuple(sorted(gone)), deletes=deletes)


def _landing(dice: random.Random, verb: Verb, branch: str, message: str, strict: bool) -> Op:
    source = SIDE
    if verb is Verb.MERGE and dice.random() < 0.2:
        branch, source = SIDE, MAIN
    elif verb is not Verb.MERGE:
        source = dice.choice((SIDE, MAIN, f"{MAIN}~1", f"{SIDE}~1"))
    if verb is not Verb.MERGE:
        return Op(verb, branch, value=message, source=source)
    strategy = dice.choice(("", "", "", "source-wins", "dest-wins"))
    squash, expects = dice.random() < 0.3, dice.random() < (0.5 if strict else 0.2)
    return Op(verb, branch, value=message, source=source, strategy=strategy, squash=squash, expects=expects)


def size(plan: Plan) -> int:
    return sum(len(client.ops) for client in plan.clients)
