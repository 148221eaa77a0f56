"""Entries as Arrow tables: the one in-memory form of bulk metadata.

`SCHEMA` holds entries, sorted by path (byte order of UTF-8, which is also Python's order of `str`), each path once.
`CHANGES` adds a column `tombstone`: a row that says its path is deleted, and whose other fields are empty. No column
has nulls; user metadata is canonical JSON (sorted keys, no spaces), empty for none: equal metadata is equal text.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esker.errors import InvalidError, Kind
from esker.model import Entry
from esker.streams.arrays import integers, text_buffers

PATH_BYTES_MAX: Final = 1024

SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("address", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("checksum", pa.string(), nullable=False),
        pa.field("mtime", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("content_type", pa.string(), nullable=False),
        pa.field("metadata", pa.string(), nullable=False),
    ]
)

CHANGES: Final = SCHEMA.append(pa.field("tombstone", pa.bool_(), nullable=False))

NO_ENTRIES: Final = SCHEMA.empty_table().combine_chunks()
NO_CHANGES: Final = CHANGES.empty_table().combine_chunks()

IDENTITY: Final = ("size", "checksum", "content_type", "metadata")
"""The columns that decide whether content changed."""

TEXTS: Final = tuple(field.name for field in SCHEMA if pa.types.is_string(field.type))
FIXED_BYTES: Final = 8 * (len(SCHEMA) - len(TEXTS))


def table_of(entries: Iterable[Entry]) -> pa.Table:
    """Entries as a table, sorted by path; of two with one path the later wins."""
    return pa.table(_columns(_by_path((entry.path, entry) for entry in entries)), schema=SCHEMA)


def changes_of(puts: Iterable[Entry] = (), deletes: Iterable[str] = ()) -> pa.Table:
    """Puts and deletes as a table of changes, sorted by path. A path both put and deleted is put."""
    both: list[tuple[str, Entry | None]] = [(path, None) for path in deletes]
    both += [(entry.path, entry) for entry in puts]
    rows = _by_path(both)
    return pa.table([*_columns(rows), [entry is None for _, entry in rows]], schema=CHANGES)


def as_changes(entries: pa.Table) -> pa.Table:
    """Entries as changes that put them all."""
    return entries.append_column(CHANGES.field("tombstone"), pa.array(np.zeros(entries.num_rows, dtype=bool)))


def puts_in(changes: pa.Table) -> pa.Table:
    """The entries that a table of changes puts."""
    return changes.filter(pc.invert(changes["tombstone"])).drop_columns(["tombstone"])


def entries_in(table: pa.Table) -> list[Entry]:
    """Rows as entries: for what is bounded by a page."""
    columns = [table.column(name).to_pylist() for name in SCHEMA.names if name != "mtime"]
    mtimes = table.column("mtime").cast(pa.int64()).to_pylist()
    return [
        Entry(
            path=path,
            address=address,
            size=size,
            checksum=checksum,
            mtime_ms=mtime,
            content_type=content_type,
            metadata=metadata_in(metadata),
        )
        for mtime, path, address, size, checksum, content_type, metadata in zip(mtimes, *columns, strict=True)
    ]


def metadata_text(metadata: dict[str, str]) -> str:
    return msgspec.json.encode(metadata, order="sorted").decode() if metadata else ""


def metadata_in(text: str) -> dict[str, str]:
    return _METADATA.decode(text) if text else {}


_METADATA: Final = msgspec.json.Decoder(dict[str, str])


def check(table: pa.Table, schema: pa.Schema = SCHEMA) -> pa.Table:
    """The table with `schema` and one chunk a column, if it is what it should be; else an error naming the row."""
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise InvalidError(Kind.INVALID_BATCH, f"a table of entries needs the column {missing[0]!r}")
    try:
        table = table.select(schema.names).combine_chunks()
        for name in schema.names:
            if table[name].null_count:
                row = pc.index(pc.is_null(table[name]), pa.scalar(True)).as_py()
                raise InvalidError(Kind.INVALID_BATCH, f"row {row}: {name} is null")
        table = table.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidError(Kind.INVALID_BATCH, f"a table of entries does not have the right types: {error}") from None
    if table.num_rows == 0:
        return table
    paths = table["path"].chunk(0)
    lengths = np.diff(text_buffers(paths)[0])
    _refuse(table, (lengths == 0) | (lengths > PATH_BYTES_MAX), f"a path is 1 to {PATH_BYTES_MAX} bytes")
    ordered = pc.less(paths[:-1], paths[1:]).to_numpy(zero_copy_only=False)
    _refuse(table, np.concatenate([[False], ~ordered]), "paths are not sorted, or one stands twice")
    _refuse(table, integers(table["size"].chunk(0)) < 0, "size is negative")
    return table


def _refuse(table: pa.Table, bad: np.ndarray, why: str) -> None:
    if bad.any():
        row = int(bad.argmax())
        raise InvalidError(Kind.INVALID_BATCH, f"row {row} ({table['path'][row].as_py()!r}): {why}")


def _by_path(rows: Iterable[tuple[str, Entry | None]]) -> list[tuple[str, Entry | None]]:
    return sorted(dict(rows).items())


def _columns(rows: Sequence[tuple[str, Entry | None]]) -> list[pa.Array]:
    for path, _ in rows:
        try:
            size = len(path.encode())
        except UnicodeEncodeError:
            raise InvalidError(Kind.INVALID_PATH, f"path {path!r} is not valid UTF-8") from None
        if not 0 < size <= PATH_BYTES_MAX:
            raise InvalidError(Kind.INVALID_PATH, f"a path is 1 to {PATH_BYTES_MAX} bytes, not {size}: {path[:60]!r}")
    entries = [entry or _NOTHING for _, entry in rows]
    return [
        pa.array([path for path, _ in rows], pa.string()),
        pa.array([entry.address for entry in entries], pa.string()),
        pa.array([entry.size for entry in entries], pa.int64()),
        pa.array([entry.checksum for entry in entries], pa.string()),
        pa.array([entry.mtime_ms for entry in entries], pa.int64()).cast(SCHEMA.field("mtime").type),
        pa.array([entry.content_type for entry in entries], pa.string()),
        pa.array([metadata_text(entry.metadata) for entry in entries], pa.string()),
    ]


_NOTHING: Final = Entry(path="", address="", size=0, checksum="", mtime_ms=0)
