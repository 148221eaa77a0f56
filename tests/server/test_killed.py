"""Servers killed with SIGKILL, all processes at once, while clients write over HTTP. Nothing acknowledged is lost."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
import urllib3

from tests.server.running import API, Client, Server, fresh_database, serving

ROUNDS: Final = 3
WRITERS: Final = 8
WRITES: Final = 120
"""Acknowledged in a round before the kill comes."""

PATHS: Final = 5
"""Of each writer, over and over."""

BRANCH: Final = f"{API}/repositories/sales/branches/main"
OBJECTS: Final = f"{API}/repositories/sales/refs/main/objects"


class Writer:
    """Writes numbers that go up; knows for each of its paths the last acknowledged, and those tried since."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.number = 0
        self.possible: dict[str, list[int]] = {}

    def write(self, client: Client, acknowledged: Callable[[], None]) -> None:
        """Until the server is gone."""
        while True:
            self.number += 1
            path = f"p/{self.name}/{self.number % PATHS}"
            tried = self.possible.setdefault(path, [0])
            tried.append(self.number)
            try:
                answer = client.ask("POST", f"{BRANCH}/objects?path={path}", b"%d" % self.number)
                status = answer.status
            except urllib3.exceptions.HTTPError:
                return
            assert status == 201, answer.data
            self.possible[path] = [self.number]
            acknowledged()


def commit(client: Client) -> None:
    """Until the server is gone: what is written meanwhile must survive that, too."""
    while True:
        try:
            answer = client.ask("POST", f"{BRANCH}/commits", {"message": "meanwhile"})
            status = answer.status
        except urllib3.exceptions.HTTPError:
            return
        assert status == 201 or answer.json()["kind"] == "no-changes", answer.data


def write_until_killed(server: Server, client: Client, writers: list[Writer]) -> None:
    enough = threading.Semaphore(0)
    with ThreadPoolExecutor(WRITERS + 1) as pool:
        running = [pool.submit(writer.write, client, enough.release) for writer in writers]
        running.append(pool.submit(commit, client))
        for _ in range(WRITES):
            assert enough.acquire(timeout=60)
        server.kill()
        for one in running:
            one.result()


def check(client: Client, writers: list[Writer]) -> None:
    listed = client.get("/repositories/sales/refs/main/objects/ls?prefix=p/&amount=1000")["results"]
    shown = {entry["path"]: int(client.ask("GET", f"{OBJECTS}?path={entry['path']}").data) for entry in listed}
    for writer in writers:
        for path, numbers in writer.possible.items():
            assert shown.get(path, 0) in numbers, path
            writer.possible[path] = [shown.get(path, 0)]
    assert {*shown} <= {path for writer in writers for path in writer.possible}


@pytest.mark.parametrize(("store", "staging"), [("sqlite", "kv"), ("sqlite", "lsm"), ("postgres", "kv")])
def test_no_acknowledged_write_is_lost_to_kills(
    tmp_path: Path, store: str, staging: str, request: pytest.FixtureRequest
) -> None:
    settings: dict[str, object] = {"workers": 2, "staging": staging}
    if store == "postgres":
        settings["kv"] = fresh_database(request.getfixturevalue("postgres_url"))
    writers = [Writer(name) for name in range(WRITERS)]
    with serving(tmp_path, **settings) as first:
        key = first.key
        client = Client(first.url, key, threads=WRITERS + 1)
        client.post("/repositories", {"name": "sales", "storage_namespace": ""})
        write_until_killed(first, client, writers)
    for _ in range(ROUNDS - 1):
        with serving(tmp_path, **settings) as server:
            client = Client(server.url, key, threads=WRITERS + 1)
            check(client, writers)
            write_until_killed(server, client, writers)
    with serving(tmp_path, **settings) as last:
        client = Client(last.url, key)
        check(client, writers)
        assert client.ask("POST", f"{BRANCH}/commits", {"message": "after", "allow_empty": True}).status == 201
        check(client, writers)
        assert client.get("/repositories/sales/branches/main/diff")["results"] == []
        assert last.stop() == 0
