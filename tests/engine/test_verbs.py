"""What the verbs refuse, what they say then, and where their edges are."""

from collections.abc import Callable
from functools import partial

import pytest

from esker.engine import branches, changes, commit, entries, merge, protection, refs, repositories, reset
from esker.engine.lake import Lake
from esker.engine.protection import Action, Rule
from esker.errors import (
    ConflictError,
    EskerError,
    ForbiddenError,
    InvalidError,
    Kind,
    NotFoundError,
    PreconditionError,
)
from esker.model import CommitID, Entry, Repository
from esker.refs import tags
from esker.refs.records import LAYERS_MAX
from esker.tree.merge import Strategy
from tests.engine.lakes import (
    TINY,
    Clock,
    Setup,
    assert_nothing_leaked,
    contents,
    entry,
    head,
    history_of,
    kind_of,
    new_setup,
    put,
    shown,
    uncommitted,
)


@pytest.fixture
def setup() -> Setup:
    return new_setup(world=Clock())


@pytest.fixture
def lake(setup: Setup) -> Lake:
    return setup.lake


@pytest.fixture
def repo(setup: Setup) -> Repository:
    return setup.repo


def save(lake: Lake, repo: Repository, branch: str, *paths: str, content: int | str = 0) -> CommitID:
    put(lake, repo, branch, *paths, content=content)
    return commit.commit(lake, repo, branch, f"save {content}", committer="ann", metadata={"job": "7"})


def says(call: Callable[[], object], of: type[EskerError], kind: Kind, *words: str) -> None:
    """The call raises this error, whose message has all these words."""
    with pytest.raises(of) as caught:
        call()
    assert caught.value.kind is kind
    for word in words:
        assert word in caught.value.message


# ---------------------------------------------------------------------- nothing there


def test_a_missing_object_is_named_with_its_ref_and_repository(lake: Lake, repo: Repository) -> None:
    says(
        partial(entries.get, lake, repo, "main", "a/b"),
        NotFoundError,
        Kind.OBJECT_NOT_FOUND,
        "'a/b'",
        "'main'",
        repo.name,
    )


def test_a_mistyped_ref_is_told_what_was_meant(lake: Lake, repo: Repository) -> None:
    says(
        partial(entries.get, lake, repo, "mian", "k"),
        NotFoundError,
        Kind.REF_NOT_FOUND,
        "mian",
        repo.name,
        "did you mean 'main'",
    )


def test_a_write_to_a_missing_branch_names_it(lake: Lake, repo: Repository) -> None:
    for call in (
        partial(put, lake, repo, "dev", "k"),
        partial(entries.put, lake, repo, "dev", entry("k"), if_absent=True),
        partial(entries.delete, lake, repo, "dev", "k"),
        partial(entries.delete_prefix, lake, repo, "dev", "k"),
        partial(commit.commit, lake, repo, "dev", "m"),
        partial(reset.reset, lake, repo, "dev"),
        partial(reset.reset_path, lake, repo, "dev", "k"),
        partial(reset.reset_prefix, lake, repo, "dev", "k"),
        partial(merge.merge, lake, repo, "main", "dev"),
        partial(merge.move, lake, repo, "dev", "main"),
        partial(branches.delete, lake, repo, "dev"),
    ):
        says(call, NotFoundError, Kind.BRANCH_NOT_FOUND, "'dev'", repo.name)


def test_a_tag_and_a_commit_take_no_writes(lake: Lake, repo: Repository) -> None:
    made = save(lake, repo, "main", "k")
    tags.create(lake.kv, repo.uid, "v1", made)
    for ref in ("v1", made):
        says(partial(put, lake, repo, ref, "k"), NotFoundError, Kind.BRANCH_NOT_FOUND, ref)


def test_what_is_staged_is_no_commit(lake: Lake, repo: Repository) -> None:
    says(partial(branches.create, lake, repo, "dev", "main$"), InvalidError, Kind.INVALID_REF, "main$", "no commit")
    says(partial(merge.merge, lake, repo, "main$", "main"), InvalidError, Kind.INVALID_REF, "no commit")


def test_deleting_what_is_not_there_is_no_error_and_no_change(lake: Lake, repo: Repository) -> None:
    entries.delete(lake, repo, "main", "nothing")
    entries.delete_prefix(lake, repo, "main", "nothing/")
    assert changes.is_clean(lake, repo, "main")
    assert kind_of(partial(commit.commit, lake, repo, "main", "m")) is Kind.NO_CHANGES
    assert lake.branches(repo).get("main").clean, "what nets to nothing is dropped"


# ---------------------------------------------------------------------- paths and names


