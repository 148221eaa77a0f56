"""URLs by which whoever holds them may read or write one blob for a while: the store's own, else this server's."""

from typing import Any, Final, NamedTuple

from esker.model import Entry, Repository
from esker.server.call import Call
from esker.server.signing import JOB_VALID_MS, URL_VALID_MS, BlobPass

BLOBS: Final = "/_blobs"

JOB_BLOB_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}"
"""A pattern: what the blobs of a job are called, below its address."""


class Presigned(NamedTuple):
    url: str
    expires_s: int


def reading(call: Call[Any, Any], repo: Repository, entry: Entry) -> Presigned:
    """To read an entry's bytes."""
    return _presigned(call, repo, "GET", entry.address, content_type=entry.content_type, checksum=entry.checksum)


def redirect(call: Call[Any, Any], repo: Repository, entry: Entry) -> None:
    """Answer with where an entry's bytes are, instead of sending them."""
    call.response.status = 302
    call.response.location = reading(call, repo, entry).url
    call.response.set_header("Cache-Control", "no-store")


def writing(call: Call[Any, Any], repo: Repository, address: str) -> Presigned:
    """To upload to an address."""
    return _presigned(call, repo, "PUT", address)


def job_upload_prefix(call: Call[Any, Any], repo: Repository, data: str) -> str:
    """To upload the blobs of a job to, each under a name of its own below this URL. Always this server's own: no store
    signs for names that are not known yet. Where they are, `writing` has the store's."""
    expires_ms = call.lake.world.now_ms() + JOB_VALID_MS
    leave = BlobPass("PUT", repo.name, repo.uid, data, expires_ms)
    return f"{call.request.forwarded_prefix}{BLOBS}/{call.server.signer.seal(leave)}/"


def _presigned(
    call: Call[Any, Any], repo: Repository, method: str, address: str, *, content_type: str = "", checksum: str = ""
) -> Presigned:
    lake = call.lake
    expires_ms = lake.world.now_ms() + URL_VALID_MS
    blobs, name = lake.locate(repo, address)
    url = blobs.presign(method, name, URL_VALID_MS // 1000)
    if url is None:
        leave = BlobPass(method, repo.name, repo.uid, address, expires_ms, content_type, checksum)
        url = f"{call.request.forwarded_prefix}{BLOBS}/{call.server.signer.seal(leave)}"
    return Presigned(url, expires_ms // 1000)
