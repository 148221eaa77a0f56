"""The table of operations, and what is made of it."""

from typing import Any

import falcon.testing
import pytest

import esker
from esker.auth import OWNER
from esker.errors import EskerError
from esker.server.absent import LAKEFS
from esker.server.app import create_app
from esker.server.errors import STATUSES
from esker.server.operations import OPERATIONS
from tests.server import rest_table
from tests.server.live import Live

CLIENTS_USE = {
    "getConfig",
    "listRepositories",
    "createRepository",
    "getRepository",
    "deleteRepository",
    "getRepositoryMetadata",
    "listBranches",
    "createBranch",
    "getBranch",
    "deleteBranch",
    "resetBranch",
    "revertBranch",
    "cherryPick",
    "diffBranch",
    "commit",
    "getCommit",
    "logCommits",
    "mergeIntoBranch",
    "diffRefs",
    "listTags",
    "createTag",
    "deleteTag",
    "getObject",
    "headObject",
    "uploadObject",
    "deleteObject",
    "deleteObjects",
    "copyObject",
    "statObject",
    "listObjects",
    "getPhysicalAddress",
    "linkPhysicalAddress",
    "importStatus",
    "importStart",
    "importCancel",
}
"""What the `lakefs` wrapper, lakefs-spec and lakeFS's Hadoop file system call, logging in elsewhere aside."""


def test_the_documentation_tells_of_every_operation() -> None:
    assert rest_table.DOCUMENT.read_text() == rest_table.written(), "run `python -m tests.server.rest_table`"


def test_all_that_clients_use_is_there() -> None:
    assert {one.id for one in OPERATIONS if one.implemented} >= CLIENTS_USE


def test_each_operation_of_lakefs_is_where_its_clients_look_for_it() -> None:
    table = {one.id: one for one in OPERATIONS}
    for known in LAKEFS:
        assert (table[known.id].method, table[known.id].path) == (known.method, known.path), known.id
    assert {one.id for one in OPERATIONS if not one.ours} == {known.id for known in LAKEFS}


def test_every_class_of_error_has_a_status() -> None:
    assert set(STATUSES) == set(EskerError.__subclasses__())


def test_requests_are_counted_by_operation_and_status(server: Live, repo: str) -> None:
    server.get(repo, "nothing")
    text = server.ask("GET", "/metrics", login=False).body.decode()
    assert 'esker_request_seconds_count{operation="getObject",status="404"}' in text
    assert repo not in "".join(line for line in text.splitlines() if line.startswith("esker_request"))


@pytest.fixture
def owned(tmp_path: Any) -> Any:
    """The application in this process, without a socket: whoever calls is the owner."""
    with esker.open_lake(tmp_path.as_uri()) as lake:
        app = create_app(lake.engine, storage=tmp_path.as_uri(), directory=None)
        yield falcon.testing.TestClient(app)


def test_an_owner_needs_no_key(owned: falcon.testing.TestClient) -> None:
    assert owned.simulate_post("/api/v1/repositories", json={"name": "mine"}).status_code == 201
    made = owned.simulate_post(
        "/api/v1/repositories/mine/branches/main/objects", params={"path": "a"}, body=b"x" * (3 << 20)
    )
    assert made.status_code == 201
    got = owned.simulate_get("/api/v1/repositories/mine/refs/main/objects", params={"path": "a"})
    assert got.content == b"x" * (3 << 20)
    commit = owned.simulate_post("/api/v1/repositories/mine/branches/main/commits", json={"message": "m"}).json
    assert commit["committer"] == OWNER.user


def test_a_merge_is_refused_if_the_branch_is_not_where_it_was_expected(server: Live, repo: str) -> None:
    head = server.ask("GET", f"/repositories/{repo}/branches/main").json["commit_id"]
    server.ask("POST", f"/repositories/{repo}/branches", body={"name": "dev", "source": "main"})
    server.put(repo, "a", b"x", branch="dev")
    server.commit(repo, branch="dev")
    path = f"/repositories/{repo}/refs/dev/merge/main"
    refused = server.ask("POST", path, body={"expected_head": "0" * 64})
    assert (refused.status, refused.json["kind"]) == (412, "head-moved")
    assert server.ask("POST", path, body={"hint": "made up"}).status == 400
    assert server.ask("POST", path, body={"expected_head": head}).status == 200
