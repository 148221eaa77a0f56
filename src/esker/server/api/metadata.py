"""The files of a tree, and where they lie: any engine that reads Parquet can read them."""

from typing import Any, Final, Literal

from esker.auth import Need
from esker.engine import objects
from esker.errors import InvalidError, Kind, NotFoundError
from esker.model import Entry, Repository
from esker.server import downloads, places, presigning, wire
from esker.server.call import Call, NoQuery, Operation, Stream
from esker.stores.blob import BlobInfo

_ID_CHARS: Final = frozenset("0123456789abcdef-")
_ID_CHARS_MIN: Final = 64

FileKind = Literal["metarange", "range"]


class PresignQuery(NoQuery, frozen=True, kw_only=True):
    """How to send it."""

    presign: bool = False


def get_metarange(call: Call[NoQuery, None]) -> wire.StorageURI:
    """Where the list of a tree's ranges lies, by a commit's `meta_range_id`."""
    return _location(call, call.repo, "metarange", call.path["meta_range"])


def get_range(call: Call[NoQuery, None]) -> wire.StorageURI:
    """Where a range of entries lies, by its id in a metarange."""
    return _location(call, call.repo, "range", call.path["range"])


def get_metadata_object(call: Call[PresignQuery, None]) -> Stream | None:
    """The bytes of a metarange or a range, as Parquet; with `presign`, a redirection to where they are."""
    kinds: dict[str, FileKind] = {"meta_range": "metarange", "range": "range"}
    kind = kinds.get(call.path["type"])
    if kind is None:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"no kind of file is called {call.path['type']!r}: range, meta_range")
    repo = call.repo
    found = _file(call, repo, kind, call.path["object_id"])
    entry = Entry(path=found.name, address=found.name, size=found.size, checksum=found.name, mtime_ms=found.mtime_ms)
    if call.query.presign:
        presigning.redirect(call, repo, entry)
        return None
    downloads.harmless(call.response, entry.path, downloads.OCTETS)
    return Stream(objects.read(call.lake, repo, entry), found.size)


def _location(call: Call[NoQuery, None], repo: Repository, kind: FileKind, digest: str) -> wire.StorageURI:
    return wire.StorageURI(location=places.absolute(repo, _file(call, repo, kind, digest).name))


def _file(call: Call[Any, None], repo: Repository, kind: FileKind, digest: str) -> BlobInfo:
    """Any file whose content has this digest: a name begins with it."""
    if len(digest) < _ID_CHARS_MIN or not _ID_CHARS.issuperset(digest):
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{digest[:80]!r} is no id of a {kind}: it has 64 hexadecimal digits")
    found = next(call.lake.blobs(repo).list(f"_esker/{kind}s/{digest}"), None)
    if found is None:
        raise NotFoundError(Kind.MISSING_FILE, f"no {kind} {digest} in {repo.name!r}")
    return found


_METADATA = "/repositories/{repository}/metadata"

OPERATIONS = [
    Operation(
        id="getMetaRange",
        method="GET",
        path=f"{_METADATA}/meta_range/{{meta_range}}",
        need=Need.READ,
        handler=get_metarange,
    ),
    Operation(
        id="getRange",
        method="GET",
        path=f"{_METADATA}/range/{{range}}",
        need=Need.READ,
        handler=get_range,
    ),
    Operation(
        id="getMetadataObject",
        method="GET",
        path=f"{_METADATA}/object/{{type}}/{{object_id}}",
        need=Need.READ,
        handler=get_metadata_object,
        statuses=(302,),
    ),
]
