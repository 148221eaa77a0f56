"""The blob port: bytes under names, below one root.

What every backend promises, and `esker.testing.blob_suite` checks:

- A blob appears whole or not at all, and acknowledged means durable. Reads after an acknowledged write see it.
- Missing is None (`get`, `head`, `get_range`); deleting what is not there is no error.
- Names are relative to the store's root, `/`-separated UTF-8, and no name ever reaches outside the root.
- Listing is in byte order of names, and sees every blob that was acknowledged before it began and not deleted since. A
  prefix that no name can begin with lists nothing.
- Errors: `InvalidError` for a bad name, `UnavailableError` when the store does not answer (all writes here may simply
  be repeated: the same bytes under the same name).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from esker.errors import InvalidError, Kind

CHUNK_BYTES: Final = 1 << 20
"""What streams are cut into: large enough to keep calls rare, small enough that many streams fit in memory."""

NAME_BYTES_MAX: Final = 1024
"""S3's limit on a key."""


class BlobInfo(NamedTuple):
    name: str
    size: int
    mtime_ms: int


class Multipart(ABC):
    """Uploads in parts that clients send straight to the store, as many at once as they like. Nothing is seen of a blob
    before it is completed. An upload is named by the store, and good for one blob.

    InvalidError if there is no such upload, or not with these parts.
    """

    @abstractmethod
    def create(self, name: str) -> str:
        """An upload of this blob, begun."""

    @abstractmethod
    def part_url(self, name: str, upload: str, number: int, seconds: int) -> str:
        """A URL by which anybody may PUT this one part for a while."""

    @abstractmethod
    def copy_part(self, name: str, upload: str, number: int, source_url: str, part: tuple[int, int] | None) -> str:
        """Make a part of the bytes of another blob, or of those from a place to another (both included): its ETag."""

    @abstractmethod
    def complete(self, name: str, upload: str, parts: Sequence[tuple[int, str]]) -> str:
        """Put the blob together of parts, by their numbers and ETags: its own ETag."""

    @abstractmethod
    def abort(self, name: str, upload: str) -> None:
        """Forget the upload and its parts."""


class BlobStore(ABC):
    """The port. An instance may be shared by threads."""

    url: str
    """The root, as it was opened: `file:///data/lake`, `s3://bucket/prefix`, `memory://`. No trailing slash but the
    scheme's own."""

    @abstractmethod
    def get(self, name: str) -> bytes | None:
        """All bytes."""

    @abstractmethod
    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        """The bytes from `start` on, at most `length`; fewer (or none) at the end of the blob."""

    @abstractmethod
    def stream(self, name: str, start: int = 0, length: int | None = None) -> Iterator[bytes] | None:
        """The bytes in chunks of at most `CHUNK_BYTES`, at constant memory. None at once if there is no such blob."""

    @abstractmethod
    def put(self, name: str, data: bytes | memoryview) -> None:
        """Store whole, replacing what was there."""

    @abstractmethod
    def put_stream(self, name: str, chunks: Iterable[bytes]) -> int:
        """Store what the chunks add up to, at constant memory; their length in bytes. If `chunks` raises, nothing is
        stored and the error passes through."""

    @abstractmethod
    def head(self, name: str) -> BlobInfo | None: ...

    @abstractmethod
    def list(self, prefix: str = "", after: str = "") -> Iterator[BlobInfo]:
        """Blobs whose names begin with `prefix` (any text, not only whole directories) and come after `after`."""

    def list_all(self, prefix: str = "", after: str = "") -> Iterator[BlobInfo]:
        """As `list`; but what lies there under a name that no blob can have, which `list` may pass over, is an
        `InvalidError` that names it: for those who must not miss anything."""
        return self.list(prefix, after)

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None: ...

    @abstractmethod
    def copy(self, source: str, target: str) -> bool:
        """Copy within the store, without the bytes passing through here where the store can; False if `source` is
        missing."""

    def presign(self, method: str, name: str, seconds: int) -> str | None:
        """A URL by which anybody may GET or PUT this one blob for a while; None if the store has no such thing."""
        return None

    def multipart(self) -> Multipart | None:
        """Uploads in parts, past this process; None if the store has no such thing."""
        return None

    def settle(self) -> None:
        """Make durable what others wrote to the store's place by themselves. Most stores need nothing for that."""

    def drop_cached(self, name: str) -> bool:
        """Forget a local copy of the blob, found to be damaged; whether there may have been one."""
        return False

    def close(self) -> None:
        """Give back what is held open."""


def check_name(name: str) -> str:
    """The name, if it is one; else `InvalidError`. Every backend calls this before it does anything with a name."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidError(Kind.INVALID_PATH, f"blob name {name!r} is not valid UTF-8") from None
    if not 0 < size <= NAME_BYTES_MAX:
        raise InvalidError(Kind.INVALID_PATH, f"a blob name is 1 to {NAME_BYTES_MAX} bytes, not {size}")
    if _CONTROL.search(name):
        raise InvalidError(
            Kind.INVALID_PATH, f"blob name {name!r} has a control character, which no listing could carry"
        )
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise InvalidError(Kind.PATH_ESCAPES, f"blob name {name!r} has an empty, '.' or '..' part")
    return name


def check_range(start: int, length: int | None) -> None:
    """`InvalidError` unless these are a place in a blob and a number of bytes."""
    if start < 0 or (length is not None and length < 0):
        raise InvalidError(Kind.INVALID_ARGUMENT, f"no blob has {length} bytes at {start}: neither may be negative")


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
"""Object stores list keys as XML, which cannot hold these; `object_store` refuses them."""
