"""What Spark writes to a lake appears in one commit, whole: every format, mode and way to write."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from tests.server.live import Live
from tests.spark.calls import counted, written
from tests.spark.tables import Gate, Table

FORMATS = ("parquet", "orc", "csv", "json", "text", "xml")


@pytest.fixture
def table(server: Live, repo: str) -> Table:
    return Table(server, repo)


@pytest.fixture
def database(spark: SparkSession, repo: str) -> Iterator[str]:
    """A database of the test's own, whose managed tables are in the lake."""
    name = repo.replace("-", "_")
    spark.sql(f"CREATE DATABASE {name} LOCATION 'lakefs://{repo}/main/db'")
    yield name
    spark.sql(f"DROP DATABASE {name} CASCADE")


def _rows(spark: SparkSession, start: int, stop: int, parts: int = 2) -> DataFrame:
    """A number, and that number modulo three."""
    return spark.range(start, stop, numPartitions=parts).selectExpr("id", "id % 3 AS p")


def _ids(frame: DataFrame) -> list[int]:
    return sorted(int(row["id"]) for row in frame.select("id").collect())


def _pairs(spark: SparkSession, name: str) -> list[tuple[int, int]]:
    return sorted((row["id"], row["p"]) for row in spark.table(name).collect())


# one write


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("form", FORMATS)
def test_an_overwrite_shows_the_old_files_or_the_new(
    spark: SparkSession, table: Table, form: str, partitioned: bool
) -> None:
    def write(start: int, stop: int) -> None:
        made = _rows(spark, start, stop)
        if form == "text":
            made = made.selectExpr("CAST(id AS STRING) AS value", "p")
            made = made if partitioned else made.select("value")
        writer = made.write.format(form).mode("overwrite").option("rowTag", "r")
        (writer.partitionBy("p") if partitioned else writer).save(table.url)

    write(0, 9)
    old = table.paths()
    with table.watched() as seen:
        write(100, 120)
    new = table.paths()
    assert old
    assert new
    assert not old & new
    assert seen == [old, new]
    read = spark.read.format(form).option("rowTag", "r").schema("value STRING" if form == "text" else "id LONG, p LONG")
    column = "value" if form == "text" else "id"
    assert sorted(int(row[column]) for row in read.load(table.url).select(column).collect()) == [*range(100, 120)]
    assert not table.uncommitted()
    assert len(table.log()) == 3, "the repository's own, and one for each write"


def test_a_write_is_one_commit_that_tells_where_it_comes_from(spark: SparkSession, table: Table) -> None:
    spark.sparkContext.setJobDescription("nightly load")
    try:
        _rows(spark, 0, 10).write.option("esker.metadata.ticket", "42").parquet(table.url)
    finally:
        spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type] # it takes None, and says it does not
    made = table.log()[0]
    said = made["metadata"]
    assert made["message"] == "Spark: create t"
    assert said["spark.app.id"] == spark.sparkContext.applicationId
    assert said["spark.app.name"] == "esker-tests"
    assert said["spark.version"] == spark.version
    assert said["spark.user"] == spark.sparkContext.sparkUser()
    assert said["spark.description"] == "nightly load"
    assert (said["spark.rows"], said["spark.files"]) == ("10", "2")
    assert int(said["spark.bytes"]) > 0
    assert said["ticket"] == "42"
    assert said["esker.job"] in table.jobs()


def test_a_query_is_told_and_a_message_can_be_given(spark: SparkSession, table: Table) -> None:
    spark.sql("SET esker.message = by hand")
    try:
        spark.sql(f"INSERT OVERWRITE DIRECTORY '{table.url}' USING csv SELECT 1 AS id")
    finally:
        spark.conf.unset("esker.message")
    made = table.log()[0]
    assert made["message"] == "by hand"
    assert made["metadata"]["spark.query"].startswith("INSERT OVERWRITE DIRECTORY")
    assert made["metadata"]["spark.rows"] == "1"


