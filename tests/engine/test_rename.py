"""Renaming against a dict: whatever is committed, staged, deleted or compacted, the same is there under other paths."""

import threading
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.engine import commit, compaction, entries
from esker.engine.lake import Lake
from esker.engine.policy import Compaction
from esker.engine.rename import rename
from esker.errors import EskerError, Kind, NotFoundError
from esker.model import Repository, Staging
from esker.settings import Settings
from tests.engine.lakes import Clock, Setup, entry, kind_of, new_setup, put, shown

NAMES = ("a", "b", "a b", "ä", "a-", "a0")
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
MARKERS = PATHS.map(lambda path: path + "/")
STEPS = st.one_of(
    st.tuples(st.just("put"), st.one_of(PATHS, MARKERS)),
    st.tuples(st.just("delete"), PATHS),
    st.tuples(st.just("delete_prefix"), MARKERS),
    st.tuples(st.sampled_from(["commit", "compact"]), st.just("")),
)


@pytest.fixture
def setup() -> Setup:
    return new_setup(world=Clock())


def do(lake: Lake, repo: Repository, step: str, path: str) -> None:
    match step:
        case "put":
            entries.put(lake, repo, "main", entry(path, place=path))
        case "delete":
            entries.delete(lake, repo, "main", path)
        case "delete_prefix":
            entries.delete_prefix(lake, repo, "main", path)
        case "commit":
            commit.commit(lake, repo, "main", "save", allow_empty=True)
        case "compact":
            compaction.compact(lake, repo, "main", Compaction.MAJOR, force=True)


def expected(before: dict[str, object], source: str, target: str, *, overwrite: bool) -> dict[str, object] | Kind:
    """What is to be there after, or why it is refused."""
    if (target + "/").startswith(source + "/"):
        return Kind.INVALID_PATH
    moved = {source: target}
    if source not in before:
        moved = {path: target + path[len(source) :] for path in before if path.startswith(source + "/")}
    if not moved:
        return Kind.OBJECT_NOT_FOUND
    above = {target[:at] for at, character in enumerate(target) if character == "/"}
    inside = {path for path in before if path.startswith(target + "/")}
    is_object = source in before
    if (
        above & before.keys()
        or (target in before and not (overwrite and is_object))
        or (inside and not (overwrite and not is_object and inside == {target + "/"}))
    ):
        return Kind.OBJECT_EXISTS
    kept = {path: value for path, value in before.items() if path not in moved}
    return {**kept, **{to: before[path] for path, to in moved.items()}}


@given(
    steps=st.lists(STEPS, max_size=12),
    source=PATHS,
    target=PATHS,
    overwrite=st.booleans(),
    staging=st.sampled_from(Staging),
)
def test_a_rename_moves_what_was_there_and_nothing_else(
    steps: list[tuple[str, str]], source: str, target: str, overwrite: bool, staging: Staging
) -> None:
    setup = new_setup(settings=Settings(grace_s=0.0, staging=staging), world=Clock())
    lake, repo = setup.lake, setup.repo
    for step, path in steps:
        do(lake, repo, step, path)
    before: dict[str, object] = {path: one.address for path, one in shown(lake, repo, "main").items()}
    wanted = expected(before, source, target, overwrite=overwrite)
    if isinstance(wanted, Kind):
        with pytest.raises(EskerError) as raised:
            rename(lake, repo, "main", source, target, overwrite=overwrite)
        assert raised.value.kind is wanted
        wanted = before
    else:
        count = rename(lake, repo, "main", source, target, overwrite=overwrite)
        assert count == (1 if source in before else sum(path.startswith(source + "/") for path in before))
    assert {path: one.address for path, one in shown(lake, repo, "main").items()} == wanted
    assert {path: one.address for path, one in shown(setup.again(), repo, "main").items()} == wanted


def test_an_object_keeps_all_but_its_path(setup: Setup) -> None:
    lake, repo = setup.lake, setup.repo
    put(lake, repo, "main", "a/x", content=7)
    was = entries.get(lake, repo, "main", "a/x")
    rename(lake, repo, "main", "a", "b")
    now = entries.get(lake, repo, "main", "b/x")
    assert (now.address, now.size, now.checksum, now.mtime_ms) == (was.address, was.size, was.checksum, was.mtime_ms)


def test_a_directory_is_one_layer_however_much_is_in_it(setup: Setup) -> None:
    lake, repo = setup.lake, setup.repo
    entries.write_many(lake, repo, "main", [entry(f"t/{n:05}") for n in range(3000)])
    commit.commit(lake, repo, "main", "a table")
    assert rename(lake, repo, "main", "t", "u") == 3000
    assert len(lake.branches(repo).get("main").layers) == 1
    assert sorted(shown(lake, repo, "main")) == [f"u/{n:05}" for n in range(3000)]


def test_of_several_renames_of_one_object_one_wins() -> None:
    lake, repo = new_setup()[:2]
    for number in range(10):
        put(lake, repo, "main", f"s{number}")
        won: list[str] = []

        def move(target: str, source: str = f"s{number}", won: list[str] = won) -> None:
            try:
                rename(lake, repo, "main", source, target)
                won.append(target)
            except NotFoundError:
                pass

        threads = [threading.Thread(target=move, args=(f"t{number}-{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert [path for path in shown(lake, repo, "main") if path.startswith(f"t{number}-")] == won


def test_what_cannot_be_is_refused(setup: Setup) -> None:
    lake, repo = setup.lake, setup.repo
    put(lake, repo, "main", "a/b", "o")
    for source, target, kind in (
        ("none", "x", Kind.OBJECT_NOT_FOUND),
        ("a", "a/c", Kind.INVALID_PATH),
        ("a", "x" * 1024, Kind.INVALID_PATH),
        ("a", "o/under", Kind.OBJECT_EXISTS),
    ):
        assert kind_of(partial(rename, lake, repo, "main", source, target)) == kind
    assert kind_of(partial(rename, lake, repo, "none", "a", "b")) == Kind.BRANCH_NOT_FOUND
    assert sorted(shown(lake, repo, "main")) == ["a/b", "o"]
