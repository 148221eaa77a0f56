"""Blobs as files below a directory: the file's path is the blob's name.

A blob is written to a temporary name, flushed, renamed into place and its directory flushed: whole or not at all, and
durable once acknowledged. A writer that dies leaves a temporary file, which no listing shows and a later open sweeps.

No name reaches outside the root. Every path is walked one part at a time from a descriptor of the root, and no step
follows a symbolic link, so there is no moment at which a link could be slipped in. A link is no blob: reads and
listings do not see it, a put or delete of its name replaces or removes the link itself, and nothing is put below it.
"""

import errno
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import quote

from esker.errors import InvalidError, Kind, UnavailableError
from esker.stores.blob import CHUNK_BYTES, BlobInfo, BlobStore, check_name, check_range
from esker.world import REAL, World

TEMPORARY: Final = ".esker-tmp"
"""The directory of unfinished blobs: below the root, so that a rename out of it stays in one file system."""

TEMPORARY_AGE_MAX_MS: Final = 24 * 60 * 60 * 1000
"""No writer pauses for so long between two chunks."""

_PUT_ATTEMPTS_MAX: Final = 100
_DELETE_BATCH: Final = 1000
_DURABLE_MAX: Final = 100_000

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # O_NONBLOCK: a planted FIFO must not block
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_NO_BLOB: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO})
"""What the walk to a name meets if no such blob is there, or can be: a file or link on the way, a part too long."""

_NO_FAST_COPY: Final = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})

T = TypeVar("T")


