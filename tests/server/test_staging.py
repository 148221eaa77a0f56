"""Addresses and URLs that were given out: good for what they are for, and nothing else."""

from typing import Any
from urllib.parse import urlsplit

import pytest

import esker
from esker.errors import ForbiddenError, InvalidError
from esker.server.signing import STAGING_VALID_MS, URL_VALID_MS, BlobPass, Signer
from tests.auth.worlds import StoppedWorld
from tests.server.live import Answer, Live


def address(server: Live, repo: str, path: str = "a", branch: str = "main", *, presign: bool = True) -> dict[str, Any]:
    got = server.ask(
        "GET",
        f"/repositories/{repo}/branches/{branch}/staging/backing",
        query={"path": path, "presign": str(presign).lower()},
    )
    assert got.status == 200, got
    found: dict[str, Any] = got.json
    return found


def link(
    server: Live,
    repo: str,
    staging: dict[str, Any],
    path: str = "a",
    *,
    size: int = 5,
    headers: Any = None,
    **more: Any,
) -> Answer:
    return server.ask(
        "PUT",
        f"/repositories/{repo}/branches/{more.pop('branch', 'main')}/staging/backing",
        query={"path": path},
        body={"staging": staging, "checksum": '"sum"', "size_bytes": size, **more},
        headers=headers,
    )


def by_url(server: Live, method: str, url: str, **more: Any) -> Answer:
    """As somebody who has the URL, and no key."""
    return server.ask(method, urlsplit(url).path, login=False, **more)


def test_an_object_is_uploaded_and_linked(server: Live, repo: str) -> None:
    staging = address(server, repo)
    assert staging["physical_address"].startswith(f"{server.lake.as_uri()}/{repo}/data/")
    assert server.get(repo, "a").status == 404
    uploaded = by_url(server, "PUT", staging["presigned_url"], body=b"hello")
    assert (uploaded.status, uploaded.headers["ETag"]) == (200, '"5d41402abc4b2a76b9719d911017c592"')
    linked = link(server, repo, staging, user_metadata={"My_Key": "grün"}, content_type="a/b", mtime=1_000_000_000)
    assert linked.status == 200
    assert linked.json["checksum"] == "sum"
    assert linked.json["metadata"] == {"My_Key": "grün"}
    assert linked.json["mtime"] == 1_000_000_000
    assert server.get(repo, "a").body == b"hello"


def test_an_address_is_good_for_its_path_its_branch_and_its_repository_only(server: Live, repo: str) -> None:
    other = server.create_repository()
    server.ask("POST", f"/repositories/{repo}/branches", body={"name": "dev", "source": "main"})
    staging = address(server, repo)
    by_url(server, "PUT", staging["presigned_url"], body=b"hello")
    for refused in (
        link(server, repo, staging, "b"),
        link(server, repo, staging, branch="dev"),
        link(server, repo, {"physical_address": staging["physical_address"][:-1]}),
        link(server, repo, {"physical_address": staging["physical_address"].partition(",")[0]}),
        link(server, repo, {"physical_address": f"{server.lake.as_uri()}/{repo}/_esker/x"}),
        link(server, repo, {"physical_address": f"{server.lake.as_uri()}/{repo}/data/../../esker.db"}),
        link(server, repo, {}),
    ):
        assert refused.status == 400, refused
    assert link(server, other, staging).status == 403  # not below its own namespace, nor where it may read from
    assert link(server, repo, staging).status == 200


def test_what_is_linked_has_to_be_there_in_full(server: Live, repo: str) -> None:
    staging = address(server, repo)
    assert "upload it first" in link(server, repo, staging).message
    by_url(server, "PUT", staging["presigned_url"], body=b"hello")
    assert "not 6" in link(server, repo, staging, size=6).message
    assert link(server, repo, staging).status == 200


def test_a_link_may_be_for_absent_paths_only(server: Live, repo: str) -> None:
    staging = address(server, repo)
    by_url(server, "PUT", staging["presigned_url"], body=b"hello")
    server.put(repo, "a", b"first")
    assert link(server, repo, staging, headers={"If-None-Match": "*"}).status == 412
    assert link(server, repo, staging, headers={"If-None-Match": '"tag"'}).status == 501
    assert server.get(repo, "a").body == b"first"


