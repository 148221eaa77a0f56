"""Ref expressions: a name, and how to go on from there.

    expression = base (step* | view)
    base       = commit id | branch | tag | the first digits of a commit id       tried in this order
    step       = "~" [n]      the n-th ancestor along first parents, itself for 0
               | "^" [n]      the n-th parent, itself for 0
    view       = "@"          what is committed to a branch
               | "$"          the branch with what is staged on it, which is no commit

A step without a number means 1. Views stand alone, and on a branch only.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

from esker.errors import InvalidError, Kind, NotFoundError
from esker.model import CommitID
from esker.refs import history
from esker.refs.names import check_ref, did_you_mean, is_commit_id

PREFIX_CHARS_MIN: Final = 4
"""Of a commit's id, as in git: with fewer, a mistyped name would too often be one."""

_N_CHARS_MAX: Final = 9
"""No history is a billion commits long."""

_PARTS: Final = re.compile(r"([^~^]*)((?:[~^][0-9]*)*)(.*)")
_STEP: Final = re.compile(r"([~^])([0-9]*)")
_PREFIX: Final = re.compile(f"[0-9a-f]{{{PREFIX_CHARS_MIN},63}}")


class View(StrEnum):
    """What of a branch an expression asks for by name."""

    COMMITTED = "@"
    STAGED = "$"


class Step(NamedTuple):
    sign: str
    """`~` or `^`."""
    n: int
    text: str


@dataclass(frozen=True, slots=True)
class Expression:
    """As it was written. Steps and a view exclude each other."""

    text: str
    base: str
    steps: tuple[Step, ...] = ()
    view: View | None = None


@dataclass(frozen=True, slots=True)
class Lookup:
    """What `resolve` needs to know of one repository."""

    repository: str
    """Its name, for errors."""
    branch: Callable[[str], CommitID | None]
    tag: Callable[[str], CommitID | None]
    commit: history.Get
    prefix: Callable[[str], CommitID | None]
    """The one commit that begins so, a whole id included; InvalidError if there are several."""
    names: Callable[[], Iterable[str]] = tuple
    """Branches and tags, to suggest one."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What an expression stands for now."""

    text: str
    commit: CommitID
    branch: str | None = None
    """The branch, if the expression is one with no step: only then can anything be staged over the commit."""
    view: View | None = None

    def as_commit(self) -> CommitID:
        """The commit; InvalidError if the expression asks for what is staged, which is none."""
        if self.view is View.STAGED:
            raise InvalidError(
                Kind.INVALID_REF, f"{self.text}: this is no commit; write '{self.branch}' for the branch's last one"
            )
        return self.commit


def parse(text: str) -> Expression:
    """InvalidError if it does not follow the grammar; nothing is looked up."""
    match = _PARTS.fullmatch(check_ref(text))
    assert match is not None, "the last part takes anything"
    head, steps, rest = match.groups()
    base = head.rstrip("@$")
    view = head[len(base) :]
    if not base:
        raise _invalid(text, "it starts with a branch, tag or commit")
    if len(view) > 1 or (view and steps) or rest in ("@", "$"):
        raise _invalid(text, "'@' and '$' stand alone behind a branch")
    if rest:
        raise _invalid(text, "behind '~' or '^' there is a number, or nothing, or the next of them")
    return Expression(
        text,
        base,
        tuple(Step(step[1], _number(text, step[2]), step[0]) for step in _STEP.finditer(steps)),
        View(view) if view else None,
    )


def resolve(expression: Expression, lookup: Lookup) -> Resolved:
    """What the expression stands for; NotFoundError or InvalidError name the part that failed."""
    commit, kind = _find(expression, lookup)
    if expression.view and kind != "branch":
        raise _invalid(
            expression.text, f"'{expression.view}' takes a branch, and '{expression.base}' is a {kind}: leave it out"
        )
    done = expression.base
    for step in expression.steps:
        commit = _walk(expression.text, done, commit, step, lookup.commit)
        done += step.text
    branch = expression.base if kind == "branch" and not expression.steps else None
    return Resolved(expression.text, commit, branch, expression.view)


def _find(expression: Expression, lookup: Lookup) -> tuple[CommitID, str]:
    """The commit that the base names, and what kind of name it is."""
    base = expression.base
    if is_commit_id(base) and (commit := lookup.prefix(base)):
        return commit, "commit"
    if commit := lookup.branch(base):
        return commit, "branch"
    if commit := lookup.tag(base):
        return commit, "tag"
    if _PREFIX.fullmatch(base) and (commit := lookup.prefix(base)):
        return commit, "commit"
    where = "" if base == expression.text else f"{expression.text}: "
    raise NotFoundError(
        Kind.REF_NOT_FOUND,
        f"{where}no branch, tag or commit '{base}' in '{lookup.repository}'{did_you_mean(base, lookup.names())}",
    )


def _walk(text: str, done: str, start: CommitID, step: Step, get: history.Get) -> CommitID:
    """One step on from `start`, which `done` names."""
    if step.n == 0:
        return start
    if step.sign == "^":
        parents = get(start).parents
        if step.n > len(parents):
            count = {0: "no parent", 1: "only one parent"}.get(len(parents), f"only {len(parents)} parents")
            raise NotFoundError(Kind.COMMIT_NOT_FOUND, f"{text}: '{done}' has {count}")
        return parents[step.n - 1]
    ancestors = enumerate(islice(history.first_parents(get, start), step.n + 1))
    taken, (name, _) = deque(ancestors, maxlen=1).pop()
    if taken < step.n:
        count = {0: "no ancestor", 1: "only 1 ancestor"}.get(taken, f"only {taken} ancestors")
        raise NotFoundError(Kind.COMMIT_NOT_FOUND, f"{text}: '{done}' has {count} along first parents")
    return name


def _number(text: str, digits: str) -> int:
    if len(digits) > _N_CHARS_MAX:
        raise _invalid(text, f"{digits[:20]}... is further back than any history goes")
    return int(digits or 1)


def _invalid(text: str, reason: str) -> InvalidError:
    return InvalidError(Kind.INVALID_REF, f"{text}: {reason}")
