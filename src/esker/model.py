"""The words of esker as frozen records: what an entry is, and the names of things.

Nothing here does I/O, and nothing here imports more than errors.
"""

from typing import NewType

import msgspec

Digest = NewType("Digest", str)
"""64 hexadecimal digits of SHA-256 over *logical* content: equal digests mean equal content, however it was encoded."""

FileName = NewType("FileName", str)
"""Where one encoding of some content lies: `<digest>-<nonce><checksum>`. Digests compare, names locate."""


CommitID = NewType("CommitID", str)
"""64 hexadecimal digits: the SHA-256 of the commit's stored record."""

Token = NewType("Token", str)
"""A staging token: names a partition of the key-value store that holds staged changes."""

LayerID = NewType("LayerID", str)
"""Drawn afresh each time a layer is laid on a branch, so that no id ever enters a branch record twice."""


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


class Layer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some staged changes, below all that were staged later: a sealed token, a layer file, or prefix deletes alone.

    `deletes` are prefixes under which everything *below* this layer is hidden; its own entries lie above them.
    """

    id: LayerID
    token: Token | None = None
    file: FileName | None = None
    deletes: tuple[str, ...] = ()


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the whole repository. Immutable; its id is the digest of its record, nonce included, so that no two
    acts of committing share one."""

    tree: FileName
    parents: tuple[CommitID, ...]
    committer: str
    message: str
    date_ms: int
    metadata: dict[str, str] = {}
    generation: int
    """One more than the largest of its parents': whatever a commit descends from has a smaller one."""
    nonce: str
    format_version: int = 1


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """A repository's fixed properties. `uid` names its partitions: a repository made again under an old name starts
    afresh."""

    name: str
    uid: str
    namespace: str
    """The URL below which its data and metadata lie."""
    default_branch: str
    created_ms: int
    salt: int
    entries_mean: int
    entries_max: int
    bytes_max: int
    read_only: bool = False
    metadata: dict[str, str] = {}
    format_version: int = 1


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """A name for a commit, for good."""

    commit: CommitID
    format_version: int = 1
