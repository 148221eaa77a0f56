"""A repository's refs outlive its records: dumped as files, and restored as `lakectl` does it."""

from typing import Any

import pytest

from tests.server.live import Live, lakefs_sdk


def dumped(server: Live, repo: str) -> Any:
    """As clients do it: submit, then ask until it is done."""
    api = server.sdk().repositories_api
    task = api.dump_submit(repo)
    status = api.dump_status(repo, task.id)
    assert status.done
    return status.refs


def create_bare(server: Live, name: str, of: str) -> None:
    """Where the repository `of` lay."""
    creation = lakefs_sdk.RepositoryCreation(name=name, storage_namespace=f"local://{of}")
    server.sdk().repositories_api.create_repository(creation, bare=True)


def restore(server: Live, repo: str, refs: Any) -> None:
    api = server.sdk().repositories_api
    task = api.restore_submit(repo, lakefs_sdk.RefsRestore(**refs.to_dict()))
    assert api.restore_status(repo, task.id).done


def test_a_repository_that_was_forgotten_is_restored_from_its_dump(server: Live, repo: str) -> None:
    for number in range(50):
        assert server.put(repo, f"table/{number:03}", b"%d" % number).status == 201
    first = server.commit(repo, "first")
    server.ask("POST", f"/repositories/{repo}/branches", body={"name": "hidden", "source": "main", "hidden": True})
    server.ask("POST", f"/repositories/{repo}/tags", body={"id": "v1", "ref": "main"})
    server.put(repo, "later", b"x")
    second = server.commit(repo, "second")
    refs = dumped(server, repo)
    assert server.ask("DELETE", f"/repositories/{repo}").status == 204

    again = f"{repo}-again"
    create_bare(server, again, repo)
    assert server.ask("GET", f"/repositories/{again}/branches").json["results"] == []
    assert server.get(again, "later").status == 404
    restore(server, again, refs)
    shown = server.ask("GET", f"/repositories/{again}/branches", query={"show_hidden": "true"}).json["results"]
    assert shown == [{"id": "hidden", "commit_id": first}, {"id": "main", "commit_id": second}]
    assert server.ask("GET", f"/repositories/{again}/tags/v1").json["commit_id"] == first
    assert server.get(again, "table/007", "v1").body == b"7"
    assert [
        one["message"] for one in server.ask("GET", f"/repositories/{again}/refs/main/commits").json["results"]
    ] == [
        "second",
        "first",
        "Repository created",
    ]
    restore(server, again, refs)  # one that broke off is done again

    server.put(again, "table/007", b"other")
    server.commit(again, "third")
    with pytest.raises(lakefs_sdk.exceptions.BadRequestException, match="refs of its own"):
        restore(server, again, refs)


def test_what_is_no_dump_of_this_repository_is_refused(server: Live, repo: str) -> None:
    other = server.create_repository()
    refs, others = dumped(server, repo), dumped(server, other)
    assert server.sdk().internal_api.dump_refs(repo).branches_meta_range_id == refs.branches_meta_range_id
    path = f"/repositories/{repo}/restore"
    body = refs.to_dict()
    for name, value, status in (
        ("commits_meta_range_id", "../../../etc/passwd", 400),
        ("commits_meta_range_id", "0" * 64, 404),
        ("commits_meta_range_id", others.commits_meta_range_id, 404),
        ("branches_meta_range_id", body["tags_meta_range_id"], 404),
    ):
        assert server.ask("POST", path, body={**body, name: value}).status == status, (name, value)
    assert server.ask("POST", path, body=body).status == 202, "it has these very refs already"
    for asked in ("", "nothing", "x" * 24, "\0", "é" * 24):
        for task in ("dump", "restore"):
            assert server.ask("GET", f"/repositories/{repo}/{task}", query={"task_id": asked}).status == 404
