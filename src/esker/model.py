"""The words of esker as frozen records: what an entry is, and the names of things.

Nothing here does I/O, and nothing here imports more than errors.
"""

from enum import StrEnum
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


class Table(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sorted file of staged changes, an sstable; of prefix deletes too many for a record, if a layer says so."""

    file: FileName
    """Of a table, with the branch and level that it was written for: `main/L1/<name>`."""
    min: str
    max: str
    count: int
    tombstones: int = 0
    bytes: int = 0


class Layer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some staged changes, below all that were staged later: a sealed token, tables, or prefix deletes alone.

    `deletes` are prefixes under which everything *below* this layer is hidden; its own entries lie above them.
    """

    id: LayerID
    token: Token | None = None
    tables: tuple[Table, ...] = ()
    """In order, and apart from each other."""
    deletes: tuple[str, ...] = ()
    more_deletes: Table | None = None
    """Instead of `deletes`, where they are many: a table of tombstones, each at a prefix."""
    made_ms: int = 0
    """When it was laid on the branch; 0 of a token, which takes writes for a while. Nothing relies on it."""

    @property
    def count(self) -> int:
        """Rows in tables; what a token holds, no record knows."""
        return sum(table.count for table in self.tables)

    @property
    def tombstones(self) -> int:
        return sum(table.tombstones for table in self.tables)

    @property
    def files(self) -> tuple[FileName, ...]:
        """All that lies in the blob store."""
        tables = self.tables if self.more_deletes is None else (*self.tables, self.more_deletes)
        return tuple(table.file for table in tables)


class Waste(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What fell off a branch: to be taken away once nobody can still look at it."""

    id: str
    token: Token | None = None
    files: tuple[FileName, ...] = ()
    tree: FileName | None = None
    """A compacted tree. Files of it that these other trees have are theirs, and stay:"""
    kept_trees: tuple[FileName, ...] = ()
    kept_commits: tuple[CommitID, ...] = ()


class Stash(msgspec.Struct, frozen=True, kw_only=True):
    """What was staged on a branch at `commit`, set aside."""

    commit: CommitID
    layers: tuple[Layer, ...]
    """Newest first."""
    made_ms: int


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Who means to fold a branch's layers. A fence, no lease: taking another's is always safe."""

    id: str
    started_ms: int
    """For people, and to tell who is slow: nothing relies on it."""


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


class Staging(StrEnum):
    """Where single writes go."""

    KV = "kv"
    """Each is a record of the key-value store."""
    LSM = "lsm"
    """Those that come together become one table in the blob store: the memstore."""


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
    staging: Staging = Staging.KV
    read_only: bool = False
    metadata: dict[str, str] = {}
    format_version: int = 1


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """A name for a commit, for good."""

    commit: CommitID
    format_version: int = 1
