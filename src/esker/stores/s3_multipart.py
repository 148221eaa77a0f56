"""Uploads in parts to S3, past this process: what its SDK does and obstore does not.

Where the store is, and in which region, is read off a URL that obstore signed, so that both always agree. Credentials
are the store's options, or what the SDK finds where it always looks.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from esker.errors import InvalidError, Kind, UnavailableError
from esker.stores.blob import Multipart

try:
    import boto3.session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
except ImportError as error:
    raise ImportError("uploads in parts to S3 need the `aws` extra: pip install 'esker[aws]'") from error

_CLIENTS_FAULT: Final = frozenset(
    {"NoSuchUpload", "InvalidPart", "InvalidPartOrder", "EntityTooSmall", "InvalidArgument", "InvalidRange"}
)


class S3Multipart(Multipart):
    """Below `url`, `s3://bucket/prefix`. Threads may share it."""

    def __init__(self, url: str, signed_url: str, options: Mapping[str, Any]) -> None:
        self._url = url
        self._bucket, _, self._prefix = url.removeprefix("s3://").partition("/")
        parts = urlsplit(signed_url)
        region = parse_qs(parts.query)["X-Amz-Credential"][0].split("/")[2]
        hosted = parts.netloc.startswith(f"{self._bucket}.")
        host = parts.netloc.removeprefix(f"{self._bucket}.") if hosted else parts.netloc
        config = Config(
            region_name=region,
            signature_version="s3v4",
            s3={"addressing_style": "virtual" if hosted else "path"},
            request_checksum_calculation="when_required",
        )
        self._client: Any = boto3.session.Session().client(
            "s3",
            endpoint_url=f"{parts.scheme}://{host}",
            aws_access_key_id=options.get("access_key_id"),
            aws_secret_access_key=options.get("secret_access_key"),
            aws_session_token=options.get("session_token"),
            config=config,
        )

    def create(self, name: str) -> str:
        upload: str = self._ask("create_multipart_upload", name)["UploadId"]
        return upload

    def part_url(self, name: str, upload: str, number: int, seconds: int) -> str:
        where = {**self._where(name), "UploadId": upload, "PartNumber": number}
        url: str = self._client.generate_presigned_url("upload_part", Params=where, ExpiresIn=seconds)
        return url

    def copy_part(self, name: str, upload: str, number: int, source_url: str, part: tuple[int, int] | None) -> str:
        scheme, _, rest = source_url.partition("://")
        bucket, _, key = rest.partition("/")
        if scheme != "s3":
            raise InvalidError(Kind.INVALID_ADDRESS, "a part can be a copy only of what lies in S3, too")
        said: dict[str, Any] = {"UploadId": upload, "PartNumber": number, "CopySource": {"Bucket": bucket, "Key": key}}
        if part is not None:
            said["CopySourceRange"] = f"bytes={part[0]}-{part[1]}"
        etag: str = self._ask("upload_part_copy", name, **said)["CopyPartResult"]["ETag"]
        return etag

    def complete(self, name: str, upload: str, parts: Sequence[tuple[int, str]]) -> str:
        said = [{"PartNumber": number, "ETag": etag} for number, etag in parts]
        made = self._ask("complete_multipart_upload", name, UploadId=upload, MultipartUpload={"Parts": said})
        etag: str = made["ETag"]
        return etag

    def abort(self, name: str, upload: str) -> None:
        self._ask("abort_multipart_upload", name, UploadId=upload)

    def _where(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}/{name}" if self._prefix else name}

    def _ask(self, verb: str, name: str, **said: Any) -> Any:
        try:
            return getattr(self._client, verb)(**self._where(name), **said)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in _CLIENTS_FAULT:
                why = error.response["Error"].get("Message", code)
                raise InvalidError(Kind.INVALID_ARGUMENT, f"the store refuses this upload in parts: {why}") from None
            raise UnavailableError(Kind.STORE_UNAVAILABLE, f"{self._url}: cannot {verb} ({error})") from error
        except BotoCoreError as error:
            raise UnavailableError(Kind.STORE_UNAVAILABLE, f"{self._url}: cannot {verb} ({error})") from error
