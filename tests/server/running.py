"""A server as people run it: `python -m esker.server` in processes of its own, and a client to talk to it."""

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
import urllib3
from psycopg import sql

from tests.services import STOP_TIMEOUT_S, free_port, wait

API: Final = "/api/v1"
_TOLD: Final = re.compile(r"access key id +(\S+)\s+secret access key +(\S+)")
NONE: Final[Mapping[str, str]] = {}


class Client:
    """Talks to a server with an access key, or with none."""

    def __init__(self, url: str, key: tuple[str, str] | None = None, *, threads: int = 1) -> None:
        self.url = url
        self.headers = urllib3.make_headers(basic_auth=":".join(key)) if key else {}
        self._pool = urllib3.PoolManager(maxsize=threads, retries=False, timeout=30)

    def ask(
        self, method: str, path: str, body: bytes | object | None = None, headers: Mapping[str, str] = NONE
    ) -> urllib3.BaseHTTPResponse:
        """A body that is not bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        return self._pool.request(
            method, self.url + path, body=data, headers={**self.headers, **headers}, redirect=False
        )

    def get(self, path: str) -> Any:
        """The JSON that a GET below the API answers."""
        return self.done(self.ask("GET", API + path))

    def post(self, path: str, body: object) -> Any:
        return self.done(self.ask("POST", API + path, body))

    def put(self, path: str, body: object) -> Any:
        return self.done(self.ask("PUT", API + path, body))

    @staticmethod
    def done(answer: urllib3.BaseHTTPResponse) -> Any:
        assert answer.status < 300, (answer.status, answer.data)
        return answer.json() if answer.data else None

    def close(self) -> None:
        self._pool.clear()


class Server:
    """A running one. Its admin's key is known if this was the lake's first start."""

    def __init__(self, process: "subprocess.Popen[str]", url: str, directory: Path) -> None:
        self.process = process
        self.url = url
        self.directory = directory

    @property
    def said(self) -> str:
        """On standard output."""
        return (self.directory / "stdout").read_text()

    @property
    def log(self) -> list[dict[str, Any]]:
        """What it logged, line by line."""
        return [msgspec.json.decode(line) for line in (self.directory / "stderr").read_bytes().splitlines()]

    @property
    def key(self) -> tuple[str, str]:
        found = _TOLD.search(self.said)
        assert found, self.said
        return found[1], found[2]

    def workers(self) -> list[int]:
        """The processes that serve."""
        listed = subprocess.run(
            ["pgrep", "-P", str(self.process.pid), "-f", "spawn_main"], capture_output=True, text=True, check=False
        )
        return [int(pid) for pid in listed.stdout.split()]

    def kill(self) -> None:
        """All of its processes, at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """As the system stops it: the exit status."""
        self.process.terminate()
        return self.process.wait(STOP_TIMEOUT_S)


def fresh_database(postgres_url: str) -> str:
    """A database of its own on that server: a lake that was never started."""
    name = f"lake_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return postgres_url.replace("/postgres?", f"/{name}?")


@contextmanager
def serving(directory: Path, **settings: object) -> Iterator[Server]:
    """A server of the lake in `directory`, unless `settings` name another; ready, and gone after the block."""
    directory.mkdir(parents=True, exist_ok=True)
    port = settings.get("port") or free_port()
    asked = {"lake": (directory / "lake").as_uri(), "port": port, "workers": 1, **settings}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ESKER_")}
    environment |= {f"ESKER_{name.upper()}": str(value) for name, value in asked.items()}
    with (directory / "stdout").open("w") as out, (directory / "stderr").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "esker.server"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            text=True,
            start_new_session=True,  # a group of its own, to be killed as one
        )
    server = Server(process, f"http://127.0.0.1:{port}", directory)
    client = Client(server.url)

    def died() -> str | None:
        if process.poll() is None:
            return None
        return f"the server ended ({process.returncode}): {(directory / 'stderr').read_text()}"

    def ready() -> bool:
        try:
            return client.ask("GET", "/_ready").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    try:
        wait(ready, died)
        yield server
    finally:
        client.close()
        if process.poll() is None:
            server.kill()
