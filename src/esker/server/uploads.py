"""Bodies of requests: JSON into memory, within a limit; objects in chunks, never whole."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

import falcon
import msgspec
from falcon.media import MultipartFormHandler
from falcon.media.multipart import BodyPart

from esker.errors import InvalidError, Kind
from esker.server import peers
from esker.server.downloads import OCTETS
from esker.stores.blob import CHUNK_BYTES
from esker.world import World

JSON_BYTES_MAX: Final = 10 << 20

FORM_PARTS_MAX: Final = 64
_FORM_FIELD: Final = "content"

METADATA_BYTES_MAX: Final = 64 << 10
"""Keys and values: an entry is to stay small enough for a record of any key-value store."""

_METADATA: Final = "HTTP_X_LAKEFS_META_"
_ENDLESS: Final = (1 << 63) - 1


class Reads(Protocol):
    def read(self, n: int | None = -1, /) -> bytes: ...


class Upload(NamedTuple):
    """An object on its way in."""

    chunks: Iterator[bytes]
    content_type: str


def json_body(
    request: falcon.Request,
    decoder: msgspec.json.Decoder[Any],
    *,
    required: bool,
    bytes_max: int = JSON_BYTES_MAX,
) -> Any:
    """The body as what the decoder makes of it; None if there is none and none is required."""
    length = request.content_length
    data = b"" if length is not None and length > bytes_max else _stream(request).read(bytes_max + 1)
    if len(data) > bytes_max or (length or 0) > bytes_max:
        raise falcon.HTTPContentTooLarge(description=f"the body of this request has at most {bytes_max} bytes")
    if not data and not required:
        return None
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"the body of this request: {error}") from None


def upload(request: falcon.Request, world: World) -> Upload:
    """The object in the body: all of it, or the field `content` of a form."""
    content_type = request.content_type or OCTETS
    if not content_type.lower().startswith("multipart/form-data"):
        return Upload(chunks(request, world), content_type)
    handler = MultipartFormHandler()
    handler.parse_options.max_body_part_count = FORM_PARTS_MAX
    length = request.content_length
    parts = iter(handler.deserialize(_stream(request), content_type, _ENDLESS if length is None else length))
    for part in parts:
        if part.name == _FORM_FIELD:
            return Upload(_field(part, parts), part.content_type)
    raise InvalidError(Kind.INVALID_ARGUMENT, f"a form that uploads an object has it in the field {_FORM_FIELD!r}")


def _field(part: BodyPart, rest: Iterator[BodyPart]) -> Iterator[bytes]:
    """The bytes of a part, and then a look at what follows: the form must not end where the part was to go on."""
    yield from _chunks(part.stream)
    for _ in rest:
        pass


def chunks(request: falcon.Request, world: World) -> Iterator[bytes]:
    """The raw body. InvalidError if it ends before its end: what was sent is not what was meant."""
    received = 0
    for chunk in _chunks(_stream(request)):
        received += len(chunk)
        yield chunk
    length = request.content_length
    if received < length if length is not None else peers.has_hung_up(request.remote_addr, world):
        raise InvalidError(Kind.INVALID_ARGUMENT, f"the upload broke off after {received} bytes: send it again")


def user_metadata(request: falcon.Request) -> dict[str, str]:
    """What headers `x-lakefs-meta-...` say of an object. Keys come in lower case, with `-` for `_`: gateways between
    server and application do not tell those apart. JSON bodies keep keys as they are."""
    found = {
        name[len(_METADATA) :].lower().replace("_", "-"): value
        for name, value in request.env.items()
        if name.startswith(_METADATA)
    }
    for key, value in found.items():
        if not value:
            raise InvalidError(
                Kind.INVALID_ARGUMENT,
                f"the header x-lakefs-meta-{key} is empty, or not ASCII: leave it out, or link the object, whose user "
                "metadata is JSON",
            )
    check_metadata(found)
    return found


def check_metadata(metadata: dict[str, str]) -> None:
    """InvalidError if it is too much."""
    size = sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())
    if size > METADATA_BYTES_MAX:
        raise InvalidError(
            Kind.INVALID_ARGUMENT, f"user metadata of an object has at most {METADATA_BYTES_MAX} bytes, not {size}"
        )


def _stream(request: falcon.Request) -> Reads:
    """The body up to its end. Of one in chunks, whose length nobody knows, the server tells where it ends."""
    if request.content_length is None and request.env.get("wsgi.input_terminated"):
        stream: Reads = request.env["wsgi.input"]
        return stream
    bounded: Reads = request.bounded_stream
    return bounded


def _chunks(stream: Reads) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK_BYTES):
        yield chunk