def test_rows_are_counted_behind_a_shuffle(spark: SparkSession, table: Table) -> None:
    _rows(spark, 0, 30).repartition(3).sortWithinPartitions("id").write.parquet(table.url)
    assert table.log()[0]["metadata"]["spark.rows"] == "30"
    _rows(spark, 0, 30).filter("id >= 20").write.mode("append").parquet(table.url)
    assert table.log()[0]["metadata"]["spark.rows"] == "10"


def test_a_success_file_is_there_if_wanted(spark: SparkSession, server: Live, table: Table) -> None:
    _rows(spark, 0, 3).write.parquet(table.url)
    assert server.get(table.repo, "t/_SUCCESS").body == b""
    option = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
    _rows(spark, 0, 3).write.mode("overwrite").option(option, "false").parquet(table.url)
    assert server.get(table.repo, "t/_SUCCESS").status == 404


def test_a_frame_without_rows_is_a_table_without_rows(spark: SparkSession, table: Table) -> None:
    _rows(spark, 0, 0).write.parquet(table.url)
    assert spark.read.parquet(table.url).schema.names == ["id", "p"]
    _rows(spark, 0, 0).write.mode("overwrite").partitionBy("p").orc(table.url)
    assert table.paths() == frozenset()


def test_a_table_can_be_overwritten_by_what_is_read_from_it(spark: SparkSession, table: Table) -> None:
    _rows(spark, 0, 9).write.parquet(table.url)
    spark.read.parquet(table.url).filter("p = 1").write.mode("overwrite").parquet(table.url)
    assert _ids(spark.read.parquet(table.url)) == [1, 4, 7]


def test_names_that_have_to_be_quoted_are_kept(spark: SparkSession, server: Live, repo: str) -> None:
    table = Table(server, repo, "a dir/ü%25=+ #1")
    frame = spark.createDataFrame([(1, "x y"), (2, "50%/ä:=")], "id INT, p STRING")
    frame.write.partitionBy("p").parquet(table.url)
    assert sorted(map(tuple, spark.read.parquet(table.url).collect())) == [(1, "x y"), (2, "50%/ä:=")]
    assert not [job for job, state in table.jobs().items() if state != "published"]


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_bytes_go_by_the_server_where_the_store_is_out_of_reach(
    spark: SparkSession, server: Live, table: Table, form: str
) -> None:
    rows = _rows(spark, 0, 1000).write.format(form).option("fs.lakefs.access.mode", "presigned")
    with counted(server) as calls:
        rows.save(table.url)
    assert calls["writeJobBlob"] == 3, "two files, and the one that is there from the start"
    assert _ids(spark.read.format(form).load(table.url)) == [*range(1000)]


def test_a_file_too_large_for_memory_goes_by_the_server_too(spark: SparkSession, table: Table) -> None:
    rows = spark.range(0, 400_000, numPartitions=1).selectExpr("id", "repeat(md5(string(id)), 3) AS text")
    rows.write.option("fs.lakefs.access.mode", "presigned").option("compression", "none").csv(table.url)
    assert int(table.log()[0]["metadata"]["spark.bytes"]) > 32 << 20
    assert spark.read.csv(table.url).count() == 400_000


# modes


def test_appends_add(spark: SparkSession, table: Table) -> None:
    for start in (0, 10, 20):
        before = table.paths()
        with table.watched() as seen:
            _rows(spark, start, start + 10).write.mode("append").parquet(table.url)
        assert seen == [before, table.paths()]
        assert before < table.paths()
    assert _ids(spark.read.parquet(table.url)) == [*range(30)]


def test_a_typo_in_a_branch_is_told_to_readers(spark: SparkSession, repo: str) -> None:
    with pytest.raises(Exception, match=r"no branch.* 'mian' in .*; did you mean 'main'"):
        spark.read.parquet(f"lakefs://{repo}/mian/t")


