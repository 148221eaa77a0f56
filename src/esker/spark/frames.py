"""A repository's metadata as DataFrames: what a ref shows, what changed, its history, and how much there is.

They are as lazy as all DataFrames are: a ref is looked up each time that one is run. Name a commit to have it stay.
What is not there when one is made is a NotFoundError at once: of what fails later, Spark tells in its own words.
"""

from typing import TYPE_CHECKING, Any

from esker.engine import repositories, statistics
from esker.engine.statistics import check_depth, growth
from esker.model import Commit, CommitID, FileName
from esker.spark import lakes, reading
from esker.spark.lakes import Opened
from esker.spark.stores import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def entries(
    spark: "SparkSession", repository: str, ref: str = "", *, prefix: str = "", lake: Opened | str | None = None
) -> "DataFrame":
    """What `ref` shows: of a branch (by default the repository's own) with what is staged there, of `branch@` as it was
    committed."""
    return _frame(spark, lake, table="entries", repository=repository, ref=ref, prefix=prefix)


def diff(
    spark: "SparkSession",
    repository: str,
    left: str,
    right: str,
    *,
    prefix: str = "",
    lake: Opened | str | None = None,
) -> "DataFrame":
    """What leads from one commit to another: `kind` (added, removed, changed), `path`, what is there on the right, and
    with `was_` before it what was on the left."""
    return _frame(spark, lake, table="diff", repository=repository, left=left, right=right, prefix=prefix)


def log(spark: "SparkSession", repository: str, ref: str = "", *, lake: Opened | str | None = None) -> "DataFrame":
    """The commits that `ref` descends from."""
    return _frame(spark, lake, table="log", repository=repository, ref=ref)


def refs(spark: "SparkSession", repository: str, *, lake: Opened | str | None = None) -> "DataFrame":
    """Branches and tags."""
    return _frame(spark, lake, table="refs", repository=repository)


def layers(
    spark: "SparkSession", repository: str, branch: str = "", *, lake: Opened | str | None = None
) -> "DataFrame":
    """What is staged, of one branch or all, as a reader goes through it: `place` 0 is on top."""
    return _frame(spark, lake, table="layers", repository=repository, ref=branch)


def sizes(
    spark: "SparkSession",
    repository: str,
    ref: str = "",
    *,
    prefix: str = "",
    depth: int = 1,
    lake: Opened | str | None = None,
) -> "DataFrame":
    """Objects and bytes by the directories, `depth` deep below `prefix`, that they are in."""
    from pyspark.sql import functions as f

    check_depth(depth)
    parts = f.split(f.substring("path", len(prefix) + 1, 1 << 20), "/")
    directories = f.slice(parts, 1, f.least(f.size(parts) - 1, f.lit(depth)))
    below = f.concat(f.lit(prefix), f.array_join(f.transform(directories, lambda part: f.concat(part, f.lit("/"))), ""))
    shown = entries(spark, repository, ref, prefix=prefix, lake=lake)
    return shown.groupBy(below.alias("prefix")).agg(f.count("*").alias("objects"), f.sum("size").alias("bytes"))


def growths(
    spark: "SparkSession", repository: str, ref: str = "", *, amount: int = 1000, lake: Opened | str | None = None
) -> "DataFrame":
    """What each of the newest commits of `ref` changed against its first parent: objects, and bytes that came and
    went."""
    from pyspark.sql import functions as f

    with lakes.opened(spark, lake) as engine:
        repo = repositories.get(engine, repository)
        place = Place.of(repo)
        steps = list(statistics.steps(engine, repo, ref or repo.default_branch, amount))

    def counted(step: tuple[CommitID, Commit, FileName]) -> tuple[Any, ...]:
        found = growth(place.trees(), *step)
        return tuple(getattr(found, name) for name in found.__struct_fields__)

    context = spark.sparkContext
    slices = max(1, min(len(steps), 4 * context.defaultParallelism))
    rows = context.parallelize(steps, slices).map(counted)
    frame = spark.createDataFrame(rows, _GROWTH)
    return frame.withColumn("date", f.timestamp_millis("date"))


_GROWTH = (
    "commit string, date bigint, message string, objects bigint, added bigint, removed bigint, changed bigint, "
    "bytes_added bigint, bytes_removed bigint"
)


def register(spark: "SparkSession", lake: Opened | str | None = None) -> None:
    """Have a session that was not made by `esker.spark.session` know `spark.read.format("esker")`, on this lake."""
    from esker.spark import source

    source.register(spark, lake)


def _frame(spark: "SparkSession", lake: Opened | str | None, **options: str) -> "DataFrame":
    from esker.spark import source

    asked = reading.asked_of(options)
    with lakes.opened(spark, lake) as engine:
        reading.check(engine, asked)
    return spark.read.format(source.registered(spark, lake)).options(**options).load()
