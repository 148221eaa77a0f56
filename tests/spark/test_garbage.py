"""Garbage collection by Spark: it deletes exactly what the collector without Spark does, and survives what kills it."""

import os
import random
import shutil
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import boto3
import pytest
from pyspark.sql import SparkSession

import esker
import esker.spark
from esker.engine import garbage, repositories, retention, tasks
from esker.engine.cleaning import Cleaner
from esker.engine.retention import Retention
from esker.errors import EskerError, InvalidError
from esker.settings import Settings
from esker.spark.steps import OnSpark
from esker.spark.stores import Place
from esker.stores.blob import BlobInfo, BlobStore
from esker.stores.blob_local import LocalBlobs
from esker.stores.open_kv import sqlite_url
from esker.testing.faults import CountingBlobs
from esker.tree.cutting import Cutting
from esker.world import RealWorld
from tests.engine.worn import GRACE_S, files, live_through, reachable

NAME = "worn"


class Later(RealWorld):
    """The real clock, put forward."""

    more_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + int(self.more_s * 1000)

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.more_s


class Dated(CountingBlobs):
    """Tells the time by that clock."""

    def __init__(self, blobs: BlobStore, world: Later) -> None:
        super().__init__(blobs)
        self._world = world

    def head(self, name: str) -> BlobInfo | None:
        found = super().head(name)
        return found and found._replace(mtime_ms=found.mtime_ms + int(self._world.more_s * 1000))


@contextmanager
def lake_at(url: str, world: Later, kv: str | None = None) -> Iterator[esker.Lake]:
    with esker.open_lake(url, kv=kv, settings=Settings(grace_s=0.0), world=world) as lake:
        place = f"{url}/{NAME}"
        lake.engine._stores[place] = Dated(lake.engine.store(place), world)
        yield lake


def make(lake: esker.Lake, seed: int, steps: int) -> esker.Repo:
    """A repository of tiny ranges, with a life behind it."""
    cutting = Cutting(entries_mean=2, entries_max=3, bytes_max=1 << 20)
    repositories.create(lake.engine, NAME, f"{lake.url}/{NAME}", cutting=cutting)
    repo, dice = lake.repository(NAME), random.Random(seed)
    for _ in range(steps):
        with suppress(EskerError):
            live_through(repo.engine, repo.record, dice)
    cleaner = Cleaner(repo.engine, repo.record)
    while cleaner.run():
        pass
    return repo


@pytest.mark.parametrize("seed", range(2))
def test_both_collectors_delete_the_same_and_all_that_nothing_reaches(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """The same lake, twice, at the same place: once by each."""
    world = Later()
    place, copy = tmp_path / "lake", tmp_path / "copy"
    with lake_at(place.as_uri(), world) as lake:
        repo = make(lake, seed, 70)
        if seed:
            retention.set_rules(repo.engine, repo.record, Retention(default_days=0))
    shutil.copytree(place, copy)
    left, reports = [], []
    start_s = world.more_s
    for by_spark in (False, True):
        shutil.rmtree(place)
        shutil.copytree(copy, place)
        world.more_s = start_s
        with lake_at(place.as_uri(), world) as lake:
            repo = lake.repository(NAME)
            for dry_run in (True, False):  # the first mark is a dry run's
                world.more_s += GRACE_S + 10
                if by_spark:
                    report = esker.spark.collect_garbage(spark, NAME, lake=lake, grace_s=GRACE_S, dry_run=dry_run)
                else:
                    report = repo.collect_garbage(grace_s=GRACE_S, dry_run=dry_run)
                assert dry_run or report.deleted > 5
            left.append(files(repo.engine, repo.record))
            reports.append(report)
            assert left[-1] == reachable(repo.engine, repo.record)
    assert left[0] == left[1]
    for report in reports:
        report.marked = 0  # by how many processes an address was read is no result
    assert reports[0] == reports[1]


def test_it_works_on_an_object_store(
    spark: SparkSession, moto_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    boto3.client("s3", endpoint_url=moto_url).create_bucket(Bucket="esker-gc")
    for name, value in {"AWS_ENDPOINT_URL": moto_url, "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)
    for name in (name for name in os.environ if name.startswith("AWS_")):
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    world = Later()
    with lake_at("s3://esker-gc/lake", world, kv=sqlite_url(tmp_path / "esker.db")) as lake:
        repo = make(lake, 11, 40)
        for _ in range(2):
            world.more_s += GRACE_S + 10
            report = esker.spark.collect_garbage(spark, NAME, lake=lake, grace_s=GRACE_S)
        assert report.deleted > 0
        assert files(repo.engine, repo.record) == reachable(repo.engine, repo.record)


@dataclass(frozen=True)
class Deadly(Place):
    """A place whose executors die at their third delete, once."""

    mark: str = ""

    def blobs(self) -> BlobStore:
        return cast(BlobStore, _Deadly(super().blobs(), self.mark))


class _Deadly:
    def __init__(self, blobs: BlobStore, mark: str) -> None:
        self._blobs = blobs
        self._mark = mark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    def delete(self, names: Iterable[str]) -> None:
        some = list(names)
        half = some[: len(some) // 2]
        self._blobs.delete(half)
        if half and not os.path.exists(self._mark):
            Path(self._mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self._blobs.delete(some)


def test_an_executor_that_is_killed_in_the_sweep_is_made_good_by_the_next_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = Later()
    with lake_at((tmp_path / "lake").as_uri(), world) as lake:
        repo = make(lake, 7, 80)
        engine, record = repo.engine, repo.record
        world.more_s += GRACE_S + 10
        repo.collect_garbage(grace_s=GRACE_S)
        world.more_s += GRACE_S + 10
        before = files(engine, record)
        place = Place.of(record)
        deadly = Deadly(place.url, place.cutting, str(tmp_path / "killed"))
        with pytest.raises(Exception, match=r"worker|Connection reset|EOF"):
            garbage.collect(engine, record, grace_s=GRACE_S, stores=deadly, run=OnSpark(spark, "gc"))
        after = files(engine, record)
        assert reachable(engine, record) < after < before, "half done"
        (failed, *_) = [task for task in tasks.every(engine, record) if task.state == "failed"]
        assert failed.kind == "gc"
        esker.spark.collect_garbage(spark, NAME, lake=lake, grace_s=GRACE_S)
        assert files(engine, record) == reachable(engine, record)


def test_an_error_of_ours_in_an_executor_is_the_same_error_here(spark: SparkSession, tmp_path: Path) -> None:
    with lake_at((tmp_path / "lake").as_uri(), Later()) as lake:
        repo = make(lake, 3, 40)
        LocalBlobs(tmp_path / "lake" / NAME).delete(
            info.name for info in repo.engine.blobs(repo.record).list("_esker/metaranges/")
        )
        with pytest.raises(EskerError, match="missing") as caught:
            esker.spark.collect_garbage(spark, NAME, lake=lake)
        assert caught.value.kind == "missing-file"


def test_a_lake_in_memory_is_refused(spark: SparkSession) -> None:
    with esker.open_lake("memory://") as lake:
        lake.create_repository("repo")
        with pytest.raises(InvalidError):
            esker.spark.collect_garbage(spark, "repo", lake=lake)