def test_all_of_a_branch_is_overwritten_only_by_force(spark: SparkSession, server: Live, table: Table) -> None:
    root = f"lakefs://{table.repo}/main"
    _rows(spark, 0, 3).write.parquet(table.url)
    for write in (
        _rows(spark, 0, 3).write.mode("overwrite").parquet,
        lambda place: spark.sql(f"INSERT OVERWRITE DIRECTORY '{place}' USING parquet SELECT 1 AS id"),
    ):
        for place in (root, f"{root}/"):
            with pytest.raises(Exception, match="every table in it"):
                write(place)
    _rows(spark, 3, 4).write.mode("append").parquet(root)
    assert table.paths()
    _rows(spark, 0, 2).write.mode("overwrite").option("esker.force", "true").parquet(root)
    assert not table.paths()
    assert _ids(spark.read.parquet(root)) == [0, 1]


def test_what_exists_is_an_error_or_stays_as_the_mode_says(spark: SparkSession, table: Table) -> None:
    _rows(spark, 0, 3).write.mode("error").parquet(table.url)
    before = table.log()
    with pytest.raises(AnalysisException, match="PATH_ALREADY_EXISTS"):
        _rows(spark, 5, 9).write.mode("error").parquet(table.url)
    _rows(spark, 5, 9).write.mode("ignore").parquet(table.url)
    assert table.log() == before
    assert _ids(spark.read.parquet(table.url)) == [0, 1, 2]


@pytest.mark.parametrize("mode", ["error", "ignore", "overwrite"])
def test_a_mode_is_about_what_is_there_when_the_job_lands(
    spark: SparkSession, table: Table, tmp_path: Path, mode: str
) -> None:
    """Spark looks before the job begins, and nothing is there; another is published while it runs."""
    gate = Gate(tmp_path)
    outcome: list[Any] = []

    def write() -> None:
        try:
            gate.hold(_rows(spark, 50, 53, 1)).write.mode(mode).parquet(table.url)
            outcome.append(None)
        except Exception as error:  # noqa: BLE001 - looked at below
            outcome.append(str(error))

    writer = threading.Thread(target=write)
    writer.start()
    with gate.opening():
        _rows(spark, 0, 3).write.parquet(table.url)
    writer.join()
    assert _ids(spark.read.parquet(table.url)) == ([50, 51, 52] if mode == "overwrite" else [0, 1, 2])
    if mode == "error":
        assert "there is something under 't/'" in outcome[0]
    else:
        assert outcome == [None]
    assert "running" not in table.jobs().values()


# partitions


@pytest.fixture
def partitioned(spark: SparkSession, database: str, repo: str) -> Iterator[str]:
    """A table whose partitions have the numbers 0 to 8, by their remainders."""
    name = f"{database}.pt"
    location = f"lakefs://{repo}/main/t"
    spark.sql(f"CREATE TABLE {name} (id LONG, p LONG) USING parquet PARTITIONED BY (p) LOCATION '{location}'")
    spark.sql(f"INSERT INTO {name} SELECT id, id % 3 FROM range(9)")
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_a_dynamic_overwrite_replaces_the_partitions_that_are_written(spark: SparkSession, table: Table) -> None:
    _rows(spark, 0, 9).write.partitionBy("p").parquet(table.url)
    old = table.paths()
    with table.watched() as seen:
        fresh = spark.createDataFrame([(100, 1), (101, 7)], "id LONG, p LONG")
        fresh.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy("p").parquet(table.url)
    new = table.paths()
    assert seen == [old, new]
    kept = {path for path in old if not path.startswith("p=1/")}
    assert {path for path in new if path.startswith(("p=0/", "p=2/"))} == kept
    assert _ids(spark.read.parquet(table.url)) == [0, 2, 3, 5, 6, 8, 100, 101]


