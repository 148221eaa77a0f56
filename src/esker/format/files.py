"""Range and metarange files: Parquet, so that Spark, DuckDB and Polars read a lake's metadata as it lies.

A range file is one row group of entries: ranges are small enough (about `entries_mean` rows) that a cold point read
fetches one whole file in one request, and can then verify every byte of it. A metarange file is one row a range.
`docs/spec/tree.md` is the normative text.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from esker.errors import CorruptError, Kind
from esker.format.names import check_bytes
from esker.model import FileName
from esker.streams.entries import CHANGES, SCHEMA

FORMAT_VERSION: Final = 1

RANGES: Final = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("min", pa.string(), nullable=False),
        pa.field("max", pa.string(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)
"""A metarange's rows, sorted by `min`. `name` locates a file and is no part of the tree's digest."""


class Shape(NamedTuple):
    """How one kind of file is laid out."""

    kind: str
    schema: pa.Schema
    dictionary: list[str]
    encoding: dict[str, str]
    statistics: list[str]


_SORTED: Final = "DELTA_BYTE_ARRAY"
_TEXT: Final = "DELTA_LENGTH_BYTE_ARRAY"
_NUMBER: Final = "DELTA_BINARY_PACKED"
_ENTRY: Final = {"path": _SORTED, "address": _TEXT, "size": _NUMBER, "checksum": _TEXT, "mtime": _NUMBER}
RANGE: Final = Shape("range", SCHEMA, ["content_type", "metadata"], _ENTRY, ["path"])
LAYER: Final = Shape("layer", CHANGES, ["content_type", "metadata"], _ENTRY, ["path"])
METARANGE: Final = Shape("metarange", RANGES, [], {"min": _SORTED, "max": _SORTED}, ["min", "max"])


def encode(shape: Shape, table: pa.Table, about: dict[str, str]) -> pa.Buffer:
    """A file of these rows. `about` goes into its metadata, for people and tools; readers here need none of it."""
    header = {"esker.format": shape.kind, "esker.format_version": str(FORMAT_VERSION), **about}
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        shape.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=shape.dictionary,
        column_encoding=shape.encoding,
        write_statistics=shape.statistics,
        store_schema=False,
    ) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
        writer.add_key_value_metadata(header)
    return sink.getvalue()


def decode(shape: Shape, name: FileName, data: bytes | memoryview, columns: Sequence[str] = ()) -> pa.Table:
    """The rows of a file, or some columns of them, one chunk a column; CorruptError if these are not the very bytes
    that were written.

    The checksum in the name is compared first, so no parser ever sees a damaged byte.
    """
    check_bytes(name, data)
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        header = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
        version = header.get("esker.format_version", "none")
        if header.get("esker.format") != shape.kind or version != str(FORMAT_VERSION):
            raise CorruptError(
                Kind.UNKNOWN_FORMAT,
                f"{name} is a {header.get('esker.format', 'file of another kind')} of format version {version}; this "
                f"esker reads {shape.kind} files of version {FORMAT_VERSION}: upgrade esker if the lake is newer",
            )
        schema = pa.schema([shape.schema.field(column) for column in columns]) if columns else shape.schema
        return file.read(schema.names, use_threads=False).select(schema.names).cast(schema).combine_chunks()
    except (pa.ArrowException, KeyError, ValueError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise CorruptError(Kind.DAMAGED_FILE, f"{name} cannot be read as a {shape.kind}: {error}") from None
