"""Tables of layers: what they hold, found with as few of them opened as may be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.errors import CorruptError
from esker.model import Layer, LayerID
from esker.staging import tables as module
from esker.staging.tables import UNKNOWN
from esker.streams.entries import changes_of, entries_in
from tests.staging.tables import entry, new_place

PATHS = [f"{letter}/{n}" for letter in "abc" for n in range(4)]
some_rows = st.dictionaries(st.sampled_from(PATHS), st.one_of(st.none(), st.integers(0, 9)), max_size=12)


@given(some_rows, st.integers(1, 4))
def test_a_layer_holds_what_was_written_however_it_is_cut(rows: dict[str, int | None], rows_a_table: int) -> None:
    place = new_place()
    layer = place.layer(rows, rows_a_table=rows_a_table)
    for read in (place, place.again()):
        for path in [*PATHS, "", "a", "b/99", "\U0010ffff"]:
            found = read.tables.lookup(layer, path)
            content = rows.get(path)
            assert found == (UNKNOWN if path not in rows else None if content is None else entry(path, content))
    assert layer.count == len(rows)
    assert layer.tombstones == sum(content is None for content in rows.values())
    assert all(one.max < other.min for one, other in zip(layer.tables, layer.tables[1:], strict=False))
    assert all(table.bytes > 0 for table in layer.tables)


@given(some_rows, st.integers(1, 4), st.sampled_from(["", *PATHS]), st.sampled_from([None, *PATHS]), st.integers(1, 5))
def test_parts_of_a_layer_are_its_rows_between(
    rows: dict[str, int | None], rows_a_table: int, start: str, stop: str | None, rows_max: int
) -> None:
    place = new_place()
    layer = place.layer(rows, rows_a_table=rows_a_table)
    inside = sorted(path for path in rows if path >= start and (stop is None or path < stop))
    assert place.tables.changes(layer, start, stop)["path"].to_pylist() == inside
    behind = sorted(path for path in rows if path >= start)
    assert place.tables.some(layer, start, rows_max)["path"].to_pylist() == behind[:rows_max]


def test_many_rows_become_tables_of_at_least_so_many_and_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 10)
    monkeypatch.setattr(module, "TABLES_MAX", 4)
    place = new_place()

    def counts(rows: int, *rows_min: int) -> list[int]:
        changes = changes_of(entry(f"{n:04d}", n) for n in range(rows))
        return [table.count for table in place.tables.write(changes, "main/L1", *rows_min)]

    assert counts(100) == [25] * 4
    assert counts(100, 60) == [60, 40]
    assert counts(5, 10) == [5]
    assert counts(0) == []


def test_a_file_is_called_after_its_branch_and_level() -> None:
    place = new_place()
    layer = place.layer({"a": 1, "b": 2})
    assert layer.tables[0].file.startswith("main/L1/")
    assert [info.name for info in place.blobs.list("")] == [f"_esker/staging/{layer.tables[0].file}.sst"]


def test_filters_and_bounds_spare_opening_tables() -> None:
    place = new_place()
    layers = [place.layer({f"{n % 8}/{n}/{k}": n for k in range(20)}) for n in range(64)]
    fresh = place.again()
    fresh.blobs.reset()
    paths = [f"{n % 8}/{n}/{n % 20}" for n in range(64)] + [f"{n % 8}/{n}/no" for n in range(64)]
    for path in paths:
        fresh.stack(*layers).lookup(path)
    assert fresh.blobs.calls["get"] <= 70, "the tables that have them, each once, and few others"
    assert fresh.stack(*layers).lookup("5/13/7") == entry("5/13/7", 13)


def test_prefix_deletes_hide_wherever_they_are_kept() -> None:
    place = new_place()
    for many in (False, True):
        layer = place.layer({}, ("b/", "a"), many=many)
        assert (layer.more_deletes is not None) == many
        for read in (place, place.again()):
            assert [read.tables.hides(layer, path) for path in ("a", "a/b", "b", "b/x", "c")] == [
                True,
                True,
                False,
                True,
                False,
            ]
            assert read.tables.deletes(layer).all == (b"a", b"b/")
    assert not place.tables.hides(Layer(id=LayerID("none")), "a")


def test_many_prefix_deletes_are_decoded_once() -> None:
    place = new_place()
    layer = place.layer({}, tuple(f"{n:04}/" for n in range(1000)), many=True)
    assert place.tables.hides(layer, "0007/x")
    assert not place.tables.hides(layer, "0007")
    found = place.tables.deletes(layer)
    assert place.tables.deletes(layer) is found
    assert layer.more_deletes
    place.tables.delete(layer.more_deletes.file)
    with pytest.raises(CorruptError, match="missing"):
        place.tables.deletes(layer)


def test_read_ahead_brings_in_at_once_what_is_read_then() -> None:
    place = new_place()
    layers = [
        place.layer({f"{letter}/{n}": n for letter in "abc" for n in range(2)}, ("x/",), rows_a_table=2)
        for _ in range(3)
    ]
    layers.append(place.layer({}, ("y/",), many=True))
    fresh = place.again()
    fresh.blobs.reset()
    fresh.tables.read_ahead(layers, "b/", None, whole=False)
    assert fresh.blobs.calls["get"] == 4, "the first table of each, and a table of prefixes"
    fresh.tables.read_ahead(layers, "b/", "c/", whole=True)
    assert fresh.blobs.calls["get"] == 4
    fresh.tables.read_ahead(layers, "", None, whole=True)
    assert fresh.blobs.calls["get"] == 10
    fresh.stack(*layers).fold()
    fresh.stack(*layers).window(b"")
    assert fresh.blobs.calls["get"] == 10


def test_a_table_that_is_gone_is_missing_and_has_no_filter() -> None:
    place = new_place()
    layer = place.layer({"a": 1, "b": 2})
    place.tables.delete(layer.tables[0].file)
    assert not list(place.blobs.list(""))
    assert not place.kv.scan("filters/uid")
    with pytest.raises(CorruptError, match="missing"):
        place.tables.lookup(layer, "a")
    with pytest.raises(CorruptError, match="missing"):
        place.again().tables.rows(layer.tables[0])


def test_rows_come_back_as_they_were() -> None:
    place = new_place()
    layer = place.layer({"a": 1, "b": None})
    rows = place.again().tables.rows(layer.tables[0])
    assert rows["tombstone"].to_pylist() == [False, True]
    assert entries_in(rows.slice(0, 1)) == [entry("a", 1)]
