"""What `esker doctor` looks at: each thing with what was found, and the way out if that is not well.

Nothing here raises for what it looks at: whatever is broken, the rest is worth a look too.
"""

import platform
import shutil
import stat
import sys
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from esker.cli.session import Session
from esker.errors import EskerError
from esker.settings import client_file, read_client_file
from esker.world import REAL

WELL: Final = "ok"
CARE: Final = "note"
BAD: Final = "bad"

SKEW_S_MAX: Final = 60
"""Tokens and signed URLs tell times; those of the store are compared with ours to the minute at best."""

FREE_BYTES_MIN: Final = 1 << 30

_EXTRAS: Final = {"s3": "boto3", "dynamodb": "boto3", "postgresql": "psycopg"}
_EXTRA_OF: Final = {"boto3": "aws", "psycopg": "postgres"}


class Note(msgspec.Struct, frozen=True):
    state: str
    what: str
    message: str


def examine(session: Session) -> Iterator[Note]:
    """In the order in which one thing needs the other."""
    yield Note(WELL, "versions", f"esker {version('esker')}, Python {platform.python_version()}, {platform.platform()}")
    yield from _extras()
    yield from _file()
    try:
        said = session.settings
    except EskerError as error:
        yield Note(BAD, "where", error.message)
        return
    if said.endpoint:
        yield Note(WELL, "where", f"the server at {said.endpoint}")
        yield from _server(session)
        return
    try:
        url = session.lake_url
    except EskerError as error:
        yield Note(CARE, "where", error.message)
        return
    yield Note(WELL, "where", f"the lake at {url}")
    yield from _lake(session, url)


def _extras() -> Iterator[Note]:
    for module, extra in _EXTRA_OF.items():
        if find_spec(module):
            yield Note(WELL, "extras", f"{extra}: {module} {version(module)}")
        else:
            schemes = " and ".join(scheme for scheme, needed in _EXTRAS.items() if needed == module)
            yield Note(CARE, "extras", f"without {module}, {schemes} URLs may not work: pip install 'esker[{extra}]'")


def _file() -> Iterator[Note]:
    path = client_file()
    try:
        found = read_client_file(path)
        mode = stat.S_IMODE(path.stat().st_mode) if found else 0
    except (EskerError, OSError) as error:
        yield Note(BAD, "configuration", error.message if isinstance(error, EskerError) else str(error))
        return
    if not found:
        yield Note(WELL, "configuration", f"none in {path}")
    elif mode & 0o077:
        yield Note(BAD, "configuration", f"others may read {path}, and a key in it: chmod 600 {path}")
    else:
        yield Note(WELL, "configuration", f"{path} says {', '.join(sorted(found))}")


def _server(session: Session) -> Iterator[Note]:
    from esker.client import Client, HttpTransport

    said = session.settings
    try:
        once = Client(HttpTransport(said.endpoint), tries=1)  # who looks for trouble does not wait for it to pass
        begun_s = REAL.monotonic_s()
        answer = once.ready()
        answer.read()
    except EskerError as error:
        yield Note(BAD, "server", error.message)
        return
    yield Note(WELL, "server", f"ready, in {1000 * (REAL.monotonic_s() - begun_s):.0f} ms")
    yield _clock("server", answer.headers.get("date"))
    if said.endpoint.startswith("http://") and not said.endpoint.startswith(("http://localhost", "http://127.")):
        yield Note(
            CARE, "server", "keys and data go over the network in the clear: put TLS before it, and use https://"
        )
    try:
        who = session.client.whoami()
        roles = ", ".join(f"{one['role']}:{one['repositories']}" for one in who["roles"])
        yield Note(WELL if roles else CARE, "user", f"{who['id']}, {roles or 'who may do nothing: ask for a role'}")
        theirs = session.client.config()["version_config"]["version_context"].removeprefix("esker ")
    except EskerError as error:
        yield Note(BAD, "user", f"{error.message}: esker login {said.endpoint}")
        return
    if theirs == version("esker"):
        yield Note(WELL, "versions", f"the server's is {theirs} too")
    else:
        yield Note(CARE, "versions", f"the server's is {theirs}: use the same on both sides")


def _lake(session: Session, url: str) -> Iterator[Note]:
    from esker.engine import repositories
    from esker.engine.opening import directory_of

    try:
        directory = directory_of(url)
        begun_s = REAL.monotonic_s()
        lake = session.lake
        names = [repo.name for repo in repositories.every(lake)]
    except (EskerError, OSError, ImportError) as error:
        yield Note(BAD, "key-value store", _message(error))
        return
    took_ms = 1000 * (REAL.monotonic_s() - begun_s)
    yield Note(WELL, "key-value store", f"repositories: {len(names)}; opened and read in {took_ms:.0f} ms")
    if directory is not None:
        yield from _disk(directory)
    yield from _store(url)


def _store(url: str) -> Iterator[Note]:
    """Whether what a repository needs of the store can be done: with a blob of no repository."""
    from esker.stores.open_blobs import open_blobs

    name = f"_esker-doctor-{REAL.token(8)}"
    try:
        blobs = open_blobs(url)
        begun_ms = REAL.now_ms()
        blobs.put(name, b"esker doctor")
        try:
            found = blobs.head(name)
            whole = blobs.get(name)
        finally:
            blobs.delete([name])
            blobs.close()
    except (EskerError, OSError, ImportError) as error:
        yield Note(BAD, "object store", f"{_message(error)}: it takes the rights to read, write, list and delete")
        return
    if found is None or whole != b"esker doctor":
        yield Note(BAD, "object store", f"{url} does not give back what it took: it is not fit to hold a lake")
        return
    yield Note(WELL, "object store", f"written, read and deleted in {REAL.now_ms() - begun_ms} ms")
    yield _skew("object store", (found.mtime_ms - begun_ms) / 1000)


def _disk(directory: Path) -> Iterator[Note]:
    free = shutil.disk_usage(directory).free
    if free < FREE_BYTES_MIN:
        yield Note(BAD, "disk", f"{free >> 20} MiB are free in {directory}: make room before a write fails")
    else:
        yield Note(WELL, "disk", f"{free >> 30} GiB are free in {directory}")
    if sys.platform.startswith("linux") and _is_remote(directory):
        yield Note(
            BAD,
            "disk",
            f"{directory} is on a network file system, on whose locks SQLite cannot rely: use --kv postgresql",
        )


def _is_remote(directory: Path) -> bool:
    """Whether the mount that holds it is another machine's."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    place = str(directory.resolve())
    kind = max((mount for mount in mounts if f"{place}/".startswith(mount[0].rstrip("/") + "/")), default=["", ""])[1]
    return kind.startswith(("nfs", "cifs", "smb", "fuse.sshfs"))


def _clock(what: str, date: str | None) -> Note:
    try:
        theirs_s = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return Note(CARE, "clock", f"the {what} does not tell the time")
    return _skew(what, theirs_s - REAL.now_ms() / 1000)


def _skew(what: str, ahead_s: float) -> Note:
    if abs(ahead_s) <= SKEW_S_MAX:
        return Note(WELL, "clock", f"the {what}'s is ours")
    way = "ahead of" if ahead_s > 0 else "behind"
    return Note(BAD, "clock", f"the {what}'s is {abs(ahead_s):.0f} s {way} ours: have both set by NTP")


def _message(error: Exception) -> str:
    return error.message if isinstance(error, EskerError) else str(error)