@pytest.mark.parametrize("path", ["", "x" * 1025, "é" * 513, "\ud800"])
def test_a_path_is_1_to_1024_bytes_of_utf8(lake: Lake, repo: Repository, path: str) -> None:
    save(lake, repo, "main", "k")
    put(lake, repo, "main", "staged")
    for call in (
        partial(put, lake, repo, "main", path),
        partial(entries.put, lake, repo, "main", entry(path), if_absent=True),
        partial(entries.get, lake, repo, "main", path),
        partial(entries.delete, lake, repo, "main", path),
        partial(reset.reset_path, lake, repo, "main", path),
    ):
        says(call, InvalidError, Kind.INVALID_PATH)


@pytest.mark.parametrize("prefix", ["x" * 1025, "\ud800"])
def test_a_prefix_is_text_of_1024_bytes_at_most(lake: Lake, repo: Repository, prefix: str) -> None:
    put(lake, repo, "main", "staged")
    for call in (
        partial(entries.delete_prefix, lake, repo, "main", prefix),
        partial(reset.reset_prefix, lake, repo, "main", prefix),
    ):
        says(call, InvalidError, Kind.INVALID_PATH)


def test_listing_under_a_prefix_that_is_no_text_is_refused_or_finds_nothing(lake: Lake, repo: Repository) -> None:
    put(lake, repo, "main", "staged")
    try:
        assert entries.listing(lake, repo, "main", prefix="\ud800").items == []
    except InvalidError as error:
        assert error.kind is Kind.INVALID_PATH  # noqa: PT017 - either will do


@pytest.mark.parametrize("path", ["x" * 1024, "é" * 512, "\U0010ffff" * 256, "\0", " ", "/", "//", "..", "a/../b"])
def test_any_path_of_1024_bytes_is_one(lake: Lake, repo: Repository, path: str) -> None:
    put(lake, repo, "main", path)
    assert [*shown(lake, repo, "main", amount=1)] == [path]
    assert uncommitted(lake, repo) == [path]
    commit.commit(lake, repo, "main", "m")
    assert [*shown(lake, repo, "main", amount=1)] == [path]
    reset.reset_path(lake, repo, "main", path)
    entries.delete_prefix(lake, repo, "main", path)
    assert shown(lake, repo, "main") == {}


@pytest.mark.parametrize("branch", ["", "\ud800", "x" * 2000, "é" * 1000])
def test_a_branch_that_cannot_be_is_not_there(lake: Lake, repo: Repository, branch: str) -> None:
    """Whatever the error, it is ours, and a client can tell what to do."""
    for call in (
        partial(put, lake, repo, branch, "k"),
        partial(commit.commit, lake, repo, branch, "m"),
        partial(reset.reset, lake, repo, branch),
        partial(branches.delete, lake, repo, branch),
        partial(entries.get, lake, repo, branch, "k"),
    ):
        with pytest.raises((NotFoundError, InvalidError)) as caught:
            call()
        assert caught.value.kind in (Kind.BRANCH_NOT_FOUND, Kind.INVALID_NAME, Kind.INVALID_REF, Kind.REF_NOT_FOUND)


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "a~1", "é", "0" * 64, "x" * 256])
def test_a_branch_is_not_created_under_a_bad_name(lake: Lake, repo: Repository, name: str) -> None:
    says(partial(branches.create, lake, repo, name, "main"), InvalidError, Kind.INVALID_NAME)


@pytest.mark.parametrize(
    "bad",
    [
        Entry(path="k", address="a", size=-1, checksum="", mtime_ms=0),
        Entry(path="k", address="a", size=1 << 63, checksum="", mtime_ms=0),
        Entry(path="k", address="a", size=1, checksum="", mtime_ms=1 << 63),
        Entry(path="k", address="a", size=1, checksum="\ud800", mtime_ms=0),
        Entry(path="k", address="a", size=1, checksum="", mtime_ms=0, metadata={"k": "\ud800"}),
        Entry(path="k", address="a", size=1, checksum="", mtime_ms=0, metadata={"k": "x" * 400_000}),
    ],
    ids=["negative size", "huge size", "late", "checksum", "metadata", "large"],
)
@pytest.mark.parametrize("if_absent", [False, True])
def test_an_entry_that_could_not_be_committed_is_not_staged(
    lake: Lake, repo: Repository, bad: Entry, if_absent: bool
) -> None:
    """Else every commit of the branch fails, of whoever else writes to it."""
    with pytest.raises(InvalidError):
        entries.put(lake, repo, "main", bad, if_absent=if_absent)
    put(lake, repo, "main", "good")
    commit.commit(lake, repo, "main", "m")
    assert [*shown(lake, repo, "main")] == ["good"]


