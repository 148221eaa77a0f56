"""`serve`: processes, signals, overload, logs and metrics, of servers as people run them."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest

from esker.engine import layers, repositories
from esker.engine.opening import open_stores
from esker.model import Entry
from esker.server.serve import STREAMS
from esker.stores.open_kv import sqlite_url
from esker.streams.entries import changes_of
from esker.streams.rows import Changes
from tests import services
from tests.server.running import API, Client, Server, fresh_database, serving
from tests.services import wait


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("serve"), workers=2) as running:
        yield running


@pytest.fixture
def admin(server: Server) -> Iterator[Client]:
    client = Client(server.url, server.key)
    yield client
    client.close()


def repository(client: Client, name: str) -> str:
    client.post("/repositories", {"name": name, "storage_namespace": ""})
    return f"{API}/repositories/{name}"


def bucket(endpoint: str, name: str) -> None:
    s3: Any = boto3.client("s3", endpoint_url=endpoint)
    s3.create_bucket(Bucket=name)


@contextmanager
def stalled(client: Client, method: str, target: str, *, length: int = 0) -> Iterator[socket.socket]:
    """A client that sends half of its body, once the server has begun to read that; or reads nothing."""
    host, _, port = client.url.removeprefix("http://").partition(":")
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect((host, int(port)))
        head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\nContent-Type: text/plain\r\n"
        if "authorization" in client.headers:
            head += f"Authorization: {client.headers['authorization']}\r\n"
        head += "Expect: 100-continue\r\n\r\n" if length else "\r\n"
        connection.sendall(head.encode())
        if length:
            assert connection.recv(1 << 10).startswith(b"HTTP/1.1 100 ")
            connection.sendall(b"x" * (length // 2))
        yield connection


def test_the_first_start_tells_a_key_that_works_and_later_ones_do_not(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        key = first.key
        assert first.said.count(key[1]) == 1
        assert Client(first.url, key).get("/user")["user"]["id"] == "admin"
        assert Client(first.url).get("/setup_lakefs")["state"] == "initialized"
        assert first.stop() == 0
    with serving(tmp_path) as second:
        assert second.said == ""
        assert Client(second.url, key).get("/user")["user"]["id"] == "admin"


def test_without_an_admin_of_the_first_start_whoever_comes_first_sets_the_lake_up(tmp_path: Path) -> None:
    with serving(tmp_path, create_admin=False) as running:
        nobody = Client(running.url)
        assert running.said == ""
        assert nobody.get("/setup_lakefs")["state"] == "not_initialized"
        made = nobody.post("/setup_lakefs", {"username": "first"})
        assert Client(running.url, (made["access_key_id"], made["secret_access_key"])).get("/auth/users")
        assert nobody.get("/setup_lakefs")["state"] == "initialized"
        assert nobody.ask("POST", f"{API}/setup_lakefs", {"username": "second"}).status == 409


def test_it_is_ready_only_while_its_stores_answer(tmp_path: Path, moto_url: str) -> None:
    """The store is one of its own, to be stopped; `moto_url` is asked for its credentials."""
    with ExitStack() as stack:
        store = stack.enter_context(ExitStack())
        url = store.enter_context(services.moto())
        bucket(url, "ready")
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("AWS_ENDPOINT_URL", url)
        kv = sqlite_url(tmp_path / "esker.db")
        running = stack.enter_context(serving(tmp_path, lake="s3://ready/lake", kv=kv, secret_key="x" * 32))
        client = Client(running.url)
        assert client.ask("GET", "/_ready").status == 200
        store.close()
        assert client.ask("GET", "/_ready").status == 503
        assert client.ask("GET", "/_health").status == 200, "it runs, all the same"


def test_what_runs_when_it_is_told_to_stop_is_finished(tmp_path: Path) -> None:
    size = 4 << 20
    with serving(tmp_path) as running:
        key = running.key
        admin = Client(running.url, key)
        where = repository(admin, "sales")
        with stalled(admin, "POST", f"{where}/branches/main/objects?path=big", length=size) as upload:
            running.process.terminate()
            wait(lambda: any("Stopping worker" in line["message"] for line in running.log), lambda: None)
            upload.sendall(b"x" * (size - size // 2))
            assert upload.recv(1 << 16).startswith(b"HTTP/1.1 201 ")
        assert running.process.wait(20) == 0
        last = [line for line in running.log if line["logger"] == "esker.requests"][-1]
        assert (last["method"], last["status"]) == ("POST", 201)
    with serving(tmp_path) as again:
        assert Client(again.url, key).get("/repositories/sales/refs/main/objects/stat?path=big")["size_bytes"] == size


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, workers=2) as running:

        def started(count: int) -> bool:
            return sum("Started worker" in line["message"] for line in running.log) == count

        wait(lambda: started(2), lambda: None)
        before = running.workers()
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        wait(lambda: started(3), lambda: None)
        after = running.workers()
        assert len(after) == 2
        assert before[0] not in after
        assert Client(running.url).ask("GET", "/_ready").status == 200


def test_workers_do_not_outlive_their_parent(tmp_path: Path) -> None:
    with serving(tmp_path, workers=2) as running:
        workers = running.workers()
        running.process.kill()
        running.process.wait()
        wait(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in workers), lambda: None)


def test_a_port_that_is_taken_is_said_so(server: Server, tmp_path: Path) -> None:
    port = server.url.rpartition(":")[2]
    environment = {**os.environ, "ESKER_LAKE": tmp_path.as_uri(), "ESKER_PORT": port}
    done = subprocess.run(
        [sys.executable, "-m", "esker.server"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert (
        done.stderr
        == f"cannot listen on 127.0.0.1 port {port}: Address already in use; set another port (ESKER_PORT)\n"
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ESKER_PORT": "eighty"}, "ESKER_PORT"),
        ({"ESKER_WORKERS": "0"}, "`workers` is 1 to 256"),
        ({"ESKER_LAKE": "s3://bucket"}, "ESKER_SECRET_KEY"),
        ({"ESKER_LAKE": "s3://bucket", "ESKER_SECRET_KEY": "short"}, "openssl rand"),
        ({"ESKER_LAKE": "s3://bucket", "ESKER_SECRET_KEY": "x" * 32}, "postgresql://"),
        ({"ESKER_LAKE": "memory://", "ESKER_SECRET_KEY": "x" * 32}, "cannot share memory://"),
        ({"ESKER_LAKE": "nonsense"}, "is no URL of a lake"),
    ],
)
def test_what_it_cannot_start_with_is_said_in_a_line(settings: dict[str, str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "esker.server"],
        env={**os.environ, "ESKER_PORT": str(services.free_port()), **settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_another_secret_key_is_refused_and_users_can_be_forgotten(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        first = running.key
        running.stop()
    environment = {**os.environ, "ESKER_LAKE": (tmp_path / "lake").as_uri(), "ESKER_SECRET_KEY": "another key " * 5}
    environment["ESKER_PORT"] = str(services.free_port())
    command = [sys.executable, "-m", "esker.server"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "--forget-users" in done.stderr
    subprocess.run([*command, "--forget-users"], env=environment, check=True, timeout=60)
    with serving(tmp_path, secret_key=environment["ESKER_SECRET_KEY"]) as running:
        assert Client(running.url, running.key).get("/user")["user"]["id"] == "admin"
        assert Client(running.url, first).ask("GET", f"{API}/user").status == 401


def test_the_log_has_a_line_for_each_request_and_no_secret(server: Server, admin: Client) -> None:
    where = repository(admin, "logged")
    key_id, secret = server.key
    login = {"access_key_id": key_id, "secret_access_key": secret}
    token = admin.post("/auth/login", login)["token"]
    admin.ask(
        "GET",
        f"{where}/refs/main/objects?path=private&presign=true&signature=s3cret",
        headers={"X-Request-ID": "mine-1"},
    )
    Client(server.url).ask("GET", f"{where}/refs/main", headers={"Authorization": f"Bearer {token}"})
    Client(server.url, (key_id, "wrong-wrong-wrong")).ask("GET", f"{API}/user", headers={"X-Request-ID": "mine-2"})

    def lines() -> dict[str, Any]:
        return {line["request_id"]: line for line in server.log if line["logger"] == "esker.requests"}

    wait(lambda: {"mine-1", "mine-2"} <= lines().keys(), lambda: None)
    mine, refused = lines()["mine-1"], lines()["mine-2"]
    assert (mine["method"], mine["status"], mine["user"]) == ("GET", 404, "admin")
    assert mine["path"] == f"{API}/repositories/{{repository}}/refs/{{ref}}/objects"
    assert mine["duration_ms"] > 0
    assert (refused["status"], refused["user"]) == (401, "")
    text = (server.directory / "stderr").read_text()
    for hidden in (secret, token, admin.headers["authorization"], "s3cret", "private", "logged", "wrong-wrong"):
        assert hidden not in text


def test_metrics_are_those_of_all_workers(server: Server) -> None:
    def counted() -> float:
        text = Client(server.url).ask("GET", "/metrics").data.decode()
        lines = [line for line in text.splitlines() if line.startswith("esker_request_seconds_count{")]
        return sum(float(line.split()[-1]) for line in lines if 'operation="healthCheck"' in line)

    before = counted()
    for _ in range(40):  # a connection each, so that both workers get some
        client = Client(server.url)
        assert client.ask("GET", f"{API}/healthcheck").status == 204
        client.close()
    assert {counted() for _ in range(10)} == {before + 40}


def test_too_much_at_once_is_refused_at_once_and_the_rest_is_served(tmp_path: Path) -> None:
    """One request has the only place, and waits for its body."""
    with serving(tmp_path, requests=1) as running:
        admin = Client(running.url, running.key, threads=8)
        where = repository(admin, "sales")
        with stalled(admin, "POST", f"{where}/branches/main/objects?path=slow", length=10) as upload:
            with ThreadPoolExecutor(8) as pool:
                refused = [*pool.map(lambda _: admin.ask("GET", f"{API}/user"), range(8))]
            assert {answer.status for answer in refused} == {503}
            assert {answer.headers["Retry-After"] for answer in refused} == {"1"}
            assert "try again" in refused[0].json()["message"]
            for path in ("/_health", "/_ready", "/metrics"):
                assert admin.ask("GET", path).status == 200, "busy is not sick"
            upload.sendall(b"xxxxx")
            assert upload.recv(1 << 16).startswith(b"HTTP/1.1 201 ")
        assert admin.ask("GET", f"{API}/user").status == 200


def test_uploads_leave_half_of_the_places_to_others(tmp_path: Path) -> None:
    with serving(tmp_path, requests=2) as running:
        admin = Client(running.url, running.key)
        where = repository(admin, "sales")
        with stalled(admin, "POST", f"{where}/branches/main/objects?path=slow", length=1 << 20):
            other = f"{where}/branches/main/objects?path=other"
            assert admin.ask("POST", other, b"x" * (1 << 20)).status == 503
            for _ in range(10):
                assert admin.ask("GET", f"{API}/user").status == 200


def test_strangers_who_never_end_their_bodies_keep_nobody_out(tmp_path: Path) -> None:
    """Whoever logs in is not known before the body is read."""
    with serving(tmp_path, requests=8) as running:
        admin, nobody = Client(running.url, running.key), Client(running.url)
        login = {"access_key_id": running.key[0], "secret_access_key": running.key[1]}
        with stalled(nobody, "POST", f"{API}/auth/login", length=100):
            assert nobody.ask("POST", f"{API}/auth/login", login).status == 503
            for _ in range(10):
                assert admin.ask("GET", f"{API}/user").status == 200
        wait(lambda: nobody.ask("POST", f"{API}/auth/login", login).status == 200, lambda: None)


def test_what_a_former_server_left_to_compact_is_compacted_after_a_start(tmp_path: Path) -> None:
    url = (tmp_path / "lake").as_uri()
    lake, close = open_stores(url)
    repo = repositories.create(lake, "sales", f"{url}/sales")
    for number in range(20):
        entry = Entry(path=f"p/{number}", address="data/x", size=1, checksum="x", mtime_ms=0)
        layers.append(lake, repo, "main", Changes(changes_of([entry])))
    close()
    with serving(tmp_path) as running:
        admin = Client(running.url, running.key)
        where = "/repositories/sales/branches/main"
        wait(lambda: all(layer["level"] != "L1" for layer in admin.get(f"{where}/layers")["results"]), lambda: None)
        assert len(admin.get("/repositories/sales/refs/main/objects/ls")["results"]) == 20


def test_readers_that_do_not_read_hold_up_nobody_else(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        admin = Client(running.url, running.key)
        where = repository(admin, "sales")
        assert admin.ask("POST", f"{where}/branches/main/objects?path=big", b"x" * (32 << 20)).status == 201
        big = f"{where}/refs/main/objects?path=big"

        def ended() -> int:
            lines = [line for line in running.log if line["logger"] == "esker.requests"]
            return sum((line["method"], line["status"]) == ("GET", 200) and "objects" in line["path"] for line in lines)

        for turn in (1, 2):  # those that are given up give their places back
            with ExitStack() as stack:
                for _ in range(STREAMS):
                    reader = stack.enter_context(stalled(admin, "GET", big))
                    assert reader.recv(12) == b"HTTP/1.1 200"
                assert admin.ask("GET", big).status == 503
                for _ in range(10):
                    assert admin.ask("GET", f"{API}/user").status == 200
            wait(lambda turn=turn: ended() == turn * STREAMS, lambda: None)  # type: ignore[misc]


def test_two_servers_on_one_lake_agree(tmp_path: Path, postgres_url: str, moto_url: str) -> None:
    """PostgreSQL and S3; writes to both at once, and what one acknowledged, the other shows."""
    bucket(moto_url, "two-servers")
    shared = {
        "lake": "s3://two-servers/lake",
        "kv": fresh_database(postgres_url),
        "secret_key": "one key for both of these servers",
    }
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("AWS_ENDPOINT_URL", moto_url)
        with ThreadPoolExecutor(2) as starters:  # at once: both may be the first
            servers = [*starters.map(lambda n: stack.enter_context(serving(tmp_path / f"{n}", **shared)), range(2))]
        told = [server for server in servers if server.said]
        assert told, "one of them made the admin"
        assert len({server.key for server in told}) == 1
        clients = [Client(server.url, told[0].key, threads=8) for server in servers]
        where = repository(clients[0], "sales")

        def write(number: int) -> str:
            path = f"p/{number:03}"
            answer = clients[number % 2].ask("POST", f"{where}/branches/main/objects?path={path}", path.encode())
            assert answer.status == 201, answer.data
            found = clients[1 - number % 2].ask("GET", f"{where}/refs/main/objects?path={path}")
            assert found.data == path.encode()
            if number % 10 == 9:
                done = clients[number % 2].ask("POST", f"{where}/branches/main/commits", {"message": f"{number}"})
                assert done.status in (201, 400), done.data  # 400: the other server's commit took it all
            return path

        with ThreadPoolExecutor(8) as pool:
            paths = [*pool.map(write, range(60))]
        for client in clients:
            listed = client.get("/repositories/sales/refs/main/objects/ls?prefix=p/&amount=1000")["results"]
            assert [entry["path"] for entry in listed] == paths
        made = clients[0].post("/auth/users", {"id": "jane"})
        assert clients[1].get("/auth/users/jane") == made
        assert clients[0].get("/repositories/sales/refs/main/commits") == clients[1].get(
            "/repositories/sales/refs/main/commits"
        )
