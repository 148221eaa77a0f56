"""What a hostile client sends: none of it reaches a file, a header or a log that it should not, or breaks a server."""

import json

import pytest

from tests.server.live import Live

SECRETS = ("esker.db", "esker.key")
"""Files of the server beside the repositories."""


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/repositories/../../../../etc/passwd",
        "/api/v1/repositories/..%2f..%2f..%2fetc%2fpasswd",
        "/api/v1/repositories/%2e%2e/branches",
        "/_blobs/..%2f..%2fesker.db",
        "/_blobs/%00",
        "/docs/../../esker.db",
        "//etc/passwd",
        "/api/v1/repositories/%00/refs/main/objects?path=a",
        "/api/v1/repositories/%ff%fe/refs/main/objects?path=a",
        "/api/v1/repositories/{repo}/refs/main%00/objects?path=a",
        "/api/v1/repositories/{repo}/refs/%0d%0aSet-Cookie:x/objects?path=a",
        "/api/v1/repositories/{repo}/refs/main/objects?path=%00",
        "/api/v1/repositories/{repo}/refs/main/objects?path=../../../esker.db",
        "/api/v1/repositories/{repo}/refs/main/objects?path=%ff",
        "/api/v1/repositories/{repo}/refs/main/objects?path=a&path=b",
        "/api/v1/repositories/{repo}/refs/main/objects?path=%ED%A0%80",
        "/api/v1/repositories/{repo}/metadata/range/..%2f..%2fdata",
        "/api/v1/repositories/{repo}/metadata/meta_range/" + "%2e" * 64,
        "/api/v1/repositories/{repo}/branches/main/import?id=%00" + "x" * 3000,
        "/api/v1/repositories?after=" + "%F0%9F%92%A9" * 500,
        "/api/v1/repositories/" + "x" * 5000,
    ],
)
def test_no_target_reaches_out_of_a_repository(server: Live, repo: str, target: str) -> None:
    got = server.ask_raw("GET", target.replace("{repo}", repo))
    assert got.status in (200, 400, 403, 404), got
    assert got.status != 200 or json.loads(got.body)["results"] == []
    assert b"SQLite format" not in got.body
    assert b"root:" not in got.body
    assert "set-cookie" not in {name.lower() for name in got.headers}


@pytest.mark.parametrize(
    "path", ["../../esker.db", "/etc/passwd", "a/../../b", "a\0b", ".", "..", "a//b", "\r\nx: y", "💩"]
)
def test_a_path_is_a_name_and_never_a_file(server: Live, repo: str, path: str) -> None:
    """Any text may be a path: bytes lie at addresses that the server draws."""
    before = {file for file in server.lake.rglob("*") if file.name in SECRETS}
    assert server.put(repo, path, b"data").status == 201
    assert server.get(repo, path).body == b"data"
    listed = server.ask("GET", f"/repositories/{repo}/refs/main/objects/ls").json["results"]
    assert [found["path"] for found in listed] == [path]
    assert {file for file in server.lake.rglob("*") if file.name in SECRETS} == before
    server.commit(repo)
    assert server.get(repo, path, "main@").body == b"data"


@pytest.mark.parametrize(
    "namespace",
    [
        "file:///etc",
        "file:///",
        "local://../other",
        "local://a/../../b",
        "local://",
        "local://%2e%2e/%2e%2e",
        "s3://",
        "http://example.com/x",
        "nonsense",
        "file://host/path",
        "\0",
        "local://" + "x" * 3000,
    ],
)
def test_a_repository_lies_below_the_servers_storage(server: Live, namespace: str) -> None:
    name = "attack-namespace"
    made = server.ask("POST", "/repositories", body={"name": name, "storage_namespace": namespace})
    if made.status == 201:  # what could be misread names a place below the storage all the same
        assert made.json["storage_namespace"].startswith(f"{server.lake.as_uri()}/")
        assert ".." not in made.json["storage_namespace"].replace("%2e", ".").split("/")
        server.ask("DELETE", f"/repositories/{name}")
    else:
        assert made.status == 400, made


