"""A server in processes of its own, and ways to talk to it."""

import http.client
import itertools
import json
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import urllib3

from tests import services

API = "/api/v1"

# lakeFS's own clients. What they say of their types calls right code wrong, so nothing is made of it.
lakefs: Any = import_module("lakefs")
lakefs_sdk: Any = import_module("lakefs_sdk")

_NAMES = itertools.count()


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        text: str = self.json["message"]
        return text


class Live:
    """A server that runs, and an admin's key."""

    def __init__(self, port: int, base: Path) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.lake = base / "lake"
        self.elsewhere = base / "elsewhere"
        """A directory that objects may be imported from, and exported to."""
        self.key_id = self.secret = ""
        self._pool = urllib3.PoolManager(retries=False)

    @property
    def authorization(self) -> str:
        return "Basic " + b64encode(f"{self.key_id}:{self.secret}".encode()).decode()

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        login: bool = True,
    ) -> Answer:
        """One request, by path below the API or from the root; a body that is no bytes is sent as JSON."""
        url = self.url + (path if path.startswith(("/_", "/api", "/openapi", "/docs", "/metrics")) else API + path)
        if query:
            url += "?" + urlencode(query, doseq=True)
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        said = {"Authorization": self.authorization} if login else {}
        got = self._pool.request(method, url, body=sent, headers={**said, **(headers or {})}, redirect=False)
        return Answer(got.status, got.headers, got.data)

    def ask_raw(self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
        """A request for exactly this target: nothing in it is normalised on the way."""
        connection = self.connection()
        try:
            connection.putrequest(method, target, skip_accept_encoding=True)
            said = {"Authorization": self.authorization, "Content-Length": str(len(body)), **(headers or {})}
            for name, value in said.items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            got = connection.getresponse()
            return Answer(got.status, dict(got.getheaders()), got.read())
        finally:
            connection.close()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def create_repository(self, name: str | None = None) -> str:
        name = name or f"repo-{next(_NAMES)}"
        made = self.ask("POST", "/repositories", body={"name": name, "storage_namespace": f"local://{name}"})
        assert made.status == 201, made
        return name

    def put(self, repo: str, path: str, data: bytes, branch: str = "main", **headers: str) -> Answer:
        return self.ask(
            "POST", f"/repositories/{repo}/branches/{branch}/objects", query={"path": path}, body=data, headers=headers
        )

    def get(self, repo: str, path: str, ref: str = "main", headers: Mapping[str, str] | None = None) -> Answer:
        return self.ask("GET", f"/repositories/{repo}/refs/{quote(ref)}/objects", query={"path": path}, headers=headers)

    def commit(self, repo: str, message: str = "a commit", branch: str = "main") -> str:
        made = self.ask("POST", f"/repositories/{repo}/branches/{branch}/commits", body={"message": message})
        assert made.status == 201, made
        commit: str = made.json["id"]
        return commit

    def wrapper(self) -> Any:
        """As people log in with the wrapper."""
        return lakefs.Client(host=self.url, username=self.key_id, password=self.secret)

    def sdk(self) -> Any:
        configuration = lakefs_sdk.Configuration(host=self.url + API, username=self.key_id, password=self.secret)
        return import_module("lakefs_sdk.client").LakeFSClient(configuration)


@contextmanager
def live(base: Path, **settings: str) -> Iterator[Live]:
    """A server on `base`/lake that may import from, and export to, `base`/elsewhere, for as long as the block."""
    server = Live(services.free_port(), base)
    server.elsewhere.mkdir(exist_ok=True)
    said = {
        "ESKER_LAKE": server.lake.as_uri(),
        "ESKER_SOURCES": server.elsewhere.as_uri(),
        "ESKER_TARGETS": server.elsewhere.as_uri(),
        "ESKER_PORT": str(server.port),
        "ESKER_WORKERS": "1",
        "ESKER_CREATE_ADMIN": "false",
        **settings,
    }
    command: list[str | Path] = ["env", *(f"{name}={value}" for name, value in said.items())]
    with services.running([*command, sys.executable, "-m", "esker.server"], base / "log") as died:
        services.wait(lambda: services.accepts(server.port), died)
        made = server.ask("POST", "/setup_lakefs", body={"username": "admin"}, login=False)
        assert made.status == 200, made
        server.key_id, server.secret = made.json["access_key_id"], made.json["secret_access_key"]
        yield server