class LocalBlobs(BlobStore):
    """The root is created if it is missing, and may itself be a symbolic link."""

    def __init__(self, root: str | os.PathLike[str], world: World = REAL) -> None:
        self._root = -1
        self._world = world
        self._durable: set[str] = set()
        path = os.path.abspath(root)
        self.url = "file://" + quote(path)
        try:
            _make_root(path)
            self._root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileExistsError, NotADirectoryError):
            raise InvalidError(Kind.INVALID_URL, f"{path} is not a directory") from None
        except OSError as error:
            raise self._unavailable("open", path, error) from error
        self._sweep()

    def get(self, name: str) -> bytes | None:
        return self._with_blob(name, lambda fd, size: _read(fd, 0, size))

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        check_range(start, length)
        return self._with_blob(name, lambda fd, size: _read(fd, start, min(length, size - start)))

    def stream(self, name: str, start: int = 0, length: int | None = None) -> Iterator[bytes] | None:
        check_range(start, length)
        opened = self._open(name)
        if opened is None:
            return None
        fd, size = opened
        chunks = self._chunks(name, fd, start, size if length is None else min(size, start + length))
        next(chunks)  # from here on it closes the descriptor, even if nobody reads on
        return chunks

    def put(self, name: str, data: bytes | memoryview) -> None:
        with _Unfinished(self, name) as blob:
            blob.write(data)
            blob.finish()

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> int:
        size = 0
        with _Unfinished(self, name) as blob:
            for chunk in chunks:
                blob.write(chunk)
                size += len(chunk)
            blob.finish()
        return size

    def head(self, name: str) -> BlobInfo | None:
        *parents, base = _parts(name)
        try:
            folder = self._enter(parents)
            try:
                return _info(name, base, folder)
            finally:
                self._leave(folder)
        except OSError as error:
            if error.errno in _NO_BLOB:
                return None
            raise self._unavailable("look at", name, error) from error

    def list(self, prefix: str = "", after: str = "") -> Iterator[BlobInfo]:
        return self._listed(prefix, after, strictly=False)

    def list_all(self, prefix: str = "", after: str = "") -> Iterator[BlobInfo]:
        return self._listed(prefix, after, strictly=True)

    def _listed(self, prefix: str, after: str, *, strictly: bool) -> Iterator[BlobInfo]:
        *parents, start = prefix.split("/")
        if "\0" in prefix or any(part in ("", ".", "..") for part in parents):
            return
        try:
            folder = self._enter(parents)
        except OSError as error:
            if error.errno in _NO_BLOB:
                return
            raise self._unavailable("list", prefix, error) from error
        try:
            yield from self._list(folder, prefix[: len(prefix) - len(start)], start, after, strictly)
        except OSError as error:
            raise self._unavailable("list", prefix, error) from error

    def delete(self, names: Iterable[str]) -> None:
        remaining = iter(names)
        while batch := [_parts(name) for name in islice(remaining, _DELETE_BATCH)]:
            folders = defaultdict(set)
            for *parents, base in batch:
                folders[tuple(parents)].add(base)
            for folder, bases in folders.items():
                try:
                    self._delete(folder, bases)
                except OSError as error:
                    raise self._unavailable("delete from", "/".join(folder), error) from error

    def copy(self, source: str, target: str) -> bool:
        check_name(target)

        def fill(fd: int, _: int) -> bool:
            # Bytes of its own, never a hard link: a copy with the age of its source would be garbage to a collector.
            with _Unfinished(self, target) as blob:
                blob.fill(fd)
                blob.finish()
            return True

        return self._with_blob(source, fill) or False

    def settle(self) -> None:
        os.sync()  # one call, where flushing files by name would be one for each

    def close(self) -> None:
        root, self._root = self._root, -1
        if root >= 0:
            os.close(root)

    def __del__(self) -> None:
        self.close()

    def _enter(self, parents: Sequence[str], create: bool = False) -> int:
        """A descriptor of this directory, to be given to `_leave`. With `create` it exists, durably, from the root on.

        Which directories were made durable is remembered. Should another process remove one and a third make it anew,
        memory is ahead of the disk until that third has flushed it; journals, which keep order, close this gap.
        """
        folder = self._root
        path = ""
        try:
            for part in parents:
                path += part + "/"
                try:
                    child = os.open(part, _DIRECTORY, dir_fd=folder)
                except FileNotFoundError:
                    if not create:
                        raise
                    self._durable.discard(path)
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder)
                    child = os.open(part, _DIRECTORY, dir_fd=folder)
                try:
                    if create and path not in self._durable:
                        os.fsync(folder)
                        self._remember(path)
                finally:
                    self._leave(folder)
                    folder = child
        except BaseException:
            self._leave(folder)
            raise
        return folder

    def _leave(self, folder: int) -> None:
        if folder != self._root:
            os.close(folder)

    def _remember(self, path: str) -> None:
        if len(self._durable) >= _DURABLE_MAX:
            self._durable.clear()
        self._durable.add(path)

    def _open(self, name: str) -> tuple[int, int] | None:
        """A descriptor of the blob, for the caller to close, and its size. None if there is no such blob."""
        *parents, base = _parts(name)
        try:
            folder = self._enter(parents)
            try:
                fd = os.open(base, _READ, dir_fd=folder)
            finally:
                self._leave(folder)
        except OSError as error:
            if error.errno in _NO_BLOB:
                return None
            raise self._unavailable("open", name, error) from error
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            return None
        return fd, found.st_size

    def _with_blob(self, name: str, use: Callable[[int, int], T]) -> T | None:
        opened = self._open(name)
        if opened is None:
            return None
        try:
            return use(*opened)
        except OSError as error:
            raise self._unavailable("read", name, error) from error
        finally:
            os.close(opened[0])

    def _chunks(self, name: str, fd: int, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` to `end`, after one chunk that only says that the descriptor is now in good hands."""
        try:
            yield b""
            for at in range(start, end, CHUNK_BYTES):
                yield _read(fd, at, min(CHUNK_BYTES, end - at))
        except OSError as error:
            raise self._unavailable("read", name, error) from error
        finally:
            os.close(fd)

    def _list(self, folder: int, path: str, start: str, after: str, strictly: bool) -> Iterator[BlobInfo]:
        """What begins with `path`, the directory's own, plus `start`. Closes the descriptor, unless it is the root."""
        try:
            # A directory sorts as its name and a slash, because all names below it begin so: 'a-b' < 'a/b' < 'ab'.
            with os.scandir(folder) as entries:
                found = sorted(
                    entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name
                    for entry in entries
                    if entry.name.startswith(start) and (path or entry.name != TEMPORARY)
                )
            for name in found:
                full = path + name
                if name.endswith("/"):
                    if full < after and not after.startswith(full):
                        continue  # all below it comes before `after`
                    try:
                        child = os.open(name[:-1], _DIRECTORY, dir_fd=folder)
                    except (FileNotFoundError, NotADirectoryError):
                        continue  # emptied since, or replaced
                    yield from self._list(child, full, "", after, strictly)
                elif full > after:
                    try:
                        info = _info(check_name(full), name, folder)
                    except FileNotFoundError:
                        continue  # deleted since
                    except InvalidError:
                        if strictly:
                            raise
                        continue  # no name of ours
                    if info is not None:
                        yield info
        finally:
            self._leave(folder)

    def _delete(self, parents: Sequence[str], bases: Iterable[str]) -> None:
        try:
            folder = self._enter(parents)
        except OSError as error:
            if error.errno in _NO_BLOB:
                return
            raise
        try:
            for base in bases:
                try:
                    os.unlink(base, dir_fd=folder)
                except IsADirectoryError:
                    pass
                except OSError as error:
                    if error.errno not in _NO_BLOB:
                        raise
            os.fsync(folder)
        finally:
            self._leave(folder)
        while parents and self._remove_empty(parents):
            parents = parents[:-1]

    def _remove_empty(self, parts: Sequence[str]) -> bool:
        """Remove a directory unless something is in it. A put that was about to use it finds it gone, and makes it."""
        try:
            folder = self._enter(parts[:-1])
            try:
                os.rmdir(parts[-1], dir_fd=folder)
            finally:
                self._leave(folder)
        except OSError:
            return False
        return True

    def _sweep(self) -> None:
        """Remove what writers left that were killed long ago."""
        with suppress(OSError):
            folder = self._enter([TEMPORARY])
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        age_ms = self._world.now_ms() - entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000
                        if age_ms > TEMPORARY_AGE_MAX_MS:
                            os.unlink(entry.name, dir_fd=folder)
            finally:
                self._leave(folder)

    def _unavailable(self, verb: str, name: str, error: OSError) -> UnavailableError:
        return UnavailableError(
            Kind.STORE_UNAVAILABLE, f"{self.url}: cannot {verb} {name!r}: {error.strerror or error}"
        )


class _Unfinished:
    """A blob being written: under a temporary name until `finish`, gone with its block if that is not reached."""

    def __init__(self, store: LocalBlobs, name: str) -> None:
        self._store = store
        self._name = name
        self._parts = _parts(name)
        self._temporary = store._world.token(8)

    def __enter__(self) -> Self:
        try:
            self._folder = self._store._enter([TEMPORARY], create=True)
            try:
                self._fd = os.open(self._temporary, _CREATE, 0o666, dir_fd=self._folder)
            except BaseException:
                os.close(self._folder)
                raise
        except OSError as error:
            raise self._store._unavailable("write", self._name, error) from error
        return self

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            raise self._store._unavailable("write", self._name, error) from error

    def fill(self, source: int) -> None:
        """Write all that is in a file, within the kernel or even the file system where that is possible."""
        try:
            while os.copy_file_range(source, self._fd, 1 << 30):
                pass
        except OSError as error:
            if error.errno not in _NO_FAST_COPY:
                raise self._store._unavailable("copy to", self._name, error) from error
            while chunk := os.read(source, CHUNK_BYTES):
                self.write(chunk)

    def finish(self) -> None:
        """Flush, and give it its name, durably."""
        *parents, base = self._parts
        try:
            os.fsync(self._fd)
            for _ in range(_PUT_ATTEMPTS_MAX):
                try:
                    folder = self._store._enter(parents, create=True)
                    try:
                        os.rename(self._temporary, base, src_dir_fd=self._folder, dst_dir_fd=folder)
                        os.fsync(folder)
                        return
                    finally:
                        self._store._leave(folder)
                except FileNotFoundError:
                    pass  # a delete emptied a directory on the way, and took it with it
                except IsADirectoryError:
                    if not self._store._remove_empty(self._parts):
                        raise
        except OSError as error:
            raise self._refused(error) from error
        raise UnavailableError(
            Kind.STORE_UNAVAILABLE, f"{self._store.url}: the directory of {self._name!r} vanished again and again"
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._fd)
        with suppress(OSError):  # after `finish` it is not there
            os.unlink(self._temporary, dir_fd=self._folder)
        os.close(self._folder)

    def _refused(self, error: OSError) -> InvalidError | UnavailableError:
        where = f"{self._store.url} cannot hold {self._name!r}: "
        match error.errno:
            case errno.ENAMETOOLONG:
                return InvalidError(Kind.INVALID_PATH, where + "a part of it is too long for this file system")
            case errno.EISDIR:
                return InvalidError(
                    Kind.INVALID_PATH, where + "there are blobs below it, and a file cannot be a directory"
                )
            case errno.ENOTDIR | errno.ELOOP:
                return InvalidError(
                    Kind.INVALID_PATH, where + "a part of it is a file or a symbolic link, not a directory"
                )
            case _:
                return self._store._unavailable("write", self._name, error)


def _parts(name: str) -> Sequence[str]:
    parts = check_name(name).split("/")
    if parts[0] == TEMPORARY:
        raise InvalidError(Kind.INVALID_PATH, f"blob name {name!r}: {TEMPORARY!r} is where unfinished blobs are kept")
    return parts


def _info(name: str, base: str, folder: int) -> BlobInfo | None:
    found = os.stat(base, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        return None
    return BlobInfo(name, found.st_size, found.st_mtime_ns // 1_000_000)


def _read(fd: int, start: int, length: int) -> bytes:
    if length <= 0:
        return b""
    data = os.pread(fd, length, start)
    if len(data) == length:
        return data
    pieces = [data]  # one call reads at most 2 GiB
    while data:
        start, length = start + len(data), length - len(data)
        data = os.pread(fd, length, start)
        pieces.append(data)
    return b"".join(pieces)


def _make_root(path: str) -> None:
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for path in reversed(missing):
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
