"""Prepared layers: all rows at once, or none, and the first bad row is named."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.engine import commit, entries, prepared, repositories
from esker.errors import EskerError, InvalidError, Kind, NotFoundError, OutcomeUnknownError, PreconditionError
from esker.model import Entry
from esker.settings import Settings
from esker.staging import tables
from esker.stores.kv_memory import MemoryKV
from esker.streams.entries import changes_of, table_of
from esker.testing.faults import Call, CountingBlobs, Fault, FaultyBlobs, FaultyKV
from tests.engine.lakes import (
    NoGuardsKV,
    Setup,
    assert_nothing_leaked,
    contents,
    entry,
    head,
    kind_of,
    new_setup,
    put,
    shown,
)


def append(setup: Setup, sources: prepared.Source | Sequence[prepared.Source], **options: Any) -> int:
    return prepared.append(setup.lake, setup.repo, "main", sources, **options)


def rows(*paths: str, content: int | str = 0) -> pa.Table:
    return table_of(entry(path, content) for path in paths)


def parquet(table: pa.Table) -> bytes:
    sink = BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def changed(table: pa.Table, column: str, values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    at = table.schema.get_field_index(column)
    return table.set_column(at, column, pa.array(values, kind or table.schema.field(column).type))


def left_behind(setup: Setup) -> list[str]:
    return [info.name for info in setup.blobs.list("_esker/staging/")]


# ---------------------------------------------------------------------- what is laid


def test_a_table_becomes_one_layer_on_top_of_what_was_acknowledged_before() -> None:
    setup = new_setup()
    put(setup.lake, setup.repo, "main", "a", "b", content="before")
    assert append(setup, rows("b", "c", content="layer")) == 2
    put(setup.lake, setup.repo, "main", "c", content="after")
    assert contents(setup.lake, setup.repo, "main") == {"a": "before", "b": "layer", "c": "after"}
    commit.commit(setup.lake, setup.repo, "main", "m")
    assert contents(setup.lake, setup.repo, "main@") == {"a": "before", "b": "layer", "c": "after"}
    assert_nothing_leaked(setup)


def test_a_layer_may_delete_paths_and_prefixes() -> None:
    setup = new_setup()
    put(setup.lake, setup.repo, "main", "p/1", "p/2", "q", "r", content="before")
    deletions = changes_of([entry("p/2", "new")], ["q"])
    append(setup, deletions, deletes=["p/"])
    assert contents(setup.lake, setup.repo, "main") == {"p/2": "new", "r": "before"}
    many = [f"t/{n:03d}/" for n in range(100)]
    put(setup.lake, setup.repo, "main", "t/001/x", "t/1")
    append(setup, [], deletes=many)
    assert set(shown(setup.lake, setup.repo, "main")) == {"p/2", "r", "t/1"}
    assert setup.lake.branches(setup.repo).get("main").sealed[0].more_deletes


def test_nothing_is_no_layer() -> None:
    setup = new_setup()
    assert append(setup, []) == append(setup, rows()) == append(setup, [rows(), parquet(rows())]) == 0
    assert setup.lake.branches(setup.repo).get("main").seq == 0


def test_sources_are_tables_bytes_files_and_addresses(tmp_path: Path) -> None:
    setup = new_setup()
    (tmp_path / "d.parquet").write_bytes(parquet(rows("d")))
    setup.blobs.put("data/jobs/e.parquet", parquet(rows("e")))
    count = append(setup, [rows("a", "b"), parquet(rows("c")), tmp_path / "d.parquet", "data/jobs/e.parquet"])
    assert count == 5
    assert list(shown(setup.lake, setup.repo, "main")) == ["a", "b", "c", "d", "e"]
    assert len(setup.lake.branches(setup.repo).get("main").sealed) == 1


def test_other_encodings_of_the_same_columns_are_taken() -> None:
    setup = new_setup()
    table = rows("a", "b")
    table = changed(table, "size", [1, 2], pa.int32())
    table = changed(table, "path", ["a", "b"], pa.large_string())
    table = changed(table, "content_type", ["x", "x"], pa.dictionary(pa.int8(), pa.string()))
    table = changed(table, "mtime", [1000, 2000], pa.timestamp("us", "UTC"))
    append(setup, parquet(table.select(table.column_names[::-1])))
    assert shown(setup.lake, setup.repo, "main")["b"] == Entry(
        path="b", address="data/0", size=2, checksum="0", mtime_ms=2, content_type="x"
    )


@given(st.lists(st.lists(st.integers(0, 60), unique=True, max_size=12), max_size=6), st.integers(1, 5))
def test_sources_together_are_their_union(numbers: list[list[int]], rows_a_table: int) -> None:
    """Whether they follow each other or interleave, and however tables are cut."""
    setup = new_setup()
    sources = [rows(*(f"{n:02d}" for n in some)) for some in numbers]
    everything = [n for some in numbers for n in some]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "ROWS", rows_a_table)
        patch.setattr(prepared, "_KEPT_BYTES_MAX", 200)
        if len(set(everything)) < len(everything):
            with pytest.raises(InvalidError, match="a path stands once"):
                append(setup, sources)
            assert not left_behind(setup)
            return
        append(setup, sources)
    assert list(shown(setup.lake, setup.repo, "main")) == [f"{n:02d}" for n in sorted(everything)]
    for layer in setup.lake.branches(setup.repo).get("main").sealed:
        assert len(layer.tables) <= tables.TABLES_MAX
        assert layer.count == len(everything)


# ---------------------------------------------------------------------- what is refused

GOOD: Final = table_of(
    Entry(path=path, address=f"data/{path}", size=1, checksum="c", mtime_ms=0, metadata={"k": "v"}) for path in "abcd"
)

BAD: Final[dict[str, tuple[Callable[[], Any], str]]] = {
    "not sorted": (lambda: changed(GOOD, "path", ["a", "c", "b", "d"]), r"row 2 \('b'\): paths are not sorted"),
    "twice": (lambda: changed(GOOD, "path", ["a", "b", "b", "d"]), r"row 2 \('b'\): .* one stands twice"),
    "empty path": (lambda: changed(GOOD, "path", ["", "b", "c", "d"]), r"row 0 \(''\): a path is 1 to 1024 bytes"),
    "long path": (lambda: changed(GOOD, "path", ["a", "b", "c", "d" * 1025]), r"row 3 .*: a path is 1 to 1024 bytes"),
    "path not UTF-8": (lambda: not_utf8("path", [b"a", b"b", b"c", b"\xff"]), "row 3: path is not valid UTF-8"),
    "checksum not UTF-8": (
        lambda: not_utf8("checksum", [b"a", b"\xed\xa0\x80", b"c", b"d"]),
        "row 1: checksum is not valid UTF-8",
    ),
    "negative size": (lambda: changed(GOOD, "size", [1, 2, -3, 4]), r"row 2 \('c'\): size is negative"),
    "null": (lambda: changed(GOOD, "checksum", ["a", None, "c", "d"]), "row 1: checksum is null"),
    "no such column": (lambda: GOOD.append_column("tombstones", pa.array([True] * 4)), "'tombstones' is no column"),
    "column twice": (lambda: GOOD.append_column("path", GOOD["path"]), "a column stands twice"),
    "column missing": (lambda: GOOD.drop_columns(["checksum"]), "needs the column 'checksum'"),
    "wrong type": (lambda: changed(GOOD, "size", ["x"] * 4, pa.string()), "does not have the right types"),
    "time cut off": (
        lambda: changed(GOOD, "mtime", [1, 2, 3, 4], pa.timestamp("us", "UTC")),
        "does not have the right types",
    ),
    "metadata no JSON": (lambda: changed(GOOD, "metadata", ["", "{", "", ""]), r"row 1 \('b'\): metadata is a JSON"),
    "metadata not canonical": (
        lambda: changed(GOOD, "metadata", ["", "", '{"b":"1","a":"2"}', ""]),
        r"row 2 \('c'\): metadata is a JSON",
    ),
    "metadata of numbers": (lambda: changed(GOOD, "metadata", ['{"a":1}', "", "", ""]), r"row 0 \('a'\): metadata is"),
    "a deletion with content": (
        lambda: GOOD.append_column("tombstone", pa.array([False, True, False, False])),
        r"row 1 \('b'\): a deletion has no address",
    ),
    "no Parquet": (lambda: b"PAR1 or not", "no Parquet file"),
    "half a file": (lambda: parquet(GOOD)[:-20], "no Parquet file"),
    "a file that is not there": (lambda: Path("/nowhere/at/all.parquet"), "cannot read it"),
    "an address with nothing there": (lambda: "data/nothing", "data/nothing, there is nothing"),
}


def not_utf8(column: str, values: list[bytes]) -> pa.Table:
    offsets = pa.array([0, *pa.array([len(value) for value in values]).to_pylist()]).to_pylist()
    ends = [sum(offsets[: n + 1]) for n in range(len(offsets))]
    text = pa.StringArray.from_buffers(
        len(values), pa.array(ends, pa.int32()).buffers()[1], pa.py_buffer(b"".join(values))
    )
    return GOOD.set_column(GOOD.schema.get_field_index(column), column, text)


@pytest.mark.parametrize("what", BAD)
def test_a_bad_source_is_refused_whole(what: str) -> None:
    make, message = BAD[what]
    setup = new_setup()
    with pytest.raises(InvalidError, match=message):
        append(setup, make())
    with pytest.raises(InvalidError, match=message):
        append(setup, [rows("0"), make(), rows("z")])
    assert not left_behind(setup)
    assert setup.lake.branches(setup.repo).get("main").seq == 0


def test_the_row_is_named_within_its_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prepared, "ROWS", 2)
    setup = new_setup()
    bad = changed(GOOD, "size", [1, 2, 3, -1])
    with pytest.raises(InvalidError, match=r"^source 1, row 3 \('d'\): size is negative$"):
        append(setup, [rows("0", "1", "2"), bad])
    (tmp_path / "bad.parquet").write_bytes(parquet(bad))
    with pytest.raises(InvalidError, match=r"bad\.parquet, row 3 \('d'\)"):
        append(setup, tmp_path / "bad.parquet")
    with pytest.raises(InvalidError, match=r"^row 3 \('d'\)"):
        append(setup, bad)


REFUSED: Final = [
    "",
    "x",
    "/data/x",
    "data",
    "data/",
    "data/x/",
    "data//x",
    "data/../x",
    "data/x/..",
    "data/./x",
    "data/x://y",
    "_esker/ranges/x",
    "s3://bucket/../other/x",
    "s3://bucket//x",
    "s3://bucket/./x",
    "s3://bucket/",
    "S3://bucket/x",
    "s3://buc%6bet/x",
    "file:///lake%20s/x",
    "s3://bucket/x\ny",
    "memory://other/data/x",
    "file:///my lake/repo/data/x",
    "s3://lake/one/data/x",
]
TAKEN: Final = [
    "data/x",
    "data/.x",
    "data/a/..b",
    "data/x%20y",
    "s3://bucket/x",
    "s3://bucket/a/.hidden/x%",
    "s3://lake/one-more/x",
    "file:///elsewhere/x",
    "gs://b/c",
]


@pytest.fixture
def among_others() -> Setup:
    setup = new_setup()
    repositories.create(setup.lake, "other", "memory://other")
    repositories.create(setup.lake, "spaced", "file:///my%20lake/repo")
    repositories.create(setup.lake, "remote", "s3://lake/one")
    return setup


@pytest.mark.parametrize("address", REFUSED)
def test_addresses_of_others_are_refused(among_others: Setup, address: str) -> None:
    table = changed(GOOD, "address", ["data/a", "data/b", address, "data/d"])
    with pytest.raises(InvalidError, match=r"row 2 \('c'\): .*address|row 2 \('c'\): the data of repository"):
        append(among_others, table)


@pytest.mark.parametrize("address", TAKEN)
def test_own_addresses_and_those_elsewhere_are_taken(among_others: Setup, address: str) -> None:
    append(among_others, changed(GOOD, "address", ["data/a", "data/b", address, "data/d"]))
    assert shown(among_others.lake, among_others.repo, "main")["c"].address == address


def test_a_caller_may_be_held_to_fewer_addresses() -> None:
    setup = new_setup()
    table = changed(GOOD, "address", ["data/j/1", "data/j/2", "data/other", "data/j/4"])
    with pytest.raises(InvalidError, match=r"row 2 \('c'\): an address here begins with 'data/j/'"):
        append(setup, table, allowed=["data/j/"])
    outside = changed(GOOD, "address", ["data/j/../x", "data/j/2", "data/j/3", "data/j/4"])
    with pytest.raises(InvalidError, match=r"'\.\.' parts"):
        append(setup, outside, allowed=["data/j/"])
    append(setup, changed(GOOD, "address", [f"data/j/{n}" for n in range(4)]), allowed=["data/j/"])
    gone = changes_of([], ["a", "b"])
    append(setup, gone, allowed=["data/j/"])
    assert set(shown(setup.lake, setup.repo, "main")) == {"c", "d"}


def test_bad_prefixes_and_too_many_of_anything_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = new_setup()
    assert kind_of(lambda: append(setup, GOOD, deletes=["x" * 1025])) is Kind.INVALID_PATH
    assert kind_of(lambda: append(setup, GOOD, expect_absent=[""])) is Kind.INVALID_PATH
    monkeypatch.setattr(prepared, "DELETES_MAX", 2)
    monkeypatch.setattr(prepared, "SOURCES_MAX", 2)
    assert kind_of(lambda: append(setup, GOOD, deletes=["a", "b", "c"])) is Kind.INVALID_ARGUMENT
    assert kind_of(lambda: append(setup, [GOOD] * 3)) is Kind.INVALID_ARGUMENT
    with pytest.raises(NotFoundError):
        prepared.append(setup.lake, setup.repo, "nowhere", GOOD)
    assert not left_behind(setup)


# ---------------------------------------------------------------------- expectations


@pytest.mark.parametrize("kv", [MemoryKV, NoGuardsKV])
def test_what_has_to_be_absent_is_looked_for_in_all_that_is_there(kv: type[MemoryKV]) -> None:
    setup = new_setup(kv())
    lake, repo = setup.lake, setup.repo
    put(lake, repo, "main", "t/committed", "u/gone", "v/gone")
    commit.commit(lake, repo, "main", "m")
    entries.delete(lake, repo, "main", "u/gone")
    entries.delete_prefix(lake, repo, "main", "v/")
    put(lake, repo, "main", "w/staged")
    for there, names in (("t/", "t/committed"), ("t/committed", "t/committed"), ("w/", "w/staged"), ("w/staged",) * 2):
        with pytest.raises(PreconditionError, match=names) as caught:
            append(setup, rows("x"), expect_absent=["new", there])
        assert caught.value.kind is Kind.OBJECT_EXISTS
        assert not left_behind(setup) or "x" not in shown(lake, repo, "main")
    append(setup, rows("x"), expect_absent=["u/", "v/", "u/gone", "t", "t/c", "w/stage"])
    assert set(shown(lake, repo, "main")) == {"t/committed", "w/staged", "x"}


def test_the_head_has_to_be_where_it_was_expected() -> None:
    setup = new_setup()
    before = head(setup.lake, setup.repo)
    append(setup, rows("a"), expect_head=before)
    commit.commit(setup.lake, setup.repo, "main", "m")
    with pytest.raises(PreconditionError, match="as was expected") as caught:
        append(setup, rows("b"), expect_head=before)
    assert caught.value.kind is Kind.HEAD_MOVED
    append(setup, rows("c"), expect_head=head(setup.lake, setup.repo))
    assert set(shown(setup.lake, setup.repo, "main")) == {"a", "c"}
    commit.commit(setup.lake, setup.repo, "main", "m")
    assert_nothing_leaked(setup)


@pytest.mark.parametrize("kv", [MemoryKV, NoGuardsKV])
def test_of_many_that_expect_one_prefix_to_be_empty_one_wins(kv: type[MemoryKV]) -> None:
    setup = new_setup(kv())
    lakes = [setup.lake, setup.again()]

    def create(number: int) -> bool:
        try:
            prepared.append(
                lakes[number % 2], setup.repo, "main", rows(f"t/{number}", content=number), expect_absent=["t/"]
            )
        except PreconditionError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(create, range(8)))
    assert sum(outcomes) == 1
    assert list(shown(setup.lake, setup.repo, "main")) == [f"t/{outcomes.index(True)}"]


def test_a_put_that_comes_between_is_seen() -> None:
    setup = new_setup()
    rival = setup.again()
    came: list[Call] = []

    def interfere(call: Call) -> None:
        if call.method == "put" and ".sst" in call.name and not came:
            came.append(call)
            put(rival, setup.repo, "main", "t/first")

    lake = setup.again(blobs=FaultyBlobs(setup.blobs, lambda _: None, interfere))
    with pytest.raises(PreconditionError, match="t/first"):
        prepared.append(lake, setup.repo, "main", rows("t/second"), expect_absent=["t/"])
    assert came
    assert set(shown(setup.lake, setup.repo, "main")) == {"t/first"}
    assert not left_behind(setup), "what was written in vain is taken away"


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST])
@pytest.mark.parametrize("options", [{}, {"expect_absent": ["t/"]}])
def test_every_call_may_fail(fault: Fault, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "ROWS", 2)
    for failing in range(60):
        setup = new_setup(settings=Settings(grace_s=0.0))
        calls = 0

        def decide(_: Call, failing: int = failing) -> Fault | None:
            nonlocal calls
            calls += 1
            return fault if calls == failing + 1 else None

        lake = setup.again(kv=FaultyKV(setup.kv, decide), blobs=FaultyBlobs(setup.blobs, decide))
        found: EskerError | None = None
        try:
            prepared.append(lake, setup.repo, "main", rows("t/1", "t/2", "t/3"), deletes=["x/"], **options)
        except EskerError as error:
            found = error
        now = set(shown(setup.again(), setup.repo, "main"))
        assert now in (set(), {"t/1", "t/2", "t/3"}), "all or nothing"
        if found is None:
            assert now
        elif not isinstance(found, OutcomeUnknownError):
            assert not now
        if calls <= failing:
            assert failing > 5, "it got to every call"
            return
    raise AssertionError("an append has fewer calls")


def test_a_lost_swap_uploads_nothing_again() -> None:
    setup = new_setup()
    rival = setup.again()
    left = 3

    def interfere(call: Call) -> None:
        nonlocal left
        if call.method == "put_if" and left:
            left -= 1
            prepared.append(rival, setup.repo, "main", rows(f"rival/{left}"))

    blobs = CountingBlobs(setup.blobs)
    lake = setup.again(kv=FaultyKV(setup.kv, lambda _: None, interfere), blobs=blobs)
    prepared.append(lake, setup.repo, "main", rows("mine"))
    assert blobs.calls["put"] == 1
    assert len(shown(setup.lake, setup.repo, "main")) == 4


def test_a_million_rows_fit_in_few_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a thousandth of the size."""
    monkeypatch.setattr(prepared, "ROWS", 8)
    monkeypatch.setattr(tables, "ROWS", 8)
    setup = new_setup()
    everything = rows(*(f"{n:04d}" for n in range(1000)))
    append(setup, [everything.slice(start, 37) for start in range(0, 1000, 37)])
    (layer,) = setup.lake.branches(setup.repo).get("main").sealed
    assert len(layer.tables) == tables.TABLES_MAX
    assert pc.sum(pa.array([table.count for table in layer.tables])).as_py() == 1000
    assert list(shown(setup.lake, setup.repo, "main")) == everything["path"].to_pylist()