def test_any_metadata_that_is_text_comes_back(lake: Lake, repo: Repository) -> None:
    metadata = {"": "", "a\0b": "\U0010ffff", "é": '"\\\n', "z": "1"}
    new = Entry(path="k", address="a", size=1, checksum="", mtime_ms=-1, content_type="text/é", metadata=metadata)
    entries.put(lake, repo, "main", new)
    assert entries.get(lake, repo, "main", "k") == new
    commit.commit(lake, repo, "main", "m")
    assert entries.get(lake, repo, "main", "k") == new


# ---------------------------------------------------------------------- names that overlap


def test_a_branch_comes_before_a_tag_of_its_name(lake: Lake, repo: Repository) -> None:
    first = save(lake, repo, "main", "k", content=1)
    save(lake, repo, "main", "k", content=2)
    tags.create(lake.kv, repo.uid, "main", first)
    assert contents(lake, repo, "main") == {"k": "2"}
    tags.create(lake.kv, repo.uid, "dev", first)
    assert contents(lake, repo, "dev") == {"k": "1"}
    branches.create(lake, repo, "dev", "main")
    assert contents(lake, repo, "dev") == {"k": "2"}
    branches.delete(lake, repo, "dev")
    assert contents(lake, repo, "dev") == {"k": "1"}


def test_a_branch_named_like_the_start_of_a_commit_is_the_branch(lake: Lake, repo: Repository) -> None:
    made = save(lake, repo, "main", "k", content=1)
    save(lake, repo, "main", "k", content=2)
    assert contents(lake, repo, made[:8]) == {"k": "1"}
    branches.create(lake, repo, made[:8], "main")
    assert contents(lake, repo, made[:8]) == {"k": "2"}
    assert contents(lake, repo, made) == {"k": "1"}


def test_branches_whose_names_begin_alike_are_apart(lake: Lake, repo: Repository) -> None:
    for name in ("a", "a-b", "ab", "A", "a_b"):
        branches.create(lake, repo, name, "main")
        put(lake, repo, name, name)
    for name in ("a", "a-b", "ab", "A", "a_b"):
        assert [*shown(lake, repo, name)] == [name]
    assert [name for name, _ in branches.every(lake, repo)] == sorted(["main", "a", "a-b", "ab", "A", "a_b"])
    assert [name for name, _ in branches.every(lake, repo, after="a")] == ["a-b", "a_b", "ab", "main"]


def test_a_prefix_is_text_and_no_directory(lake: Lake, repo: Repository) -> None:
    save(lake, repo, "main", "a", "a/1", "ab", "b")
    put(lake, repo, "main", "a", "a/1", "ab", "b", content=1)
    reset.reset_prefix(lake, repo, "main", "a/")
    assert contents(lake, repo, "main") == {"a": "1", "a/1": "0", "ab": "1", "b": "1"}
    reset.reset_path(lake, repo, "main", "a")
    assert contents(lake, repo, "main") == {"a": "0", "a/1": "0", "ab": "1", "b": "1"}
    entries.delete_prefix(lake, repo, "main", "a")
    assert contents(lake, repo, "main") == {"b": "1"}
    reset.reset_prefix(lake, repo, "main", "ab")
    assert contents(lake, repo, "main") == {"ab": "0", "b": "1"}


# ---------------------------------------------------------------------- protection


def test_a_protected_branch_takes_neither_writes_nor_commits(lake: Lake, repo: Repository) -> None:
    save(lake, repo, "main", "k")
    branches.create(lake, repo, "dev", "main")
    save(lake, repo, "dev", "new")
    protection.set_rules(lake, repo, (Rule("ma*"),))
    for call in (
        partial(put, lake, repo, "main", "k"),
        partial(entries.put, lake, repo, "main", entry("k"), if_absent=True),
        partial(entries.delete, lake, repo, "main", "k"),
        partial(entries.delete_prefix, lake, repo, "main", "k"),
        partial(commit.commit, lake, repo, "main", "m", allow_empty=True),
        partial(merge.move, lake, repo, "main", "dev"),
        partial(reset.reset, lake, repo, "main"),
        partial(reset.reset_path, lake, repo, "main", "k"),
        partial(reset.reset_prefix, lake, repo, "main", "k"),
    ):
        says(call, ForbiddenError, Kind.PROTECTED_BRANCH, "'main'", "'ma*'", "merge it")
    put(lake, repo, "dev", "k")


