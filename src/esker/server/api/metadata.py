"""Where the files of a tree lie: any engine that reads Parquet can read them there."""

from typing import Final, Literal

from esker.auth import Need
from esker.errors import InvalidError, Kind, NotFoundError
from esker.model import Repository
from esker.server import places, wire
from esker.server.call import Call, NoQuery, Operation

_ID_CHARS: Final = frozenset("0123456789abcdef-")
_ID_CHARS_MIN: Final = 64

FileKind = Literal["metarange", "range"]


def get_metarange(call: Call[NoQuery, None]) -> wire.StorageURI:
    """Where the list of a tree's ranges lies, by a commit's `meta_range_id`."""
    return _location(call, call.repo, "metarange", call.path["meta_range"])


def get_range(call: Call[NoQuery, None]) -> wire.StorageURI:
    """Where a range of entries lies, by its id in a metarange."""
    return _location(call, call.repo, "range", call.path["range"])


def _location(call: Call[NoQuery, None], repo: Repository, kind: FileKind, digest: str) -> wire.StorageURI:
    """Of any file whose content has this digest: a name begins with it."""
    if len(digest) < _ID_CHARS_MIN or not _ID_CHARS.issuperset(digest):
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{digest[:80]!r} is no id of a {kind}: it has 64 hexadecimal digits")
    found = next(call.lake.blobs(repo).list(f"_esker/{kind}s/{digest}"), None)
    if found is None:
        raise NotFoundError(Kind.MISSING_FILE, f"no {kind} {digest} in {repo.name!r}")
    return wire.StorageURI(location=places.absolute(repo, found.name))


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
]
