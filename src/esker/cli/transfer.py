"""Many files to a branch, or from a ref: in parallel, at constant memory, and what is there already is left alone.

Both sides are walked in the order of paths, in step: what one has under a path is compared as it comes, so neither side
is ever held whole. A file is the same if its size and its MD5 are: a transfer that was killed goes on where it was.
"""

import hashlib
import mimetypes
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any, Final, NamedTuple

from esker.cli.output import Output, counted
from esker.cli.places import Place
from esker.cli.progress import Advance, progress
from esker.client import Body, Client
from esker.client.transport import CHUNK_BYTES
from esker.errors import EskerError, ForbiddenError, InvalidError, Kind, UnauthenticatedError, UnavailableError

WAITING: Final = 2
"""Files that are found ahead of those at work, per worker."""

PART: Final = ".esker-part"
"""Ends the name of a file that is not all there yet."""

OCTETS: Final = "application/octet-stream"


_HOPELESS: Final = (ForbiddenError, UnauthenticatedError, UnavailableError)


class File(NamedTuple):
    """Of this machine."""

    path: str
    """With `/`, below where the walk began."""
    where: Path
    size: int


class Result:
    """What became of a transfer."""

    def __init__(self, output: Output, verb: str) -> None:
        self.output = output
        self.verb = verb
        self.done = 0
        self.skipped = 0
        self.bytes = 0
        self.failed: list[EskerError | OSError] = []
        self.hopeless: EskerError | None = None
        """What all others would fail of, too."""
        self._lock = Lock()

    def count(self, size: int | None) -> None:
        """One more, of so many bytes; None: it was there."""
        with self._lock:
            if size is None:
                self.skipped += 1
            else:
                self.done += 1
                self.bytes += size

    def fail(self, path: str, error: EskerError | OSError) -> None:
        """One file's failure is told at once, and the others go on."""
        said = error.message if isinstance(error, EskerError) else (error.strerror or str(error))
        with self._lock:
            self.failed.append(error)
            if isinstance(error, _HOPELESS):
                self.hopeless = error
            self.output.warn(f"{path}: {said}")

    def tell(self) -> None:
        document = {
            "transferred": self.done,
            "skipped": self.skipped,
            "failed": len(self.failed),
            "bytes": self.bytes,
        }
        there = f", {self.skipped} there already" if self.skipped else ""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        self.output.done(document, f"{self.verb} {counted(self.done, 'file')}{there}{failed}")


def upload(
    client: Client, output: Output, source: Path, at: Place, *, parallel: int, metadata: Mapping[str, str]
) -> Result:
    """All files below a directory, to below a prefix of a branch."""
    result = Result(output, "uploaded")
    prefix = at.path if not at.path or at.path.endswith("/") else f"{at.path}/"

    def send(file: File, there: Mapping[str, Any] | None) -> int | None:
        if there and there["size_bytes"] == file.size and there["checksum"] == md5_of(file.where):
            return None
        made = upload_one(client, file.where, at._replace(path=prefix + file.path), metadata)
        return int(made["size_bytes"])

    # What is uploaded meanwhile is of no interest: it comes behind where the walk is.
    remote = client.objects(at.repo, at.ref, prefix=prefix)
    pairs = _in_step(walk(source, result), lambda file: prefix + file.path, remote)
    with progress(output, "files", in_bytes=True) as advance:
        _run(pairs, lambda pair: pair[0].path, send, result, parallel, advance)
    return result


def download(client: Client, output: Output, at: Place, target: Path, *, parallel: int) -> Result:
    """All objects under a prefix, to files below a directory."""
    result = Result(output, "downloaded")
    prefix = at.path if not at.path or at.path.endswith("/") else f"{at.path}/"

    def fetch(one: Mapping[str, Any], where: Path) -> int | None:
        if is_there(where, one):
            return None
        where.parent.mkdir(parents=True, exist_ok=True)
        return download_one(client, at._replace(path=one["path"]), where, one["size_bytes"])

    def places() -> Iterator[tuple[Mapping[str, Any], Path]]:
        for one in client.objects(at.repo, at.ref, prefix=prefix):
            if one["path"].endswith("/") and not one["size_bytes"]:
                continue  # how some tools keep an empty directory
            try:
                yield one, target / local_path(one["path"].removeprefix(prefix))
            except InvalidError as error:
                result.fail(one["path"], error)

    target.mkdir(parents=True, exist_ok=True)
    with progress(output, "files", in_bytes=True) as advance:
        _run(places(), lambda pair: pair[0]["path"], fetch, result, parallel, advance)
    return result


