"""The pages of the documentation with Spark in them, followed; the others are in `tests/test_pages.py`."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import esker.spark
from esker.spark import lakes
from esker.spark.local_server import LocalServer
from tests.test_pages import SPARK, follow


@pytest.mark.parametrize("name", SPARK)
def test_who_does_what_a_page_says_sees_what_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: Callable[..., SparkSession]
) -> None:
    monkeypatch.setattr(esker.spark, "session", session)
    follow(name, tmp_path, monkeypatch, {"/data/": f"{tmp_path}/data/"}, {"SPARK_LOCAL_IP": "127.0.0.1"})


@pytest.fixture
def session(spark: SparkSession) -> Iterator[Callable[..., SparkSession]]:
    """`esker.spark.session`, in the process of Spark that runs: there can be no other, and how one is made is tested in
    `test_session.py`. Servers of lakes are real."""
    servers: list[LocalServer] = []
    real = inspect.signature(esker.spark.session)

    def begin(*given: Any, **named: Any) -> SparkSession:
        said = real.bind(*given, **named).arguments
        if "endpoint" in said:
            where = (said["endpoint"], said["access_key"], said["secret_key"])
        else:
            servers.append(LocalServer(said.get("lake_url")))
            where = (servers[-1].endpoint, servers[-1].access_key, servers[-1].secret_key)
        one = spark.newSession()
        if "endpoint" not in said:
            one.conf.set(lakes.LAKE, servers[-1].lake)
        for name, value in zip(("endpoint", "access.key", "secret.key"), where, strict=True):
            one.conf.set(f"fs.lakefs.{name}", value)
        one.conf.set("fs.lakefs.impl.disable.cache", "true")  # else it is the server of the page before
        one.stop = lambda: None  # type: ignore[method-assign]
        return one

    yield begin
    for server in servers:
        server.stop()