def test_a_protected_branch_can_be_merged_into(lake: Lake, repo: Repository) -> None:
    """Its own error says so: write to another branch, and merge it."""
    branches.create(lake, repo, "dev", "main")
    save(lake, repo, "dev", "new")
    protection.set_rules(lake, repo, (Rule("main"),))
    merge.merge(lake, repo, "dev", "main")
    assert contents(lake, repo, "main") == {"new": "0"}


def test_a_rule_blocks_what_it_names(lake: Lake, repo: Repository) -> None:
    protection.set_rules(lake, repo, (Rule("main", (Action.COMMIT,)),))
    put(lake, repo, "main", "k")
    says(partial(commit.commit, lake, repo, "main", "m"), ForbiddenError, Kind.PROTECTED_BRANCH, "commit")
    protection.set_rules(lake, repo, (Rule("main", (Action.STAGING_WRITE,)),))
    says(partial(put, lake, repo, "main", "k"), ForbiddenError, Kind.PROTECTED_BRANCH, "staging_write")
    commit.commit(lake, repo, "main", "m")


def test_other_processes_follow_a_rule_within_seconds(setup: Setup) -> None:
    lake, repo = setup.lake, setup.repo
    other = setup.again()
    put(other, repo, "main", "k")
    protection.set_rules(lake, repo, (Rule("main"),))
    clock = lake.world
    assert isinstance(clock, Clock)
    clock.passed_s += 4
    says(partial(put, other, repo, "main", "k"), ForbiddenError, Kind.PROTECTED_BRANCH)


def test_a_read_only_repository_takes_nothing(lake: Lake) -> None:
    repo = repositories.create(lake, "sealed", "memory://sealed", read_only=True, cutting=TINY)
    for call in (
        partial(put, lake, repo, "main", "k"),
        partial(entries.delete, lake, repo, "main", "k"),
        partial(entries.delete_prefix, lake, repo, "main", "k"),
        partial(commit.commit, lake, repo, "main", "m", allow_empty=True),
        partial(reset.reset, lake, repo, "main"),
        partial(branches.create, lake, repo, "dev", "main"),
        partial(branches.delete, lake, repo, "main"),
        partial(merge.merge, lake, repo, "main", "main", allow_empty=True),
        partial(merge.move, lake, repo, "main", "main"),
        partial(protection.set_rules, lake, repo, ()),
    ):
        says(call, ForbiddenError, Kind.READ_ONLY, "'sealed'", "read-only")
    assert shown(lake, repo, "main") == {}


def test_the_default_branch_stays(lake: Lake, repo: Repository) -> None:
    says(partial(branches.delete, lake, repo, "main"), ForbiddenError, Kind.DEFAULT_BRANCH, "'main'", repo.name)


# ---------------------------------------------------------------------- branches


def test_a_branch_begins_without_what_is_staged_on_its_source(lake: Lake, repo: Repository) -> None:
    save(lake, repo, "main", "k")
    put(lake, repo, "main", "staged")
    branches.create(lake, repo, "dev", "main")
    assert contents(lake, repo, "dev") == {"k": "0"}


def test_a_branch_that_exists_is_not_created_again(lake: Lake, repo: Repository) -> None:
    says(partial(branches.create, lake, repo, "main", "main"), ConflictError, Kind.BRANCH_EXISTS, "'main'", repo.name)


def test_a_branch_made_again_has_nothing_of_its_former_self(setup: Setup) -> None:
    lake, repo = setup.lake, setup.repo
    for _ in range(3):
        branches.create(lake, repo, "dev", "main")
        assert contents(lake, repo, "dev") == {}
        put(lake, repo, "dev", "k")
        entries.delete_prefix(lake, repo, "dev", "q")
        put(lake, repo, "dev", "k2")
        branches.delete(lake, repo, "dev")
        says(partial(shown, lake, repo, "dev"), NotFoundError, Kind.REF_NOT_FOUND, "dev")
    assert_nothing_leaked(setup)


def test_hidden_branches_are_listed_only_if_asked_for(lake: Lake, repo: Repository) -> None:
    branches.create(lake, repo, "tx-1", "main", hidden=True)
    assert [name for name, _ in branches.every(lake, repo)] == ["main"]
    assert [name for name, _ in branches.every(lake, repo, hidden=True)] == ["main", "tx-1"]
    put(lake, repo, "tx-1", "k")
    assert commit.commit(lake, repo, "tx-1", "m")
    assert lake.branches(repo).get("tx-1").hidden, "and stay hidden"


# ---------------------------------------------------------------------- if absent


