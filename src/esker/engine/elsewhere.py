"""Objects that lie elsewhere, as entries: what a listing of a store says of them, or an inventory.

Nobody reads the bytes, so an entry's checksum is that of where they lie, their size and their time; or, where an
inventory has one, the ETag. As long as these are the same, so is the entry.

Nothing is left out silently: what lies there under a name by which it could not be read again is an error that names
it. Only two things are passed over: links, which are no objects, and the empty objects by which some tools mark a
directory.
"""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esker.engine import repositories
from esker.engine.entries import check_path
from esker.engine.lake import Lake
from esker.errors import InvalidError, Kind
from esker.stores.blob import BlobInfo, BlobStore
from esker.streams.entries import PATH_BYTES_MAX, SCHEMA

_BATCH: Final = 10_000
"""Objects that become rows at a time."""

_LEVELS_MAX: Final = 16
_FILES_MAX: Final = 10_000
"""Files of a directory that are looked at to find the directories among them."""

_LAST: Final = "\U0010ffff"
"""Behind all names of a directory that anybody has."""


def address_of(url: str) -> str:
    """Where a URL points, as entries have it: not quoted. InvalidError unless that is one place, in one spelling."""
    scheme, separator, rest = url.partition("://")
    if scheme == "file":
        rest = unquote(rest)
    parts = rest.removeprefix("/" if scheme == "file" else "").split("/")
    if not separator or any(part in ("", ".", "..") for part in parts[:-1]) or parts[-1] in (".", ".."):
        raise InvalidError(Kind.INVALID_URL, f"{url!r} is no URL of a place in a store: write s3://bucket/prefix/")
    return f"{scheme}://{rest}"


def check_elsewhere(lake: Lake, address: str) -> None:
    """InvalidError if what is at an address, or below one that ends in '/', belongs to a repository: bytes that one may
    delete are no other's to keep, nor its own a second time."""
    for repo in repositories.every(lake):
        home = address_of(repo.namespace.rstrip("/") + "/")
        if f"{address.rstrip('/')}/".startswith(home) or (address.endswith("/") and home.startswith(address)):
            raise InvalidError(Kind.INVALID_ADDRESS, f"{address} is, or holds, data of repository {repo.name!r}")


def listing(
    blobs: BlobStore, root: str, name: str, destination: str, after: str = "", until: str | None = None
) -> Iterator[pa.Table]:
    """What lies below `name`, in order, as entries below `destination`; of names after `after`, and up to `until`.
    `root` is what stands before a name in an address."""
    found = _objects(blobs, name, after, until)
    while some := list(islice(found, _BATCH)):
        names = [info.name for info in some]
        paths = [destination + one[len(name) :] for one in names]
        yield rows(paths, [root + one for one in names], [info.size for info in some], [info.mtime_ms for info in some])


def one(blobs: BlobStore, root: str, name: str, destination: str) -> pa.Table:
    """One object. InvalidError if it is not there."""
    found = blobs.head(name)
    if found is None:
        raise InvalidError(Kind.INVALID_ADDRESS, f"there is nothing at {root}{name}")
    return rows([destination], [root + name], [found.size], [found.mtime_ms])


def is_empty(blobs: BlobStore, name: str) -> bool:
    """Whether nothing lies below a name."""
    return next(_objects(blobs, name, "", None), None) is None


def rows(
    paths: list[str], addresses: list[str], sizes: list[int], mtimes: list[int], checksums: Iterable[str] | None = None
) -> pa.Table:
    """Entries. InvalidError names a path that none can have."""
    for path in paths:
        if len(path) * 4 > PATH_BYTES_MAX or not path:
            check_path(path)
    if checksums is None:
        checksums = [
            hashlib.md5(f"{address}\n{size}\n{mtime}".encode(), usedforsecurity=False).hexdigest()
            for address, size, mtime in zip(addresses, sizes, mtimes, strict=True)
        ]
    nothing = pa.array(np.full(len(paths), "", dtype=object), pa.string())
    return pa.table(
        [
            pa.array(paths, pa.string()),
            pa.array(addresses, pa.string()),
            pa.array(sizes, pa.int64()),
            pa.array(checksums, pa.string()),
            pa.array(mtimes, pa.int64()).cast(SCHEMA.field("mtime").type),
            nothing,
            nothing,
        ],
        schema=SCHEMA,
    )


def cuts(blobs: BlobStore, name: str, wanted: int) -> list[str]:
    """Names that cut what lies below `name` into about so many parts, at directories: each part is what comes after one
    of them, up to the next. Looks at a page of each directory, so it costs little and may find fewer."""
    level = [name]
    found: list[str] = []
    for _ in range(_LEVELS_MAX):
        level = list(islice((below for above in level for below in _directories(blobs, above, wanted)), wanted))
        if not level:
            break
        found = level
        if len(found) >= wanted:
            break
    return found


def _directories(blobs: BlobStore, name: str, most: int) -> Iterator[str]:
    """The first directories below `name`: each with its slash."""
    after, files, count = "", 0, 0
    while count < most:
        for info in blobs.list(name, after):
            cut = info.name.find("/", len(name))
            if cut >= 0:
                break
            files += 1
            if files > _FILES_MAX:
                return
        else:
            return
        directory = info.name[: cut + 1]
        count += 1
        yield directory
        after = directory + _LAST


def _objects(blobs: BlobStore, name: str, after: str, until: str | None) -> Iterator[BlobInfo]:
    last = ""
    for info in blobs.list_all(name, after):
        if until is not None and info.name > until:
            return
        if info.size == 0 and _is_mark(blobs, info.name, last):
            continue
        if info.name <= last or (not last and not name and blobs.head(info.name) is None):
            raise InvalidError(
                Kind.INVALID_PATH,
                f"{blobs.url} lists an object as {info.name!r}, but does not know it by this name: one that begins or "
                "ends with '/' cannot be imported",
            )
        last = info.name
        yield info


def _is_mark(blobs: BlobStore, name: str, last: str) -> bool:
    """Whether an empty object is one called `name/`, which stands for a directory: listings leave its slash out."""
    if name == last:
        return True
    found = blobs.head(name)
    return found is None or found.size > 0


def within(table: pa.Table, prefixes: tuple[str, ...]) -> np.ndarray:
    """Which rows have a path that begins with one of the prefixes."""
    found = np.zeros(table.num_rows, dtype=bool)
    for prefix in prefixes:
        found |= pc.starts_with(table["path"], prefix).to_numpy()
    return found
