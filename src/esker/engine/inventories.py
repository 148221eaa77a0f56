"""Inventories: files that list objects, so that nobody has to list a store of billions.

A table in Parquet, ORC or CSV (with a header, and `.gz` if that is how it is packed) with the columns

    key                                       the object: a URL, or its name in the bucket of the source
    size                                      in bytes
    mtime  last_modified  last_modified_date  when it was changed; a number is in milliseconds since 1970
    etag   e_tag                              what its content is known by, if anything

or an inventory of S3's by its `manifest.json`, in any of these. Names are matched without regard to case and `_`, and
other columns are ignored, but for old versions and delete markers, which are left out.
"""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote_plus

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc

from esker.engine import elsewhere
from esker.errors import InvalidError, Kind, NotFoundError
from esker.stores.blob import BlobStore, check_name
from esker.stores.open_blobs import split_url

Locate: TypeAlias = Callable[[str], tuple[BlobStore, str]]
"""From an address to a store, and a name in it."""

_BATCH: Final = 50_000
_NAMES: Final = {
    "key": ("key",),
    "size": ("size",),
    "mtime": ("mtime", "lastmodified", "lastmodifieddate"),
    "etag": ("etag",),
    "latest": ("islatest",),
    "deleted": ("isdeletemarker",),
}


class File(NamedTuple):
    """One file of an inventory."""

    address: str
    columns: tuple[str, ...] | None = None
    """Of CSV without a header, whose keys are quoted as in URLs."""


