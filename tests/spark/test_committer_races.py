"""Several writers of one table, and others who change it meanwhile."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.server.live import Live
from tests.spark.tables import Gate, Shown, Table

WRITERS = 4


@pytest.fixture
def table(server: Live, repo: str) -> Table:
    return Table(server, repo)


def _ids(spark: SparkSession, table: Table) -> list[int]:
    return sorted(row["id"] for row in spark.read.parquet(table.url).collect())


def _write(spark: SparkSession, table: Table, mode: str, start: int) -> None:
    spark.range(start, start + 10, numPartitions=2).write.mode(mode).parquet(table.url)


def _at_once(work: Callable[[int], None]) -> None:
    gate = threading.Barrier(WRITERS)

    def run(number: int) -> None:
        gate.wait()
        work(number)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(run, range(WRITERS)))


def test_concurrent_appends_all_land(spark: SparkSession, table: Table) -> None:
    with table.watched() as seen:
        _at_once(lambda number: _write(spark, table, "append", 10 * number))
    assert _ids(spark, table) == [*range(10 * WRITERS)]
    assert len(table.log()) == 1 + WRITERS
    assert all(before < after for before, after in pairwise(seen)), "a reader never sees less"


@pytest.mark.parametrize("there", [False, True])
def test_of_concurrent_overwrites_the_last_wins_whole(spark: SparkSession, table: Table, there: bool) -> None:
    """Also where none of them saw anything to overwrite when it began."""
    if there:
        _write(spark, table, "overwrite", 1000)
    with table.watched() as seen:
        _at_once(lambda number: _write(spark, table, "overwrite", 100 * number))
    last = _ids(spark, table)
    assert last == [*range(last[0], last[0] + 10)]
    states: list[Shown] = [table.paths(commit["id"]) for commit in table.log()]
    assert [state for state in states if state and len(state) != 2] == []
    assert set(seen) <= {*states, frozenset()}


def test_appends_and_overwrites_equal_the_order_in_which_they_land(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    _write(spark, table, "overwrite", 1000)
    gate = Gate(tmp_path)

    def overwrite() -> None:
        gate.hold(spark.range(0, 10, numPartitions=1)).write.mode("overwrite").parquet(table.url)

    writer = threading.Thread(target=overwrite)
    writer.start()
    with gate.opening():
        _write(spark, table, "append", 500)
        assert _ids(spark, table) == [*range(500, 510), *range(1000, 1010)]
    writer.join()
    assert _ids(spark, table) == [*range(10)]


@pytest.mark.parametrize("force", [False, True])
def test_what_others_change_under_a_job_is_told_with_the_paths(
    spark: SparkSession, table: Table, tmp_path: Path, force: bool
) -> None:
    _write(spark, table, "overwrite", 1000)
    gate = Gate(tmp_path)
    told: list[str] = []

    def overwrite() -> None:
        frame = gate.hold(spark.range(0, 10, numPartitions=1))
        try:
            frame.write.mode("overwrite").option("esker.force", str(force).lower()).parquet(table.url)
        except Exception as error:  # noqa: BLE001 - looked at below
            told.append(str(error))

    writer = threading.Thread(target=overwrite)
    writer.start()
    with gate.opening():
        table.server.put(table.repo, "t/by-hand.parquet", b"PAR1")
        table.server.commit(table.repo)
        before = table.paths()
    writer.join()
    if force:
        assert told == []
        assert _ids(spark, table) == [*range(10)]
    else:
        assert "'t/by-hand.parquet'" in told[0]
        assert "others changed" in told[0]
        assert table.paths() == before
        assert "aborted" in table.jobs().values()


def test_a_branch_with_uncommitted_changes_is_told_with_the_way_out(spark: SparkSession, table: Table) -> None:
    table.server.put(table.repo, "beside", b"data")
    with pytest.raises(Exception, match="uncommitted changes: commit or reset them"):
        _write(spark, table, "append", 0)
    assert table.uncommitted() == ["beside"]
    table.server.commit(table.repo)
    _write(spark, table, "append", 0)
    assert _ids(spark, table) == [*range(10)]