def test_a_static_overwrite_replaces_one_partition(spark: SparkSession, table: Table, partitioned: str) -> None:
    old = table.paths()
    with table.watched() as seen:
        spark.sql(f"INSERT OVERWRITE {partitioned} PARTITION (p = 1) SELECT 100")
    assert seen == [old, table.paths()]
    assert _pairs(spark, partitioned) == [(0, 0), (2, 2), (3, 0), (5, 2), (6, 0), (8, 2), (100, 1)]
    spark.sql(f"INSERT OVERWRITE {partitioned} PARTITION (p = 4) SELECT 400")
    assert (400, 4) in _pairs(spark, partitioned)
    spark.sql(f"INSERT OVERWRITE {partitioned} SELECT 7, 7")
    assert _pairs(spark, partitioned) == [(7, 7)]


def test_a_partition_may_lie_elsewhere_on_the_branch(
    spark: SparkSession, table: Table, repo: str, partitioned: str
) -> None:
    elsewhere = f"lakefs://{repo}/main/elsewhere/nine"
    spark.sql(f"ALTER TABLE {partitioned} ADD PARTITION (p = 9) LOCATION '{elsewhere}'")
    spark.sql(f"INSERT INTO {partitioned} PARTITION (p = 9) SELECT 900")
    spark.sql(f"INSERT INTO {partitioned} PARTITION (p = 9) SELECT 901")
    assert [pair for pair in _pairs(spark, partitioned) if pair[1] == 9] == [(900, 9), (901, 9)]
    other = Table(table.server, repo, "elsewhere")
    old = other.paths()
    with other.watched() as seen:
        spark.sql(f"INSERT OVERWRITE {partitioned} PARTITION (p = 9) SELECT 902")
    assert seen == [old, other.paths()]
    assert [pair for pair in _pairs(spark, partitioned) if pair[1] == 9] == [(902, 9)]
    spark.sql("SET spark.sql.sources.partitionOverwriteMode = dynamic")
    try:
        spark.sql(f"INSERT OVERWRITE {partitioned} SELECT 903, 9")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert _pairs(spark, partitioned) == sorted([*((n, n % 3) for n in range(9)), (903, 9)])


def test_a_partition_on_another_branch_is_refused_with_the_way_out(
    spark: SparkSession, table: Table, repo: str, partitioned: str
) -> None:
    table.server.ask("POST", f"/repositories/{repo}/branches", body={"name": "side", "source": "main"})
    spark.sql(f"ALTER TABLE {partitioned} ADD PARTITION (p = 9) LOCATION 'lakefs://{repo}/side/nine'")
    before = table.paths()
    with pytest.raises(Exception, match="not on the branch of"):
        spark.sql(f"INSERT INTO {partitioned} PARTITION (p = 9) SELECT 900")
    assert table.paths() == before


# tables


def test_a_table_is_created_and_written_by_every_way_of_sql(
    spark: SparkSession, table: Table, database: str, repo: str
) -> None:
    spark.sql(f"CREATE TABLE {database}.c USING orc LOCATION '{table.url}' AS SELECT id, id % 3 AS p FROM range(3)")
    assert _pairs(spark, f"{database}.c") == [(0, 0), (1, 1), (2, 2)]
    _rows(spark, 10, 12).write.insertInto(f"{database}.c")
    assert _ids(spark.table(f"{database}.c")) == [0, 1, 2, 10, 11]
    _rows(spark, 20, 22).write.insertInto(f"{database}.c", overwrite=True)
    assert _ids(spark.table(f"{database}.c")) == [20, 21]
    spark.sql(f"INSERT OVERWRITE {database}.c SELECT 30, 0")
    assert _ids(spark.table(f"{database}.c")) == [30]
    external = f"lakefs://{repo}/main/x"
    for mode, ids in (("error", [0, 1]), ("append", [0, 0, 1, 1]), ("overwrite", [0, 1])):
        _rows(spark, 0, 2).write.mode(mode).option("path", external).saveAsTable(f"{database}.x")
        assert _ids(spark.table(f"{database}.x")) == ids
    assert not table.uncommitted()


