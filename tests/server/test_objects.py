"""Objects over plain HTTP: statuses, headers, ranges, conditions, limits."""

import socket
import threading

import pytest

from tests.server.live import Answer, Live

HELLO_TAG = '"5d41402abc4b2a76b9719d911017c592"'


def test_an_object_comes_back_as_it_was_sent(server: Live, repo: str) -> None:
    headers = {"Content-Type": "text/plain", "x-lakefs-meta-Origin": "here"}
    made = server.put(repo, "a/b c.txt", b"hello", **headers)
    assert made.status == 201
    assert made.json["metadata"] == {"origin": "here"}
    assert made.json["physical_address"].startswith(f"{server.lake.as_uri()}/{repo}/data/")
    got = server.get(repo, "a/b c.txt")
    assert (got.status, got.body) == (200, b"hello")
    assert got.headers["ETag"] == HELLO_TAG
    assert got.headers["Content-Type"] == "text/plain"
    assert got.headers["Content-Length"] == "5"
    assert got.headers["x-lakefs-meta-origin"] == "here"
    assert got.headers["Last-Modified"].endswith(" GMT")
    assert got.headers["Cache-Control"].startswith("private")


def test_a_head_has_the_headers_of_a_get(server: Live, repo: str) -> None:
    server.put(repo, "a", b"hello")
    query, path = {"path": "a"}, f"/repositories/{repo}/refs/main/objects"
    got, head = (server.ask(method, path, query=query) for method in ("GET", "HEAD"))
    changing = {"date", "x-request-id"}
    assert (head.status, head.body) == (200, b"")
    assert {k: v for k, v in head.headers.items() if k not in changing} == {
        k: v for k, v in got.headers.items() if k not in changing
    }
    assert server.ask("HEAD", path, query=query, headers={"Range": "bytes=1-2"}).status == 206
    assert server.ask("HEAD", path, query={"path": "nothing"}).status == 404


@pytest.mark.parametrize(
    ("asked", "status", "body", "content_range"),
    [
        ("bytes=0-1", 206, b"he", "bytes 0-1/5"),
        ("bytes=1-", 206, b"ello", "bytes 1-4/5"),
        ("bytes=-2", 206, b"lo", "bytes 3-4/5"),
        ("bytes=-99", 206, b"hello", "bytes 0-4/5"),
        ("bytes=0-99", 206, b"hello", "bytes 0-4/5"),
        ("bytes=4-4", 206, b"o", "bytes 4-4/5"),
        ("bytes=2-1", 206, b"", "bytes */5"),
        ("bytes=0--1", 206, b"", "bytes */5"),
        ("bytes=5-", 416, None, "bytes */5"),
        ("bytes=4-2", 416, None, "bytes */5"),
        ("bytes=-0", 416, None, "bytes */5"),
        ("bytes=x", 416, None, "bytes */5"),
        (f"bytes={'9' * 5000}-", 416, None, "bytes */5"),
        ("bytes=0-0,2-3", 200, b"hello", None),
        ("lines=0-1", 200, b"hello", None),
    ],
)
def test_a_range_is_what_was_asked_for(
    server: Live, repo: str, asked: str, status: int, body: bytes | None, content_range: str | None
) -> None:
    server.put(repo, "a", b"hello")
    got = server.get(repo, "a", headers={"Range": asked})
    assert got.status == status
    assert got.headers.get("Content-Range") == content_range
    if body is not None:
        assert got.body == body
        assert got.headers["Content-Length"] == str(len(body))


def test_a_range_of_an_empty_object_is_nowhere(server: Live, repo: str) -> None:
    server.put(repo, "empty", b"")
    assert server.get(repo, "empty").body == b""
    got = server.get(repo, "empty", headers={"Range": "bytes=0-9"})
    assert (got.status, got.headers["Content-Range"]) == (416, "bytes */0")


def test_a_range_holds_for_one_version_only_if_asked(server: Live, repo: str) -> None:
    server.put(repo, "a", b"hello")
    same = server.get(repo, "a", headers={"Range": "bytes=0-1", "If-Range": HELLO_TAG})
    other = server.get(repo, "a", headers={"Range": "bytes=0-1", "If-Range": '"other"'})
    assert (same.status, other.status) == (206, 200)


@pytest.mark.parametrize("known", [HELLO_TAG, f"W/{HELLO_TAG}", f'"other", {HELLO_TAG}', "*"])
def test_what_the_caller_has_is_not_sent_again(server: Live, repo: str, known: str) -> None:
    server.put(repo, "a", b"hello")
    got = server.get(repo, "a", headers={"If-None-Match": known})
    assert (got.status, got.body) == (304, b"")
    assert got.headers["ETag"] == HELLO_TAG
    assert server.get(repo, "a", headers={"If-None-Match": '"other"'}).status == 200


