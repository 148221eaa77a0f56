"""Exports by Spark: the steps of `esker.engine.exports`, done by executors.

    made = esker.spark.export_objects(spark, "sales", "v1.2", "s3://partner/sales", lake="s3://bucket/lake")

Executors read ranges and copy objects, each several at a time; the driver plans parts and writes the manifest. What one
without Spark left half done, this goes on with, and the other way round.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from esker.engine import exports, repositories
from esker.engine.exports import Manifest
from esker.spark.lakes import Opened, opened
from esker.spark.steps import Counter, OnSpark
from esker.spark.stores import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class _Totals:
    """Told by executors, summed up by the driver: of a task that Spark does twice, twice."""

    objects: Counter
    bytes: Counter

    def __call__(self, objects: int, size: int) -> None:
        self.objects.add(objects)
        self.bytes.add(size)

    def sums(self) -> tuple[int, int]:
        return self.objects.value, self.bytes.value


def export_objects(
    spark: "SparkSession",
    repository: str,
    ref: str,
    target: str,
    *,
    since: str = "",
    prefix: str = "",
    progress: Callable[[int, int], None] | None = None,
    lake: Opened | str | None = None,
) -> Manifest:
    """Copy what is committed on `ref`, or what changed after `since`, to the directory at a URL, under its paths: what
    `Repo.export` does. Executors have to reach the repository's place, and that one."""
    with opened(spark, lake) as engine:
        repo = repositories.get(engine, repository)
        place, run = Place.of(repo), OnSpark(spark, f"esker export of {repository}", small=True)
        task = exports.start(engine, repo, ref, target, since=since, prefix=prefix)
        totals = _Totals(spark.sparkContext.accumulator(0), spark.sparkContext.accumulator(0))
        return exports.export(engine, repo, task, progress=progress, stores=place, run=run, totals=totals)
