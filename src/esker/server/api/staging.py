"""Staging without sending bytes through the API: ask for an address, upload there, link it; or link what is elsewhere.

An address is signed for one path of one branch. The blob must be there, with the size that is said, when it is linked:
whatever a branch shows can be read.
"""

from esker.auth import Need
from esker.engine import entries, protection
from esker.engine.protection import Action
from esker.errors import InvalidError, Kind
from esker.model import Entry, Repository
from esker.server import places, presigning, uploads, wire
from esker.server.api.objects import CONDITIONS, PathQuery, if_absent_asked, stats
from esker.server.call import Call, Operation


class AddressQuery(PathQuery, frozen=True, kw_only=True):
    """For which object."""

    presign: bool = False


def get_physical_address(call: Call[AddressQuery, None]) -> wire.StagingLocation:
    """An address to upload an object to, good for 24 hours; with `presign`, also a URL to upload it with."""
    repo, branch, path = call.repo, call.path["branch"], call.query.path
    entries.check_path(path)
    protection.check(call.lake, repo, branch, Action.STAGING_WRITE)
    call.lake.branches(repo).get(branch)
    address = call.server.signer.staging_address(call.lake, repo, branch, path)
    signed = presigning.writing(call, repo, address) if call.query.presign else None
    return wire.StagingLocation(
        physical_address=places.absolute(repo, address),
        presigned_url=signed.url if signed else None,
        presigned_url_expiry=signed.expires_s if signed else None,
    )


def link_physical_address(call: Call[PathQuery, wire.StagingMetadata]) -> wire.ObjectStats:
    """Stage an object whose bytes were uploaded already."""
    body = call.body
    if body.staging.physical_address is None:
        raise InvalidError(Kind.INVALID_ARGUMENT, "staging.physical_address is missing: pass on the one you were given")
    return _link(
        call,
        wire.ObjectStageCreation(
            physical_address=body.staging.physical_address,
            checksum=body.checksum,
            size_bytes=body.size_bytes,
            mtime=body.mtime,
            metadata=body.user_metadata,
            content_type=body.content_type,
            force=body.force,
        ),
    )


def stage_object(call: Call[PathQuery, wire.ObjectStageCreation]) -> wire.ObjectStats:
    """Stage an object whose bytes are in the store already."""
    return _link(call, call.body)


def _link(
    call: Call[PathQuery, wire.StagingMetadata] | Call[PathQuery, wire.ObjectStageCreation],
    body: wire.ObjectStageCreation,
) -> wire.ObjectStats:
    repo = call.writable_repo(force=bool(body.force))
    branch, path = call.path["branch"], call.query.path
    if_absent = if_absent_asked(call.request)
    entries.check_path(path)
    protection.check(call.lake, repo, branch, Action.STAGING_WRITE)
    entries.check_branch(call.lake, repo, branch)
    uploads.check_metadata(body.metadata or {})
    address = _address(call, repo, branch, path, body.physical_address)
    blobs, name = call.lake.locate(repo, address)
    found = blobs.head(name)
    if found is None:
        raise InvalidError(Kind.INVALID_ADDRESS, f"there is nothing at {body.physical_address!r}: upload it first")
    if found.size != body.size_bytes:
        raise InvalidError(
            Kind.INVALID_ADDRESS, f"{body.physical_address!r} has {found.size} bytes, not {body.size_bytes}"
        )
    entry = Entry(
        path=path,
        address=address,
        size=body.size_bytes,
        checksum=body.checksum.strip('"'),
        mtime_ms=call.lake.world.now_ms() if body.mtime is None else body.mtime * 1000,
        content_type=body.content_type or "",
        metadata=body.metadata or {},
    )
    entries.put(call.lake, repo, branch, entry, if_absent=if_absent)
    return stats(call, repo, entry)


def _address(
    call: Call[PathQuery, wire.StagingMetadata] | Call[PathQuery, wire.ObjectStageCreation],
    repo: Repository,
    branch: str,
    path: str,
    url: str,
) -> str:
    """The address of an entry at this URL: one that was given out for it, or of a place elsewhere that may be read."""
    own = places.relative(repo, url)
    if own is None:
        return places.check_elsewhere(call.server.known.homes(), call.server.sources, url).address
    call.server.signer.check_staging_address(call.lake, repo, branch, path, own)
    return own


_BACKING = "/repositories/{repository}/branches/{branch}/staging/backing"

OPERATIONS = [
    Operation(
        id="getPhysicalAddress",
        method="GET",
        path=_BACKING,
        need=Need.WRITE,
        handler=get_physical_address,
    ),
    Operation(
        id="linkPhysicalAddress",
        method="PUT",
        path=_BACKING,
        need=Need.WRITE,
        handler=link_physical_address,
        headers=CONDITIONS,
        statuses=(412, 501),
    ),
    Operation(
        id="stageObject",
        method="PUT",
        path="/repositories/{repository}/branches/{branch}/objects",
        need=Need.WRITE,
        handler=stage_object,
        headers=CONDITIONS,
        status=201,
        statuses=(412, 501),
    ),
]
