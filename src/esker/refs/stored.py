"""Reading stored records back: whatever breaks their format is one kind of error."""

from typing import Final, Protocol, TypeVar

import msgspec

from esker.errors import CorruptError, Kind

FORMAT_VERSION: Final = 1
"""Of all records so far."""


class _Versioned(Protocol):
    @property
    def format_version(self) -> int: ...


R = TypeVar("R", bound=_Versioned)


class _Version(msgspec.Struct, frozen=True):
    format_version: int = FORMAT_VERSION


_VERSION: Final = msgspec.msgpack.Decoder(_Version)


def decode(decoder: msgspec.msgpack.Decoder[R], what: str, record: bytes) -> R:
    """The record; CorruptError, which says `what` it was to be, if it is none that this esker knows."""
    try:
        found = decoder.decode(record)
        version = found.format_version
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        version = _version_of(record)
        if version == FORMAT_VERSION:
            raise CorruptError(Kind.DAMAGED_RECORD, f"{what} cannot be read: {error}") from None
    if version == FORMAT_VERSION:
        return found
    raise CorruptError(
        Kind.UNKNOWN_FORMAT,
        f"{what} is of format version {version}; this esker reads version {FORMAT_VERSION}: upgrade esker if the lake "
        "is newer",
    )


def _version_of(record: bytes) -> int:
    """The version of a record that does not decode: a newer one need not have the fields of this."""
    try:
        return _VERSION.decode(record).format_version
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return FORMAT_VERSION
