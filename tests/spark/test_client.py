"""The client of the jar: what it tries again, what it never does, and that it keeps its connections."""

import threading
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.services import free_port
from tests.spark.files import Files
from tests.spark.scripted import DROP, Scripted, scripted


class Client:
    """The jar's client for a server."""

    def __init__(self, files: Files, url: str) -> None:
        conf = files.jvm.org.apache.hadoop.conf.Configuration(False)
        for name, value in (("endpoint", url), ("access.key", "key"), ("secret.key", "secret")):
            conf.set(f"fs.lakefs.{name}", value)
        self.client = files.jvm.io.esker.hadoop.LakeClient.of(conf)
        self._files = files

    def call(self, method: str, *path: str) -> Any:
        parts = self._files.array("java.lang.String", *path)
        return getattr(self.client, method)(parts)


@pytest.fixture(scope="module")
def some(spark: SparkSession) -> Files:
    return Files(spark, "lakefs://any-repo/main/")


def test_what_was_not_done_is_tried_again(some: Files) -> None:
    for method in ("get", "post"):
        with scripted(503, 429, 503) as server:
            assert Client(some, server.url).call(method, "a").send().get("message").asText()
            assert len(server.asked) == 4


@pytest.mark.parametrize("status", [DROP, 502, 504])
def test_what_may_have_been_done_is_tried_again_only_if_that_is_the_same(some: Files, status: int) -> None:
    with scripted(status) as server:
        client = Client(some, server.url)
        with some.refused("IOException"):
            client.call("post", "a").body(some.jvm.java.util.Map.of("k", "v")).send()
        assert len(server.asked) == 1
        server.statuses = [status]
        client.call("post", "a").idempotent().send()
        assert server.asked[1:] == ["POST /api/v1/a"] * 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 412, 500])
def test_a_refusal_is_final(some: Files, status: int) -> None:
    with scripted(status) as server:
        with some.refused("LakeException"):
            Client(some, server.url).call("get", "a").send()
        assert len(server.asked) == 1


def test_a_server_that_is_started_again_is_waited_for(some: Files) -> None:
    port = free_port()
    started: list[Scripted] = []

    def start() -> None:
        with scripted(port=port) as server:
            started.append(server)
            asked.wait(60)

    asked = threading.Event()
    thread = threading.Timer(0.5, start)
    thread.start()
    try:
        Client(some, f"http://127.0.0.1:{port}/api/v1/").call("post", "a").send()
        assert started[0].asked == ["POST /api/v1/a"]
    finally:
        asked.set()
        thread.join()


def test_connections_are_kept(some: Files) -> None:
    with scripted() as server:
        for number in range(20):
            Client(some, server.url).call("get", "a", str(number)).send()
        assert len(server.asked) == 20
        assert server.connections == 1


def test_names_are_quoted(some: Files) -> None:
    with scripted() as server:
        call = Client(some, server.url).call("get", "refs", "v1.0~1", "a/b c")
        call.query("path", "x&y=ü+/?").query("amount", 7).send()
        assert server.asked == ["GET /api/v1/refs/v1.0%7E1/a%2Fb%20c?path=x%26y%3D%C3%BC%2B%2F%3F&amount=7"]