def test_a_put_if_absent_names_what_is_there(lake: Lake, repo: Repository) -> None:
    again = partial(entries.put, lake, repo, "main", entry("k", 2), if_absent=True)
    entries.put(lake, repo, "main", entry("k"), if_absent=True)
    says(again, PreconditionError, Kind.OBJECT_EXISTS, "'k'", "'main'", repo.name)
    commit.commit(lake, repo, "main", "m")
    says(again, PreconditionError, Kind.OBJECT_EXISTS, "'k'")
    entries.delete(lake, repo, "main", "k")
    again()
    assert contents(lake, repo, "main") == {"k": "2"}
    entries.delete_prefix(lake, repo, "main", "k")
    again()
    reset.reset(lake, repo, "main")
    says(again, PreconditionError, Kind.OBJECT_EXISTS, "'k'")


# ---------------------------------------------------------------------- commit and reset


def test_a_commit_of_nothing_is_refused_unless_wanted(lake: Lake, repo: Repository) -> None:
    says(partial(commit.commit, lake, repo, "main", "m"), InvalidError, Kind.NO_CHANGES, "'main'", repo.name)
    before = head(lake, repo)
    made = commit.commit(lake, repo, "main", "m", allow_empty=True)
    assert lake.commits(repo).get(made).parents == (before,)
    assert lake.commits(repo).get(made).tree == lake.commits(repo).get(before).tree


def test_two_commits_of_the_same_have_ids_of_their_own(lake: Lake, repo: Repository) -> None:
    branches.create(lake, repo, "dev", "main")
    ids = set()
    for branch in ("main", "dev"):
        put(lake, repo, branch, "k")
        ids.add(commit.commit(lake, repo, branch, "m", committer="ann", date_ms=5))
    assert len(ids) == 2


def test_a_commit_says_who_when_and_why(lake: Lake, repo: Repository) -> None:
    put(lake, repo, "main", "k")
    made = commit.commit(lake, repo, "main", "why", committer="ann", metadata={"é": "1"}, date_ms=12345)
    stored = lake.commits(repo).get(made)
    assert (stored.message, stored.committer, stored.metadata, stored.date_ms) == ("why", "ann", {"é": "1"}, 12345)


def test_a_message_too_long_for_the_store_is_refused_and_loses_nothing(lake: Lake, repo: Repository) -> None:
    put(lake, repo, "main", "k")
    says(partial(commit.commit, lake, repo, "main", "x" * 400_000), InvalidError, Kind.INVALID_ARGUMENT, "shorten")
    assert contents(lake, repo, "main") == {"k": "0"}
    commit.commit(lake, repo, "main", "m")


def test_putting_the_same_content_elsewhere_is_a_commit_but_no_difference(lake: Lake, repo: Repository) -> None:
    """Identity is what diffs show; where bytes lie has to be committed all the same."""
    entries.put(lake, repo, "main", entry("k", 1, place="one"))
    commit.commit(lake, repo, "main", "m")
    entries.put(lake, repo, "main", entry("k", 1, place="two"))
    assert uncommitted(lake, repo) == []
    commit.commit(lake, repo, "main", "m")
    assert entries.get(lake, repo, "main", "k").address == "data/two"
    assert changes.between(lake, repo, "main~1", "main").items == []


def test_a_reset_drops_all_and_commits_stay(lake: Lake, repo: Repository) -> None:
    save(lake, repo, "main", "k")
    put(lake, repo, "main", "k", "new", content=1)
    entries.delete_prefix(lake, repo, "main", "k")
    reset.reset(lake, repo, "main")
    assert contents(lake, repo, "main") == {"k": "0"}
    assert lake.branches(repo).get("main").clean


def test_a_reset_of_what_is_not_staged_changes_nothing(lake: Lake, repo: Repository) -> None:
    save(lake, repo, "main", "k")
    before = lake.branches(repo).get("main")
    reset.reset(lake, repo, "main")
    reset.reset_path(lake, repo, "main", "k")
    reset.reset_path(lake, repo, "main", "nothing")
    reset.reset_prefix(lake, repo, "main", "k")
    assert lake.branches(repo).get("main") == before


def test_too_many_layers_are_refused_and_a_commit_makes_room(lake: Lake, repo: Repository) -> None:
    save(lake, repo, "main", "k")
    for n in range(LAYERS_MAX):
        entries.delete_prefix(lake, repo, "main", f"{n}/")
    says(
        partial(entries.delete_prefix, lake, repo, "main", "k"),
        ForbiddenError,
        Kind.TOO_MANY_LAYERS,
        "'main'",
        "commit",
    )
    put(lake, repo, "main", "k2")
    commit.commit(lake, repo, "main", "m")
    entries.delete_prefix(lake, repo, "main", "k")


