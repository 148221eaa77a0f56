"""Writing much at once, through the library."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import esker
from esker.embedded import Lake
from esker.model import Entry, Staging
from esker.streams.entries import table_of


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with esker.open_lake(f"file://{tmp_path}/lake") as lake:
        yield lake


def entry(path: str) -> Entry:
    return Entry(path=path, address=f"data/{path}", size=1, checksum="c", mtime_ms=0)


@pytest.mark.parametrize("staging", ["kv", "lsm"])
@pytest.mark.parametrize("count", [3, 50])
def test_many_objects_are_stored_and_staged(lake: Lake, staging: str, count: int, tmp_path: Path) -> None:
    main = lake.create_repository("many", staging=staging).branch("main")
    (tmp_path / "file").write_bytes(b"from a file")
    new = {f"n/{n:02d}": f"content {n}".encode() for n in range(count)}
    found = main.put_many({**new, "a": BytesIO(b"from a stream"), "b": tmp_path / "file"})
    assert [one.path for one in found] == [*new, "a", "b"]
    assert found == [main.stat(one.path) for one in found]
    assert {path: main.get(path) for path in new} == new
    assert (main.get("a"), main.get("b")) == (b"from a stream", b"from a file")
    main.commit("many")
    assert len(list(main.list())) == count + 2


def test_nothing_is_uploaded_for_bad_paths_or_no_branch(lake: Lake) -> None:
    repo = lake.create_repository("strict")
    with pytest.raises(esker.InvalidError):
        repo.branch("main").put_many({"good": b"1", "": b"2"})
    with pytest.raises(esker.NotFoundError):
        repo.branch("mian").put_many({"good": b"1"})
    assert not list(lake.engine.blobs(repo.record).list("data/"))
    assert repo.branch("main").put_many({}) == []


def test_many_are_linked_and_deleted(lake: Lake) -> None:
    main = lake.create_repository("links", staging="lsm").branch("main")
    main.link_many([entry("a"), entry("b"), entry("c")])
    main.link_many([entry("d")], delete=["a", "c"])
    assert [one for one in main.list()] == [entry("b"), entry("d")]  # noqa: C416 - mypy wants to know what a list holds
    assert [layer.level for layer in main.layers()] == ["L1", "L1"]


def test_a_layer_is_appended_whole_on_its_conditions(lake: Lake, tmp_path: Path) -> None:
    repo = lake.create_repository("layer")
    main = repo.branch("main")
    main.link(entry("t/old"))
    main.commit("old")
    pq.write_table(table_of([entry("t/1"), entry("t/2")]), tmp_path / "new.parquet")
    with pytest.raises(esker.PreconditionError, match="t/old"):
        main.append(tmp_path / "new.parquet", expect_absent=["t/"])
    assert main.append(tmp_path / "new.parquet", deletes=["t/"], expect_head=main.commit_id()) == 2
    assert [one.path for one in main.list() if isinstance(one, Entry)] == ["t/1", "t/2"]
    with pytest.raises(esker.InvalidError, match=r"row 1 \('t/4'\): an address"):
        main.append(table_of([entry("t/3"), Entry(path="t/4", address="../x", size=1, checksum="", mtime_ms=0)]))


def test_a_repository_says_how_it_stages(lake: Lake) -> None:
    assert lake.create_repository("one-by-one").record.staging is Staging.KV
    assert lake.create_repository("together", staging=Staging.LSM).record.staging is Staging.LSM
    assert lake.repository("together").record.staging is Staging.LSM
    with pytest.raises(esker.InvalidError, match="'kv' or 'lsm'"):
        lake.create_repository("neither", staging="both")
