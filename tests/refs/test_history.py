"""Walks through history, against what they mean by definition, and against git."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.errors import InvalidError
from esker.model import Commit, CommitID
from esker.refs import history
from tests.refs.dags import Dag, braid, dags, git, in_git


def place(dag: Dag, name: CommitID) -> tuple[int, int, CommitID]:
    commit = dag.get(name)
    return -commit.generation, -commit.date_ms, name


def pairs(dag: Dag) -> list[tuple[CommitID, CommitID]]:
    return [(one, other) for one in dag.names[-8:] for other in dag.names[-8:]]


@given(dags())
def test_a_merge_base_is_a_common_ancestor_from_which_no_other_descends(dag: Dag) -> None:
    for one, other in pairs(dag):
        best = dag.merge_bases(one, other)
        dag.reads.clear()
        base = history.merge_base(dag.get, one, other)
        assert max(dag.reads.values(), default=0) <= 1, "each commit is read at most once"
        assert base == min(best, key=lambda name: place(dag, name), default=None)
        assert base == history.merge_base(dag.get, other, one)


@given(dags())
def test_ancestors_are_those_that_are_reached(dag: Dag) -> None:
    for one, other in pairs(dag):
        dag.reads.clear()
        found = history.is_ancestor(dag.get, one, other)
        assert max(dag.reads.values()) <= 1 + (one == other)
        assert found == (one in dag.ancestors(other))


@given(dags())
def test_the_log_has_every_ancestor_once_and_children_first(dag: Dag) -> None:
    for start in dag.names[-3:]:
        dag.reads.clear()
        found = [name for name, _ in history.newest_first(dag.get, start)]
        assert max(dag.reads.values()) == 1
        assert found == sorted(dag.ancestors(start), key=lambda name: place(dag, name))


@given(dags())
def test_first_parents_are_a_chain(dag: Dag) -> None:
    expected = [dag.names[-1]]
    while parents := dag.get(expected[-1]).parents:
        expected.append(parents[0])
    assert [name for name, _ in history.first_parents(dag.get, dag.names[-1])] == expected


@given(dags(), st.booleans(), st.integers(1, 5), st.integers(0, 3), st.integers(2, 5), st.sets(st.integers(0, 24)))
def test_pages_of_the_log_add_up_to_the_whole(
    dag: Dag, first_parent: bool, amount: int, since: int, until: int, changed: set[int]
) -> None:
    start = dag.names[-1]
    content = {name: at if at in changed else -1 for at, name in enumerate(dag.names)}
    named = {commit.nonce: name for name, commit in dag.commits.items()}

    def touches(commit: Commit, parent: Commit | None) -> bool:
        return content[named[commit.nonce]] != (-1 if parent is None else content[named[parent.nonce]])

    def listed(commit: Commit) -> bool:
        parents: list[Commit | None] = [dag.get(parent) for parent in commit.parents[: 1 if first_parent else None]]
        in_time = 1000 * since <= commit.date_ms <= 1000 * until
        return in_time and all(touches(commit, parent) for parent in parents or [None])

    walk = history.newest_first(dag.get, start, first_parent=first_parent)
    expected = [name for name, commit in walk if listed(commit)]
    found: list[CommitID] = []
    after: CommitID | None = None
    while True:
        page = history.log(
            dag.get,
            start,
            first_parent=first_parent,
            after=after,
            amount=amount,
            since_ms=1000 * since,
            until_ms=1000 * until,
            touches=touches,
        )
        found += [name for name, _ in page.items]
        after = page.next
        if after is None:
            break
        assert len(page.items) == amount
        assert after == found[-1]
    assert found == expected


def test_a_page_has_a_size() -> None:
    dag = Dag([[]])
    for amount in (0, -1, 1001):
        with pytest.raises(InvalidError, match="1 to 1000 commits"):
            history.log(dag.get, dag.names[0], amount=amount)


def test_a_merge_that_took_one_side_as_it_was_is_not_listed_for_a_path_that_the_other_changed() -> None:
    dag = Dag([[], [0], [0], [1, 2]])  # 2 changed the path, 3 merged that into 1
    versions = dict(zip(["0", "1", "2", "3"], "aabb", strict=True))

    def touches(commit: Commit, parent: Commit | None) -> bool:
        return parent is None or versions[commit.nonce] != versions[parent.nonce]

    def log(first_parent: bool) -> list[int]:
        page = history.log(dag.get, dag.names[3], touches=touches, first_parent=first_parent)
        return [dag.names.index(name) for name, _ in page.items]

    assert log(first_parent=False) == [2, 0]
    assert log(first_parent=True) == [3, 0], "along first parents, the merge is what brought the change"


def test_a_page_reads_little_more_than_it_shows() -> None:
    dag = Dag(braid(2_000, 4, seed=5))
    page = history.log(dag.get, dag.names[-1], amount=100)
    assert len(page.items) == 100
    assert dag.reads.total() <= 100 + 8
    assert max(dag.reads.values()) == 1


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_a_merge_base_reads_each_commit_once_and_nothing_far_behind_itself(lanes: int) -> None:
    dag = Dag([*braid(10_000, lanes, seed=lanes), [5_000]])
    for one, other in [(9_999, 9_998), (9_999, 10_000), (9_990, 5_000), (10_000, 4_990)]:
        dag.reads.clear()
        base = history.merge_base(dag.get, dag.names[one], dag.names[other])
        assert base is not None
        assert max(dag.reads.values()) == 1
        reads = dict(dag.reads)
        floor = dag.get(base).generation
        behind = [name for name in reads if dag.get(name).generation < floor]
        assert len(behind) <= 2 * lanes, "parents of what was read, and none of theirs"


def test_nothing_behind_an_ancestor_is_read_to_find_it() -> None:
    dag = Dag(braid(10_000, 4, seed=7))
    for one, other in [(9_900, 9_999), (9_998, 9_999)]:
        dag.reads.clear()
        history.is_ancestor(dag.get, dag.names[one], dag.names[other])
        assert dag.reads.total() <= other - one + 16


def test_crossed_histories_have_one_answer_whichever_side_is_named_first() -> None:
    """1 and 3 are both best; 3 has more history behind it, though 1 is of a later date."""
    dag = Dag([[], [0], [0], [2], [1, 3], [3, 1]], dates=[0, 9, 1, 1, 10, 10])
    assert dag.merge_bases(dag.names[4], dag.names[5]) == {dag.names[1], dag.names[3]}
    assert history.merge_base(dag.get, dag.names[4], dag.names[5]) == dag.names[3]
    assert history.merge_base(dag.get, dag.names[5], dag.names[4]) == dag.names[3]


def test_histories_that_share_nothing_have_no_merge_base() -> None:
    dag = Dag([[], [0], [], [2]])
    assert history.merge_base(dag.get, dag.names[1], dag.names[3]) is None
    assert not history.is_ancestor(dag.get, dag.names[1], dag.names[3])


def test_git_agrees(tmp_path: Path) -> None:
    chance = random.Random(11)
    shape = [
        chance.sample(range(max(0, at - 9), at), min(at, chance.choice([0, 1, 1, 1, 2, 2, 3]))) for at in range(150)
    ]
    dag = Dag(shape, [chance.randrange(40) for _ in shape])
    theirs = in_git(dag, tmp_path)
    several = none = 0
    for _ in range(150):
        one, other = chance.choices(dag.names, k=2)
        base = history.merge_base(dag.get, one, other)
        all_of_them = git(tmp_path, "merge-base", "--all", theirs[one], theirs[other])
        assert theirs[base] in all_of_them if base else not all_of_them
        assert {theirs[name] for name in dag.merge_bases(one, other)} == set(all_of_them)
        several += len(all_of_them) > 1
        none += not all_of_them
    assert several, "some of these histories cross"
    assert none, "and some share nothing"