def upload_one(client: Client, source: Path, at: Place, metadata: Mapping[str, str]) -> dict[str, Any]:
    """What the API says of the object that was made of a file. OSError if that cannot be read."""
    kind = mimetypes.guess_type(source.name)[0] or OCTETS
    unread: list[OSError] = []
    body = Body(lambda: _chunks(source, unread), source.stat().st_size, kind)
    try:
        return client.upload(at.repo, at.ref, at.path, body, metadata=metadata)
    except InvalidError:
        if unread:
            raise unread[0] from None
        raise


def download_one(client: Client, at: Place, target: Path, size: int | None = None) -> int:
    """Its size. The file is there whole, or not at all."""
    part = target.with_name(target.name + PART)
    answer = client.read(at.repo, at.ref, at.path)
    count = 0
    try:
        with part.open("wb") as file:
            for chunk in answer.chunks:
                count += file.write(chunk)
    finally:
        answer.close()
    if size is not None and count != size:
        part.unlink()
        raise InvalidError(
            Kind.INVALID_ARGUMENT, f"{count} bytes came, and not {size}: it changed meanwhile; try again"
        )
    part.replace(target)
    return count


def is_there(where: Path, one: Mapping[str, Any]) -> bool:
    """Whether a file is what an object is."""
    try:
        known = where.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(known.st_mode) and known.st_size == one["size_bytes"] and md5_of(where) == one["checksum"]


def local_path(path: str) -> Path:
    """A path in a lake as one below a directory. InvalidError if it would lead out of it, or cannot be a file's."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part or part.endswith(PART) for part in parts):
        raise InvalidError(
            Kind.PATH_ESCAPES, f"{path!r} cannot be the path of a file: download it alone, to a name of your own"
        )
    return Path(*parts)


def walk(directory: Path, result: Result) -> Iterator[File]:
    """All files below a directory, in the order of their paths. What is no file, or has no name in UTF-8, fails."""
    yield from _walk(directory, "", result)


def _walk(directory: Path, below: str, result: Result) -> Iterator[File]:
    try:
        with os.scandir(directory) as found:
            # As `name/` a directory stands where the paths below it do.
            entries = sorted((entry.name + "/" * entry.is_dir(), entry) for entry in found)
    except OSError as error:
        result.fail(str(directory), error)
        return
    for name, entry in entries:
        path = below + name
        try:
            path.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(path).decode(errors="backslashreplace")
            result.fail(shown, InvalidError(Kind.INVALID_PATH, "its name is no UTF-8: rename it"))
            continue
        if entry.is_dir():
            if entry.is_symlink():
                result.fail(path, InvalidError(Kind.INVALID_PATH, "a link to a directory is not followed"))
            else:
                yield from _walk(directory / entry.name, path, result)
        elif not entry.is_file():
            result.fail(path, InvalidError(Kind.INVALID_PATH, "it is no file"))
        elif not name.endswith(PART):
            yield File(path, directory / entry.name, entry.stat().st_size)


def md5_of(path: Path) -> str:
    """As the lake has it of what was uploaded."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _in_step(
    files: Iterable[File], path_of: Callable[[File], str], remote: Iterator[Mapping[str, Any]]
) -> Iterator[tuple[File, Mapping[str, Any] | None]]:
    """Each file with what there is at its path. Both come in order; so do code points, whose order is UTF-8's."""
    there = next(remote, None)
    for file in files:
        path = path_of(file)
        while there and there["path"] < path:
            there = next(remote, None)
        yield file, there if there and there["path"] == path else None


def _run(
    pairs: Iterable[tuple[Any, Any]],
    name: Callable[[tuple[Any, Any]], str],
    work: Callable[[Any, Any], int | None],
    result: Result,
    parallel: int,
    advance: Advance,
) -> None:
    """Work on each, so many at a time. What fails is noted; what none of the others could survive is raised."""
    places = BoundedSemaphore(parallel * WAITING)

    def one(pair: tuple[Any, Any]) -> None:
        size = None
        try:
            size = work(*pair)
            result.count(size)
        except (EskerError, OSError) as error:
            result.fail(name(pair), error)
        advance(1, size or 0)

    def over(_: "Future[None]") -> None:
        places.release()

    with ThreadPoolExecutor(parallel) as pool:
        try:
            for pair in pairs:
                places.acquire()
                if result.hopeless:
                    raise result.hopeless
                pool.submit(one, pair).add_done_callback(over)
        except BaseException as error:
            pool.shutdown(cancel_futures=True)
            if isinstance(error, KeyboardInterrupt):
                result.output.note(f"{result.verb} {counted(result.done, 'file')}: to go on, say the same again")
            raise


def _chunks(path: Path, unread: list[OSError]) -> Iterator[bytes]:
    """What cannot be read goes to `unread`, too: as it is, it would look like a failure of whoever takes the chunks."""
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except OSError as error:
        unread.append(OSError(error.errno, error.strerror, str(path)))
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{path} cannot be read") from error
