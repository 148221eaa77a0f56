"""A server whose bytes lie in S3: clients are sent there, and nothing of theirs passes through the server."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
import urllib3

from esker.stores.open_kv import sqlite_url
from tests.server.live import Live, lakefs, live


@pytest.fixture(scope="module")
def bucket(moto_url: str) -> Any:
    s3: Any = boto3.resource("s3", endpoint_url=moto_url)
    return s3.create_bucket(Bucket="esker-server")


@pytest.fixture(scope="module")
def on_s3(bucket: Any, moto_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    base = tmp_path_factory.mktemp("on-s3")
    with live(
        base,
        ESKER_LAKE="s3://esker-server/lake",
        ESKER_KV=sqlite_url(base / "esker.db"),
        ESKER_SECRET_KEY="0" * 64,
        ESKER_SOURCES="s3://esker-server/raw",
        AWS_ENDPOINT_URL=moto_url,
        AWS_ALLOW_HTTP="true",
    ) as server:
        yield server


@pytest.fixture
def main(on_s3: Live, request: pytest.FixtureRequest) -> Any:
    name = f"s3-{abs(hash(request.node.name)) % 10**8}"
    client = on_s3.wrapper()
    return lakefs.Repository(name, client).create(storage_namespace=f"s3://esker-server/lake/{name}").branch("main")


def test_the_store_is_told_of(on_s3: Live) -> None:
    config = on_s3.wrapper().storage_config
    assert config.blockstore_type == "s3"
    assert config.pre_sign_support
    assert config.default_namespace_prefix == "s3://esker-server/lake"


def test_bytes_go_to_the_store_and_come_from_it(moto_url: str, bucket: Any, main: Any) -> None:
    stored = main.object("a").upload("hello", metadata={"My_Key": "grün"}, content_type="text/plain")
    stat = stored.stat()
    assert stat.physical_address.startswith("s3://esker-server/lake/")
    assert (stat.checksum, stat.metadata) == ("5d41402abc4b2a76b9719d911017c592", {"My_Key": "grün"})
    assert bucket.Object(stat.physical_address.removeprefix("s3://esker-server/")).get()["Body"].read() == b"hello"
    signed = stored.stat(pre_sign=True).physical_address
    assert signed.startswith(moto_url)
    assert urllib3.request("GET", signed).data == b"hello"
    with stored.reader("rb") as reader:
        reader.seek(1)
        assert reader.read(3) == b"ell"
        reader.seek(99)
        assert reader.read() == b""
    with stored.reader("rb", pre_sign=False) as reader:
        assert reader.read() == b"hello"
    assert stored.copy("main", "b").reader("r").read() == "hello"


def test_what_lies_in_the_bucket_is_imported(bucket: Any, main: Any) -> None:
    for name in ("one", "deep/two"):
        bucket.put_object(Key=f"raw/{name}", Body=name.encode())
    bucket.put_object(Key="rawer/not-this", Body=b"x")
    status = main.import_data("imported").prefix("s3://esker-server/raw", "in").run()
    assert status.ingested_objects == 2
    assert [found.path for found in main.objects()] == ["in/deep/two", "in/one"]
    assert main.object("in/deep/two").reader("r").read() == "deep/two"
    with pytest.raises(lakefs.exceptions.ForbiddenException):
        main.import_data().prefix("s3://esker-server/rawer", "in").start()
    with pytest.raises(lakefs.exceptions.ForbiddenException):
        main.import_data().prefix("s3://another/raw", "in").start()
