"""Merges that do not start over: racing into one branch, in line, with conditions, with hints."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from esker.engine import branches, commit, entries, hints, landing, merge
from esker.engine import lake as lakes
from esker.engine.lake import Lake
from esker.errors import (
    ConflictError,
    ContentionError,
    EskerError,
    InvalidError,
    Kind,
    PreconditionError,
    UnavailableError,
)
from esker.format.names import digest_of
from esker.model import CommitID, Repository
from esker.refs import history
from esker.refs.records import Branch
from esker.settings import Settings
from esker.tree.cutting import Cutting
from esker.tree.merge import Strategy
from esker.tree.past import StoredPast
from esker.world import RealWorld
from tests.engine.lakes import Setup, entry, new_setup, put, shown

RACERS = 24


def racing(count: int = RACERS, settings: Settings | None = None) -> Setup:
    """`main` with a file, and branches that each added one of their own."""
    setup = new_setup(settings=settings or Settings())
    lake, repo = setup.lake, setup.repo
    put(lake, repo, "main", "base")
    commit.commit(lake, repo, "main", "base")
    for number in range(count):
        branches.create(lake, repo, f"racer-{number}", "main")
        put(lake, repo, f"racer-{number}", f"own/{number}")
        commit.commit(lake, repo, f"racer-{number}", f"racer {number}")
    return setup


def head(lake: Lake, repo: Repository, branch: str = "main") -> CommitID:
    return lake.branches(repo).get(branch).commit


def lineage(lake: Lake, repo: Repository) -> list[str]:
    return [commit.message for _, commit in history.first_parents(lake.commits(repo).get, head(lake, repo))]


def together(count: int, work: Callable[[int], object]) -> list[object]:
    """What each thread came to: its answer, or its error."""
    gate = threading.Barrier(count)

    def run(number: int) -> object:
        gate.wait()
        try:
            return work(number)
        except EskerError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_all_racers_land_each_in_one_commit_of_its_own() -> None:
    lake, repo, *_ = racing()
    outcomes = together(RACERS, lambda n: merge.merge(lake, repo, f"racer-{n}", "main", message=f"merge {n}"))
    log = [name for name, _ in history.first_parents(lake.commits(repo).get, head(lake, repo))]
    assert sorted(map(str, outcomes)) == sorted(log[:RACERS])
    assert sorted(lineage(lake, repo)[:RACERS]) == sorted(f"merge {n}" for n in range(RACERS))
    assert set(shown(lake, repo, "main")) == {"base", *(f"own/{n}" for n in range(RACERS))}


def test_racers_of_two_servers_all_land() -> None:
    setup = racing()
    lakes = (setup.lake, setup.again())
    outcomes = together(RACERS, lambda n: merge.merge(lakes[n % 2], setup.repo, f"racer-{n}", "main"))
    assert not [outcome for outcome in outcomes if isinstance(outcome, EskerError)]
    assert len(lineage(setup.lake, setup.repo)) == RACERS + 2
    assert set(shown(setup.lake, setup.repo, "main")) == {"base", *(f"own/{n}" for n in range(RACERS))}


def test_the_order_of_landing_does_not_matter_to_the_tree() -> None:
    one, two = racing(6), racing(6)
    for n in range(6):
        merge.merge(one.lake, one.repo, f"racer-{n}", "main")
        merge.merge(two.lake, two.repo, f"racer-{5 - n}", "main")
    assert shown(one.lake, one.repo, "main") == shown(two.lake, two.repo, "main")


def test_one_that_conflicts_leaves_the_others_alone() -> None:
    lake, repo, *_ = racing()
    put(lake, repo, "main", "own/7", content="another")
    commit.commit(lake, repo, "main", "in the way")
    outcomes = together(RACERS, lambda n: merge.merge(lake, repo, f"racer-{n}", "main"))
    failed = [(n, outcome) for n, outcome in enumerate(outcomes) if isinstance(outcome, EskerError)]
    assert [n for n, _ in failed] == [7]
    assert isinstance(failed[0][1], ConflictError)
    assert failed[0][1].paths == ["own/7"]
    assert len(shown(lake, repo, "main")) == RACERS + 1


def test_a_swap_that_lands_many_is_one_swap() -> None:
    """Those that wait while the first is at it land together."""
    lake, repo, *_ = racing()
    seq = lake.branches(repo).get("main").seq
    held, go_on = threading.Event(), threading.Event()

    def slow(at: CommitID) -> CommitID:
        held.set()
        assert go_on.wait(10)
        return commit.record_commit(lake, repo, tree=lake.commits(repo).get(at).tree, parents=(at,), message="slow")

    with ThreadPoolExecutor(RACERS + 1) as pool:
        first = pool.submit(landing.land, lake, repo, "main", slow)
        assert held.wait(10)
        rest = [pool.submit(merge.merge, lake, repo, f"racer-{n}", "main") for n in range(RACERS)]
        while len(lake.lines[repo.uid, "main"].waiting) < RACERS:
            pass
        go_on.set()
        assert {first.result(), *(future.result() for future in rest)} <= {
            name for name, _ in history.first_parents(lake.commits(repo).get, head(lake, repo))
        }
    assert lake.branches(repo).get("main").seq - seq <= 3


@pytest.mark.parametrize(("rows", "shared"), [(2, False), (2 * RACERS, True)], ids=["apart", "in one range"])
def test_those_that_wait_work_ahead_but_not_twice_at_one_range(*, rows: int, shared: bool) -> None:
    """Each racer changes a file whose neighbour in the same range has changed on the destination."""
    setup = new_setup(settings=Settings(), cutting=Cutting(entries_mean=1 << 60, entries_max=rows))
    lake, repo = setup.lake, setup.repo
    for n in range(RACERS):
        put(lake, repo, "main", f"{n:02}/ours", f"{n:02}/theirs")
    commit.commit(lake, repo, "main", "base")
    for n in range(RACERS):
        branches.create(lake, repo, f"racer-{n}", "main")
        put(lake, repo, f"racer-{n}", f"{n:02}/theirs", content="new")
        commit.commit(lake, repo, f"racer-{n}", "racer")
    for n in range(RACERS):
        put(lake, repo, "main", f"{n:02}/ours", content="new")
    commit.commit(lake, repo, "main", "ours")
    past = lake.past(repo)
    assert isinstance(past, StoredPast)
    before = past.trees.counts().ranges_written
    ahead = []

    def slow(at: CommitID) -> CommitID:
        while len(lake.lines[repo.uid, "main"].waiting) < RACERS:
            pass
        ahead.append(past.trees.counts().ranges_written - before)
        return at

    with ThreadPoolExecutor(RACERS + 1) as pool:
        first = pool.submit(landing.land, lake, repo, "main", slow)
        while (line := lake.lines.get((repo.uid, "main"))) is None or line.leader is None:
            pass
        rest = [pool.submit(merge.merge, lake, repo, f"racer-{n}", "main") for n in range(RACERS)]
        assert {first.result(), *(future.result() for future in rest)}
    in_all = past.trees.counts().ranges_written - before
    if shared:
        assert ahead == [1]
        assert in_all <= RACERS + 1, "whoever worked ahead may not be the first in line"
    else:
        assert (ahead, in_all) == ([RACERS], RACERS)
    assert not line.ahead
    assert {entry.checksum for entry in shown(lake, repo, "main").values()} == {"new"}


def test_what_checks_a_merge_is_asked_once_however_often_it_is_made_again() -> None:
    setup = racing(2)
    asked: list[CommitID] = []
    lake, repo = never_still(setup), setup.repo
    with pytest.raises(ContentionError):
        merge.merge(lake, repo, "racer-0", "main", check=asked.append)
    assert len(asked) == 1
    assert set(shown(setup.lake, repo, asked[0])) == {"base", "ahead", "own/0"}


def test_what_checks_a_merge_can_refuse_it() -> None:
    lake, repo, *_ = racing(2)
    seen = head(lake, repo)

    def refuse(made: CommitID) -> None:
        assert head(lake, repo) == seen, "nothing has landed"
        raise ZeroDivisionError(made)

    with pytest.raises(ZeroDivisionError):
        merge.merge(lake, repo, "racer-0", "main", check=refuse)
    assert head(lake, repo) == seen
    merge.merge(lake, repo, "racer-1", "main")


def test_all_that_lands_was_checked_if_the_head_is_the_expected_one() -> None:
    lake, repo, *_ = racing(2)
    seen = head(lake, repo)

    def overtaken(_: CommitID) -> None:
        merge.merge(lake, repo, "racer-1", "main")

    with pytest.raises(PreconditionError):
        merge.merge(lake, repo, "racer-0", "main", check=overtaken, expected_head=seen)
    merge.merge(lake, repo, "racer-0", "main", check=lambda _: None, expected_head=head(lake, repo))
    assert set(shown(lake, repo, "main")) == {"base", "own/0", "own/1"}


def test_an_interrupted_leader_lets_the_next_land() -> None:
    lake, repo, *_ = racing(2)
    held, go_on = threading.Event(), threading.Event()

    def interrupted(_: CommitID) -> CommitID:
        held.set()
        assert go_on.wait(10)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(landing.land, lake, repo, "main", interrupted)
        assert held.wait(10)
        second = pool.submit(merge.merge, lake, repo, "racer-0", "main")
        while not lake.lines[repo.uid, "main"].waiting:
            pass
        go_on.set()
        with pytest.raises(KeyboardInterrupt):
            first.result()
        assert second.result() == head(lake, repo)
    assert lake.lines[repo.uid, "main"].leader is None


def test_merge_if_lands_only_on_the_expected_head() -> None:
    lake, repo, *_ = racing(2)
    before = head(lake, repo)
    merge.merge(lake, repo, "racer-0", "main", expected_head=before)
    with pytest.raises(PreconditionError, match="not at") as caught:
        merge.merge(lake, repo, "racer-1", "main", expected_head=before)
    assert caught.value.kind is Kind.HEAD_MOVED
    assert set(shown(lake, repo, "main")) == {"base", "own/0"}


def test_a_revert_on_the_destination_is_not_undone_by_losing_the_race() -> None:
    """The base moves with the destination: the same source landed and was reverted while we were merging it."""
    setup = racing(1)
    lake, repo = setup.lake, setup.repo
    other = setup.again()
    tries: list[int] = []

    real = lake.branches(repo).update

    def overtaken(name: str, change: Callable[[Branch], Branch | None]) -> Branch | None:
        if not tries:
            tries.append(1)
            merge.merge(other, repo, "racer-0", "main")
            merge.revert(other, repo, "main", "main", parent=1)
        return real(name, change)

    lake.branches(repo).update = overtaken  # type: ignore[method-assign]
    with pytest.raises(InvalidError) as caught:
        merge.merge(lake, repo, "racer-0", "main")
    assert caught.value.kind is Kind.NO_CHANGES
    assert set(shown(lake, repo, "main")) == {"base"}


def test_what_is_kept_of_branches_is_bounded_and_may_be_forgotten_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakes, "BRANCHES_MAX", 1)
    lake, repo, *_ = racing()
    outcomes = together(RACERS, lambda n: merge.merge(lake, repo, f"racer-{n}", ("main", f"racer-{n - 1}")[n % 2]))
    assert not [outcome for outcome in outcomes if isinstance(outcome, EskerError)]
    assert len(lake.lines) == 1
    assert set(shown(lake, repo, "main")) == {"base", *(f"own/{n}" for n in range(0, RACERS, 2))}


class Hasty(RealWorld):
    """Loses no time between tries."""

    def sleep(self, seconds: float) -> None:
        pass


def give_up(setup: Setup, source: str) -> ContentionError:
    """Merge into a branch that has gone its own way, and never holds still."""
    lake, repo = never_still(setup), setup.repo
    with pytest.raises(ContentionError) as caught:
        merge.merge(lake, repo, source, "main")
    return caught.value


def never_still(setup: Setup) -> Lake:
    put(setup.lake, setup.repo, "main", "ahead")
    commit.commit(setup.lake, setup.repo, "main", "ahead")
    lake, repo = setup.again(world=Hasty()), setup.repo
    real = lake.branches(repo).update

    def overtaken(name: str, change: Callable[[Branch], Branch | None]) -> Branch | None:
        record = setup.lake.branches(repo).get("main")
        made = commit.record_commit(
            setup.lake,
            repo,
            tree=setup.lake.commits(repo).get(record.commit).tree,
            parents=(record.commit,),
            message="",
        )
        assert setup.lake.branches(repo).update("main", lambda now: now.moved(made, base=now.commit))
        return real(name, change)

    lake.branches(repo).update = overtaken  # type: ignore[method-assign]
    return lake


def test_a_hint_lets_another_server_go_on() -> None:
    setup = racing(2)
    error = give_up(setup, "racer-0")
    assert error.hint
    fresh = setup.again()
    merge.merge(fresh, setup.repo, "racer-0", "main", hint=error.hint)
    past = fresh.past(setup.repo)
    assert isinstance(past, StoredPast)
    assert past.trees.counts().ranges_written == past.trees.counts().metaranges_written == 0
    assert set(shown(fresh, setup.repo, "main")) == {"base", "ahead", "own/0"}


def test_of_many_that_give_up_together_each_gets_the_hint_of_its_own() -> None:
    setup = racing(3)
    lake, repo = never_still(setup), setup.repo
    held, go_on = threading.Event(), threading.Event()

    def slow(at: CommitID) -> CommitID:
        held.set()
        assert go_on.wait(10)
        return at

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(landing.land, lake, repo, "main", slow)
        assert held.wait(10)
        rest = [pool.submit(merge.merge, lake, repo, f"racer-{n}", "main") for n in range(3)]
        while len(lake.lines[repo.uid, "main"].waiting) < 3:
            pass
        go_on.set()
        first.result()
        for n, future in enumerate(rest):
            error = future.exception()
            assert isinstance(error, ContentionError)
            merge.merge(setup.again(), repo, f"racer-{n}", "main", hint=error.hint)
    assert set(shown(setup.lake, repo, "main")) == {"base", "ahead", *(f"own/{n}" for n in range(3))}


def test_a_hint_that_cannot_be_given_changes_nothing_about_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> str:
        raise UnavailableError(Kind.STORE_UNAVAILABLE, "the store is away")

    monkeypatch.setattr(hints, "give", away)
    assert give_up(racing(1), "racer-0").hint == ""


def test_hints_that_are_forged_foreign_or_stale_are_refused() -> None:
    setup = racing(2)
    lake, repo = setup.lake, setup.repo
    hint = give_up(setup, "racer-0").hint
    forged = hint[:-4] + ("AAA=" if hint[-4:] != "AAA=" else "BBB=")
    for bad, source, why in (
        (forged, "racer-0", "not given out here"),
        ("no base64!", "racer-0", "not given out here"),
        (hint, "racer-1", "belongs to another merge"),
    ):
        with pytest.raises(InvalidError, match=why) as caught:
            merge.merge(lake, repo, source, "main", hint=bad)
        assert caught.value.kind is Kind.INVALID_HINT
    with pytest.raises(InvalidError, match="belongs to another merge"):
        merge.merge(lake, repo, "racer-0", "main", strategy=Strategy.SOURCE_WINS, hint=hint)
    other = racing(1)
    with pytest.raises(InvalidError, match="not given out here"):
        merge.merge(other.lake, other.repo, "racer-0", "main", hint=hint)
    late = racing(1, settings=Settings(grace_s=-10))
    with pytest.raises(InvalidError, match="it has expired"):
        merge.merge(late.lake, late.repo, "racer-0", "main", hint=give_up(late, "racer-0").hint)


def test_a_hint_whose_tree_is_gone_means_a_merge_from_scratch() -> None:
    setup = racing(1)
    hint = give_up(setup, "racer-0").hint
    lake, repo = setup.again(), setup.repo
    tree = hints.take(lake, repo, head(lake, repo, "racer-0"), "main", Strategy.NONE, False, hint)
    setup.blobs.delete([f"_esker/metaranges/{tree}"])
    merge.merge(lake, repo, "racer-0", "main", hint=hint)
    assert set(shown(lake, repo, "main")) == {"base", "ahead", "own/0"}


def test_reverts_and_cherry_picks_that_lose_the_race_land_too() -> None:
    setup = racing(12)
    lake, repo = setup.lake, setup.repo
    lakes = (lake, setup.again())
    outcomes = together(12, lambda n: merge.cherry_pick(lakes[n % 2], repo, "main", f"racer-{n}"))
    assert not [outcome for outcome in outcomes if isinstance(outcome, EskerError)]
    assert len(shown(lake, repo, "main")) == 13
    outcomes = together(12, lambda n: merge.revert(lakes[n % 2], repo, "main", f"racer-{n}"))
    assert not [outcome for outcome in outcomes if isinstance(outcome, EskerError)]
    assert set(shown(lake, repo, "main")) == {"base"}


def test_a_merge_and_commits_race_without_losing_either() -> None:
    setup = new_setup(settings=Settings(), cutting=Cutting(entries_mean=3))
    lake, repo = setup.lake, setup.repo
    put(lake, repo, "main", "base")
    commit.commit(lake, repo, "main", "base")
    for n in range(8):
        branches.create(lake, repo, f"side-{n}", "main")
        put(lake, repo, f"side-{n}", f"side/{n}")
        commit.commit(lake, repo, f"side-{n}", "side")

    def work(n: int) -> object:
        if n % 2:
            entries.put(lake, repo, "main", entry(f"direct/{n}"))
            return commit.commit(lake, repo, "main", "direct", allow_empty=True)
        while True:
            try:
                return merge.merge(lake, repo, f"side-{n // 2}", "main")
            except InvalidError as error:
                if error.kind is not Kind.DIRTY_BRANCH:
                    raise

    outcomes = together(16, work)
    assert not [outcome for outcome in outcomes if isinstance(outcome, EskerError)]
    assert set(shown(lake, repo, "main")) == {
        "base",
        *(f"side/{n}" for n in range(8)),
        *(f"direct/{n}" for n in range(1, 16, 2)),
    }
    trees = {digest_of(made.tree) for _, made in history.first_parents(lake.commits(repo).get, head(lake, repo))}
    assert len(trees) > 8
