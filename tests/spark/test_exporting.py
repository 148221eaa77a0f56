"""Exports by Spark leave what those of one process leave, and go on where these ended."""

import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from pyspark.sql import SparkSession

import esker
import esker.spark
from esker.engine import repositories, tasks
from esker.engine.exports import OWN, SUCCESS
from esker.errors import InvalidError, NotFoundError
from esker.stores.blob import BlobStore
from esker.stores.open_blobs import open_blobs
from esker.stores.open_kv import sqlite_url
from esker.tree.cutting import Cutting

FILES = {f"t/{n % 5}/{n:03}": str(n).encode() for n in range(90)}


@pytest.fixture(params=["file", "s3"])
def lake(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[esker.Lake]:
    """In an object store, the place to export to is in the same bucket: that copies by itself."""
    url = (tmp_path / "lake").as_uri()
    if request.param == "s3":
        moto_url = request.getfixturevalue("moto_url")
        bucket = tmp_path.name.replace("_", "-").lower()
        boto3.client("s3", endpoint_url=moto_url).create_bucket(Bucket=bucket)
        for name, value in {"AWS_ENDPOINT_URL": moto_url, "AWS_ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(name, value)
        for name in (name for name in os.environ if name.startswith("AWS_")):
            monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
        url = f"s3://{bucket}/lake"
    with esker.open_lake(url, kv=sqlite_url(tmp_path / "esker.db")) as opened:
        yield opened


def test_both_leave_the_same_and_each_goes_on_where_the_other_ended(spark: SparkSession, lake: esker.Lake) -> None:
    cutting = Cutting(salt=3, entries_mean=4, entries_max=16)
    repositories.create(lake.engine, "repo", f"{lake.url}/repo", cutting=cutting)
    repo = lake.repository("repo")
    main = repo.branch("main")
    main.put_many(FILES)
    before = main.commit("all")
    places = [f"{lake.url.removesuffix('lake')}{name}" for name in ("one", "other")]
    one, other = map(open_blobs, places)
    repo.export("main", places[0])
    told: list[tuple[int, int]] = []
    made = esker.spark.export_objects(
        spark, "repo", "main", places[1], lake=lake, progress=lambda *done: told.append(done)
    )
    assert (made.objects, made.copied, len(made.parts) > 5) == (90, 90, True)
    assert told[-1] == (made.objects, made.bytes)
    assert there(one) == there(other) == FILES
    other.delete(["t/1/001"])
    assert repo.export("main", places[1]).copied == 1
    main.put_many({"t/2/new": b"new", "t/3/003": b"else"})
    main.delete("t/4/004")
    main.commit("some")
    made = esker.spark.export_objects(spark, "repo", "main", places[1], since=before, lake=lake)
    assert (made.objects, made.deleted) == (2, 1)
    assert there(other) == {path: repo.ref("main").get(path) for path in sorted({*FILES, "t/2/new"} - {"t/4/004"})}
    with pytest.raises(InvalidError, match="data of repository"):
        esker.spark.export_objects(spark, "repo", "main", f"{lake.url}/repo/x", lake=lake)
    repo.engine.blobs(repo.record).delete([repo.ref("main").stat("t/3/003").address])
    with pytest.raises(NotFoundError, match="t/3/003"):
        esker.spark.export_objects(spark, "repo", "main", places[0], since=before, lake=lake)
    assert one.head(SUCCESS) is None
    states = [task.state for task in tasks.every(repo.engine, repo.record)]
    assert sorted(states) == ["done"] * 4 + ["failed"]


def there(place: BlobStore) -> dict[str, bytes]:
    """What is in a place, the export's own aside."""
    return {info.name: place.get(info.name) or b"" for info in place.list() if not info.name.startswith(OWN)}
