"""Build a tree from sorted entries."""

from collections.abc import Iterable

import pyarrow as pa

from esker.errors import InvalidError, Kind
from esker.model import FileName
from esker.streams.entries import check
from esker.tree.trees import Trees
from esker.tree.writer import Writer

_BATCH_ROWS = 1 << 16
"""How many rows are checked and hashed at a time: bounded memory, few calls."""


def build(trees: Trees, batches: Iterable[pa.Table]) -> FileName:
    """The tree of these entries, sorted by path within and across batches; else InvalidError naming the row."""
    writer = Writer(trees)
    last = ""
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            table = check(batch.slice(start, _BATCH_ROWS))
            first = table["path"][0].as_py()
            if first <= last:
                raise InvalidError(
                    Kind.INVALID_BATCH, f"{first!r} comes after {last!r}: entries must be sorted, each path once"
                )
            writer.rows(table)
            last = table["path"][-1].as_py()
    return writer.finish()
