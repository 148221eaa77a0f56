"""Reading stored records back: whatever breaks their format is one kind of error."""

from typing import Final, TypeVar

import msgspec

from esker.errors import CorruptError, Kind

FORMAT_VERSION: Final = 1
"""Of all records so far."""

R = TypeVar("R")


class _Version(msgspec.Struct, frozen=True):
    format_version: int = FORMAT_VERSION


_VERSION: Final = msgspec.msgpack.Decoder(_Version)


def decode(decoder: msgspec.msgpack.Decoder[R], what: str, record: bytes) -> R:
    """The record; CorruptError, which says `what` it was to be, if it is none that this esker knows."""
    try:
        version = _VERSION.decode(record).format_version
        if version == FORMAT_VERSION:
            return decoder.decode(record)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptError(Kind.DAMAGED_RECORD, f"{what} cannot be read: {error}") from None
    raise CorruptError(
        Kind.UNKNOWN_FORMAT,
        f"{what} is of format version {version}; this esker reads version {FORMAT_VERSION}: upgrade esker if the lake "
        "is newer",
    )
