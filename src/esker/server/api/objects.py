"""Objects: their bytes, what is known of them, lists of them."""

from typing import Any, Final

import falcon
import msgspec

from esker.auth import Need
from esker.engine import entries, objects, protection
from esker.engine import rename as renaming
from esker.engine.protection import Action
from esker.errors import EskerError, InvalidError, Kind
from esker.model import Entry, Repository
from esker.server import downloads, places, presigning, uploads, wire
from esker.server.api.answers import COMMON_PREFIX, OBJECT
from esker.server.call import Call, NoQuery, Operation, Stream
from esker.server.errors import status_of
from esker.server.paging import PrefixQuery, pagination

DELETE_PATHS_MAX: Final = 1000

CONDITIONS: Final = ("If-None-Match", "If-Match")
"""Of a request that writes an object."""


class PathQuery(NoQuery, frozen=True, kw_only=True):
    """Which object."""

    path: str


class GetQuery(PathQuery, frozen=True, kw_only=True):
    """Which object, and how."""

    presign: bool = False


class StatQuery(GetQuery, frozen=True, kw_only=True):
    """Which object, and what of it."""

    user_metadata: bool = True


class ListQuery(PrefixQuery, frozen=True, kw_only=True):
    """Which objects, and what of them."""

    delimiter: str = ""
    presign: bool = False
    user_metadata: bool = True


class WriteQuery(PathQuery, frozen=True, kw_only=True):
    """Which object."""

    force: bool = False


class UploadQuery(WriteQuery, frozen=True, kw_only=True):
    """Which object."""

    storage_class: str = msgspec.field(default="", name="storageClass")


class DeleteQuery(NoQuery, frozen=True, kw_only=True):
    """How to delete."""

    force: bool = False
    no_tombstone: bool = False


class DeleteObjectQuery(DeleteQuery, frozen=True, kw_only=True):
    """Which object."""

    path: str


class DeletePrefixQuery(NoQuery, frozen=True, kw_only=True):
    """Under which prefix."""

    prefix: str
    force: bool = False


class CopyQuery(NoQuery, frozen=True, kw_only=True):
    """Where to."""

    dest_path: str


def get_object(call: Call[GetQuery, None]) -> Stream | None:
    """The bytes of an object, or a range of them; with `presign`, a redirection to where they are."""
    repo = call.repo
    entry = entries.get(call.lake, repo, call.path["ref"], call.query.path)
    if call.query.presign:
        presigning.redirect(call, repo, entry)
        return None
    part = downloads.describe(call.request, call.response, entry)
    if part is None:
        return None
    return Stream(objects.read(call.lake, repo, entry, part.start, part.length), part.length)


def head_object(call: Call[PathQuery, None]) -> None:
    """The headers of an object."""
    entry = entries.get(call.lake, call.repo, call.path["ref"], call.query.path)
    downloads.describe(call.request, call.response, entry)


def stat_object(call: Call[StatQuery, None]) -> wire.ObjectStats:
    """What is known of an object."""
    query, repo = call.query, call.repo
    entry = entries.get(call.lake, repo, call.path["ref"], query.path)
    return stats(call, repo, entry, presign=query.presign, user_metadata=query.user_metadata)


def list_objects(call: Call[ListQuery, None]) -> wire.ObjectStatsList:
    """Objects in order of their paths; with a delimiter, also what paths have in common up to it."""
    query, repo = call.query, call.repo
    page = entries.listing(
        call.lake,
        repo,
        call.path["ref"],
        prefix=query.prefix,
        after=query.after,
        delimiter=query.delimiter,
        amount=query.size,
    )
    results = [
        _common_prefix(item)
        if isinstance(item, str)
        else stats(call, repo, item, presign=query.presign, user_metadata=query.user_metadata)
        for item in page.items
    ]
    return wire.ObjectStatsList(pagination=pagination(results, page.next), results=results)


