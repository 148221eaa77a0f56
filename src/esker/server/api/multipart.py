"""Uploads in parts, straight to a store that has them: each part by a URL that the store signed.

The address of the whole is signed here, for one path of one branch, as every staging address is; the upload's id is the
store's, and good for that address only.
"""

import re
from typing import Annotated, Any, Final

import falcon
import msgspec

from esker.auth import Need
from esker.engine import entries, protection
from esker.engine.protection import Action
from esker.errors import ForbiddenError, InvalidError, Kind
from esker.model import Entry, Repository
from esker.server import places, uploads, wire
from esker.server.api.objects import CONDITIONS, PathQuery, if_absent_asked, stats
from esker.server.call import Call, Operation
from esker.server.signing import URL_VALID_MS
from esker.stores.blob import Multipart

PARTS_MAX: Final = 10_000

_RANGE: Final = re.compile(r"bytes=(\d{1,18})-(\d{1,18})")


class PartsQuery(PathQuery, frozen=True, kw_only=True):
    """Of which object, and for how many parts URLs are wanted at once."""

    parts: Annotated[int, msgspec.Meta(ge=0, le=PARTS_MAX)] = 0


def create(call: Call[PartsQuery, None]) -> wire.PresignMultipartUpload:
    """Begin an upload in parts, with a URL for each of the first `parts`, good for 15 minutes."""
    query, branch = call.query, call.path["branch"]
    repo, multipart = _store(call)
    entries.check_path(query.path)
    protection.check(call.lake, repo, branch, Action.STAGING_WRITE)
    call.lake.branches(repo).get(branch)
    address = call.server.signer.staging_address(call.lake, repo, branch, query.path)
    upload = multipart.create(address)
    return wire.PresignMultipartUpload(
        upload_id=upload,
        physical_address=places.absolute(repo, address),
        presigned_urls=[_url(multipart, address, upload, number) for number in range(1, query.parts + 1)],
    )


def part(call: Call[PathQuery, wire.MultipartAddress]) -> wire.UploadTo:
    """A URL to upload one part to, good for 15 minutes."""
    repo, multipart = _store(call)
    address = _address(call, repo, call.body.physical_address)
    return wire.UploadTo(presigned_url=_url(multipart, address, call.path["uploadId"], _number(call)))


def part_copy(call: Call[PathQuery, wire.UploadPartCopyFrom]) -> None:
    """Make a part of the bytes of an object, or of a range of them, within the store. The header ETag names it."""
    repo, multipart = _store(call)
    address = _address(call, repo, call.body.physical_address)
    source = call.body.copy_source
    if not call.identity.may(Need.READ, source.repository):
        raise ForbiddenError(
            Kind.NOT_ALLOWED, f"{call.identity.user!r} may not read in repository {source.repository!r}"
        )
    theirs = call.server.known.get(source.repository)
    entry = entries.get(call.lake, theirs, source.ref, source.path)
    span = None
    if source.range is not None:
        found = _RANGE.fullmatch(source.range)
        if not found or not int(found[1]) <= int(found[2]) < entry.size:
            raise InvalidError(
                Kind.INVALID_ARGUMENT,
                f"{source.range[:60]!r} is no range of {entry.size} bytes: write bytes=first-last",
            )
        span = int(found[1]), int(found[2])
    url = places.absolute(theirs, entry.address)
    call.response.set_header("ETag", multipart.copy_part(address, call.path["uploadId"], _number(call), url, span))


