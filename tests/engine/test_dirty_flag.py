"""The dirty flag: reads of a clean branch do not look into staging, and no write ever hides behind it. Counted."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Final

import msgspec
import pytest
from prometheus_client import REGISTRY
from prometheus_client.samples import Sample

from esker.engine import changes, commit, entries, merge, reset
from esker.engine.lake import Lake
from esker.errors import Kind
from esker.model import Repository
from esker.refs.branches import decode
from esker.settings import Settings
from esker.stores.kv_memory import MemoryKV
from esker.testing.faults import Call, CountingKV, Fault, FaultyKV
from tests.engine.lakes import (
    AT_ONCE,
    Clock,
    NoGuardsKV,
    Setup,
    committed,
    contents,
    entry,
    head,
    kind_of,
    new_setup,
    open_lake,
    put,
    uncommitted,
)

LOOKS_ALWAYS: Final = Settings(dirty_read_optimization=False, grace_s=0.0)

READS: Final[dict[str, Callable[[Lake, Repository], object]]] = {
    "get": lambda lake, repo: entries.get(lake, repo, "main", "k"),
    "get nothing": lambda lake, repo: kind_of(partial(entries.get, lake, repo, "main", "q")),
    "list": lambda lake, repo: entries.listing(lake, repo, "main", delimiter="/").items,
    "diff": lambda lake, repo: changes.uncommitted(lake, repo, "main").items,
    "is clean": lambda lake, repo: changes.is_clean(lake, repo, "main"),
}


def staging_calls(kv: CountingKV) -> int:
    return sum(n for (_, name), n in kv.partitions.items() if name.startswith("staging/"))


def branch_calls(kv: CountingKV, method: str) -> int:
    return sum(n for (of, name), n in kv.partitions.items() if of == method and name.startswith("branches/"))


@pytest.fixture(params=[MemoryKV, NoGuardsKV])
def counting(request: pytest.FixtureRequest) -> CountingKV:
    return CountingKV(request.param())


@pytest.fixture
def setup(counting: CountingKV) -> Setup:
    """One object is committed, and the branch is clean."""
    setup = new_setup(counting)
    put(setup.lake, setup.repo, "main", "k", content="committed")
    commit.commit(setup.lake, setup.repo, "main", "m")
    return setup


def _after_a_commit(setup: Setup) -> None:
    pass


def _after_a_reset(setup: Setup) -> None:
    put(setup.lake, setup.repo, "main", "k", "x", content="staged")
    reset.reset(setup.lake, setup.repo, "main")


def _after_a_commit_of_nothing(setup: Setup) -> None:
    entries.delete(setup.lake, setup.repo, "main", "nothing")
    assert kind_of(partial(commit.commit, setup.lake, setup.repo, "main", "m")) is Kind.NO_CHANGES


@pytest.mark.parametrize("how", [_after_a_commit, _after_a_reset, _after_a_commit_of_nothing])
@pytest.mark.parametrize("read", READS)
def test_a_read_of_a_clean_branch_does_not_touch_staging(
    setup: Setup, counting: CountingKV, how: Callable[[Setup], None], read: str
) -> None:
    how(setup)
    counting.reset()
    for lake in (setup.lake, setup.again()):
        READS[read](lake, setup.repo)
    assert staging_calls(counting) == 0
    assert counting.counts.reads["branches"], "the port's own counts tell the same"


@pytest.mark.parametrize("read", READS)
def test_a_read_of_a_clean_branch_reads_one_record(setup: Setup, counting: CountingKV, read: str) -> None:
    READS[read](setup.lake, setup.repo)
    counting.reset()
    READS[read](setup.lake, setup.repo)
    assert counting.calls == {"get": 1}
    assert branch_calls(counting, "get") == 1


@pytest.mark.parametrize("read", READS)
def test_a_read_of_a_dirty_branch_touches_staging(setup: Setup, counting: CountingKV, read: str) -> None:
    put(setup.lake, setup.repo, "main", "other")
    counting.reset()
    READS[read](setup.lake, setup.repo)
    assert staging_calls(counting) > 0


def test_a_read_of_what_is_committed_to_a_dirty_branch_does_not_touch_staging(
    setup: Setup, counting: CountingKV
) -> None:
    put(setup.lake, setup.repo, "main", "k", content="staged")
    counting.reset()
    for ref in ("main@", head(setup.lake, setup.repo), "main~0"):
        assert contents(setup.lake, setup.repo, ref) == {"k": "committed"}
    assert staging_calls(counting) == 0


@pytest.mark.parametrize("puts", [1, 2, 50])
def test_a_commit_cycle_costs_one_branch_write_for_the_flag(setup: Setup, counting: CountingKV, puts: int) -> None:
    """Beyond that: one to seal, one to advance, as without the flag."""
    for _ in range(3):
        counting.reset()
        put(setup.lake, setup.repo, "main", *(f"{n}" for n in range(puts)), content=counting.counts.writes.total())
        assert branch_calls(counting, "put_if") == 1
        for n in range(puts):
            entries.delete(setup.lake, setup.repo, "main", f"gone {n}")
        assert branch_calls(counting, "put_if") == 1
        commit.commit(setup.lake, setup.repo, "main", "m")
        assert branch_calls(counting, "put_if") == 3
        assert branch_calls(counting, "put") == 0


def test_another_put_to_a_dirty_branch_writes_one_record(setup: Setup, counting: CountingKV) -> None:
    put(setup.lake, setup.repo, "main", "k")
    counting.reset()
    put(setup.lake, setup.repo, "main", "k")
    if counting.guards:
        assert counting.calls == {"put_guarded": 1}, "the guard says that the token still is the open one"
    else:
        assert counting.calls == {"get": 2, "put": 1}, "and looks again"


def _stored_without_the_flag(setup: Setup) -> None:
    """As by an esker from before it."""
    partition, key = f"branches/{setup.repo.uid}", b"main"
    record = setup.kv.get(partition, key)
    assert record is not None
    fields = msgspec.msgpack.decode(record.value)
    assert fields.pop("dirty", None) is False, "a clean branch says so, and a dirty one need not"
    setup.kv.put(partition, key, msgspec.msgpack.encode(fields))
    stored = setup.kv.get(partition, key)
    assert stored is not None
    assert decode("main", stored).dirty


def test_a_record_stored_without_the_flag_reads_as_dirty(setup: Setup, counting: CountingKV) -> None:
    _stored_without_the_flag(setup)
    counting.reset()
    assert contents(setup.lake, setup.repo, "main") == {"k": "committed"}
    assert staging_calls(counting) > 0


def test_a_branch_stored_without_the_flag_takes_writes_and_becomes_clean(setup: Setup, counting: CountingKV) -> None:
    _stored_without_the_flag(setup)
    lake, repo = setup.lake, setup.repo
    put(lake, repo, "main", "new")
    assert contents(lake, repo, "main") == {"k": "committed", "new": "0"}
    commit.commit(lake, repo, "main", "m")
    counting.reset()
    assert contents(lake, repo, "main") == {"k": "committed", "new": "0"}
    assert staging_calls(counting) == 0


def test_a_branch_stored_without_the_flag_takes_puts_if_absent(setup: Setup) -> None:
    _stored_without_the_flag(setup)
    entries.put(setup.lake, setup.repo, "main", entry("new"), if_absent=True)
    assert kind_of(partial(entries.put, setup.lake, setup.repo, "main", entry("k"), if_absent=True))
    assert contents(setup.lake, setup.repo, "main") == {"k": "committed", "new": "0"}


def test_a_merge_into_a_branch_stored_without_the_flag_finds_it_clean(setup: Setup) -> None:
    lake, repo = setup.lake, setup.repo
    lake.branches(repo).create("dev", head(lake, repo))
    put(lake, repo, "dev", "new")
    commit.commit(lake, repo, "dev", "m")
    _stored_without_the_flag(setup)
    merge.merge(lake, repo, "dev", "main")
    assert contents(lake, repo, "main") == {"k": "committed", "new": "0"}


@pytest.mark.parametrize("read", READS)
def test_with_the_optimization_off_staging_is_looked_into_and_says_the_same(
    setup: Setup, counting: CountingKV, read: str
) -> None:
    looking = open_lake(counting, setup.blobs, LOOKS_ALWAYS)
    lake, repo = setup.lake, setup.repo
    steps: list[Callable[[], object]] = [
        lambda: None,
        lambda: put(lake, repo, "main", "k", "new", content="staged"),
        lambda: entries.delete(lake, repo, "main", "k"),
        lambda: reset.reset(lake, repo, "main"),
        lambda: entries.delete_prefix(lake, repo, "main", "k"),
    ]
    for step in steps:
        step()
        if kind_of(partial(entries.get, setup.lake, setup.repo, "main", "k")) is None or read != "get":
            counting.reset()
            answer = READS[read](looking, setup.repo)
            assert staging_calls(counting) > 0
            assert answer == READS[read](setup.lake, setup.repo)


def test_a_writer_with_the_optimization_off_keeps_the_flag_for_the_others(setup: Setup, counting: CountingKV) -> None:
    """So it can be switched at once, in one process after another."""
    looking = open_lake(counting, setup.blobs, LOOKS_ALWAYS)
    put(looking, setup.repo, "main", "k", content="staged")
    assert contents(setup.lake, setup.repo, "main") == {"k": "staged"}
    commit.commit(looking, setup.repo, "main", "m")
    put(setup.lake, setup.repo, "main", "k", content="again")
    assert contents(looking, setup.repo, "main") == {"k": "again"}


# ---------------------------------------------------------------------- metrics


def _counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def _counts(repo: str, op: str) -> list[float]:
    """Reads of the branch when clean, when dirty, and looks into staging."""
    reads, branch = "graveler_branch_reads_total", {"repo": repo, "branch": "main", "op": op}
    return [
        _counted(reads, **branch, dirty="false"),
        _counted(reads, **branch, dirty="true"),
        _counted("graveler_staging_read_attempts_total", **branch),
    ]


def test_the_counters_tell_reads_of_branches_from_looks_into_staging(setup: Setup) -> None:
    lake, repo = setup.lake, setup.repo
    looking = open_lake(setup.kv, setup.blobs, LOOKS_ALWAYS)
    for op, read in (("get", READS["get"]), ("list", READS["list"]), ("diff", READS["diff"])):
        counts = partial(_counts, repo.name, op)
        read(lake, repo)
        assert counts() == [1, 0, 0]
        read(looking, repo)
        assert counts() == [2, 0, 1]
        put(lake, repo, "main", "other")
        read(lake, repo)
        read(lake, repo)
        assert counts() == [2, 2, 3]
        reset.reset(lake, repo, "main")
        entries.delete_prefix(lake, repo, "main", "q")
        read(lake, repo)
        assert counts() == [2, 3, 4], "a sealed layer makes a branch as dirty as an open one"
        reset.reset(lake, repo, "main")


def test_reads_of_commits_and_writes_are_not_counted(setup: Setup) -> None:
    lake, repo = setup.lake, setup.repo
    before = {tuple(sample.labels.values()): sample.value for sample in _samples(repo.name)}
    contents(lake, repo, "main@")
    entries.get(lake, repo, head(lake, repo), "k")
    put(lake, repo, "main", "k", content="again")
    entries.put(lake, repo, "main", entry("new"), if_absent=True)
    commit.commit(lake, repo, "main", "m")
    assert {tuple(sample.labels.values()): sample.value for sample in _samples(repo.name)} == before


def _samples(repo: str) -> list[Sample]:
    return [
        sample
        for metric in REGISTRY.collect()
        if metric.name.startswith("graveler_")
        for sample in metric.samples
        if sample.labels.get("repo") == repo and sample.name.endswith("_total")
    ]


# ---------------------------------------------------------------------- a writer at each point of a commit


def _at_call(setup: Setup, number: int, action: Callable[[], None]) -> Lake:
    """The lake, on which `action` runs just before the call of this number."""
    calls = count()

    def on_call(_: Call) -> None:
        if next(calls) == number:
            action()

    return setup.again(FaultyKV(setup.kv, lambda _: None, on_call))


def _points(kv: type[MemoryKV]) -> Iterator[tuple[Setup, int, list[str]]]:
    """A branch with something staged, for each call of a commit, and a place to note what was done there."""
    for number in count():
        setup = new_setup(kv(), settings=AT_ONCE, world=Clock())
        put(setup.lake, setup.repo, "main", "a", "b", content="before")
        noted: list[str] = []
        yield setup, number, noted
        if not noted:
            assert number > 4, "there are that many calls at least"
            return


@pytest.mark.parametrize("kv", [MemoryKV, NoGuardsKV])
def test_a_write_at_any_point_of_a_commit_is_never_hidden_by_the_flag(kv: type[MemoryKV]) -> None:
    for setup, number, noted in _points(kv):
        lake, repo = setup.lake, setup.repo

        def write(lake: Lake = lake, repo: Repository = repo, noted: list[str] = noted) -> None:
            put(lake, repo, "main", "a", "new", content="during")
            entries.delete(lake, repo, "main", "b")
            noted.append("written")

        made = commit.commit(_at_call(setup, number, write), repo, "main", "m")
        if not noted:
            continue
        everything = {"a": "during", "new": "during"}
        held = {path: found.checksum for path, found in committed(lake, repo, made).items()}
        assert held in ({"a": "before", "b": "before"}, everything)
        assert contents(lake, repo, "main") == everything
        assert lake.branches(repo).get("main").clean == (held == everything)
        assert uncommitted(lake, repo) == ([] if held == everything else ["a", "b", "new"])
        if held != everything:
            last = commit.commit(lake, repo, "main", "m")
            assert {path: found.checksum for path, found in committed(lake, repo, last).items()} == everything
        assert lake.branches(repo).get("main").clean


@pytest.mark.parametrize("kv", [MemoryKV, NoGuardsKV])
@pytest.mark.parametrize("if_absent", [False, True])
def test_a_commit_at_any_point_of_a_write_leaves_it_visible(kv: type[MemoryKV], if_absent: bool) -> None:
    for number in count():
        setup = new_setup(kv(), settings=AT_ONCE, world=Clock())
        lake, repo = setup.lake, setup.repo
        put(lake, repo, "main", "a", content="before")
        noted: list[str] = []

        def commit_all(lake: Lake = lake, repo: Repository = repo, noted: list[str] = noted) -> None:
            noted.append(commit.commit(lake, repo, "main", "m"))

        entries.put(_at_call(setup, number, commit_all), repo, "main", entry("new"), if_absent=if_absent)
        if not noted:
            assert number > 1
            return
        assert contents(lake, repo, "main") == {"a": "before", "new": "0"}
        kind_of(partial(commit.commit, lake, repo, "main", "m"))
        assert lake.branches(repo).get("main").clean
        assert contents(lake, repo, "main") == {"a": "before", "new": "0"}


@pytest.mark.parametrize("kv", [MemoryKV, NoGuardsKV])
@pytest.mark.parametrize("if_absent", [False, True])
def test_a_lost_answer_to_setting_the_flag_does_not_lose_the_write(kv: type[MemoryKV], if_absent: bool) -> None:
    """The flag was set, and fell with a commit, before the writer learns of it: the token at hand is a clean one."""
    setup = new_setup(kv(), settings=AT_ONCE, world=Clock())
    lake, repo = setup.lake, setup.repo
    lost: list[str] = []
    committed_between: list[Kind | None] = []

    def lose_the_first_swap(call: Call) -> Fault | None:
        if call.method != "put_if" or lost:
            return None
        lost.append(call.name)
        return Fault.LOST

    def commit_then(call: Call) -> None:
        if lost and not committed_between:
            committed_between.append(Kind.NO_CHANGES)
            kind_of(partial(commit.commit, lake, repo, "main", "m"))

    writer = setup.again(FaultyKV(setup.kv, lose_the_first_swap, commit_then))
    entries.put(writer, repo, "main", entry("k"), if_absent=if_absent)
    assert lost
    assert contents(lake, repo, "main") == {"k": "0"}
    kind_of(partial(commit.commit, lake, repo, "main", "m"))
    assert contents(lake, repo, "main@") == {"k": "0"}