def test_of_many_who_upload_if_absent_one_does(server: Live, repo: str) -> None:
    answers: list[Answer] = []

    def upload(at: int) -> None:
        answers.append(server.put(repo, "a", str(at).encode(), **{"If-None-Match": "*"}))

    threads = [threading.Thread(target=upload, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status for answer in answers) == [201] + [412] * 7
    winner = next(answer for answer in answers if answer.status == 201)
    assert server.get(repo, "a").headers["ETag"] == f'"{winner.json["checksum"]}"'
    assert server.put(repo, "a", b"over it").status == 201


def test_conditions_that_nobody_checks_are_refused(server: Live, repo: str) -> None:
    assert server.put(repo, "a", b"x", **{"If-None-Match": HELLO_TAG}).status == 501
    assert server.put(repo, "a", b"x", **{"If-Match": HELLO_TAG}).status == 501
    assert server.get(repo, "a").status == 404


@pytest.mark.parametrize(
    ("content_type", "shown"),
    [
        ("text/plain; charset=utf-8", True),
        ("image/png", True),
        ("text/html", False),
        ("image/svg+xml", False),
        ("application/xhtml+xml", False),
        ("text/javascript", False),
        ("", False),
    ],
)
def test_nothing_that_was_uploaded_runs_in_the_servers_origin(
    server: Live, repo: str, content_type: str, shown: bool
) -> None:
    server.put(repo, 'a/"x".html', b"<script>alert(1)</script>", **({"Content-Type": content_type}))
    got = server.get(repo, 'a/"x".html')
    disposition = got.headers["Content-Disposition"]
    assert disposition.startswith("inline;" if shown else "attachment;")
    assert disposition.endswith("filename*=UTF-8''%22x%22.html")
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in got.headers["Content-Security-Policy"]
    assert "default-src 'none'" in got.headers["Content-Security-Policy"]


def test_what_fits_no_header_stays_out_of_headers(server: Live, repo: str) -> None:
    """Content types, checksums and metadata of linked objects are whatever a client wrote into JSON."""
    evil = "a\r\nSet-Cookie: owned=1"
    file = server.elsewhere / f"{repo}.bin"
    file.write_bytes(b"x")
    staged = server.ask(
        "PUT",
        f"/repositories/{repo}/branches/main/objects",
        query={"path": f"dir/{evil}"},
        body={
            "physical_address": file.as_uri(),
            "checksum": f'"{evil}"',
            "size_bytes": 1,
            "content_type": f"text/html{evil}",
            "metadata": {evil: "v", "k": evil, "good": "yes"},
        },
    )
    assert staged.status == 201, staged
    got = server.get(repo, f"dir/{evil}")
    assert (got.status, got.body) == (200, b"x")
    assert "set-cookie" not in {name.lower() for name in got.headers}
    assert got.headers["Content-Type"] == "application/octet-stream"
    assert got.headers["x-lakefs-meta-good"] == "yes"
    assert "x-lakefs-meta-k" not in got.headers
    stat = server.ask("GET", f"/repositories/{repo}/refs/main/objects/stat", query={"path": f"dir/{evil}"})
    assert stat.json["metadata"] == {evil: "v", "k": evil, "good": "yes"}


def test_metadata_that_headers_lose_is_refused(server: Live, repo: str) -> None:
    refused = server.ask_raw(
        "POST",
        f"/api/v1/repositories/{repo}/branches/main/objects?path=a",
        {"x-lakefs-meta-name": "grün".encode().decode("latin-1")},
    )
    assert refused.status == 400
    assert "not ASCII" in refused.message
    too_much = {f"x-lakefs-meta-k{at}": "v" * 8000 for at in range(9)}
    assert server.put(repo, "a", b"x", **too_much).status == 400


def test_uploads_to_nowhere_are_refused(server: Live, repo: str) -> None:
    assert server.put("no-such-repo", "a", b"x").status == 404
    assert server.put(repo, "a", b"x", branch="nowhere").status == 404
    assert server.put(repo, "", b"x").status == 400
    assert server.put(repo, "x" * 1025, b"x").status == 400


def test_an_upload_is_refused_before_its_body_is_sent(server: Live, repo: str) -> None:
    server.put(repo, "there", b"x")
    connection = server.connection()
    connection.putrequest("POST", f"/api/v1/repositories/{repo}/branches/main/objects?path=there")
    connection.putheader("Authorization", server.authorization)
    connection.putheader("Content-Length", str(1 << 40))
    connection.putheader("If-None-Match", "*")
    connection.endheaders()
    assert connection.getresponse().status == 412
    connection.close()


def test_an_upload_in_chunks_needs_no_length(server: Live, repo: str) -> None:
    path = f"/api/v1/repositories/{repo}/branches/main/objects?path=chunked"
    for _ in range(5):  # others from the same address come and go
        with socket.create_connection(("127.0.0.1", server.port)) as idle:
            idle.sendall(b"GET /_health HTTP/1.1\r\n")
    body = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
    connection = server.connection()
    connection.putrequest("POST", path)
    connection.putheader("Authorization", server.authorization)
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders(body)
    assert connection.getresponse().status == 201
    connection.close()
    assert server.get(repo, "chunked").body == b"hello world"


def test_a_form_is_taken_by_its_field(server: Live, repo: str) -> None:
    def form(name: str) -> Answer:
        body = (
            f'--B\r\nContent-Disposition: form-data; name="other"\r\n\r\nno\r\n'
            f'--B\r\nContent-Disposition: form-data; name="{name}"; filename="f"\r\nContent-Type: text/csv\r\n\r\n'
            "in\r\n--a form\r\n--B--\r\n"
        )
        return server.put(repo, name, body.encode(), **{"Content-Type": "multipart/form-data; boundary=B"})

    assert form("content").status == 201
    got = server.get(repo, "content")
    assert (got.body, got.headers["Content-Type"]) == (b"in\r\n--a form", "text/csv")
    assert form("misnamed").status == 400
    broken = server.put(repo, "b", b"nonsense", **{"Content-Type": "multipart/form-data; boundary=B"})
    assert broken.status == 400


def test_a_form_that_breaks_off_stores_nothing(server: Live, repo: str) -> None:
    body = b'--B\r\nContent-Disposition: form-data; name="content"\r\n\r\nhalf of it'
    sent = server.put(repo, "half", body, **{"Content-Type": "multipart/form-data; boundary=B"})
    assert sent.status == 400
    assert server.get(repo, "half").status == 404


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ("Content-Length: 100000", b"x" * 1000),
        ("Transfer-Encoding: chunked", b"3e8\r\n" + b"x" * 500),
        ("Transfer-Encoding: chunked", b"3e8\r\n" + b"x" * 1000 + b"\r\n"),
        ("Transfer-Encoding: chunked", b""),
    ],
    ids=["with a length", "within a chunk", "between chunks", "before the first chunk"],
)
def test_an_upload_that_breaks_off_stores_nothing(server: Live, repo: str, header: str, body: bytes) -> None:
    """Nobody can tell by the bytes that the last of them are missing, so the end itself has to be right."""
    path = f"/api/v1/repositories/{repo}/branches/main/objects?path=half"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {server.authorization}\r\n{header}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(head.encode() + body)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65536)
    assert answer.split(b" ", 2)[1] != b"201", answer
    assert server.get(repo, "half").status == 404
    assert [file for file in (server.lake / repo / "data").rglob("*") if file.is_file()] == []