def test_a_table_in_buckets_is_replaced_in_one_commit(
    spark: SparkSession, server: Live, repo: str, database: str
) -> None:
    managed = Table(server, repo, "db/b")
    for stop in (20, 30):
        old = managed.paths()
        with managed.watched() as seen:
            _rows(spark, 0, stop).write.bucketBy(3, "id").sortBy("id").mode("overwrite").saveAsTable(f"{database}.b")
        assert seen == [old, managed.paths()]
        assert _ids(spark.table(f"{database}.b").where("id % 2 = 0")) == [*range(0, stop, 2)]


def test_the_second_writer_creates_tables_in_one_commit_and_does_no_more(
    spark: SparkSession, server: Live, repo: str, database: str
) -> None:
    managed, elsewhere = Table(server, repo, "db/w"), Table(server, repo, "x")
    for table, options in ((managed, {}), (elsewhere, {"path": elsewhere.url})):
        writer = _rows(spark, 0, 9).writeTo(f"{database}.{table.name[-1]}").using("parquet").options(**options)
        with table.watched() as seen:
            writer.partitionedBy(col("p")).create()
        assert seen == [frozenset(), table.paths()]
        assert len(table.paths()) == 6
    with pytest.raises(AnalysisException, match="v1 table"):
        _rows(spark, 0, 9).writeTo(f"{database}.w").append()


def test_a_managed_table_is_replaced_in_one_commit(spark: SparkSession, server: Live, repo: str, database: str) -> None:
    """Though Spark drops it first, files and all."""
    managed = Table(server, repo, "db/m")
    _rows(spark, 0, 5).write.saveAsTable(f"{database}.m")
    old = managed.paths()
    with managed.watched() as seen:
        _rows(spark, 10, 17).write.mode("overwrite").saveAsTable(f"{database}.m")
    assert seen == [old, managed.paths()]
    assert not old & managed.paths()
    assert _ids(spark.table(f"{database}.m")) == [*range(10, 17)]
    assert not managed.uncommitted()


def test_a_managed_table_whose_replacement_fails_keeps_its_files(
    spark: SparkSession, server: Live, repo: str, database: str
) -> None:
    managed = Table(server, repo, "db/m")
    _rows(spark, 0, 5).write.saveAsTable(f"{database}.m")
    with managed.watched() as seen, pytest.raises(Exception, match="no such luck"):
        spark.range(3).selectExpr("raise_error('no such luck') AS id").write.mode("overwrite").saveAsTable(
            f"{database}.m"
        )
    assert len(seen) == 1
    assert _ids(spark.read.parquet(managed.url)) == [0, 1, 2, 3, 4]


def test_what_sql_drops_of_a_table_is_gone_in_one_commit(
    spark: SparkSession, server: Live, repo: str, database: str
) -> None:
    managed = Table(server, repo, "db/m")
    select = "AS SELECT id, id % 3 AS p FROM range(9)"
    spark.sql(f"CREATE TABLE {database}.m USING parquet {select}")
    full = managed.paths()
    with managed.watched() as seen:
        spark.sql(f"DROP TABLE {database}.m")
        spark.sql(f"CREATE TABLE {database}.m USING parquet PARTITIONED BY (p) {select}")
        made = managed.paths()
        spark.sql(f"ALTER TABLE {database}.m DROP PARTITION (p = 1)")
    assert seen == [full, frozenset(), made, {path for path in made if not path.startswith("p=1/")}]
    assert [commit["message"] for commit in managed.log()[:3:2]] == ["Spark: drop db/m/p=1", "Spark: drop db/m"]
    spark.sql(f"TRUNCATE TABLE {database}.m")
    assert spark.table(f"{database}.m").count() == 0
    _rows(spark, 0, 2).write.insertInto(f"{database}.m")
    assert not managed.uncommitted()


