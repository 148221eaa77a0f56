"""Damaged, missing and foreign files: always CorruptError, never wrong data, never a hang."""

from pathlib import Path

import pytest

from esker.errors import CorruptError, Kind
from esker.format import files
from esker.format.names import digest, fresh_name
from esker.model import FileName
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.cache import DiskCache
from esker.streams.entries import table_of
from esker.tree import reading
from esker.tree.cutting import Cutting
from esker.tree.rewrite import apply
from esker.world import REAL
from tests.tree.lakes import build_lake, numbered, open_trees, read_lake

CUTTING = Cutting(entries_mean=10)
LAKE = numbered(40)


def stored() -> tuple[MemoryBlobs, FileName]:
    blobs = MemoryBlobs()
    return blobs, build_lake(open_trees(CUTTING, blobs), LAKE)


def bytes_of(blobs: MemoryBlobs, name: str) -> bytes:
    data = blobs.get(name)
    assert data is not None
    return data


def damaged(data: bytes) -> list[bytes]:
    """Every byte flipped (each in another bit), every truncation, and something behind the end."""
    flips = [data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :] for at in range(len(data))]
    return [*flips, *(data[:length] for length in range(len(data))), data + b"\0"]


@pytest.mark.parametrize("kind", ["ranges", "metaranges"])
def test_any_damage_to_a_file_is_seen(kind: str) -> None:
    blobs, tree = stored()
    name = next(info.name for info in blobs.list(f"_esker/{kind}/"))
    good = bytes_of(blobs, name)
    for bad in damaged(good):
        blobs.put(name, bad)
        with pytest.raises(CorruptError) as caught:
            read_lake(open_trees(CUTTING, blobs), tree)
        assert caught.value.kind is Kind.DAMAGED_FILE
    blobs.put(name, good)
    assert read_lake(open_trees(CUTTING, blobs), tree) == LAKE


@pytest.mark.parametrize("kind", ["ranges", "metaranges"])
def test_a_missing_file_is_named(kind: str) -> None:
    blobs, tree = stored()
    name = next(info.name for info in blobs.list(f"_esker/{kind}/"))
    blobs.delete([name])
    trees = open_trees(CUTTING, blobs)
    with pytest.raises(CorruptError, match=name) as caught:
        read_lake(trees, tree)
    assert caught.value.kind is Kind.MISSING_FILE


def test_damage_met_by_a_writer_stores_no_tree() -> None:
    blobs, tree = stored()
    for info in list(blobs.list("_esker/ranges/")):
        blobs.put(info.name, b"")
    before = [info.name for info in blobs.list("_esker/metaranges/")]
    with pytest.raises(CorruptError):
        apply(open_trees(CUTTING, blobs), tree, [], ["dir1"])
    assert [info.name for info in blobs.list("_esker/metaranges/")] == before


def test_two_files_swapped_are_seen() -> None:
    blobs, tree = stored()
    one, two, *_ = (info.name for info in blobs.list("_esker/ranges/"))
    first, second = bytes_of(blobs, one), bytes_of(blobs, two)
    blobs.put(one, second)
    blobs.put(two, first)
    with pytest.raises(CorruptError):
        read_lake(open_trees(CUTTING, blobs), tree)


def test_a_damaged_local_copy_is_fetched_once_more(tmp_path: Path) -> None:
    blobs, tree = stored()
    cached = DiskCache(blobs, tmp_path, 1 << 20)
    assert read_lake(open_trees(CUTTING, cached), tree) == LAKE
    copies = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert copies
    for path in copies:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert read_lake(open_trees(CUTTING, cached), tree) == LAKE


@pytest.mark.parametrize("header", [{"esker.format_version": "2"}, {"esker.format": "metarange"}])
def test_a_file_of_another_format_says_so(header: dict[str, str]) -> None:
    table = table_of(LAKE.values())
    data = memoryview(files.encode(files.RANGE, table, header))
    name = fresh_name(digest("range", table), data, REAL)
    with pytest.raises(CorruptError, match="this esker reads range files of version 1") as caught:
        files.decode(files.RANGE, name, data)
    assert caught.value.kind is Kind.UNKNOWN_FORMAT


def test_a_file_that_is_no_parquet_at_all_is_refused() -> None:
    name = fresh_name(digest("range", table_of([])), b"PAR1 but not quite PAR1", REAL)
    with pytest.raises(CorruptError, match="cannot be read as a range"):
        files.decode(files.RANGE, name, b"PAR1 but not quite PAR1")


def test_a_get_sees_damage_too() -> None:
    blobs, tree = stored()
    for info in list(blobs.list("_esker/ranges/")):
        blobs.put(info.name, bytes_of(blobs, info.name)[:-4])
    with pytest.raises(CorruptError):
        reading.get(open_trees(CUTTING, blobs), tree, "dir1/000004")
