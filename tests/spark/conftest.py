"""One server and one Spark session for all tests: to start Spark takes longer than any of them."""

import os
from collections.abc import Iterator
from typing import Final

import pytest
from pyspark.sql import SparkSession

import esker.spark
from tests.server.live import Live, live
from tests.spark.files import Files

SMALL: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="session", autouse=True)
def _on_loopback() -> None:
    """Spark looks for the machine's name otherwise, which a machine without a network does not know."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("spark-server")) as started:
        yield started


@pytest.fixture(scope="session")
def spark(server: Live, _on_loopback: None) -> Iterator[SparkSession]:
    """A session on the server's lake."""
    with esker.spark.session(
        endpoint=server.url,
        access_key=server.key_id,
        secret_key=server.secret,
        master="local[2]",
        app_name="esker-tests",
        settings=SMALL,
    ) as session:
        yield session


@pytest.fixture
def repo(server: Live) -> str:
    """The name of a repository of the test's own, empty."""
    return server.create_repository()


@pytest.fixture(params=["simple", "presigned"])
def files(request: pytest.FixtureRequest, spark: SparkSession, repo: str) -> Files:
    """The Hadoop file system of a repository: by the files of this machine, and by URLs alone."""
    return Files(spark, f"lakefs://{repo}/main/", {"fs.lakefs.access.mode": request.param})