def test_a_prefix_is_deleted_whole(server: Live, repo: str) -> None:
    for path in ("a/1", "a/2", "ab"):
        server.put(repo, path, b"x")
    server.commit(repo)
    server.put(repo, "a/3", b"x")
    prefix = {"prefix": "a/"}
    assert server.ask("POST", f"/repositories/{repo}/branches/main/objects/delete_prefix", query=prefix).status == 204
    left = server.ask("GET", f"/repositories/{repo}/refs/main/objects/ls")
    assert [found["path"] for found in left.json["results"]] == ["ab"]


@pytest.mark.parametrize(
    ("amount", "sent"), [(None, 100), ("0", 100), ("-5", 100), ("1", 1), ("1000", 103), ("5000", 103)]
)
def test_a_page_has_the_size_that_was_asked_for_within_limits(server: Live, amount: str | None, sent: int) -> None:
    repo = "page-sizes"
    if server.ask("GET", f"/repositories/{repo}").status == 404:
        server.create_repository(repo)
        for at in range(103):
            server.put(repo, f"{at:03}", b"")
    query = {} if amount is None else {"amount": amount}
    got = server.ask("GET", f"/repositories/{repo}/refs/main/objects/ls", query=query).json
    assert len(got["results"]) == sent == got["pagination"]["results"]
    assert got["pagination"]["has_more"] is (sent < 103)
    assert got["pagination"]["next_offset"] == (got["results"][-1]["path"] if sent < 103 else "")
    assert got["pagination"]["max_per_page"] == 1000


def test_an_object_whose_bytes_are_gone_is_gone(server: Live, repo: str) -> None:
    server.put(repo, "a", b"hello")
    for file in (server.lake / repo / "data").rglob("*"):
        if file.is_file():
            file.unlink()
    got = server.get(repo, "a")
    assert (got.status, got.json["kind"]) == (410, "blob-not-found")
    assert got.headers["Content-Type"] == "application/json"
    assert not {"ETag", "Last-Modified", "Content-Disposition", "Cache-Control"} & set(got.headers)
