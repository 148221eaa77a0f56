"""From a URL to a blob store."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

from esker.errors import InvalidError, Kind
from esker.stores.blob import BlobStore, check_name
from esker.stores.blob_local import LocalBlobs
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.blob_object import ObjectBlobs

_NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def open_blobs(url: str, options: Mapping[str, str] = _NO_OPTIONS) -> BlobStore:
    """The store at `file:///abs/dir`, `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`; or a new,
    empty one for `memory://`. Options are for the object stores: see `ObjectBlobs`.
    """
    scheme, _, rest = url.partition("://")
    if scheme in ("memory", "file") and options:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{scheme}:// takes no options, but got {', '.join(sorted(options))}")
    match scheme:
        case "memory" if not rest:
            return MemoryBlobs()
        case "file" if rest.startswith("/") and rest.strip("/") and "\0" not in unquote(rest):
            return LocalBlobs(unquote(rest))
        case "s3" | "gs" | "az":
            bucket, _, prefix = rest.partition("/")
            prefix = prefix.strip("/")
            if _BUCKET.fullmatch(bucket):
                return ObjectBlobs(scheme, bucket, prefix and check_name(prefix), options)
    raise InvalidError(
        Kind.INVALID_URL,
        f"cannot tell a store from {url!r}: write file:///absolute/directory, s3://bucket/prefix, gs://bucket/prefix, "
        "az://container/prefix or memory://",
    )


def split_url(url: str) -> tuple[str, str]:
    """The URL of the store that holds a blob which is known by a URL of its own, and the blob's name there."""
    scheme, _, rest = url.partition("://")
    root = "/" if rest.startswith("/") else ""  # a local path: its first directory stands for the bucket
    bucket, _, name = rest.removeprefix("/").partition("/")
    return f"{scheme}://{root}{bucket}", name