def test_what_sql_drops_on_a_branch_with_uncommitted_changes_is_one_more(
    spark: SparkSession, server: Live, repo: str, database: str
) -> None:
    managed = Table(server, repo, "db/m")
    _rows(spark, 0, 5).write.saveAsTable(f"{database}.m")
    server.put(repo, "beside", b"staged")
    spark.sql(f"DROP TABLE {database}.m")
    assert managed.paths() == frozenset()
    assert {"beside", "db/m/_SUCCESS"} <= {*managed.uncommitted()}
    server.commit(repo)


# Hadoop's own writers


def test_hadoop_writers_of_both_kinds_are_one_commit(spark: SparkSession, server: Live, repo: str) -> None:
    context = spark.sparkContext
    old_kind, new_kind = Table(server, repo, "old"), Table(server, repo, "new")
    with old_kind.watched() as seen:
        context.parallelize([*"abcd"], 2).saveAsTextFile(old_kind.url)
    assert seen == [frozenset(), {"part-00000", "part-00001"}]
    with new_kind.watched() as seen:
        context.parallelize([*enumerate("abcd")], 2).saveAsNewAPIHadoopFile(
            new_kind.url,
            "org.apache.hadoop.mapreduce.lib.output.TextOutputFormat",
            keyClass="org.apache.hadoop.io.IntWritable",
            valueClass="org.apache.hadoop.io.Text",
        )
    assert seen == [frozenset(), {"part-r-00000", "part-r-00001"}]
    by_settings = Table(server, repo, "settings")
    context.parallelize([*enumerate("abcd")], 2).saveAsNewAPIHadoopDataset(
        {
            "mapreduce.job.outputformat.class": "org.apache.hadoop.mapreduce.lib.output.TextOutputFormat",
            "mapreduce.output.fileoutputformat.outputdir": by_settings.url,
            "mapreduce.job.output.key.class": "org.apache.hadoop.io.IntWritable",
            "mapreduce.job.output.value.class": "org.apache.hadoop.io.Text",
        }
    )
    assert by_settings.paths() == {"part-r-00000", "part-r-00001"}
    assert sorted(row.value for row in spark.read.text(old_kind.url).collect()) == [*"abcd"]
    assert spark.read.text(new_kind.url).count() == 4
    assert len(new_kind.log()) == 4
    assert not new_kind.uncommitted()
    assert new_kind.log()[0]["metadata"]["spark.app.id"] == context.applicationId


def test_a_hadoop_writer_that_fails_leaves_nothing(spark: SparkSession, table: Table) -> None:
    def fail(value: int) -> str:
        if value == 3:
            raise ValueError("no such luck")
        return str(value)

    with pytest.raises(Exception, match="no such luck"):
        spark.sparkContext.parallelize(range(4), 2).map(fail).saveAsTextFile(table.url)
    assert table.paths() == frozenset()
    assert [*table.jobs().values()] == ["aborted"]


# other places


def test_other_places_are_written_as_ever(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "plain"
    for mode in ("overwrite", "append", "overwrite"):
        _rows(spark, 0, 3).write.mode(mode).partitionBy("p").parquet(str(place))
    assert _ids(spark.read.parquet(str(place))) == [0, 1, 2]
    assert (place / "_SUCCESS").exists()
    spark.sparkContext.parallelize([*"ab"], 2).saveAsTextFile(str(tmp_path / "text"))
    assert (tmp_path / "text" / "part-00001").read_text() == "b\n"


# what it costs


def test_tasks_make_no_calls(spark: SparkSession, server: Live, repo: str) -> None:
    """However many there are, the server hears the same few requests, and swaps the branch once."""
    made = []
    for parts in (2, 40):
        with counted(server) as calls, written(server) as records:
            _rows(spark, 0, 400, parts).write.mode("overwrite").parquet(Table(server, repo, f"t{parts}").url)
        made.append((calls, records))
    assert made[0] == made[1]
    calls, records = made[0]
    assert calls["startJob"] == calls["publishJob"] == calls["writeJobBlob"] == 1
    assert calls.total() <= 8, calls
    assert records["branches"] == 1, records