# ---------------------------------------------------------------------- merge


@pytest.fixture
def forked(lake: Lake, repo: Repository) -> None:
    """`main` and `dev` parted at `base`, and both changed `both`."""
    save(lake, repo, "main", "both", "left", "same", content="base")
    branches.create(lake, repo, "base", "main")
    branches.create(lake, repo, "dev", "main")
    save(lake, repo, "main", "both", "mine", content="main")
    save(lake, repo, "dev", "both", "theirs", content="dev")


@pytest.mark.usefixtures("forked")
def test_a_conflict_lists_all_paths_and_names_some(lake: Lake, repo: Repository) -> None:
    save(lake, repo, "main", *(f"c{n}" for n in range(9)), content="main")
    save(lake, repo, "dev", *(f"c{n}" for n in range(9)), content="dev")
    with pytest.raises(ConflictError) as caught:
        merge.merge(lake, repo, "dev", "main")
    assert caught.value.kind is Kind.MERGE_CONFLICT
    assert caught.value.paths == ["both", *(f"c{n}" for n in range(9))]
    for word in ("'dev'", "'main'", repo.name, "'both'", "'c0'", "7 more"):
        assert word in caught.value.message


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("squash", [False, True])
def test_a_strategy_decides_conflicts_only(lake: Lake, repo: Repository, squash: bool) -> None:
    merge.merge(lake, repo, "dev", "main", strategy=Strategy.SOURCE_WINS, squash=squash)
    assert contents(lake, repo, "main") == {
        "both": "dev",
        "left": "base",
        "mine": "main",
        "same": "base",
        "theirs": "dev",
    }


@pytest.mark.usefixtures("forked")
def test_a_merge_has_two_parents_and_a_squash_one(lake: Lake, repo: Repository) -> None:
    ours, theirs = head(lake, repo), head(lake, repo, "dev")
    branches.create(lake, repo, "copy", "main")
    made = merge.merge(lake, repo, "dev", "main", strategy=Strategy.DEST_WINS)
    assert lake.commits(repo).get(made).parents == (ours, theirs)
    squashed = merge.merge(lake, repo, "dev", "copy", strategy=Strategy.DEST_WINS, squash=True)
    assert lake.commits(repo).get(squashed).parents == (ours,)
    assert contents(lake, repo, "copy") == contents(lake, repo, "main")


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("squash", [False, True])
def test_what_is_merged_already_is_not_merged_again(lake: Lake, repo: Repository, squash: bool) -> None:
    merge.merge(lake, repo, "dev", "main", strategy=Strategy.SOURCE_WINS, squash=squash)
    says(
        partial(merge.merge, lake, repo, "dev", "main", strategy=Strategy.SOURCE_WINS, squash=squash),
        InvalidError,
        Kind.NO_CHANGES,
        "'main'",
        "'dev'",
    )


def test_a_branch_merged_into_itself_has_nothing_to_merge(lake: Lake, repo: Repository) -> None:
    says(partial(merge.merge, lake, repo, "main", "main"), InvalidError, Kind.NO_CHANGES)


@pytest.mark.usefixtures("forked")
def test_a_merge_leaves_what_is_staged_on_the_source(lake: Lake, repo: Repository) -> None:
    put(lake, repo, "dev", "staged")
    merge.merge(lake, repo, "dev", "main", strategy=Strategy.DEST_WINS)
    assert "staged" not in contents(lake, repo, "main")
    assert "staged" in contents(lake, repo, "dev")


@pytest.mark.usefixtures("forked")
def test_a_dirty_destination_is_refused_and_told_the_way_out(lake: Lake, repo: Repository) -> None:
    put(lake, repo, "main", "staged")
    for call in (
        partial(merge.merge, lake, repo, "dev", "main"),
        partial(merge.revert, lake, repo, "main", "dev"),
        partial(merge.cherry_pick, lake, repo, "main", "dev"),
        partial(merge.move, lake, repo, "main", "dev"),
    ):
        says(call, InvalidError, Kind.DIRTY_BRANCH, "'main'", "commit or reset")
    assert "staged" in contents(lake, repo, "main")
    reset.reset(lake, repo, "main")
    merge.merge(lake, repo, "dev", "main", strategy=Strategy.DEST_WINS)


@pytest.mark.usefixtures("forked")
def test_a_destination_whose_changes_net_to_nothing_is_clean(lake: Lake, repo: Repository) -> None:
    put(lake, repo, "main", "staged")
    entries.delete(lake, repo, "main", "staged")
    put(lake, repo, "main", "left", content="changed")
    reset.reset_path(lake, repo, "main", "left")
    merge.merge(lake, repo, "dev", "main", strategy=Strategy.DEST_WINS)
    assert lake.branches(repo).get("main").clean


