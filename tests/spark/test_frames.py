"""A repository's metadata as DataFrames, against what the engine says by itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import esker
import esker.spark
from esker.engine import repositories, statistics
from esker.engine.changes import ChangeKind
from esker.errors import InvalidError, NotFoundError
from esker.model import Entry
from esker.spark import lakes, reading
from esker.streams.entries import table_of
from esker.tree.cutting import Cutting


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[esker.Lake]:
    with esker.open_lake(tmp_path_factory.mktemp("frames").as_uri()) as opened:
        yield opened


@pytest.fixture(scope="module")
def repo(lake: esker.Lake) -> esker.Repo:
    """A history: two hundred objects in ranges of a few; changes; and more of these, staged in several layers."""
    name = "sales"
    repositories.create(lake.engine, name, f"{lake.url}/{name}", cutting=Cutting(entries_mean=4, entries_max=20))
    repo = lake.repository(name)
    main = repo.branch("main")
    main.link_many([entry(f"t/{n % 7}/{n:03}", n) for n in range(200)])
    main.link_many([entry(path, 1) for path in ("a", "o'hara/ö %41", "z/🦉")])
    main.commit("first", committer="me", metadata={"k": "v"})
    repo.tag("v1", "main")
    main.delete_prefix("t/3/")
    main.link_many([entry("t/3/new", 5), entry("t/4/004", 9)], delete=["a"])
    main.commit("second")
    main.delete_prefix("t/5/")
    main.append([table_of([entry(f"t/5/{n}", n) for n in range(50)])])
    main.put("t/0/000", b"staged")
    main.delete("z/🦉")
    return repo


def entry(path: str, content: int) -> Entry:
    return Entry(path=path, address=f"data/{content}", size=content, checksum=f"{content}", mtime_ms=1_700_000_000_123)


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def listed(repo: esker.Repo, ref: str, prefix: str = "") -> list[tuple[str, int, str]]:
    return [(one.path, one.size, one.checksum) for one in repo.ref(ref).list(prefix) if isinstance(one, Entry)]


@pytest.mark.parametrize(("ref", "prefix"), [("main", ""), ("main@", ""), ("main", "t/5")])
def test_entries_are_what_the_ref_shows(
    spark: SparkSession, lake: esker.Lake, repo: esker.Repo, ref: str, prefix: str
) -> None:
    found = esker.spark.entries(spark, repo.name, ref, prefix=prefix, lake=lake)
    assert sorted((row.path, row.size, row.checksum) for row in found.collect()) == listed(repo, ref, prefix)


def test_every_span_of_a_branch_with_layers_is_read_apart(lake: esker.Lake, repo: esker.Repo) -> None:
    """Where one ends is no different from anywhere else, however short they are."""
    from esker.engine import spans

    trees = spans.trees_of(lake.engine, repo.record)
    planned = spans.plan(lake.engine, repo.record, "main", ranges=1)
    found = [path for span in planned for table in span.read(trees) for path in table["path"].to_pylist()]
    assert len(planned) > 10
    assert found == [path for path, _, _ in listed(repo, "main")]


def test_filters_on_paths_read_only_the_ranges_that_may_hold_them(
    spark: SparkSession, lake: esker.Lake, repo: esker.Repo
) -> None:
    shown = esker.spark.entries(spark, repo.name, "main@", lake=lake)
    for condition, prefix in (("path = 't/1/001'", "t/1/001"), ("path LIKE 't/1/%'", "t/1/")):
        filtered = shown.where(condition)
        assert sorted(row.path for row in filtered.collect()) == [path for path, _, _ in listed(repo, "main@", prefix)]
        plan = filtered._jdf.queryExecution().executedPlan().toString()
        assert "path" in plan
    between = shown.where("path >= 't/2' AND path < 't/2/1' AND path > 'b' AND path <= 'zz'")
    assert sorted(row.path for row in between.collect()) == [
        path for path, _, _ in listed(repo, "main@", "t/2") if path < "t/2/1"
    ]
    assert shown.where("path IN ('a', 't/3/new', 'none')").count() == 1


def test_a_bound_on_paths_narrows_what_is_planned(lake: esker.Lake, repo: esker.Repo) -> None:
    asked = reading.Asked("entries", repo.name, "main@")
    (some,) = reading.plan(lake.engine, asked.within("t/1/", "t/1/1"))
    assert isinstance(some, reading.Shown)
    trees = some.place.trees()
    before = trees.counts().ranges_read
    found = sum(table.num_rows for table in some.read())
    assert 0 < found < 30
    assert trees.counts().ranges_read - before < len(trees.metarange(some.span.tree)) / 3


def test_without_pushdown_it_reads_too(spark: SparkSession, lake: esker.Lake, repo: esker.Repo) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        found = esker.spark.entries(spark, repo.name, "v1", lake=lake).where("path = 'a'")
        assert [row.path for row in found.collect()] == ["a"]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_a_diff_has_both_sides(spark: SparkSession, lake: esker.Lake, repo: esker.Repo) -> None:
    found = sorted(rows(esker.spark.diff(spark, repo.name, "v1", "main", lake=lake)), key=lambda row: row["path"])
    assert [(row["kind"], row["path"]) for row in found] == [
        (str(one.kind), one.path) for one in repo.diff("v1", "main")
    ]
    for row in found:
        assert (row["size"] is None) == (row["kind"] == ChangeKind.REMOVED)
        assert (row["was_checksum"] is None) == (row["kind"] == ChangeKind.ADDED)
    assert rows(esker.spark.diff(spark, repo.name, "main", "main@", lake=lake)) == []
    below = esker.spark.diff(spark, repo.name, "v1", "main", prefix="t/4", lake=lake)
    assert [(row["was_size"], row["size"]) for row in rows(below)] == [(4, 9)]


def test_a_session_made_of_one_that_knew_a_lake_reads_any(
    spark: SparkSession, lake: esker.Lake, repo: esker.Repo, tmp_path: Path
) -> None:
    esker.spark.register(spark, lake)
    made = spark.newSession()
    with esker.open_lake(tmp_path.as_uri()) as another:
        another.create_repository(repo.name).branch("main").put("only here", b"")
        for _ in range(2):
            assert esker.spark.entries(made, repo.name, lake=lake).count() == len(listed(repo, "main"))
            assert [row["path"] for row in rows(esker.spark.entries(made, repo.name, lake=another))] == ["only here"]


def test_history_refs_and_layers_are_tables(spark: SparkSession, lake: esker.Lake, repo: esker.Repo) -> None:
    spark.conf.set(lakes.LAKE, lake.url)
    try:
        esker.spark.register(spark)
        read = spark.read.format("esker").option("repository", repo.name)
        log = rows(read.option("table", "log").option("ref", "main").load())
        refs = {row["name"]: row for row in rows(read.option("table", "refs").load())}
        layers = rows(read.option("table", "layers").option("ref", "main").load())
        assert spark.read.format("esker").load(f"{repo.name}/v1/t/1").count() == len(listed(repo, "v1", "t/1"))
    finally:
        spark.conf.unset(lakes.LAKE)
    known = list(repo.ref("main").log())
    assert [row["commit"] for row in log] == [name for name, _ in known]
    assert log[1]["metadata"] == {"k": "v"}
    assert [row["parents"] for row in log] == [list(commit.parents) for _, commit in known]
    assert int(log[0]["date"].timestamp() * 1000) == known[0][1].date_ms
    assert refs["main"] == {
        "name": "main",
        "kind": "branch",
        "commit": known[0][0],
        "hidden": False,
        "clean": False,
    }
    assert refs["v1"]["kind"] == "tag"
    assert [(row["place"], row["level"], row["rows"]) for row in layers] == [
        (place, layer.level, layer.rows) for place, layer in enumerate(repo.branch("main").layers())
    ]


@pytest.mark.parametrize(("prefix", "depth"), [("", 2), ("t/", 1)])
def test_sizes_by_prefix_are_the_same_with_spark_and_without(
    spark: SparkSession, lake: esker.Lake, repo: esker.Repo, prefix: str, depth: int
) -> None:
    expected: dict[str, tuple[int, int]] = {}
    for path, size, _ in listed(repo, "main", prefix):
        below = prefix + "".join(f"{part}/" for part in path[len(prefix) :].split("/")[:-1][:depth])
        objects, total = expected.get(below, (0, 0))
        expected[below] = (objects + 1, total + size)
    alone = statistics.by_prefix(lake.engine, repo.record, "main", prefix=prefix, depth=depth)
    assert {one.prefix: (one.objects, one.bytes) for one in alone} == expected
    found = esker.spark.sizes(spark, repo.name, "main", prefix=prefix, depth=depth, lake=lake)
    assert {row.prefix: (row.objects, row.bytes) for row in found.collect()} == expected


def test_growth_by_commit_is_the_same_with_spark_and_without(
    spark: SparkSession, lake: esker.Lake, repo: esker.Repo
) -> None:
    alone = list(statistics.by_commit(lake.engine, repo.record, "main"))
    found = rows(esker.spark.growths(spark, repo.name, "main", lake=lake))
    fields = ("commit", "message", "objects", "added", "removed", "changed", "bytes_added", "bytes_removed")
    assert [[row[name] for name in fields] for row in found] == [
        [getattr(one, name) for name in fields] for one in alone
    ]
    assert [(one.added, one.removed, one.changed) for one in alone][1] == (203, 0, 0)
    assert alone[0].objects == alone[1].objects + alone[0].added - alone[0].removed


def test_what_is_missing_is_said_with_the_way_out(spark: SparkSession, lake: esker.Lake) -> None:
    with pytest.raises(InvalidError, match="which lake"):
        esker.spark.entries(spark, "sales")
    with pytest.raises(InvalidError, match="memory of one process"):
        esker.spark.entries(spark, "sales", lake="memory://")
    with pytest.raises(Exception, match="no table 'nothing'"):
        spark.read.format("esker").option("table", "nothing").load()


def test_what_is_not_there_when_a_frame_is_made_is_an_error_of_ours(
    spark: SparkSession, lake: esker.Lake, repo: esker.Repo
) -> None:
    with pytest.raises(NotFoundError, match="no repository 'none'"):
        esker.spark.refs(spark, "none", lake=lake)
    for of_a_ref in (esker.spark.entries, esker.spark.log, esker.spark.sizes, esker.spark.growths):
        with pytest.raises(NotFoundError, match="no branch, tag or commit 'mian' in 'sales'"):
            of_a_ref(spark, repo.name, "mian", lake=lake)
    with pytest.raises(NotFoundError, match="no branch, tag or commit 'mian' in 'sales'"):
        esker.spark.diff(spark, repo.name, "main", "mian", lake=lake)
    with pytest.raises(NotFoundError, match="no branch 'v1' in 'sales'"):
        esker.spark.layers(spark, repo.name, "v1", lake=lake)


def test_a_lake_that_is_not_there_is_not_made_by_reading_it(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no lake at"):
        esker.spark.entries(spark, "sales", lake=(tmp_path / "lake").as_uri())
    assert not (tmp_path / "lake").exists()


def test_a_format_is_read_by_a_place_with_either_scheme_or_none(
    spark: SparkSession, lake: esker.Lake, repo: esker.Repo
) -> None:
    esker.spark.register(spark, lake)
    for scheme in ("", "lakefs://", "esker://"):
        found = spark.read.format("esker").load(f"{scheme}{repo.name}/v1/t/4/")
        assert found.count() == len(listed(repo, "v1", "t/4/"))


def test_what_is_not_there_when_a_format_is_read_is_told_without_the_way_through_the_engine(
    spark: SparkSession, lake: esker.Lake, repo: esker.Repo
) -> None:
    esker.spark.register(spark, lake)
    with pytest.raises(AnalysisException, match="NotFoundError: no branch, tag or commit 'mian' in 'sales'") as caught:
        spark.read.format("esker").load(f"{repo.name}/mian/").collect()
    assert str(caught.value).count("File ") == 1
