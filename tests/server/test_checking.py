"""A check of a repository, as it goes over the wire."""

import json
import threading
from pathlib import Path

import falcon.testing

import esker
from esker.client import Client, WsgiTransport
from esker.server.app import create_app
from tests.server.live import Live


def test_a_check_says_how_it_ended(server: Live, repo: str) -> None:
    server.put(repo, "a", b"x")
    server.commit(repo)
    answer = server.ask("GET", f"/repositories/{repo}/fsck?deep=true&blobs=true")
    assert answer.status == 200
    said = json.loads(answer.body.splitlines()[-1])
    assert (said["done"], said["wrong"]) == (True, 0)
    assert said["looked"] > 0
    assert server.ask("GET", "/repositories/nowhere/fsck").status == 404


def test_a_check_that_nobody_waits_for_stops(tmp_path: Path) -> None:
    with esker.open_lake(tmp_path.as_uri()) as lake:
        repo = lake.create_repository("left")
        for number in range(50):
            branch = repo.create_branch(f"b{number}", "main")
            branch.put("a", f"{number}".encode())
            branch.commit("m")
        for file in (tmp_path / "left" / "_esker" / "ranges").iterdir():
            file.unlink()
        app = create_app(lake.engine, storage=tmp_path.as_uri(), directory=None)
        found = Client(WsgiTransport(app)).check("left")
        assert next(found)["what"] == "range"
        found.close()
        assert not any(thread.name == "fsck" for thread in threading.enumerate())
        assert falcon.testing.TestClient(app).simulate_get("/api/v1/repositories/left").status_code == 200