def test_no_repository_lies_in_another(server: Live, repo: str) -> None:
    for place in (
        f"local://{repo}",
        f"local://{repo}/_esker",
        f"{server.lake.as_uri()}/{repo}/data",
        server.lake.as_uri(),
    ):
        assert server.ask("POST", "/repositories", body={"name": "within", "storage_namespace": place}).status == 400


def test_a_request_id_is_taken_over_only_if_it_is_one(server: Live) -> None:
    kept = server.ask("GET", "/config", headers={"X-Request-ID": "abc-123"})
    assert kept.headers["X-Request-ID"] == "abc-123"
    for odd in ("x" * 500, "a b", "<script>", "é"):
        given = server.ask_raw("GET", "/api/v1/config", {"X-Request-ID": odd}).headers["x-request-id"]
        assert given != odd
        assert given.replace("-", "").isalnum()


def test_bodies_that_are_no_json_or_too_much_are_refused(server: Live, repo: str) -> None:
    path = f"/repositories/{repo}/branches"
    deep = b"[" * 100_000
    for body in (b"", b"{", b"[]", b"null", b'{"name": 1, "source": "main"}', b'{"name": "a"}', b"\xff", deep):
        assert server.ask("POST", path, body=body).status == 400, body[:20]
    half = b'{"name": "\\ud800", "source": "main"}'
    assert server.ask("POST", path, body=half).status == 400
    large = server.ask("POST", path, body=b'{"name": "' + b"x" * (10 << 20) + b'", "source": "main"}')
    assert large.status == 413
    extra = server.ask("POST", path, body={"name": "fine", "source": "main", "unheard_of": [1, {"a": None}]})
    assert extra.status == 201


def test_headers_that_are_too_much_are_refused(server: Live) -> None:
    got = server.ask_raw("GET", "/api/v1/config", {"X-Large": "x" * (1 << 20)})
    assert 400 <= got.status < 500


@pytest.mark.parametrize(
    "authorization", ["Basic", "Basic !!!", "Bearer x.y.z", "Bearer " + "x" * 10_000, "é", "Digest a"]
)
def test_no_odd_proof_is_one(server: Live, authorization: str) -> None:
    assert server.ask_raw("GET", "/api/v1/config", {"Authorization": authorization}).status == 401


def test_an_error_tells_nothing_of_the_server(server: Live, repo: str) -> None:
    for got in (server.get(repo, "nothing"), server.ask("GET", "/nowhere"), server.ask("PATCH", "/repositories")):
        assert got.headers["Content-Type"] == "application/json"
        assert "Traceback" not in got.message
        assert str(server.lake) not in got.message


def test_methods_that_are_not_in_the_table_are_refused(server: Live) -> None:
    refused = server.ask("DELETE", "/repositories")
    assert refused.status == 405
    assert "GET" in refused.headers["Allow"]


def test_of_two_uploads_to_one_url_the_first_to_be_done_stays(server: Live, repo: str) -> None:
    """Else whoever holds the URL could change the bytes of an object that was linked, and committed, since."""
    backing = f"/repositories/{repo}/branches/main/staging/backing"
    given = server.ask("GET", backing, query={"path": "a", "presign": "true"}).json
    target = given["presigned_url"].removeprefix(server.url)
    slow = server.connection()
    slow.putrequest("PUT", target)
    slow.putheader("Content-Length", "4")
    slow.putheader("Expect", "100-continue")
    slow.endheaders()
    assert slow.sock.recv(100).startswith(b"HTTP/1.1 100"), "it has begun to read"
    slow.send(b"ba")
    assert server.ask("PUT", target, body=b"good", login=False).status == 200
    staging = {"staging": {"physical_address": given["physical_address"]}, "checksum": "x", "size_bytes": 4}
    assert server.ask("PUT", backing, query={"path": "a"}, body=staging).status == 200
    slow.send(b"d!")
    assert slow.getresponse().status == 409
    slow.close()
    assert server.get(repo, "a").body == b"good"