def complete(call: Call[PathQuery, wire.CompletePresignMultipartUpload]) -> wire.ObjectStats:
    """Put the object together of its parts, and stage it. With If-None-Match: *, only where none is."""
    body, branch, path = call.body, call.path["branch"], call.query.path
    repo, multipart = _store(call)
    if_absent = if_absent_asked(call.request)
    entries.check_path(path)
    protection.check(call.lake, repo, branch, Action.STAGING_WRITE)
    call.lake.branches(repo).get(branch)
    uploads.check_metadata(body.user_metadata or {})
    address = _address(call, repo, body.physical_address)
    if not 0 < len(body.parts) <= PARTS_MAX:
        raise InvalidError(
            Kind.INVALID_ARGUMENT, f"an upload is put together of 1 to {PARTS_MAX} parts, not {len(body.parts)}"
        )
    etag = multipart.complete(address, call.path["uploadId"], [(one.part_number, one.etag) for one in body.parts])
    found = call.lake.blobs(repo).head(address)
    if found is None:
        raise InvalidError(Kind.INVALID_ADDRESS, f"there is nothing at {body.physical_address!r}: upload it again")
    entry = Entry(
        path=path,
        address=address,
        size=found.size,
        checksum=etag.strip('"'),
        mtime_ms=call.lake.world.now_ms(),
        content_type=body.content_type or "",
        metadata=body.user_metadata or {},
    )
    entries.put(call.lake, repo, branch, entry, if_absent=if_absent)
    return stats(call, repo, entry)


def abort(call: Call[PathQuery, wire.MultipartAddress | None]) -> None:
    """Forget an upload and its parts."""
    repo, multipart = _store(call)
    if call.body is None:
        raise InvalidError(Kind.INVALID_ARGUMENT, "the body is missing: pass on the physical_address you were given")
    multipart.abort(_address(call, repo, call.body.physical_address), call.path["uploadId"])


def _store(call: Call[Any, Any]) -> tuple[Repository, Multipart]:
    repo = call.writable_repo()
    multipart = call.lake.blobs(repo).multipart()
    if multipart is None:
        raise falcon.HTTPNotImplemented(
            description="this server's store has no uploads in parts: upload the object in one request, directly or to "
            "the presigned URL of getPhysicalAddress; either may be as large as you like"
        )
    return repo, multipart


def _address(call: Call[Any, Any], repo: Repository, url: str) -> str:
    """The address of an upload, if it was given out for this path of this branch."""
    address = places.relative(repo, url)
    if address is None:
        raise InvalidError(Kind.INVALID_ADDRESS, f"{url[:200]!r} is not in {repo.name!r}: pass on what you were given")
    call.server.signer.check_staging_address(call.lake, repo, call.path["branch"], call.query.path, address)
    return address


def _url(multipart: Multipart, address: str, upload: str, number: int) -> str:
    return multipart.part_url(address, upload, number, URL_VALID_MS // 1000)


def _number(call: Call[Any, Any]) -> int:
    said = call.path["partNumber"]
    if not said.isascii() or not said.isdigit() or len(said) > 5 or not 0 < int(said) <= PARTS_MAX:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{said[:60]!r} is no part's number: 1 to {PARTS_MAX}")
    return int(said)


_ALL: Final = "/repositories/{repository}/branches/{branch}/staging/pmpu"
_ONE: Final = f"{_ALL}/{{uploadId}}"
_PART: Final = f"{_ONE}/parts/{{partNumber}}"

OPERATIONS: Final = [
    Operation(
        id="createPresignMultipartUpload",
        method="POST",
        path=_ALL,
        need=Need.WRITE,
        handler=create,
        status=201,
        statuses=(501,),
    ),
    Operation(
        id="completePresignMultipartUpload",
        method="PUT",
        path=_ONE,
        need=Need.WRITE,
        handler=complete,
        headers=CONDITIONS,
        statuses=(409, 412, 501),
    ),
    Operation(
        id="abortPresignMultipartUpload",
        method="DELETE",
        path=_ONE,
        need=Need.WRITE,
        handler=abort,
        status=204,
        statuses=(501,),
    ),
    Operation(id="uploadPart", method="PUT", path=_PART, need=Need.WRITE, handler=part, statuses=(501,)),
    Operation(
        id="uploadPartCopy",
        method="PUT",
        path=f"{_PART}/copy",
        need=Need.WRITE,
        handler=part_copy,
        status=204,
        statuses=(410, 501),
    ),
]