def upload_object(call: Call[UploadQuery, None]) -> wire.ObjectStats:
    """Store an object: the body, or the field `content` of a form. With If-None-Match: *, only where none is."""
    repo = call.writable_repo(force=call.query.force)
    branch = call.path["branch"]
    protection.check(call.lake, repo, branch, Action.STAGING_WRITE)  # before anything is uploaded
    if_absent = if_absent_asked(call.request)
    metadata = uploads.user_metadata(call.request)
    sent = uploads.upload(call.request, call.lake.world)
    entry = objects.put(
        call.lake,
        repo,
        branch,
        call.query.path,
        sent.chunks,
        content_type=sent.content_type,
        metadata=metadata,
        if_absent=if_absent,
    )
    return stats(call, repo, entry)


def may_upload(call: Call[PathQuery, None]) -> None:
    """Whether the caller may upload to a path of a branch."""
    repo, branch = call.repo, call.path["branch"]
    entries.check_path(call.query.path)
    protection.check(call.lake, repo, branch, Action.STAGING_WRITE)
    call.lake.branches(repo).get(branch)


def delete_object(call: Call[DeleteObjectQuery, None]) -> None:
    """Delete an object. Deleting what is not there is no error."""
    repo = call.writable_repo(force=call.query.force)
    entries.delete(call.lake, repo, call.path["branch"], call.query.path)


def delete_objects(call: Call[DeleteQuery, wire.PathList]) -> wire.ObjectErrorList:
    """Delete objects, and tell of each that could not be."""
    paths = call.body.paths
    if len(paths) > DELETE_PATHS_MAX:
        raise InvalidError(
            Kind.INVALID_ARGUMENT, f"{len(paths)} paths are too many for one request: send {DELETE_PATHS_MAX} at a time"
        )
    repo, branch = call.writable_repo(force=call.query.force), call.path["branch"]
    protection.check(call.lake, repo, branch, Action.STAGING_WRITE)
    call.lake.branches(repo).get(branch)
    errors = []
    for path in paths:
        try:
            entries.delete(call.lake, repo, branch, path)
        except EskerError as error:
            errors.append(wire.ObjectError(path=path, status_code=status_of(error), message=error.message))
    return wire.ObjectErrorList(errors=errors)


def delete_prefix(call: Call[DeletePrefixQuery, None]) -> None:
    """Delete everything under a prefix, at the same cost however much there is."""
    repo = call.writable_repo(force=call.query.force)
    entries.delete_prefix(call.lake, repo, call.path["branch"], call.query.prefix)


def copy_object(call: Call[CopyQuery, wire.ObjectCopyCreation]) -> wire.ObjectStats:
    """Copy an object, bytes and all, to a path of a branch."""
    body, branch = call.body, call.path["branch"]
    if body.shallow:
        raise falcon.HTTPNotImplemented(description="copies of objects have bytes of their own: leave 'shallow' out")
    repo = call.writable_repo(force=bool(body.force))
    protection.check(call.lake, repo, branch, Action.STAGING_WRITE)
    entries.check_path(call.query.dest_path)
    call.lake.branches(repo).get(branch)
    entry = objects.copy(call.lake, repo, body.src_ref or branch, body.src_path, branch, call.query.dest_path)
    return stats(call, repo, entry)


def rename_objects(call: Call[NoQuery, wire.ObjectRenaming]) -> wire.ObjectsRenamed:
    """Move an object, or all that is in a directory, to another path of the branch, at once and without its bytes."""
    body = call.body
    repo = call.writable_repo(force=bool(body.force))
    count = renaming.rename(
        call.lake, repo, call.path["branch"], body.source, body.target, overwrite=bool(body.overwrite)
    )
    return wire.ObjectsRenamed(count=count)


def update_user_metadata(call: Call[PathQuery, wire.UpdateObjectUserMetadata]) -> None:
    """Replace an object's user metadata."""
    repo, branch = call.repo, call.path["branch"]
    uploads.check_metadata(call.body.set)
    call.lake.branches(repo).get(branch)
    entry = entries.get(call.lake, repo, branch, call.query.path)
    entries.put(call.lake, repo, branch, msgspec.structs.replace(entry, metadata=call.body.set))


def get_underlying_properties(call: Call[PathQuery, None]) -> wire.UnderlyingProperties:
    """What the store says of an object's bytes."""
    entries.get(call.lake, call.repo, call.path["ref"], call.query.path)
    return wire.UnderlyingProperties()


