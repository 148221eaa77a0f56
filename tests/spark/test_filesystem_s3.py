"""A lake in S3: bytes go between Spark and the store, by URLs that the server signs, or by Hadoop's own file system."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import boto3
import pytest
from pyspark.sql import SparkSession

from esker.stores.open_kv import sqlite_url
from tests.server.live import Live, live
from tests.spark.calls import counted
from tests.spark.files import Files

BUCKET: Final = "esker-spark"


@pytest.fixture(scope="module")
def on_s3(moto_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    base = tmp_path_factory.mktemp("on-s3")
    boto3.resource("s3", endpoint_url=moto_url).create_bucket(Bucket=BUCKET)
    with live(
        base,
        ESKER_LAKE=f"s3://{BUCKET}/lake",
        ESKER_KV=sqlite_url(base / "esker.db"),
        ESKER_SECRET_KEY="0" * 64,
        AWS_ENDPOINT_URL=moto_url,
        AWS_ALLOW_HTTP="true",
    ) as server:
        yield server


@pytest.fixture
def s3_repo(on_s3: Live, request: pytest.FixtureRequest) -> str:
    name = f"s3-{abs(hash(request.node.name)) % 10**8}"
    made = on_s3.ask("POST", "/repositories", body={"name": name, "storage_namespace": f"s3://{BUCKET}/lake/{name}"})
    assert made.status == 201, made
    return name


def settings(server: Live) -> dict[str, str]:
    return {
        "fs.lakefs.endpoint": server.url,
        "fs.lakefs.access.key": server.key_id,
        "fs.lakefs.secret.key": server.secret,
    }


def test_bytes_go_to_the_store_by_signed_urls(spark: SparkSession, on_s3: Live, s3_repo: str) -> None:
    files = Files(spark, f"lakefs://{s3_repo}/main/", settings(on_s3))
    data = os.urandom(9 << 20)
    with counted(on_s3) as calls:
        files.write("t/f", data)
        assert files.read("t/f") == data
    assert not {"uploadObject", "getObject", "readBlob", "writeBlob"} & calls.keys(), calls
    files.write("t/empty")
    assert files.read("t/empty") == b""
    assert files.rename("t", "u")
    assert files.read("u/f") == data
    first = on_s3.commit(s3_repo)
    files.write("u/f", b"other")
    assert files.read("u/f") == b"other"
    assert files.read(f"lakefs://{s3_repo}/{first}/u/f") == data
    with files.refused("FileAlreadyExistsException"):
        files.write("u/f", b"third", overwrite=False)


def test_spark_reads_and_writes_a_table(spark: SparkSession, on_s3: Live, s3_repo: str) -> None:
    hadoop = cast(Any, spark.sparkContext)._jsc.hadoopConfiguration()
    before = {name: hadoop.get(name) for name in settings(on_s3)}
    for name, value in settings(on_s3).items():
        hadoop.set(name, value)
    try:
        table = f"lakefs://{s3_repo}/main/t"
        session = spark.newSession()
        rows = session.range(0, 1000, numPartitions=2).selectExpr("id", "id % 30 AS p")
        with counted(on_s3) as calls:
            rows.write.mode("overwrite").partitionBy("p").parquet(table)
        assert calls["signJobUploads"] == 4, "of two tasks, for 30 files of each: for the first ten, and the others"
        assert calls["writeJobBlob"] == 1, "the one that is there from the start"
        assert session.read.parquet(table).count() == 1000
    finally:
        for name, value in before.items():
            hadoop.set(name, value)


def test_hadoops_own_file_system_for_the_store_is_used_where_there_is_one(
    spark: SparkSession, on_s3: Live, s3_repo: str, moto_url: str, tmp_path: Path
) -> None:
    files = Files(spark, f"lakefs://{s3_repo}/main/", settings(on_s3))
    compiled(files, Path(__file__).with_name("java") / "PlainS3.java", tmp_path)
    for mode, own in (("simple", True), ("presigned", False)):
        said = {**settings(on_s3), "fs.lakefs.access.mode": mode, "fs.s3a.impl": "PlainS3"}
        files = Files(spark, f"lakefs://{s3_repo}/main/", {**said, "plain.s3.endpoint": moto_url}, classes=tmp_path)
        with counted(on_s3) as calls:
            files.write(f"{mode}/f", b"hello")
            assert files.read(f"{mode}/f") == b"hello"
        # Signing is what the server does for those who have no other way.
        signed = files.fs.open(files.path(f"{mode}/f")).getWrappedStream().getClass().getSimpleName() == "LakeInput"
        assert signed is not own
        assert calls["linkPhysicalAddress"] == 1
        out = files.fs.create(files.path(f"{mode}/g"))
        out.write(b"x", 0, 1)
        out.abort()
        assert not files.exists(f"{mode}/g")


def compiled(files: Files, source: Path, target: Path) -> None:
    """Compile a class for the Java that runs, by the compiler beside it."""
    said = files.jvm.java.lang.System.getProperty
    javac = Path(said("java.home")) / "bin" / "javac"
    subprocess.run([javac, "-classpath", said("java.class.path"), "-d", target, source], check=True)
