"""Files and digests of every format version stay what they are, for ever.

`golden/` holds what version 1 wrote. Never write these files again: a test that fails here means that lakes out there
can no longer be read, or that equal content no longer compares equal.
"""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from esker.format import files
from esker.format.names import digest, digest_of
from esker.model import Entry, FileName
from esker.stores.blob_local import LocalBlobs
from esker.streams.entries import entries_in, table_of
from esker.tree.build import build
from esker.tree.cutting import Cutting
from tests.tree.lakes import open_trees, read_lake

GOLDEN = Path(__file__).parent / "golden" / "v1"

CUTTING = Cutting(salt=0x5EED, entries_mean=4, entries_max=16, bytes_max=1 << 12)

ENTRIES = [
    Entry(
        path=f"tables/été/part-{n:05d}.parquet",
        address=f"data/{n:040x}",
        size=n * 1_000_003,
        checksum=f"{n * 7919:032x}",
        mtime_ms=1_700_000_000_000 + n,
        content_type="application/x-parquet" if n % 2 else "",
        metadata={"owner": "naïve", "n": str(n)} if n % 3 == 0 else {},
    )
    for n in range(20)
]

TREE = FileName("88bac11e1a55b0668557dc10c9d77cae4032ca690beb4cc516927414f40392a2-c90ed77edb6c946b6405a6dc13555b52")


@pytest.fixture
def golden(tmp_path: Path) -> LocalBlobs:
    """A copy, since a store may write below its root."""
    shutil.copytree(GOLDEN, tmp_path / "lake")
    return LocalBlobs(tmp_path / "lake")


def test_the_golden_tree_is_read(golden: LocalBlobs) -> None:
    lake = read_lake(open_trees(CUTTING, golden), TREE)
    assert list(lake.values()) == ENTRIES


def test_the_same_entries_still_give_the_golden_digests(golden: LocalBlobs, tmp_path: Path) -> None:
    new = open_trees(CUTTING, LocalBlobs(tmp_path / "new"))
    tree = build(new, [table_of(ENTRIES)])
    assert digest_of(tree) == digest_of(TREE)
    old = open_trees(CUTTING, golden).metarange(TREE).table.drop_columns(["name"])
    assert new.metarange(tree).table.drop_columns(["name"]).equals(old)


def test_other_readers_of_parquet_read_a_range(golden: LocalBlobs) -> None:
    """By column names alone: what Spark, DuckDB and Polars rely on."""
    for path in sorted((GOLDEN / "_esker" / "ranges").iterdir()):
        table = pq.read_table(path)
        assert table.column_names == files.RANGE.schema.names
        assert digest("range", table.cast(files.RANGE.schema).combine_chunks()) == digest_of(FileName(path.name))
        assert entries_in(table) == [entry for entry in ENTRIES if entry.path in table["path"].to_pylist()]


def test_a_digest_does_not_depend_on_how_arrow_holds_the_rows() -> None:
    table = table_of(ENTRIES)
    padded = table_of([*ENTRIES, Entry(path="a", address="", size=0, checksum="", mtime_ms=0)]).slice(1)
    assert digest("range", padded) == digest("range", table)
