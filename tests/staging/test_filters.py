"""Bloom filters: no path of a table is ever denied, and few others are let through."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from esker.errors import OutcomeUnknownError
from esker.model import FileName, Table
from esker.staging import filters
from esker.staging.filters import Filters
from esker.stores.kv import VALUE_BYTES_MAX
from esker.stores.kv_memory import MemoryKV
from esker.testing.faults import Fault, FaultyKV

some_paths = st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=50, unique=True)


def table(count: int, file: str = "main/L1/f") -> Table:
    return Table(file=FileName(file), min="", max="z", count=count)


@given(some_paths)
def test_no_path_of_a_table_is_denied(paths: list[str]) -> None:
    made = filters.build(pa.array(paths))
    assert all(filters.may_hold(made, path.encode()) for path in paths)


def test_about_one_in_a_hundred_others_is_let_through() -> None:
    made = filters.build(pa.array([f"in/{n}" for n in range(10_000)]))
    false = sum(filters.may_hold(made, f"out/{n}".encode()) for n in range(10_000))
    assert 10 < false < 200
    assert len(made) == 1 + 10_000 * 10 // 8


def test_the_bits_of_a_filter_are_the_same_for_ever() -> None:
    """It is stored, so another version must read it."""
    assert filters.build(pa.array(["a", "b/c", "é"])).hex() == GOLDEN


GOLDEN = "01fda73ac0"


def test_without_a_filter_a_table_may_hold_anything() -> None:
    kv = MemoryKV()
    found = Filters(kv, "uid")
    assert found.may_hold(table(5), b"x"), "none was written"
    kv.put("filters/uid", b"main/L1/f", b"\x02 of another format")
    assert Filters(kv, "uid").may_hold(table(5), b"x")
    kv.put("filters/uid", b"main/L1/f", b"\x01")
    assert Filters(kv, "uid").may_hold(table(5), b"x"), "an empty one lets all through"


def test_tables_of_one_path_need_none_and_giant_ones_get_none() -> None:
    kv = MemoryKV()
    found = Filters(kv, "uid")
    found.write(FileName("one"), pa.array(["a"]))
    assert not kv.scan("filters/uid")
    assert found.may_hold(table(1, "one"), b"x")
    most = filters._ROWS_MAX
    assert len(filters.build(pa.array([str(n) for n in range(most)]))) <= VALUE_BYTES_MAX
    reads = kv.counts.reads["filters"]
    assert found.may_hold(table(most + 1, "giant"), b"x")
    assert kv.counts.reads["filters"] == reads


def test_a_filter_is_read_once_and_gone_when_deleted() -> None:
    kv = MemoryKV()
    paths = pa.array([f"{n}" for n in range(100)])
    Filters(kv, "uid").write(FileName("f"), paths)
    found = Filters(kv, "uid")
    asked = table(100, "f")
    before = kv.counts.reads["filters"]
    assert not all(found.may_hold(asked, f"other/{n}".encode()) for n in range(20))
    assert kv.counts.reads["filters"] == before + 1
    found.delete(FileName("f"))
    assert not kv.scan("filters/uid")
    assert all(found.may_hold(asked, f"other/{n}".encode()) for n in range(20)), "what is gone denies nothing"


def test_a_filter_of_unknown_fate_is_none_of_the_writers_business() -> None:
    kv = MemoryKV()
    lost = FaultyKV(kv, lambda call: Fault.LOST if call.method == "put" else None)
    Filters(lost, "uid").write(FileName("f"), pa.array(["a", "b"]))
    try:
        lost.put("filters/uid", b"k", b"v")
    except OutcomeUnknownError:
        return
    raise AssertionError("the wrapper did not fail")