def stats(
    call: Call[Any, Any], repo: Repository, entry: Entry, *, presign: bool = False, user_metadata: bool = True
) -> wire.ObjectStats:
    """An entry as clients know it."""
    signed = presigning.reading(call, repo, entry) if presign else None
    return wire.ObjectStats(
        path=entry.path,
        path_type=OBJECT,
        physical_address=signed.url if signed else places.absolute(repo, entry.address),
        physical_address_expiry=signed.expires_s if signed else None,
        checksum=entry.checksum,
        size_bytes=entry.size,
        mtime=entry.mtime_ms // 1000,
        metadata=entry.metadata if user_metadata else None,
        content_type=entry.content_type or downloads.OCTETS,
    )


def if_absent_asked(request: falcon.Request) -> bool:
    """Whether the path must be absent. 501 for conditions that nobody checks: better refused than passed over."""
    condition = request.get_header("If-None-Match")
    if request.get_header("If-Match") is not None or condition not in (None, "*"):
        raise falcon.HTTPNotImplemented(
            description="of the conditions for writing an object, only 'If-None-Match: *' is there"
        )
    return condition is not None


def _common_prefix(path: str) -> wire.ObjectStats:
    return wire.ObjectStats(path=path, path_type=COMMON_PREFIX, physical_address="", checksum="", mtime=0, size_bytes=0)


_ON_REF = "/repositories/{repository}/refs/{ref}/objects"
_ON_BRANCH = "/repositories/{repository}/branches/{branch}/objects"

OPERATIONS = [
    Operation(
        id="getObject",
        method="GET",
        path=_ON_REF,
        need=Need.READ,
        handler=get_object,
        headers=downloads.HEADERS,
        statuses=(206, 302, 304, 410, 416),
    ),
    Operation(
        id="headObject",
        method="HEAD",
        path=_ON_REF,
        need=Need.READ,
        handler=head_object,
        headers=downloads.HEADERS,
        statuses=(206, 304, 416),
    ),
    Operation(id="statObject", method="GET", path=f"{_ON_REF}/stat", need=Need.READ, handler=stat_object),
    Operation(id="listObjects", method="GET", path=f"{_ON_REF}/ls", need=Need.READ, handler=list_objects),
    Operation(
        id="getUnderlyingProperties",
        method="GET",
        path=f"{_ON_REF}/underlyingProperties",
        need=Need.READ,
        handler=get_underlying_properties,
    ),
    Operation(
        id="uploadObject",
        method="POST",
        path=_ON_BRANCH,
        need=Need.WRITE,
        handler=upload_object,
        headers=CONDITIONS,
        status=201,
        upload=True,
        statuses=(412, 501),
    ),
    Operation(
        id="uploadObjectPreflight",
        method="GET",
        path=f"{_ON_BRANCH}/stage_allowed",
        need=Need.WRITE,
        handler=may_upload,
        status=204,
    ),
    Operation(
        id="deleteObject",
        method="DELETE",
        path=_ON_BRANCH,
        need=Need.WRITE,
        handler=delete_object,
        status=204,
    ),
    Operation(
        id="deleteObjects",
        method="POST",
        path=f"{_ON_BRANCH}/delete",
        need=Need.WRITE,
        handler=delete_objects,
    ),
    Operation(
        id="deletePrefix",
        group="objects",
        method="POST",
        path=f"{_ON_BRANCH}/delete_prefix",
        need=Need.WRITE,
        handler=delete_prefix,
        status=204,
        ours=True,
    ),
    Operation(
        id="copyObject",
        method="POST",
        path=f"{_ON_BRANCH}/copy",
        need=Need.WRITE,
        handler=copy_object,
        status=201,
        statuses=(410, 501),
    ),
    Operation(
        id="renameObjects",
        group="objects",
        method="POST",
        path=f"{_ON_BRANCH}/rename",
        need=Need.WRITE,
        handler=rename_objects,
        ours=True,
        statuses=(412,),
    ),
    Operation(
        id="updateObjectUserMetadata",
        method="PUT",
        path=f"{_ON_BRANCH}/stat/user_metadata",
        need=Need.WRITE,
        handler=update_user_metadata,
        status=201,
    ),
]
