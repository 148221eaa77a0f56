"""Real servers for tests: private, in temporary directories, on loopback only, gone when the tests are.

A server that cannot be started fails the tests that need it: a skipped test proves nothing and looks like success.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

START_TIMEOUT_S: Final = 60
STOP_TIMEOUT_S: Final = 20


class ServiceError(Exception):
    """A server is missing, or did not start."""


@contextmanager
def postgres() -> Iterator[str]:
    """A PostgreSQL as installed (fsync on, durable), reached by a socket in its own directory; its URL."""
    bindir = _postgres_bindir()
    directory = Path(tempfile.mkdtemp(prefix="esker-pg-", dir="/tmp"))  # a socket's path may have 107 bytes
    user = _postgres_user()
    try:
        if user is not None:
            shutil.chown(directory, user)
        data = directory / "data"
        initdb: list[str | Path] = [bindir / "initdb", "-D", data]
        initdb += ["--username=esker", "--auth=trust", "--encoding=UTF8", "--no-sync"]
        done = subprocess.run(initdb, user=user, cwd=directory, capture_output=True, text=True, env=_clean_env())
        if done.returncode:
            raise ServiceError(f"initdb failed: {done.stderr}")
        command: list[str | Path] = [bindir / "postgres", "-D", data, "-k", directory, "-c", "listen_addresses="]
        command += ["-c", "max_connections=200"]
        # SIGINT is PostgreSQL's fast shutdown: it does not wait for clients.
        with running(command, directory / "log", user=user, stop=signal.SIGINT) as died:
            probe: list[str | Path] = [bindir / "pg_isready", "-q", "-h", directory]
            wait(lambda: subprocess.run(probe, timeout=START_TIMEOUT_S).returncode == 0, died)
            yield f"postgresql://esker@/postgres?host={directory}"
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def moto() -> Iterator[str]:
    """moto's server, which plays S3 and DynamoDB; its URL. Its state lasts as long as it runs."""
    directory = Path(tempfile.mkdtemp(prefix="esker-moto-"))
    try:
        port = free_port()
        program = "import sys; from moto.server import main; main(sys.argv[1:])"
        command: list[str | Path] = [sys.executable, "-c", program, "-H", "127.0.0.1", "-p", str(port)]
        with running(command, directory / "log") as died:
            wait(lambda: accepts(port), died)
            yield f"http://127.0.0.1:{port}"
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def running(
    command: list[str | Path], log: Path, *, stop: signal.Signals = signal.SIGKILL, user: str | None = None
) -> Iterator[Callable[[], str | None]]:
    """A process, for as long as the block; yields a question: what did it say when it died, if it has?"""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, user=user, cwd=log.parent, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=_clean_env()
        )

    def died() -> str | None:
        return None if process.poll() is None else f"{command[0]} ended ({process.returncode}): {log.read_text()}"

    try:
        yield died
    finally:
        process.send_signal(stop)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait(ready: Callable[[], bool], died: Callable[[], str | None]) -> None:
    """Until it is ready; `ServiceError` if it died first, or takes longer than any server should."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not ready():
        if (why := died()) is not None:
            raise ServiceError(why)
        if time.monotonic() > deadline:
            raise ServiceError(f"no answer in {START_TIMEOUT_S} s")
        time.sleep(0.05)


def free_port() -> int:
    """A port of loopback that nobody listens on: now, so use it at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    """Whether somebody listens on this port of loopback."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return True
    except OSError:
        return False


def _postgres_bindir() -> Path:
    asked = shutil.which("pg_config")
    dirs = [Path(subprocess.check_output([asked, "--bindir"], text=True).strip())] if asked else []
    dirs += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda d: int(d.parent.name), reverse=True)
    for bindir in dirs:
        if (bindir / "initdb").exists() and (bindir / "postgres").exists():
            return bindir
    raise ServiceError("these tests need PostgreSQL's server programs: apt-get install postgresql")


def _postgres_user() -> str | None:
    """PostgreSQL refuses to run as root: whom to become, if we are."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in known:
            return name
    raise ServiceError("PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody' to run it as")


def _clean_env() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}