def test_an_address_is_written_once(server: Live, repo: str) -> None:
    staging = address(server, repo)
    assert by_url(server, "PUT", staging["presigned_url"], body=b"hello").status == 200
    assert by_url(server, "PUT", staging["presigned_url"], body=b"other").status == 409
    link(server, repo, staging)
    assert server.get(repo, "a").body == b"hello"


def test_a_url_to_read_does_that_and_no_more(server: Live, repo: str) -> None:
    server.put(repo, "a.html", b"<b>hello</b>", **{"Content-Type": "text/html"})
    path, query = f"/repositories/{repo}/refs/main/objects", {"path": "a.html", "presign": "true"}
    moved = server.ask("GET", path, query=query)
    assert (moved.status, moved.body) == (302, b"")
    url = moved.headers["Location"]
    got = by_url(server, "GET", url)
    assert (got.status, got.body) == (200, b"<b>hello</b>")
    assert "sandbox" in got.headers["Content-Security-Policy"]
    assert got.headers["Content-Disposition"].startswith("attachment")
    part = by_url(server, "GET", url, headers={"Range": "bytes=3-7"})
    assert (part.status, part.body) == (206, b"hello")
    assert by_url(server, "PUT", url, body=b"over it").status == 403
    stat = server.ask("GET", f"{path}/stat", query=query).json
    assert by_url(server, "GET", stat["physical_address"]).body == b"<b>hello</b>"
    assert stat["physical_address_expiry"] > stat["mtime"]
    token = url.rpartition("/")[2]
    for forged in (token[:-1], "x" + token, token[:20] + "A" + token[21:], "", "a", "é", "=" * 60, token[-43:]):
        assert by_url(server, "GET", f"{server.url}/_blobs/{forged}").status in (403, 404), forged


def test_a_url_dies_with_its_repository(server: Live, repo: str) -> None:
    server.put(repo, "a", b"hello")
    query = {"path": "a", "presign": "true"}
    url = server.ask("GET", f"/repositories/{repo}/refs/main/objects", query=query).headers["Location"]
    server.ask("DELETE", f"/repositories/{repo}")
    assert by_url(server, "GET", url).status == 404


def test_a_url_names_the_host_that_was_asked(server: Live, repo: str) -> None:
    server.put(repo, "a", b"hello")
    query = {"path": "a", "presign": "true"}
    behind = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "lake.example.com"}
    path = f"/repositories/{repo}/refs/main/objects"
    assert server.ask("GET", path, query=query).headers["Location"].startswith(f"{server.url}/_blobs/")
    moved = server.ask("GET", path, query=query, headers=behind)
    assert moved.headers["Location"].startswith("https://lake.example.com/_blobs/")


def test_an_address_expires() -> None:
    world, signer = StoppedWorld(), Signer(b"key")
    with esker.open_lake("memory://", world=world) as lake:
        repo = lake.create_repository("repo").record
        given = signer.staging_address(lake.engine, repo, "main", "a")
        world.now_s += STAGING_VALID_MS / 1000
        signer.check_staging_address(lake.engine, repo, "main", "a", given)
        world.now_s += 1
        with pytest.raises(InvalidError, match="expired"):
            signer.check_staging_address(lake.engine, repo, "main", "a", given)
        with pytest.raises(InvalidError, match="not given out"):
            Signer(b"another").check_staging_address(lake.engine, repo, "main", "a", given)


def test_a_url_expires() -> None:
    world, signer = StoppedWorld(), Signer(b"key")
    with esker.open_lake("memory://", world=world) as lake:
        leave = BlobPass("GET", "repo", "uid", "data/a", world.now_ms() + URL_VALID_MS)
        sealed = signer.seal(leave)
        assert signer.open(lake.engine, "GET", sealed) == leave
        with pytest.raises(ForbiddenError, match="signed for GET"):
            signer.open(lake.engine, "PUT", sealed)
        with pytest.raises(ForbiddenError, match="not signed here"):
            Signer(b"another").open(lake.engine, "GET", sealed)
        world.now_s += URL_VALID_MS / 1000 + 1
        with pytest.raises(ForbiddenError, match="expired"):
            signer.open(lake.engine, "GET", sealed)
