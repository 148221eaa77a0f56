"""Signed URLs of the server's own, for stores that have none: single blobs, read and written by whoever holds one.

A pass names a method, a repository, an address and when it expires, so nothing else is looked at. An address is written
once: what was uploaded may have been linked since, and bytes that a branch shows never change.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Final

from esker.auth import Need
from esker.engine import objects
from esker.errors import ConflictError, ForbiddenError, InvalidError, Kind, NotFoundError
from esker.model import Entry, Repository
from esker.server import downloads, uploads
from esker.server.call import Call, NoQuery, Operation, Stream
from esker.server.presigning import BLOBS, JOB_BLOB_NAME
from esker.server.signing import BlobPass

_JOB_BLOB_NAME: Final = re.compile(JOB_BLOB_NAME)


def read_blob(call: Call[NoQuery, None]) -> Stream | None:
    """The bytes that a signed URL is for, or a range of them."""
    repo, leave = _opened(call, "GET")
    blobs, name = call.lake.locate(repo, leave.address)
    found = blobs.head(name)
    if found is None:
        raise NotFoundError(Kind.BLOB_NOT_FOUND, "the bytes that this URL was for are gone")
    entry = Entry(
        path=leave.address,
        address=leave.address,
        size=found.size,
        checksum=leave.checksum,
        mtime_ms=found.mtime_ms,
        content_type=leave.content_type,
    )
    part = downloads.describe(call.request, call.response, entry, revalidate=False)
    if part is None:
        return None
    return Stream(objects.read(call.lake, repo, entry, part.start, part.length), part.length)


def write_blob(call: Call[NoQuery, None]) -> None:
    """Upload to the address that a signed URL is for. The answer's ETag is the MD5 of what arrived."""
    repo, leave = _opened(call, "PUT")
    _write(call, repo, leave.address)


def write_job_blob(call: Call[NoQuery, None]) -> None:
    """Upload a blob of a job, under a name that none of its blobs has. The answer's ETag is the MD5 of what arrived."""
    repo, leave = _opened(call, "PUT")
    name = call.path["name"]
    if not leave.address.endswith("/") or not _JOB_BLOB_NAME.fullmatch(name):
        raise InvalidError(
            Kind.INVALID_ADDRESS, f"no blob of a job can be called {name[:60]!r}, or this URL is not for a job's"
        )
    _write(call, repo, leave.address + name)


def _write(call: Call[NoQuery, None], repo: Repository, address: str) -> None:
    blobs, name = call.lake.locate(repo, address)

    def check_free() -> None:
        if blobs.head(name) is not None:
            raise ConflictError(Kind.OBJECT_EXISTS, "something was uploaded here already: ask for another address")

    check_free()
    md5 = hashlib.md5(usedforsecurity=False)

    def arriving() -> Iterator[bytes]:
        yield from objects.hashed(call.lake, uploads.chunks(call.request, call.lake.world), md5.update)
        # While this was on its way, another upload may have been done, and linked. Asked by another thread: this one is
        # inside of the store's own loop, which does not call itself.
        if call.lake.pool:
            call.lake.pool.submit(check_free).result()

    blobs.put_stream(name, arriving())
    call.response.set_header("ETag", f'"{md5.hexdigest()}"')


def _opened(call: Call[NoQuery, None], method: str) -> tuple[Repository, BlobPass]:
    leave = call.server.signer.open(call.lake, method, call.path["sealed"])
    repo = call.server.known.get(leave.repository)
    if repo.uid != leave.uid:
        raise ForbiddenError(Kind.INVALID_ADDRESS, "this URL was signed for a repository that is gone")
    return repo, leave


_ONE = f"{BLOBS}/{{sealed}}"

OPERATIONS = [
    Operation(
        id="readBlob",
        group="blobs",
        method="GET",
        base="",
        path=_ONE,
        need=Need.PUBLIC,
        handler=read_blob,
        headers=downloads.HEADERS,
        ours=True,
        statuses=(206, 304, 403, 404, 410, 416),
    ),
    Operation(
        id="writeBlob",
        group="blobs",
        method="PUT",
        base="",
        path=_ONE,
        need=Need.PUBLIC,
        handler=write_blob,
        ours=True,
        upload=True,
        statuses=(403, 404, 409),
    ),
    Operation(
        id="writeJobBlob",
        group="blobs",
        method="PUT",
        base="",
        path=f"{_ONE}/{{name}}",
        need=Need.PUBLIC,
        handler=write_job_blob,
        ours=True,
        upload=True,
        statuses=(403, 404, 409),
    ),
]
