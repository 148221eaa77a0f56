"""Objects: entries with their bytes.

Bytes are written first, at an address of their own below the repository's namespace, and staged after: a crash between
leaves a blob that nothing names. Addresses are never used twice, so no reader ever sees bytes change.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from esker.activity import check_age, since
from esker.engine import entries, layers
from esker.engine.commit import NO_METADATA
from esker.engine.lake import Lake
from esker.engine.snapshots import present
from esker.errors import Kind, NotFoundError
from esker.model import Entry, Repository

_ADDRESS_BYTES: Final = 16

_LARGE_BYTES: Final = 256 << 10
"""From here on it takes longer to hash than to have another thread do it."""


def put(
    lake: Lake,
    repo: Repository,
    branch: str,
    path: str,
    chunks: Iterable[bytes],
    *,
    content_type: str = "",
    metadata: Mapping[str, str] = NO_METADATA,
    if_absent: bool = False,
) -> Entry:
    """Store bytes and stage them at `path`, at constant memory: the entry. ContentionError if that took so long that
    what was stored may be gone."""
    entries.check_path(path)
    record = lake.branches(repo).get(branch)  # before anything is uploaded
    if if_absent and present(lake, repo, record, path):
        raise layers.already_there(repo, branch, path)
    with since(lake.world.now_ms()):
        entry = _store(lake, repo, path, chunks, content_type, metadata)
        check_age(lake.world.now_ms())
        entries.put(lake, repo, branch, entry, if_absent=if_absent)
    return entry


def put_many(lake: Lake, repo: Repository, branch: str, new: Mapping[str, Iterable[bytes]]) -> list[Entry]:
    """Store the bytes at each path, several at a time, and stage them with few swaps: their entries, in the same order.
    If this fails, none or some of them are staged, as `entries.write_many` says."""
    for path in new:
        entries.check_path(path)
    lake.branches(repo).get(branch)  # before anything is uploaded
    with since(lake.world.now_ms()):
        with ThreadPoolExecutor(lake.settings.threads) as pool:
            stored = list(pool.map(lambda path: _store(lake, repo, path, new[path]), new))
        check_age(lake.world.now_ms())
        entries.write_many(lake, repo, branch, stored)
    return stored


def _store(
    lake: Lake,
    repo: Repository,
    path: str,
    chunks: Iterable[bytes],
    content_type: str = "",
    metadata: Mapping[str, str] = NO_METADATA,
) -> Entry:
    """Store bytes, which nothing names yet."""
    address = fresh_address(lake)
    md5 = hashlib.md5(usedforsecurity=False)
    size = lake.blobs(repo).put_stream(address, hashed(lake, chunks, md5.update))
    return Entry(
        path=path,
        address=address,
        size=size,
        checksum=md5.hexdigest(),
        mtime_ms=lake.world.now_ms(),
        content_type=content_type,
        metadata=dict(metadata),
    )


def hashed(lake: Lake, chunks: Iterable[bytes], update: Callable[[bytes], None]) -> Iterator[bytes]:
    """The chunks, which `update` is told one after another. Of a stream, by another thread, while the chunk is stored:
    each takes about as long, and neither needs the interpreter."""
    under_way: Future[None] | None = None
    for chunk in chunks:
        if under_way:
            under_way.result()
        if lake.pool and len(chunk) >= _LARGE_BYTES:
            under_way = lake.pool.submit(update, chunk)
        else:
            under_way = None
            update(chunk)
        yield chunk
    if under_way:
        under_way.result()


def read(lake: Lake, repo: Repository, entry: Entry, start: int = 0, length: int | None = None) -> Iterator[bytes]:
    """The bytes of an entry in chunks. NotFoundError if they are gone from the store."""
    blobs, name = lake.locate(repo, entry.address)
    stream = blobs.stream(name, start, length)
    if stream is None:
        raise NotFoundError(
            Kind.BLOB_NOT_FOUND, f"the bytes of {entry.path!r} are gone from {entry.address} in {repo.name!r}"
        )
    return stream


def copy(lake: Lake, repo: Repository, ref: str, path: str, branch: str, target: str) -> Entry:
    """Stage at `target` a copy of the bytes of `path`, which then live and die on their own."""
    source = entries.get(lake, repo, ref, path)
    blobs, name = lake.locate(repo, source.address)
    own = lake.blobs(repo)
    address = fresh_address(lake)
    with since(lake.world.now_ms()):
        if blobs is not own or not own.copy(name, address):
            own.put_stream(address, read(lake, repo, source))
        entry = Entry(
            path=target,
            address=address,
            size=source.size,
            checksum=source.checksum,
            mtime_ms=lake.world.now_ms(),
            content_type=source.content_type,
            metadata=source.metadata,
        )
        check_age(lake.world.now_ms())
        entries.put(lake, repo, branch, entry)
    return entry


def fresh_address(lake: Lake) -> str:
    """An address below the namespace that was never used. Spread over directories, for stores that are file systems."""
    return f"data/{lake.world.token(1)}/{lake.world.token(_ADDRESS_BYTES)}"
