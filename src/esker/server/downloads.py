"""Bytes on their way out: ranges, conditions, and headers that keep a browser from running them."""

import re
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Final, NamedTuple
from urllib.parse import quote

import falcon

from esker.model import Entry

_INLINE: Final = frozenset(
    {
        "application/json",
        "audio/mpeg",
        "audio/ogg",
        "audio/wav",
        "image/avif",
        "image/bmp",
        "image/gif",
        "image/jpeg",
        "image/png",
        "image/webp",
        "text/csv",
        "text/markdown",
        "text/plain",
        "video/mp4",
        "video/ogg",
        "video/webm",
    }
)
"""What a browser may show where it stands. The rest it saves: an object is somebody's, the server's origin is not."""

HEADERS: Final = ("Range", "If-Range", "If-None-Match")
"""Of a request, that decide what is sent."""

OCTETS: Final = "application/octet-stream"
METADATA_HEADER: Final = "x-lakefs-meta-"

_TYPE: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(\s*;[\x20-\x7e]*)?")
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_RANGE: Final = re.compile(r"\s*(\d*)\s*-\s*(\d*|-1)\s*")
"""The last place may be -1: that is how clients ask for no bytes from 0 on."""

_DIGITS_MAX: Final = 19
"""No place in an object has more."""


class Part(NamedTuple):
    """Which bytes to send."""

    start: int
    length: int


def describe(
    request: falcon.Request, response: falcon.Response, entry: Entry, *, revalidate: bool = True
) -> Part | None:
    """Set the status and the headers for what was asked of the entry's bytes: which to send, or None if the caller has
    them."""
    etag = etag_of(entry.checksum)
    response.set_header("ETag", etag)
    response.set_header("Last-Modified", last_modified(entry.mtime_ms))
    response.set_header("Accept-Ranges", "bytes")
    response.set_header("Cache-Control", "private, no-cache" if revalidate else "private")
    harmless(response, entry.path, entry.content_type)
    for key, value in entry.metadata.items():
        if _NAME.fullmatch(key) and _VALUE.fullmatch(value):
            response.set_header(METADATA_HEADER + key, value)
    if _is_known(request.get_header("If-None-Match"), etag):
        response.status = 304
        return None
    part = Part(0, entry.size)
    asked = request.get_header("Range")
    if asked and request.get_header("If-Range") in (None, etag):
        found = _part(asked, entry.path, entry.size)
        if found is not None:
            part = found
            response.status = 206
            shown = f"{part.start}-{part.start + part.length - 1}" if part.length else "*"
            response.set_header("Content-Range", f"bytes {shown}/{entry.size}")
    response.content_length = part.length
    return part


def harmless(response: falcon.Response, path: str, content_type: str) -> None:
    """Name the type, and see to it that nothing in the bytes is ever run in the server's origin."""
    kind = content_type if _TYPE.fullmatch(content_type) else OCTETS
    response.content_type = kind
    shown = kind.partition(";")[0].strip().lower() in _INLINE
    name = quote(path.rpartition("/")[2], safe="")
    response.set_header("Content-Disposition", f"{'inline' if shown else 'attachment'}; filename*=UTF-8''{name}")
    response.set_header("X-Content-Type-Options", "nosniff")
    response.set_header("Content-Security-Policy", "default-src 'none'; sandbox")


def etag_of(checksum: str) -> str:
    """The checksum as an entity tag. Checksums are the clients' own words, so what does not fit is left out."""
    return '"' + re.sub(r"[^\x21\x23-\x7e]", "", checksum) + '"'


def last_modified(mtime_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(mtime_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        moment = datetime.fromtimestamp(0, UTC)
    return format_datetime(moment, usegmt=True)


def _is_known(header: str | None, etag: str) -> bool:
    return header is not None and any(one.strip().removeprefix("W/") in (etag, "*") for one in header.split(","))


def _part(header: str, path: str, size: int) -> Part | None:
    """What a Range header asks for; None for the whole, which is also the answer to several ranges. 416 if it asks for
    nothing that is there, or cannot be read.

    A range that ends just before it starts is a read of no bytes, which file-like clients do to see what they get. It
    is answered with none: some clients take a 416 for the end of the object.
    """
    unit, _, ranges = header.partition("=")
    if unit.strip().lower() != "bytes" or "," in ranges:
        return None
    match = _RANGE.fullmatch(ranges) if len(ranges) <= 2 * _DIGITS_MAX else None
    first, last = match.groups() if match else ("", "")
    if first:
        start, stop = int(first), min(int(last) + 1, size) if last else size
        if stop == start <= size and last and int(last) == start - 1:
            return Part(start, 0)
    elif last and last != "-1":
        start, stop = max(0, size - int(last)), size
    else:
        start = stop = 0
    if start >= stop:
        raise falcon.HTTPRangeNotSatisfiable(
            size, description=f"{header[:100]!r} asks for none of the {size} bytes of {path!r}"
        )
    return Part(start, stop - start)
