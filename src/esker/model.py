"""The words of esker as frozen records: what an entry is, and the names of things.

Nothing here does I/O, and nothing here imports more than errors.
"""

from typing import NewType

import msgspec

Digest = NewType("Digest", str)
"""64 hexadecimal digits of SHA-256 over *logical* content: equal digests mean equal content, however it was encoded."""

FileName = NewType("FileName", str)
"""Where one encoding of some content lies: `<digest>-<nonce><checksum>`. Digests compare, names locate."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A path on a ref, and what it names.

    `address` is relative to the repository's namespace, or a whole URL for bytes that lie elsewhere. Two entries have
    the same *identity* when size, checksum, content type and metadata agree: moving the bytes, or touching them, is no
    change of content.
    """

    path: str
    address: str
    size: int
    checksum: str
    mtime_ms: int
    content_type: str = ""
    metadata: dict[str, str] = {}

    def identity(self) -> tuple[int, str, str, tuple[tuple[str, str], ...]]:
        """What is compared to tell whether content changed."""
        return self.size, self.checksum, self.content_type, tuple(sorted(self.metadata.items()))
