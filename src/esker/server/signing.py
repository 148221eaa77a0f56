"""What the server has given out and takes back: staging addresses, and URLs of its own for single blobs.

Everything is signed with a key that all servers of a lake share, bound to exactly what it is for, and expires. Whoever
holds such a text can do what it says and nothing else; whoever makes one up gets nowhere.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

import msgspec

from esker.engine.lake import Lake
from esker.engine.objects import fresh_address
from esker.errors import ForbiddenError, InvalidError, Kind
from esker.model import Repository

STAGING_VALID_MS: Final = 24 * 60 * 60 * 1000
"""How long an upload may take, from asking for an address to linking what was uploaded to it."""

URL_VALID_MS: Final = 15 * 60 * 1000

JOB_VALID_MS: Final = 7 * 24 * 60 * 60 * 1000
"""How long the writers of a job may upload: longer than jobs run."""

_MAC_CHARS: Final = 43
"""32 bytes in base64, without padding."""


class BlobPass(msgspec.Struct, frozen=True, array_like=True):
    """Leave to read or write one blob; with an address that ends in `/`, to write those of one job."""

    method: str
    repository: str
    uid: str
    address: str
    expires_ms: int
    content_type: str = ""
    checksum: str = ""


_ENCODER: Final = msgspec.msgpack.Encoder()
_PASSES: Final = msgspec.msgpack.Decoder(BlobPass)


class Signer:
    """Signs with `key`."""

    def __init__(self, key: bytes) -> None:
        self._staging = hmac.digest(key, b"esker staging address", "sha256")
        self._blobs = hmac.digest(key, b"esker blob url", "sha256")

    def staging_address(self, lake: Lake, repo: Repository, branch: str, path: str) -> str:
        """A fresh address to upload to, `data/<part>/<id>,<signature>`: good for this path of this branch only."""
        address = f"{fresh_address(lake)}-{lake.world.now_ms() + STAGING_VALID_MS:x}"
        return f"{address},{self._staged(repo, branch, path, address)}"

    def check_staging_address(self, lake: Lake, repo: Repository, branch: str, path: str, signed: str) -> None:
        """InvalidError unless `signed` was given out for this path of this branch, and not too long ago."""
        address, _, signature = signed.rpartition(",")
        if not hmac.compare_digest(signature.encode(), self._staged(repo, branch, path, address).encode()):
            raise InvalidError(
                Kind.INVALID_ADDRESS, f"{signed!r} was not given out for {path!r} on {branch!r}: ask for an address"
            )
        if int(address.rpartition("-")[2], 16) < lake.world.now_ms():
            raise InvalidError(Kind.INVALID_ADDRESS, f"{signed!r} has expired: ask for another address")

    def seal(self, leave: BlobPass) -> str:
        """The pass as text for a URL."""
        body = _ENCODER.encode(leave)
        return _text(body) + _text(hmac.digest(self._blobs, body, "sha256"))

    def open(self, lake: Lake, method: str, sealed: str) -> BlobPass:
        """The pass, if it is one for this method. ForbiddenError if not, or not any more."""
        try:
            body = urlsafe_b64decode(_padded(sealed[:-_MAC_CHARS]).encode())
        except ValueError:
            body = b""
        mac = _text(hmac.digest(self._blobs, body, "sha256"))
        if not body or not hmac.compare_digest(mac.encode(), sealed[-_MAC_CHARS:].encode()):
            raise ForbiddenError(Kind.INVALID_ADDRESS, "this URL was not signed here: ask for another")
        leave = _PASSES.decode(body)
        if leave.method != method:
            raise ForbiddenError(Kind.INVALID_ADDRESS, f"this URL is signed for {leave.method}, not for {method}")
        if leave.expires_ms < lake.world.now_ms():
            raise ForbiddenError(Kind.INVALID_ADDRESS, "this URL has expired: ask for another")
        return leave

    def _staged(self, repo: Repository, branch: str, path: str, address: str) -> str:
        body = _ENCODER.encode((repo.uid, branch, path, address))
        return _text(hmac.digest(self._staging, body, "sha256"))


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)
