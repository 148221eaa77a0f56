"""Where bytes lie, as URLs: of repositories, of objects, and of what may be linked or imported from elsewhere.

No URL that a client sends reaches a directory of the server's own that it was not told to serve: below `storage`, only
repositories' namespaces are, and outside of it only `sources`, and to write to, `targets`.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from esker.errors import ForbiddenError, InvalidError, Kind
from esker.model import Repository

TYPES: Final = {"file": "local", "memory": "mem", "s3": "s3", "gs": "gs", "az": "azure"}
"""What clients call the kind of store that a scheme stands for."""

OWN: Final = ("local", "mem")
"""Schemes by which clients name a place below the server's own storage."""

_URL_CHARS_MAX: Final = 2048


class Place(NamedTuple):
    """A URL taken apart: two that name the same place are equal."""

    scheme: str
    parts: tuple[str, ...]

    @property
    def url(self) -> str:
        if self.scheme == "file":
            return "file:///" + "/".join(map(quote, self.parts))
        return f"{self.scheme}://{'/'.join(self.parts)}"

    @property
    def address(self) -> str:
        """As an entry's address has it: names of blobs are not quoted."""
        return f"{self.scheme}://{'/' * (self.scheme == 'file')}{'/'.join(self.parts)}"

    def is_below(self, other: "Place") -> bool:
        return self.scheme == other.scheme and self.parts[: len(other.parts)] == other.parts


def place(url: str) -> Place:
    """InvalidError unless it is a URL that names one place, and in one way."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in TYPES or len(url) > _URL_CHARS_MAX:
        raise InvalidError(
            Kind.INVALID_URL, f"{url[:100]!r} is no URL of a store: write one of {', '.join(TYPES)}://..."
        )
    if scheme == "file":
        if not rest.startswith("/"):
            raise InvalidError(Kind.INVALID_URL, f"{url!r} names no absolute path: write file:///path")
        rest = unquote(rest.removeprefix("/"))
    parts = tuple(rest.removesuffix("/").split("/")) if rest.strip("/") else ()
    if any(part in ("", ".", "..") or not part.isprintable() for part in parts):
        raise InvalidError(Kind.PATH_ESCAPES, f"{url!r} has an empty, '.', '..' or unprintable part")
    return Place(scheme, parts)


def namespace(storage: str, name: str, asked: str) -> str:
    """The URL for the data of a repository to be created; `asked` is what the client named, if anything."""
    root = place(storage)
    if not asked:
        return Place(root.scheme, (*root.parts, name)).url
    scheme, _, rest = asked.partition("://")
    if scheme in OWN:
        below = place(f"memory://{rest}").parts or (name,)
        return Place(root.scheme, (*root.parts, *below)).url
    found = place(asked)
    if found.scheme in ("file", "memory") and (not found.is_below(root) or found == root):
        raise InvalidError(
            Kind.INVALID_URL, f"{asked!r} is not below this server's storage: write local://{name}, or leave it out"
        )
    if not found.parts:
        raise InvalidError(Kind.INVALID_URL, f"{asked!r} names no bucket")
    return found.url


def absolute(repo: Repository, address: str) -> str:
    """The URL of an entry's bytes."""
    return address if "://" in address else f"{repo.namespace.rstrip('/')}/{address}"


def relative(repo: Repository, url: str) -> str | None:
    """What lies below the repository's namespace, by its address there; None for what does not."""
    root = repo.namespace.rstrip("/") + "/"
    return url.removeprefix(root) if url.startswith(root) else None


def check_elsewhere(
    homes: Iterable[tuple[str, Place]], allowed: Iterable[Place], url: str, setting: str = "sources"
) -> Place:
    """The place of bytes that are not this server's own. ForbiddenError unless it is one of those that are `allowed` by
    the setting; InvalidError if it belongs to a repository, by name and place in `homes`: bytes that one repository may
    delete are no other's to keep."""
    found = place(url)
    if not any(found.is_below(one) for one in allowed):
        may = "take objects from" if setting == "sources" else "export to"
        raise ForbiddenError(
            Kind.INVALID_ADDRESS,
            f"{url!r} is not among the places that this server may {may}: its setting `{setting}` says which "
            f"(--{setting[:-1]}, ESKER_{setting.upper()})",
        )
    for name, home in homes:
        if found.is_below(home) or home.is_below(found):
            raise InvalidError(Kind.INVALID_ADDRESS, f"{url!r} is, or holds, data of repository {name!r}")
    return found