def test_histories_that_share_nothing_are_not_merged(lake: Lake, repo: Repository) -> None:
    save(lake, repo, "main", "k")
    alone = commit.record_commit(lake, repo, tree=lake.past(repo).empty(), parents=(), message="from nowhere")
    lake.branches(repo).create("island", alone)
    says(
        partial(merge.merge, lake, repo, "island", "main"),
        InvalidError,
        Kind.NO_MERGE_BASE,
        "'island'",
        "'main'",
        "no history",
    )


@pytest.mark.usefixtures("forked")
def test_both_sides_deleting_the_same_is_no_conflict(lake: Lake, repo: Repository) -> None:
    for branch in ("main", "dev"):
        entries.delete(lake, repo, branch, "both")
        commit.commit(lake, repo, branch, "m")
    merge.merge(lake, repo, "dev", "main")
    assert "both" not in contents(lake, repo, "main")


@pytest.mark.usefixtures("forked")
def test_deleting_against_changing_is_a_conflict(lake: Lake, repo: Repository) -> None:
    entries.delete(lake, repo, "dev", "both")
    commit.commit(lake, repo, "dev", "m")
    with pytest.raises(ConflictError) as caught:
        merge.merge(lake, repo, "dev", "main")
    assert caught.value.paths == ["both"]
    merge.merge(lake, repo, "dev", "main", strategy=Strategy.SOURCE_WINS)
    assert "both" not in contents(lake, repo, "main")


# ---------------------------------------------------------------------- revert, cherry-pick, move


@pytest.fixture
def merged(lake: Lake, repo: Repository, forked: None) -> CommitID:
    """`main` with `dev` merged into it."""
    return merge.merge(lake, repo, "dev", "main", strategy=Strategy.SOURCE_WINS, committer="bob")


def test_a_revert_undoes_one_commit_and_leaves_the_later_ones(lake: Lake, repo: Repository) -> None:
    save(lake, repo, "main", "k", content=1)
    bad = save(lake, repo, "main", "k", "bad", content=2)
    save(lake, repo, "main", "later", content=3)
    before = head(lake, repo)
    made = merge.revert(lake, repo, "main", bad, committer="ann")
    assert contents(lake, repo, "main") == {"k": "1", "later": "3"}
    stored = lake.commits(repo).get(made)
    assert (stored.parents, stored.message, stored.committer) == ((before,), f"Revert {bad}", "ann")


def test_a_revert_of_what_was_changed_since_is_a_conflict(lake: Lake, repo: Repository) -> None:
    bad = save(lake, repo, "main", "k", content=1)
    save(lake, repo, "main", "k", content=2)
    with pytest.raises(ConflictError) as caught:
        merge.revert(lake, repo, "main", bad)
    assert caught.value.paths == ["k"]


def test_a_revert_of_what_is_undone_already_changes_nothing(lake: Lake, repo: Repository) -> None:
    bad = save(lake, repo, "main", "k", content=1)
    merge.revert(lake, repo, "main", bad)
    says(partial(merge.revert, lake, repo, "main", bad), InvalidError, Kind.NO_CHANGES, bad, "'main'")
    made = merge.revert(lake, repo, "main", bad, allow_empty=True)
    assert head(lake, repo) == made


def test_a_merge_is_reverted_against_the_parent_that_is_named(lake: Lake, repo: Repository, merged: CommitID) -> None:
    says(partial(merge.revert, lake, repo, "main", merged), ConflictError, Kind.NEEDS_PARENT, merged, "2 parents")
    says(partial(merge.revert, lake, repo, "main", merged, parent=3), InvalidError, Kind.NEEDS_PARENT, "3")
    says(partial(merge.revert, lake, repo, "main", merged, parent=-1), InvalidError, Kind.NEEDS_PARENT)
    merge.revert(lake, repo, "main", merged, parent=1)
    assert contents(lake, repo, "main") == contents(lake, repo, f"{merged}^1")


def test_the_first_commit_is_reverted_against_nothing(lake: Lake, repo: Repository) -> None:
    first = [*history_of(lake, repo)][-1]
    says(partial(merge.revert, lake, repo, "main", first), InvalidError, Kind.NO_CHANGES)
    says(partial(merge.revert, lake, repo, "main", first, parent=2), InvalidError, Kind.NEEDS_PARENT, "0 parents")


