"""Garbage collection by Spark: the steps of `esker.engine.garbage`, done by executors.

    report = esker.spark.collect_garbage(spark, "sales", lake="s3://bucket/lake")

The driver reads refs and staging tokens; executors list, read trees, compare and delete. What the driver holds grows
with commits and branches, not with objects. Nothing of it is Spark's own format or shuffle: executors leave their rows
in the repository's place and take them up there, by the very code that runs without Spark.
"""

from typing import TYPE_CHECKING

from esker.engine import garbage, repositories
from esker.engine.garbage import GRACE_S, Progress, Report
from esker.spark.lakes import Opened, opened
from esker.spark.steps import OnSpark
from esker.spark.stores import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def collect_garbage(
    spark: "SparkSession",
    repository: str,
    *,
    lake: Opened | str | None = None,
    grace_s: float = GRACE_S,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Collect a repository's garbage: what `Repo.collect_garbage` does, and to the same result. Executors have to reach
    the repository's place; the key-value store is the driver's alone."""
    with opened(spark, lake) as engine:
        repo = repositories.get(engine, repository)
        place, run = Place.of(repo), OnSpark(spark, f"esker gc of {repository}", small=True)
        return garbage.collect(engine, repo, grace_s=grace_s, dry_run=dry_run, progress=progress, stores=place, run=run)
