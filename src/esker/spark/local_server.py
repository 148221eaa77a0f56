"""A server of this machine for one Spark session: on loopback, in a process of its own that ends when this one does.

It is found by a key that follows from the lake's secret key, so that sessions leave nothing behind: the user of all of
them is made once, and the key is the same each time. Whoever has the lake's secret key could make any other.
"""

import atexit
import hashlib
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import urllib3

from esker.auth import Directory, Grant, Role
from esker.auth.secret_key import secret_key_of
from esker.engine.opening import database_of, directory_of
from esker.errors import ConflictError, Kind, UnauthenticatedError, UnavailableError
from esker.settings import ServerSettings, server_settings
from esker.stores.open_kv import open_kv
from esker.world import REAL

USER: Final = "spark-session"

_KEY_ID: Final = "AKESSPARKSESSION"
_PURPOSE: Final = "the key of Spark sessions"

_START_S: Final = 60.0
_STOP_S: Final = 20.0
_PAUSE_S: Final = 0.05
_SAID_CHARS_MAX: Final = 2000

_RUN: Final = '"$@" & server=$!; exec 3<&0; (cat <&3 >/dev/null; kill $server 2>/dev/null) & wait $server'
"""A server that is told to stop when its standard input ends, as it does when whoever has the other end dies."""


class LocalServer:
    """A server of the lake at `lake`, or at the one that the environment names; running."""

    def __init__(self, lake: str | None = None) -> None:
        settings = server_settings(lake=lake, host="127.0.0.1", port=_free_port())
        self.lake = settings.lake
        self.endpoint = f"http://{settings.host}:{settings.port}"
        self.access_key = _KEY_ID
        self.secret_key = _let_in(settings)
        self._said = tempfile.NamedTemporaryFile(prefix="esker-server-", suffix=".log")  # noqa: SIM115 - until `stop`
        given = {"LAKE": settings.lake, "HOST": settings.host, "PORT": settings.port, "CREATE_ADMIN": "false"}
        variables = [f"ESKER_{name}={value}" for name, value in given.items()]
        self._process = subprocess.Popen(  # noqa: S603 - the arguments are our own
            # `env`: the rest of the environment, with all that it says of stores, is passed on as it is.
            ["/bin/sh", "-c", _RUN, "sh", "/usr/bin/env", *variables, sys.executable, "-m", "esker.server"],
            stdin=subprocess.PIPE,
            stdout=self._said,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # an interrupted query is no reason to stop
        )
        atexit.register(self.stop)
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """End it. Again is no error."""
        atexit.unregister(self.stop)
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()

    def _wait(self) -> None:
        """Until it answers. UnavailableError, with what it said, if it never does."""
        deadline_s = REAL.monotonic_s() + _START_S
        with urllib3.PoolManager(retries=False, timeout=_START_S) as pool:
            while self.is_running and REAL.monotonic_s() < deadline_s:
                try:
                    if pool.request("GET", f"{self.endpoint}/_ready").status == 200:
                        return
                except urllib3.exceptions.HTTPError:
                    pass
                REAL.sleep(_PAUSE_S)
        said = Path(self._said.name).read_text(errors="replace")[-_SAID_CHARS_MAX:].strip()
        raise UnavailableError(Kind.STORE_UNAVAILABLE, f"the server of the session did not start: {said}")


def _let_in(settings: ServerSettings) -> str:
    """See to it that the key of sessions is good: its secret."""
    kv = open_kv(settings.kv or database_of(settings.lake))
    try:
        directory = Directory(kv, REAL, secret_key_of(settings, directory_of(settings.lake)))
        secret = hashlib.sha256(directory.signing_key(_PURPOSE)).hexdigest()
        try:
            directory.authenticate(_KEY_ID, secret)
        except UnauthenticatedError:
            _make_user(directory, secret)
        return secret
    finally:
        kv.close()


def _make_user(directory: Directory, secret: str) -> None:
    """Several sessions may, at the same time: they make the same."""
    with suppress(ConflictError):
        directory.create_user(USER, (Grant(role=Role.ADMIN, repositories="*"),))
    with suppress(ConflictError):
        directory.create_key(USER, _KEY_ID, secret)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