def test_a_pick_copies_message_and_metadata_and_says_where_it_came_from(lake: Lake, repo: Repository) -> None:
    save(lake, repo, "main", "k", content=1)
    branches.create(lake, repo, "dev", "main")
    picked = save(lake, repo, "dev", "new", content=2)
    save(lake, repo, "dev", "other", content=3)
    before = head(lake, repo)
    made = merge.cherry_pick(lake, repo, "main", picked, committer="bob", metadata={"job": "8", "more": "1"})
    stored = lake.commits(repo).get(made)
    assert contents(lake, repo, "main") == {"k": "1", "new": "2"}
    assert (stored.parents, stored.message, stored.committer) == ((before,), "save 2", "bob")
    assert stored.metadata == {
        "job": "8",
        "more": "1",
        "cherry-pick-origin": picked,
        "cherry-pick-committer": "ann",
    }


def test_a_pick_of_a_merge_needs_a_parent(lake: Lake, repo: Repository, merged: CommitID) -> None:
    says(partial(merge.cherry_pick, lake, repo, "base", merged), InvalidError, Kind.NEEDS_PARENT, "2 parents")
    merge.cherry_pick(lake, repo, "base", merged, parent=2)
    assert contents(lake, repo, "base") == {"both": "base", "left": "base", "mine": "main", "same": "base"}
    assert len(lake.commits(repo).get(head(lake, repo, "base")).parents) == 1


def test_a_pick_of_what_is_there_already_is_refused(lake: Lake, repo: Repository) -> None:
    made = save(lake, repo, "main", "k")
    says(partial(merge.cherry_pick, lake, repo, "main", made), InvalidError, Kind.NO_CHANGES, "'main'", made)


def test_a_branch_is_moved_to_any_commit(lake: Lake, repo: Repository) -> None:
    old = save(lake, repo, "main", "k", content=1)
    new = save(lake, repo, "main", "k", content=2)
    merge.move(lake, repo, "main", "main~1")
    assert head(lake, repo) == old
    assert contents(lake, repo, "main") == {"k": "1"}
    merge.move(lake, repo, "main", new)
    assert contents(lake, repo, "main") == {"k": "2"}


# ---------------------------------------------------------------------- listings and refs


@pytest.mark.parametrize("amount", [0, -1, 1001])
def test_a_page_has_1_to_1000_items(lake: Lake, repo: Repository, amount: int) -> None:
    put(lake, repo, "main", "k")
    says(partial(entries.listing, lake, repo, "main", amount=amount), InvalidError, Kind.INVALID_ARGUMENT, "1000")
    says(partial(changes.uncommitted, lake, repo, "main", amount=amount), InvalidError, Kind.INVALID_ARGUMENT, "1000")


def test_views_of_a_branch_differ_by_what_is_staged(lake: Lake, repo: Repository) -> None:
    save(lake, repo, "main", "k", content=1)
    put(lake, repo, "main", "k", content=2)
    assert [contents(lake, repo, ref) for ref in ("main", "main$", "main@", "main~0")] == [
        {"k": "2"},
        {"k": "2"},
        {"k": "1"},
        {"k": "1"},
    ]
    assert refs.resolve(lake, repo, "main@").record is None


# ---------------------------------------------------------------------- repositories


def test_a_repository_that_exists_is_not_created_again(lake: Lake, repo: Repository) -> None:
    says(
        partial(repositories.create, lake, repo.name, "memory://elsewhere"),
        ConflictError,
        Kind.REPOSITORY_EXISTS,
        repo.name,
    )
    says(
        partial(repositories.create, lake, repo.name, repo.namespace), ConflictError, Kind.REPOSITORY_EXISTS, repo.name
    )


@pytest.mark.parametrize("namespace", ["memory://x/data", "memory://x/data/", "memory://x", "memory://x/data/more"])
def test_a_namespace_overlaps_no_other(lake: Lake, namespace: str) -> None:
    repositories.create(lake, "first", "memory://x/data")
    says(
        partial(repositories.create, lake, "second", namespace),
        InvalidError,
        Kind.INVALID_ARGUMENT,
        "'first'",
        namespace,
    )
    repositories.create(lake, "third", "memory://x/data-more")


def test_a_repository_made_again_starts_afresh(lake: Lake) -> None:
    repo = repositories.create(lake, "again", "memory://again", cutting=TINY)
    save(lake, repo, "main", "k")
    repositories.delete(lake, "again")
    says(partial(repositories.get, lake, "again"), NotFoundError, Kind.REPOSITORY_NOT_FOUND, "'again'")
    repo = repositories.create(lake, "again", "memory://again", cutting=TINY)
    assert shown(lake, repo, "main") == {}
