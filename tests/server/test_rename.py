"""Renaming over HTTP: an operation of ours."""

from tests.server.live import Answer, Live


def rename(server: Live, repo: str, source: str, target: str, branch: str = "main", **more: bool) -> Answer:
    body = {"source": source, "target": target, **more}
    return server.ask("POST", f"/repositories/{repo}/branches/{branch}/objects/rename", body=body)


def test_a_directory_is_renamed_at_once_and_without_its_bytes(server: Live, repo: str) -> None:
    for name in ("t/a", "t/b/c", "tt"):
        server.put(repo, name, name.encode())
    found = server.ask("GET", f"/repositories/{repo}/refs/main/objects/stat", query={"path": "t/a"}).json
    answer = rename(server, repo, "t", "new/t")
    assert (answer.status, answer.json) == (200, {"count": 2})
    listed = server.ask("GET", f"/repositories/{repo}/refs/main/objects/ls").json["results"]
    assert [one["path"] for one in listed] == ["new/t/a", "new/t/b/c", "tt"]
    assert listed[0]["physical_address"] == found["physical_address"]
    assert server.get(repo, "new/t/b/c").body == b"t/b/c"


def test_what_cannot_be_renamed_is_refused_by_kind(server: Live, repo: str) -> None:
    for name in ("a", "b"):
        server.put(repo, name, name.encode())
    for source, target, branch, status, kind in (
        ("none", "x", "main", 404, "object-not-found"),
        ("a", "b", "main", 412, "object-exists"),
        ("a", "a/x", "main", 400, "invalid-path"),
        ("a", "", "main", 400, "invalid-path"),
        ("a", "x", "none", 404, "branch-not-found"),
    ):
        answer = rename(server, repo, source, target, branch)
        assert (answer.status, answer.json["kind"]) == (status, kind)
    assert rename(server, repo, "a", "b", overwrite=True).status == 200
    assert server.get(repo, "b").body == b"a"
    server.ask("PUT", f"/repositories/{repo}/settings/branch_protection", body=[{"pattern": "main"}])
    assert rename(server, repo, "b", "c").status == 403