def files(locate: Locate, address: str) -> list[File]:
    """The files of an inventory: itself, or what its manifest names."""
    if not address.endswith(".json"):
        return [File(address)]
    try:
        manifest = json.loads(_bytes(locate, address))
        bucket = manifest["destinationBucket"].rpartition(":")[2]
        if bucket != split_url(address)[0].rpartition("/")[2]:
            raise InvalidError(
                Kind.INVALID_ARGUMENT, f"{address} is a copy: an inventory is read in its own bucket, {bucket}"
            )
        columns = tuple(name.strip() for name in manifest["fileSchema"].split(","))
        is_csv = manifest["fileFormat"] == "CSV"
        return [File(f"s3://{bucket}/{one['key']}", columns if is_csv else None) for one in manifest["files"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidError(
            Kind.INVALID_ARGUMENT, f"{address} is no manifest of an S3 inventory: {type(error).__name__} {error}"
        ) from None


def listing(locate: Locate, file: File, source: str, destination: str) -> Iterator[pa.Table]:
    """What the file lists below the address `source`, as entries below `destination`; in no order."""
    for batch in _tables(locate, file):
        yield _rows(file, batch, source, destination)


def _rows(file: File, batch: pa.Table, source: str, destination: str) -> pa.Table:
    column = _columns(file, batch)
    if "latest" in column:
        batch = batch.filter(_is_true(batch[column["latest"]]))
    if "deleted" in column:
        batch = batch.filter(pc.invert(_is_true(batch[column["deleted"]])))
    keys = batch[column["key"]].cast(pa.string()).to_pylist()
    if file.columns is not None:
        keys = [unquote_plus(key) for key in keys]
    root, _ = split_url(source)
    local = source.startswith("file:")
    bucket = "file:///" if local else f"{root}/"
    addresses = [key if "://" in key else bucket + (key.lstrip("/") if local else key) for key in keys]
    sizes = _integers(file, batch[column["size"]])
    mtimes = _times(file, batch[column["mtime"]]) if "mtime" in column else [0] * len(keys)
    etags = batch[column["etag"]].cast(pa.string()).to_pylist() if "etag" in column else [""] * len(keys)
    kept = [
        at
        for at, address in enumerate(addresses)
        if address.startswith(source) and not (address.endswith("/") and not sizes[at])
    ]
    for at in kept:
        check_name(split_url(addresses[at])[1])
    table = elsewhere.rows(
        [destination + addresses[at][len(source) :] for at in kept],
        [addresses[at] for at in kept],
        [sizes[at] for at in kept],
        [mtimes[at] for at in kept],
    )
    known = pa.array([(etags[at] or "").strip('"') for at in kept], pa.string())
    checksums = pc.if_else(pc.equal(known, ""), table["checksum"], known)
    return table.set_column(3, table.schema.field("checksum"), checksums)


def _columns(file: File, batch: pa.Table) -> dict[str, str]:
    """What its columns are called, by what they are."""
    plain = {name.replace("_", "").replace(" ", "").lower(): name for name in batch.column_names}
    found = {ours: plain[name] for ours, names in _NAMES.items() for name in names if name in plain}
    for needed in ("key", "size"):
        if needed not in found:
            raise InvalidError(Kind.INVALID_ARGUMENT, f"the inventory {file.address} has no column {needed!r}")
    return found


def _tables(locate: Locate, file: File) -> Iterator[pa.Table]:
    data = _bytes(locate, file.address)
    name = file.address
    try:
        if name.endswith(".parquet"):
            for batch in pq.ParquetFile(pa.BufferReader(data)).iter_batches(_BATCH):
                yield pa.Table.from_batches([batch])
            return
        if name.endswith(".orc"):
            stripes = orc.ORCFile(pa.BufferReader(data))
            for number in range(stripes.nstripes):
                yield pa.Table.from_batches([stripes.read_stripe(number)])
            return
        if name.endswith(".gz"):
            data, name = gzip.decompress(data), name.removesuffix(".gz")
        if not name.endswith(".csv"):
            raise InvalidError(
                Kind.INVALID_ARGUMENT, f"{file.address} is no inventory: that is .parquet, .orc, .csv, .csv.gz or .json"
            )
        lines = csv.reader(io.StringIO(data.decode("utf-8"), newline=""))
        names = list(file.columns) if file.columns else next(lines, [])
        rows: list[list[str]] = []
        for line in lines:
            if len(line) != len(names):
                raise InvalidError(Kind.INVALID_ARGUMENT, f"{file.address}, line {lines.line_num}: {len(line)} values")
            rows.append(line)
            if len(rows) == _BATCH:
                yield _table(names, rows)
                rows = []
        if rows or names:
            yield _table(names, rows)
    except (pa.ArrowException, OSError, EOFError, ValueError, csv.Error) as error:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"the inventory {file.address} cannot be read: {error}") from None


def _table(names: list[str], rows: list[list[str]]) -> pa.Table:
    columns: list[Sequence[str]] = [*zip(*rows, strict=True)] if rows else [()] * len(names)
    return pa.table([pa.array(column, pa.string()) for column in columns], names=names)


def _integers(file: File, column: pa.ChunkedArray) -> list[int]:
    try:
        found: list[Any] = pc.cast(column, pa.int64()).to_pylist()
    except pa.ArrowInvalid as error:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"the inventory {file.address} has a wrong size: {error}") from None
    if any(size is None or size < 0 for size in found):
        raise InvalidError(Kind.INVALID_ARGUMENT, f"the inventory {file.address} lacks a size, or has a negative one")
    return found


def _times(file: File, column: pa.ChunkedArray) -> list[int]:
    """In milliseconds since 1970."""
    kind = column.type
    try:
        if pa.types.is_string(kind) and pc.all(pc.match_substring_regex(column, "^[0-9]+$")).as_py():
            column = pc.cast(column, pa.int64())
        elif pa.types.is_string(kind):
            column = pc.strptime(pc.replace_substring_regex(column, r"(\.[0-9]+)?(Z|\+00:00)?$", ""), _ISO, "ms")
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        return [at or 0 for at in column.cast(pa.int64()).to_pylist()]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"the inventory {file.address} has a wrong time: {error}") from None


_ISO: Final = "%Y-%m-%dT%H:%M:%S"


def _is_true(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_boolean(column.type):
        return pc.fill_null(column, False)
    return pc.equal(pc.utf8_lower(column.cast(pa.string())), "true")


def _bytes(locate: Locate, address: str) -> bytes:
    blobs, name = locate(address)
    data = blobs.get(name)
    if data is None:
        raise NotFoundError(Kind.OBJECT_NOT_FOUND, f"there is no inventory at {address}")
    return data
