"""How the command line names things: `repo/ref/path`, and `esker://` before it to tell it from a local file.

Neither repositories nor refs have a `/` in their names, so the first two parts are theirs, and all that follows is the
path, as it is. `lakefs://repo/ref/path` means the same.
"""

from typing import Final, NamedTuple

from esker.errors import InvalidError, Kind

SCHEMES: Final = ("esker://", "lakefs://")


class Place(NamedTuple):
    repo: str
    ref: str
    path: str
    """Of an object, or the prefix of some; may be empty."""

    def __str__(self) -> str:
        return "/".join((self.repo, self.ref, self.path)) if self.path else f"{self.repo}/{self.ref}"


def is_remote(text: str) -> bool:
    """Whether it says so itself."""
    return text.startswith(SCHEMES)


def repository(text: str) -> str:
    """The name of a repository."""
    name = _bare(text).rstrip("/")
    if not name or "/" in name:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{text!r} is no repository: write its name, such as sales")
    return name


def on_ref(text: str) -> Place:
    """What is on a ref, all of it or under a prefix."""
    repo, _, rest = _bare(text).partition("/")
    ref, _, path = rest.partition("/")
    if not repo or not ref:
        raise InvalidError(
            Kind.INVALID_ARGUMENT, f"{text!r} names no ref: write repo/ref, such as sales/main, or repo/ref/path"
        )
    return Place(repo, ref, path)


def whole_ref(text: str) -> Place:
    """A branch, tag or other ref, and nothing on it."""
    found = on_ref(text.removesuffix("/"))
    if found.path:
        raise InvalidError(
            Kind.INVALID_ARGUMENT, f"{text!r} names something on a ref: write repo/ref alone, {found.repo}/{found.ref}"
        )
    return found


def an_object(text: str) -> Place:
    """One object."""
    found = on_ref(text)
    if not found.path:
        raise InvalidError(
            Kind.INVALID_ARGUMENT, f"{text!r} names no object: write repo/ref/path, such as sales/main/2024/orders.csv"
        )
    return found


def _bare(text: str) -> str:
    for scheme in SCHEMES:
        if text.startswith(scheme):
            return text.removeprefix(scheme)
    if "://" in text:
        raise InvalidError(
            Kind.INVALID_ARGUMENT, f"{text!r} is no place in a lake: write repo/ref/path or esker://repo/ref/path"
        )
    return text
