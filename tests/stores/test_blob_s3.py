"""Object stores: the suite against moto's S3, and against a real server whose address is in ESKER_TEST_S3_URL (with its
credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY).
"""

import os
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import boto3
import pytest

from esker.errors import InvalidError, Kind, UnavailableError
from esker.stores.blob import BlobStore
from esker.stores.blob_object import PART_BYTES, PARTS_AT_ONCE, ObjectBlobs
from esker.stores.open_blobs import open_blobs
from esker.testing.blob_suite import BlobSuite, names
from esker.world import REAL

BUCKET: Final = "esker-suite"
REAL_S3_URL: Final = os.environ.get("ESKER_TEST_S3_URL")


@pytest.fixture(scope="session")
def moto_bucket(moto_url: str) -> str:
    make_bucket(moto_url)
    return moto_url


def make_bucket(endpoint: str) -> None:
    s3: Any = boto3.client("s3", endpoint_url=endpoint)
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou, s3.exceptions.BucketAlreadyExists):
        s3.create_bucket(Bucket=BUCKET)


def open_at(endpoint: str) -> BlobStore:
    """A store that nobody used before."""
    return open_blobs(f"s3://{BUCKET}/suite/{REAL.token(8)}", {"endpoint": endpoint, "path_style": "true"})


class TestMotoBlobs(BlobSuite):
    examples = 15
    stream_bytes = 2 * PARTS_AT_ONCE * PART_BYTES
    stream_memory_bytes = (PARTS_AT_ONCE + 1) * PART_BYTES

    @pytest.fixture
    def store(self, moto_bucket: str) -> BlobStore:
        return open_at(moto_bucket)

    def test_a_failed_upload_leaves_no_parts_behind(self, store: BlobStore, moto_bucket: str) -> None:
        def chunks() -> Iterator[bytes]:
            yield bytes(PART_BYTES + 1)
            raise KeyError("mine")

        with pytest.raises(KeyError):
            store.put_stream("blob", chunks())
        s3: Any = boto3.client("s3", endpoint_url=moto_bucket)
        assert s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []) == []

    def test_anybody_may_use_a_presigned_url(self, store: BlobStore) -> None:
        put = store.presign("PUT", "dir/a b+é%", 60)
        assert put is not None
        urllib.request.urlopen(
            urllib.request.Request(put, b"by url", {"Content-Type": "text/plain"}, method="PUT")
        ).close()
        assert store.get("dir/a b+é%") == b"by url"
        get = store.presign("GET", "dir/a b+é%", 60)
        assert get is not None
        with urllib.request.urlopen(get) as answer:
            assert answer.read() == b"by url"
        with pytest.raises(InvalidError):
            store.presign("DELETE", "x", 60)

    def test_a_prefix_is_a_directory_of_its_own(self, moto_bucket: str) -> None:
        options = {"endpoint": moto_bucket}
        lake, lake2 = open_blobs(f"s3://{BUCKET}/lake", options), open_blobs(f"s3://{BUCKET}/lake2/", options)
        lake2.put("x", b"other")
        assert names(lake) == []
        assert lake2.url == f"s3://{BUCKET}/lake2"
        assert names(open_blobs(f"s3://{BUCKET}", options), "lake2/") == ["lake2/x"]

    def test_the_prefix_counts_against_the_length_of_a_name(self, moto_bucket: str) -> None:
        store = open_blobs(f"s3://{BUCKET}/{'p' * 23}", {"endpoint": moto_bucket})
        store.put("x" * 1000, b"fits")
        assert store.get("x" * 1000) == b"fits"
        with pytest.raises(InvalidError, match="1000"):
            store.put("x" * 1001, b"does not")

    def test_a_missing_bucket_is_not_a_missing_blob(self, moto_bucket: str) -> None:
        for call in (
            lambda store: store.get("x"),
            lambda store: store.head("x"),
            lambda store: store.get_range("x", 0, 1),
            lambda store: store.stream("x"),
            lambda store: store.put("x", b""),
            lambda store: store.put_stream("x", [b""]),
            lambda store: list(store.list()),
            lambda store: store.copy("x", "y"),
        ):
            with pytest.raises(UnavailableError, match="s3://no-such-bucket"):
                call(open_blobs("s3://no-such-bucket/lake", {"endpoint": moto_bucket}))


if REAL_S3_URL is not None:

    class TestRealS3Blobs(BlobSuite):
        examples = 15
        stream_memory_bytes = (PARTS_AT_ONCE + 1) * PART_BYTES

        @pytest.fixture
        def store(self) -> BlobStore:
            assert REAL_S3_URL is not None
            make_bucket(REAL_S3_URL)
            return open_at(REAL_S3_URL)


def test_no_connection_is_unavailable_and_says_where() -> None:
    options = {"endpoint": "http://127.0.0.1:9", "access_key_id": "x", "secret_access_key": "y"}
    store = ObjectBlobs("s3", "bucket", "lake", options, retries=0)
    for call in (
        lambda: store.get("x"),
        lambda: store.put("x", b""),
        lambda: list(store.list()),
        lambda: store.head("x"),
    ):
        with pytest.raises(UnavailableError, match="s3://bucket/lake") as caught:
            call()
        assert caught.value.kind == Kind.STORE_UNAVAILABLE
        assert "check the bucket, the endpoint" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_option_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(InvalidError, match="colour"):
        open_blobs("s3://bucket", {"colour": "blue"})


def test_an_azure_container_without_an_account_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(UnavailableError, match=r"az://container.*Account"):
        open_blobs("az://container/prefix")


def test_google_and_azure_stores_open_without_a_connection() -> None:
    assert open_blobs("gs://bucket/a/b/", {"skip_signature": "true"}).url == "gs://bucket/a/b"
    azure = open_blobs("az://container", {"account_name": "a", "account_key": "a2V5"})
    assert azure.url == "az://container"
    assert (azure.presign("GET", "x", 60) or "").startswith("https://a.blob.core.windows.net/container/x?")
