"""Imports, by the engine alone: what is in the status, what lands, and what does not."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import esker
from esker.engine import imports
from esker.engine.imports import Source
from esker.engine.protection import Rule
from esker.engine.tasks import Task, TaskState
from esker.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from esker.stores.open_blobs import open_blobs
from esker.testing.faults import Call, Fault, FaultyBlobs
from esker.world import RealWorld


class Clock(RealWorld):
    """The real one, and some more."""

    more_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.more_ms


@pytest.fixture
def world() -> Clock:
    return Clock()


@pytest.fixture
def repo(tmp_path: Path, world: Clock) -> Iterator[esker.Repo]:
    with esker.open_lake((tmp_path / "lake").as_uri(), world=world) as lake:
        yield lake.create_repository("repo")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("a", "b/c", "z"):
        file = tmp_path / "source" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return tmp_path / "source"


def prefix(directory: Path, destination: str = "in/") -> Source:
    return Source(kind="common_prefix", address=f"file://{directory}/", destination=destination)


def run(repo: esker.Repo, *sources: Source) -> Task:
    name = imports.start(repo.engine, repo.record, "main", sources, message="m", committer="me", metadata={"k": "v"})
    imports.run(repo.engine, repo.record, name)
    return imports.status(repo.engine, repo.record, "main", name)


def listed(repo: esker.Repo) -> list[str]:
    return [entry.path for entry in repo.ref("main").list() if not isinstance(entry, str)]


def test_the_last_source_with_a_path_wins(repo: esker.Repo, source: Path) -> None:
    one = Source(kind="object", address=f"file://{source}/z", destination="in/a")
    task = run(repo, prefix(source), one)
    assert (task.state, task.progress) == (TaskState.DONE, {"objects": 4})
    assert listed(repo) == ["in/a", "in/b/c", "in/z"]
    assert repo.ref("main").get("in/a") == b"z"
    assert task.summary["commit"] == repo.ref("main").commit_id()
    _, commit = next(repo.ref("main").log())
    assert (commit.message, commit.committer, commit.metadata) == ("m", "me", {"k": "v"})


def test_an_import_replaces_what_was_below_its_destinations_and_nothing_else(repo: esker.Repo, source: Path) -> None:
    main = repo.branch("main")
    for path in ("in/old", "inner", "other"):
        main.put(path, b"x")
    main.commit("m")
    run(repo, prefix(source))
    assert listed(repo) == ["in/a", "in/b/c", "in/z", "inner", "other"]


def test_importing_the_same_again_commits_nothing(repo: esker.Repo, source: Path) -> None:
    first, second = run(repo, prefix(source)), run(repo, prefix(source))
    assert first.summary == second.summary
    (source / "a").write_text("more than before")
    assert run(repo, prefix(source)).summary != first.summary


@pytest.mark.parametrize("missing", ["nowhere", "source/nothing"])
def test_a_source_with_nothing_in_it_is_an_error(repo: esker.Repo, source: Path, missing: str) -> None:
    before = repo.ref("main").commit_id()
    task = run(repo, prefix(source), prefix(source.parent / missing))
    assert "there is nothing below" in task.error
    one = Source(kind="object", address=f"file://{source.parent}/{missing}", destination="one")
    assert "there is nothing at" in run(repo, one).error
    assert repo.ref("main").commit_id() == before


def test_a_path_that_would_be_too_long_is_an_error(repo: esker.Repo, source: Path) -> None:
    assert "1 to 1024 bytes" in run(repo, prefix(source, "x" * 1023 + "/")).error


def test_what_cannot_be_committed_to_is_refused_at_once(repo: esker.Repo, source: Path) -> None:
    start = imports.start
    with pytest.raises(InvalidError):
        start(repo.engine, repo.record, "main", [])
    with pytest.raises(NotFoundError):
        start(repo.engine, repo.record, "nowhere", [prefix(source)])
    repo.branch("main").put("staged", b"x")
    with pytest.raises(InvalidError, match="uncommitted"):
        start(repo.engine, repo.record, "main", [prefix(source)])
    repo.protect(Rule("main"))
    with pytest.raises(ForbiddenError):
        start(repo.engine, repo.record, "main", [prefix(source)])


def test_what_is_staged_meanwhile_stops_an_import(repo: esker.Repo, source: Path) -> None:
    name = imports.start(repo.engine, repo.record, "main", [prefix(source)])
    repo.branch("main").put("staged", b"x")
    imports.run(repo.engine, repo.record, name)
    assert "uncommitted" in imports.status(repo.engine, repo.record, "main", name).error
    assert listed(repo) == ["staged"]


def test_a_commit_meanwhile_stays(repo: esker.Repo, source: Path) -> None:
    name = imports.start(repo.engine, repo.record, "main", [prefix(source)])
    repo.branch("main").put("committed", b"x")
    repo.branch("main").commit("m")
    imports.run(repo.engine, repo.record, name)
    assert listed(repo) == ["committed", "in/a", "in/b/c", "in/z"]


def test_one_that_is_cancelled_changes_nothing(repo: esker.Repo, source: Path) -> None:
    """Cancelled while its source is being listed, by another thread."""
    record = repo.record
    listing, cancelled = threading.Event(), threading.Event()

    def pause(call: Call) -> None:
        if call.method == "list":
            listing.set()
            assert cancelled.wait(60)

    lake = replace(repo.engine, open_blobs=lambda url: FaultyBlobs(open_blobs(url), lambda _: None, pause), _stores={})
    name = imports.start(lake, record, "main", [prefix(source)])
    thread = threading.Thread(target=imports.run, args=(lake, record, name))
    thread.start()
    assert listing.wait(60)
    imports.cancel(lake, record, "main", name)
    cancelled.set()
    thread.join()
    assert imports.status(lake, record, "main", name).state is TaskState.CANCELLED
    assert listed(repo) == []
    with pytest.raises(ConflictError):
        imports.cancel(lake, record, "main", name)


def test_a_store_that_fails_ends_an_import(repo: esker.Repo, source: Path) -> None:
    def refuse(call: Call) -> Fault | None:
        return Fault.REFUSED if call.method == "list" else None

    lake = replace(repo.engine, open_blobs=lambda url: FaultyBlobs(open_blobs(url), refuse), _stores={})
    name = imports.start(lake, repo.record, "main", [prefix(source)])
    imports.run(lake, repo.record, name)
    assert imports.status(lake, repo.record, "main", name).error
    assert listed(repo) == []


def test_one_whose_process_died_is_told_to_have_stopped(repo: esker.Repo, source: Path, world: Clock) -> None:
    lake, record = repo.engine, repo.record
    name = imports.start(lake, record, "main", [prefix(source)])
    assert not imports.status(lake, record, "main", name).over
    world.more_ms += 11 * 60 * 1000
    assert "start it again" in imports.status(lake, record, "main", name).error


def test_an_import_is_known_on_its_branch_only(repo: esker.Repo, source: Path) -> None:
    name = run(repo, prefix(source)).id
    for branch, asked in (
        ("other", name),
        ("main", name + "0"),
        ("main", ""),
        ("main", "\ud800"),
        ("main", "x" * 5000),
    ):
        with pytest.raises(NotFoundError):
            imports.status(repo.engine, repo.record, branch, asked)
