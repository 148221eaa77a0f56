"""A server whose bytes lie in S3: clients are sent there, and nothing of theirs passes through the server."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import boto3
import pytest
import urllib3

from esker.stores.open_kv import sqlite_url
from tests.server.live import Live, lakefs, lakefs_sdk, live


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


PART = b"p" * (5 << 20)
"""The least that S3 takes for a part that is not the last."""


def test_an_object_goes_to_the_store_in_parts_and_the_client_does_not_notice(
    on_s3: Live, bucket: Any, main: Any
) -> None:
    """Begun, sent past the server, a part of it copied within the store, completed: as `lakectl fs upload` does it."""
    assert on_s3.sdk().config_api.get_config().storage_config.pre_sign_multipart_upload
    repo, api = main.repo_id, on_s3.sdk().experimental_api
    begun = api.create_presign_multipart_upload(repo, "main", "large", parts=1)
    first = urllib3.request("PUT", begun.presigned_urls[0], body=PART)
    assert first.status == 200
    address = lakefs_sdk.UploadPartFrom(physical_address=begun.physical_address)
    second = api.upload_part(repo, "main", begun.upload_id, "large", 2, address).presigned_url
    assert second.startswith(begun.presigned_urls[0].partition("?")[0])
    etags = [first.headers["ETag"], urllib3.request("PUT", second, body=PART).headers["ETag"]]
    main.object("small").upload(b"0123456789")
    source = lakefs_sdk.CopyPartSource(repository=repo, ref="main", path="small", range="bytes=3-5")
    copied = api.upload_part_copy_with_http_info(
        repo,
        "main",
        begun.upload_id,
        "large",
        3,
        lakefs_sdk.UploadPartCopyFrom(physical_address=begun.physical_address, copy_source=source),
    )
    etags.append(copied.headers["ETag"])
    assert not main.object("large").exists()
    parts = [lakefs_sdk.UploadPart(part_number=number, etag=etag) for number, etag in enumerate(etags, 1)]
    complete = lakefs_sdk.CompletePresignMultipartUpload(
        physical_address=begun.physical_address,
        parts=parts,
        user_metadata={"My_Key": "grün"},
        content_type="text/plain",
    )
    made = api.complete_presign_multipart_upload(repo, "main", begun.upload_id, "large", complete)
    assert (made.size_bytes, made.content_type) == (2 * len(PART) + 3, "text/plain")
    stat = main.object("large").stat()
    assert stat.checksum.endswith("-3")
    assert stat.metadata == {"My_Key": "grün"}
    assert main.object("large").reader("rb", pre_sign=False).read() == 2 * PART + b"345"


def test_an_upload_in_parts_is_good_for_its_own_address_only(on_s3: Live, main: Any) -> None:
    repo, api = main.repo_id, on_s3.sdk().experimental_api
    begun = api.create_presign_multipart_upload(repo, "main", "a")
    path = f"/repositories/{repo}/branches/main/staging/pmpu/{quote(begun.upload_id, safe='')}"
    body = {"physical_address": begun.physical_address}
    done = {**body, "parts": [{"part_number": 1, "etag": "x"}]}
    url = on_s3.ask("PUT", f"{path}/parts/1", query={"path": "a"}, body=body).json["presigned_url"]
    for asked, query, sent in (
        (f"{path}/parts/1", "b", body),
        (f"{path}/parts/1", "a", {"physical_address": begun.physical_address + "x"}),
        (f"{path}/parts/1", "a", {"physical_address": "s3://esker-server/lake/elsewhere"}),
        (f"{path}/parts/0", "a", body),
        (f"{path}/parts/10001", "a", body),
        (f"{path}/parts/x", "a", body),
        (path, "b", done),
        (path, "a", done),  # no such part
        (path, "a", {**done, "parts": []}),
    ):
        assert on_s3.ask("PUT", asked, query={"path": query}, body=sent).status == 400, (asked, query, sent)
    main.object("small").upload(b"0123456789")
    for span, status in (("bytes=0-10", 400), ("bytes=5-4", 400), ("0-1", 400), (None, 404)):
        copy = {"repository": repo, "ref": "main", "path": "small" if span else "nothing", "range": span}
        sent = {**body, "copy_source": {name: value for name, value in copy.items() if value}}
        assert on_s3.ask("PUT", f"{path}/parts/1/copy", query={"path": "a"}, body=sent).status == status, span
    api.abort_presign_multipart_upload(
        repo,
        "main",
        begun.upload_id,
        "a",
        lakefs_sdk.AbortPresignMultipartUpload(physical_address=begun.physical_address),
    )
    assert urllib3.request("PUT", url, body=b"late").status >= 400
    assert not main.object("a").exists()


def test_an_upload_in_parts_may_be_for_absent_paths_only(on_s3: Live, main: Any) -> None:
    repo, api = main.repo_id, on_s3.sdk().experimental_api
    begun = api.create_presign_multipart_upload(repo, "main", "a", parts=1)
    etag = urllib3.request("PUT", begun.presigned_urls[0], body=b"in parts").headers["ETag"]
    main.object("a").upload(b"first")
    path = f"/repositories/{repo}/branches/main/staging/pmpu/{quote(begun.upload_id, safe='')}"
    done = {"physical_address": begun.physical_address, "parts": [{"part_number": 1, "etag": etag}]}
    headers = {"If-None-Match": "*"}
    assert on_s3.ask("PUT", path, query={"path": "a"}, body=done, headers=headers).status == 412
    assert main.object("a").reader("rb").read() == b"first"


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
