"""Which names may be given to repositories, branches and tags, and what text may be a ref.

Every branch and tag let through here can be named in a ref expression, and never reads as a commit or a modifier.
"""

import difflib
import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

from esker.errors import InvalidError, Kind

NAME_BYTES_MAX: Final = 255
"""Of a branch or tag: a branch names a directory of sstables, and file systems stop here."""

REF_BYTES_MAX: Final = 1024
"""Of a whole expression. Any base within it may be looked up as a key."""

REPOSITORY_CHARS_MIN: Final = 3
REPOSITORY_CHARS_MAX: Final = 63

_CANDIDATES_MAX: Final = 1000
"""How many names a suggestion is looked for among: it must not cost more than the answer it adorns."""

_COMMIT: Final = re.compile(r"[0-9a-f]{64}")
_NOT_IN_REPOSITORY: Final = re.compile(r"[^a-z0-9-]")
_NOT_IN_BRANCH: Final = re.compile(r"[^A-Za-z0-9_-]")
_NOT_IN_TAG: Final = re.compile(r"[\0- \s\x7f/~^:?*\[\\]|\.\.|@\{")
"""As git, and no `/`: a ref is one segment of an address."""


def check_repository(name: str) -> str:
    """The name, if a repository may have it."""
    if not REPOSITORY_CHARS_MIN <= len(name) <= REPOSITORY_CHARS_MAX:
        rule = f"has {REPOSITORY_CHARS_MIN} to {REPOSITORY_CHARS_MAX} characters"
        raise _invalid("repository", name, rule, f"it has {len(name)}")
    if found := _NOT_IN_REPOSITORY.search(name):
        rule = "has only lowercase letters, digits and '-'"
        raise _invalid("repository", name, rule, f"replace {found[0]!r}")
    if name[0] == "-":
        raise _invalid("repository", name, "starts with a letter or digit", "take the '-' off its start")
    return name


def check_branch(name: str) -> str:
    """The name, if a branch may have it."""
    _check_length("branch", name)
    if found := _NOT_IN_BRANCH.search(name):
        rule = "has only ASCII letters, digits, '_' and '-'"
        raise _invalid("branch", name, rule, f"replace {found[0]!r}")
    if name[0] == "-":
        raise _invalid("branch", name, "starts with a letter, digit or '_'", "take the '-' off its start")
    return _check_no_commit("branch", name)


def check_tag(name: str, kind: str = "tag") -> str:
    """The name, if a tag may have it: git's rules, and nothing that an expression would read as a modifier. What else
    is called by these rules is told by its `kind`."""
    _check_length(kind, name)
    if found := _NOT_IN_TAG.search(name):
        rule = "has no space, control character, '/', '~', '^', ':', '?', '*', '[', '\\', '..' or '@{'"
        raise _invalid(kind, name, rule, f"replace {found[0]!r}")
    for end in (".", ".lock", "@", "$"):
        if name.endswith(end):
            raise _invalid(kind, name, f"ends otherwise than with {end!r}", "take it off, or put something behind it")
    return _check_no_commit(kind, name)


def check_ref(text: str) -> str:
    """The text, if it may be a ref expression at all."""
    if not text or any(map(str.isspace, text)):
        raise InvalidError(Kind.INVALID_REF, f"a ref is not empty and has no spaces: {text!r} is none")
    if not _is_text(text) or len(text.encode()) > REF_BYTES_MAX:
        raise InvalidError(
            Kind.INVALID_REF, f"a ref is at most {REF_BYTES_MAX} bytes of UTF-8: {text[:40]!r}... is none"
        )
    return text


def is_commit_id(text: str) -> bool:
    """Whether it looks like one: 64 lowercase hexadecimal digits."""
    return _COMMIT.fullmatch(text) is not None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """What to put behind "no branch 'mian'": "; did you mean 'main'?" if a candidate is close, else nothing."""
    close = difflib.get_close_matches(name, islice(candidates, _CANDIDATES_MAX), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _check_length(kind: str, name: str) -> None:
    if not _is_text(name) or not 0 < len(name.encode()) <= NAME_BYTES_MAX:
        raise _invalid(kind, name, f"has 1 to {NAME_BYTES_MAX} bytes of UTF-8", "choose another")


def _check_no_commit(kind: str, name: str) -> str:
    if is_commit_id(name):
        raise _invalid(
            kind, name, "differs from 64 hexadecimal digits, which read as a commit", "put something before it"
        )
    return name


def _is_text(text: str) -> bool:
    """Half of a surrogate pair, which JSON can smuggle in, is no character and has no bytes."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _invalid(kind: str, name: str, rule: str, way_out: str) -> InvalidError:
    return InvalidError(Kind.INVALID_NAME, f"the name of a {kind} {rule}; {name[:80]!r} does not: {way_out}")
