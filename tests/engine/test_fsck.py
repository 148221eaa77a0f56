"""Fsck finds nothing in a healthy repository, whatever was done to it, and finds every damage that is planted."""

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from esker.engine import branches, commit, compaction, entries, fsck, jobs, merge, objects, stashes
from esker.engine.cleaning import Cleaner
from esker.engine.policy import Compaction
from esker.format import files
from esker.format.names import digest, fresh_name
from esker.model import CommitID, FileName
from esker.refs import commits, tags
from esker.refs.records import Branch
from esker.staging import tokens
from esker.stores.kv_memory import MemoryKV
from esker.streams.entries import SCHEMA
from esker.tree.cutting import Cutting
from esker.world import REAL
from tests.engine.lakes import NoGuardsKV, Setup, head, new_setup, put

PATHS = [f"dir/{number:03}" for number in range(40)]


def lived(setup: Setup) -> Setup:
    """With history, a merge, a tag, layers of every kind, a stash and a job."""
    lake, repo, _, _ = setup
    put(lake, repo, "main", *PATHS)
    commit.commit(lake, repo, "main", "first")
    branches.create(lake, repo, "dev", "main")
    put(lake, repo, "dev", "dir/005", content=5)
    commit.commit(lake, repo, "dev", "dev")
    put(lake, repo, "main", "other", content=6)
    commit.commit(lake, repo, "main", "second")
    merge.merge(lake, repo, "dev", "main", message="merged")
    tags.create(lake.kv, repo.uid, "v1", head(lake, repo))
    jobs.start(lake, repo, "main", job_id="job-1")
    put(lake, repo, "main", "staged/1", "staged/2")
    stashes.stash(lake, repo, "main", "aside")
    put(lake, repo, "main", "low")
    entries.delete(lake, repo, "main", "dir/001")
    compaction.compact(lake, repo, "main", Compaction.MINOR, force=True)
    entries.delete_prefix(lake, repo, "main", "dir/01")
    put(lake, repo, "main", "high")
    branches.create(lake, repo, "folded", "main")
    put(lake, repo, "folded", "more", "most")
    compaction.compact(lake, repo, "folded", Compaction.MAJOR, force=True)
    return setup


@pytest.fixture
def setup() -> Setup:
    return lived(new_setup())


def found(setup: Setup, *, deep: bool = False, blobs: bool = False) -> list[fsck.Finding]:
    """As another process finds it: nothing is cached."""
    return list(fsck.check(setup.again(), setup.repo, deep=deep, blobs=blobs))


def whats(setup: Setup, *, deep: bool = False) -> list[str]:
    return [finding.what for finding in found(setup, deep=deep)]


@pytest.mark.parametrize("kv", [MemoryKV, NoGuardsKV])
def test_a_healthy_repository_has_nothing_wrong(kv: type[MemoryKV]) -> None:
    seen = 0

    def advance() -> None:
        nonlocal seen
        seen += 1

    setup = lived(new_setup(kv()))
    assert list(fsck.check(setup.again(), setup.repo, deep=True, advance=advance)) == []
    assert seen > 20


def test_a_repository_in_use_has_nothing_wrong() -> None:
    """Nothing that falls off a branch is kept for readers: whatever fsck reads may be gone by then."""
    setup = lived(new_setup())
    lake, repo, _, _ = setup
    done = threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        cleaner = Cleaner(lake, repo)
        rounds = 0
        try:
            while not done.is_set():
                rounds += 1
                put(lake, repo, "main", f"round/{rounds}", f"again/{rounds % 7}", content=rounds)
                if rounds % 3 == 0:
                    compaction.compact(lake, repo, "main", (Compaction.MINOR, Compaction.MAJOR)[rounds % 2], force=True)
                if rounds % 5 == 0:
                    commit.commit(lake, repo, "main", f"round {rounds}")
                cleaner.run()
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        wrong = [finding for _ in range(10) for finding in found(setup)]
    finally:
        done.set()
        worker.join()
    assert (wrong, failed) == ([], [])


def record_of(setup: Setup, branch: str) -> Branch:
    return setup.lake.branches(setup.repo).get(branch)


def rewrite(setup: Setup, branch: str, **fields: object) -> None:
    """The record of a branch, edited behind everybody's back."""
    changed = msgspec.structs.replace(record_of(setup, branch), **fields)
    setup.kv.put(f"branches/{setup.repo.uid}", branch.encode(), msgspec.msgpack.encode(changed))


def blobs_of(setup: Setup, kind: str) -> list[str]:
    return [info.name for info in setup.blobs.list(f"_esker/{kind}/")]


def flip(setup: Setup, blob: str) -> None:
    data = setup.blobs.get(blob)
    assert data is not None
    middle = len(data) // 2
    setup.blobs.put(blob, data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])


@pytest.mark.parametrize("kind", ["ranges", "metaranges", "staging"])
@pytest.mark.parametrize("damage", ["missing", "flipped", "cut off"])
def test_every_file_that_is_missing_or_damaged_is_named(setup: Setup, kind: str, damage: str) -> None:
    what = {"ranges": "range", "metaranges": "tree", "staging": "table"}[kind]
    for blob in blobs_of(setup, kind):
        if blob == f"_esker/metaranges/{orphan(setup)}":
            continue
        good = setup.blobs.get(blob)
        assert good is not None
        if damage == "missing":
            setup.blobs.delete([blob])
        elif damage == "flipped":
            flip(setup, blob)
        else:
            setup.blobs.put(blob, good[:-1])
        wrong = found(setup)
        assert [one.what for one in wrong] == [what] * len(wrong), wrong
        assert wrong, blob
        name = blob.rpartition("/")[2].removesuffix(".sst")
        assert all(name in one.message for one in wrong)
        setup.blobs.put(blob, good)
    assert found(setup) == []


def orphan(setup: Setup) -> str:
    """The tree that nothing names any more, if there is one."""
    named = {
        commits.get(setup.kv, setup.repo.uid, CommitID(item.key.decode())).tree for item in all_of(setup, "commits")
    }
    named |= {tree for branch in ("main", "folded") if (tree := record_of(setup, branch).compacted)}
    return next((name for blob in blobs_of(setup, "metaranges") if (name := blob.rpartition("/")[2]) not in named), "")


def all_of(setup: Setup, kind: str) -> list[Any]:
    return list(setup.kv.scan(f"{kind}/{setup.repo.uid}"))


def test_every_commit_that_is_missing_or_damaged_is_named(setup: Setup) -> None:
    for item in all_of(setup, "commits"):
        setup.kv.delete(f"commits/{setup.repo.uid}", item.key)
        [missing] = found(setup)
        assert (missing.what, missing.where) == ("commit", item.key.decode())
        setup.kv.put(f"commits/{setup.repo.uid}", item.key, item.record.value + b"\0")
        [damaged] = found(setup)
        assert (damaged.what, damaged.where) == ("commit", item.key.decode())
        assert "digest" in damaged.message
        setup.kv.put(f"commits/{setup.repo.uid}", item.key, item.record.value)


def test_a_commit_of_the_wrong_generation_is_named(setup: Setup) -> None:
    lake, repo, kv, _ = setup
    parent = commits.get(kv, repo.uid, head(lake, repo))
    wrong = commits.put(kv, repo.uid, msgspec.structs.replace(parent, parents=(head(lake, repo),), nonce="1" * 16))
    tags.create(kv, repo.uid, "odd", wrong)
    [one] = found(setup)
    assert (one.what, one.where) == ("commit", wrong)
    assert "generation" in one.message


@pytest.mark.parametrize(("kind", "what"), [("branches", "branch"), ("tags", "tag"), ("jobs", "job")])
def test_a_record_that_cannot_be_read_is_named(setup: Setup, kind: str, what: str) -> None:
    for item in all_of(setup, kind):
        setup.kv.put(f"{kind}/{setup.repo.uid}", item.key, item.record.value[:-1])
        assert (what, item.key.decode()) in [(one.what, one.where) for one in found(setup)]
        setup.kv.put(f"{kind}/{setup.repo.uid}", item.key, item.record.value)


def test_a_default_branch_that_is_gone_is_told(setup: Setup) -> None:
    setup.kv.delete(f"branches/{setup.repo.uid}", b"main")
    assert ("branch", "main") in [(one.what, one.where) for one in found(setup)]


def test_guards_that_say_something_else_than_the_branch_are_told(setup: Setup) -> None:
    guards = all_of(setup, "guards")
    named = [layer.token for layer in record_of(setup, "main").layers if layer.token]
    assert named
    for item in guards:
        if item.key.decode() not in named:
            continue  # of what was dropped, or another branch's
        other = b"sealed" if item.record.value == b"open" else b"open"
        setup.kv.put(f"guards/{setup.repo.uid}", item.key, other)
        assert whats(setup) == ["token"]
        setup.kv.delete(f"guards/{setup.repo.uid}", item.key)
        assert whats(setup) == ["token"]
        setup.kv.put(f"guards/{setup.repo.uid}", item.key, item.record.value)
    assert found(setup) == []


def test_a_clean_token_that_holds_something_is_told(setup: Setup) -> None:
    token = record_of(setup, "dev").token
    setup.kv.put(tokens.partition(token), b"lost", tokens.encode(None))
    [one] = found(setup)
    assert one.what == "token"
    assert token in one.message
    setup.kv.put(f"guards/{setup.repo.uid}", token.encode(), b"open")
    assert whats(setup) == ["token", "token"]


def test_staged_records_that_cannot_be_read_are_named(setup: Setup) -> None:
    token = record_of(setup, "main").token
    setup.kv.put(tokens.partition(token), b"bad", b"\x93")
    setup.kv.put(tokens.partition(token), b"\xff", tokens.encode(None))
    wrong = found(setup)
    assert [one.what for one in wrong] == ["token", "token"]
    assert "'bad'" in wrong[0].message


def test_a_filter_that_hides_what_its_table_holds_is_told(setup: Setup) -> None:
    _, repo, kv, _ = setup
    prepared = entries_layer(setup)
    kept = kv.get(f"filters/{repo.uid}", prepared.encode())
    assert kept is not None
    kv.put(f"filters/{repo.uid}", prepared.encode(), kept.value[:1] + bytes(len(kept.value) - 1))
    [one] = found(setup)
    assert (one.what, "filter" in one.message) == ("table", True)


def entries_layer(setup: Setup) -> FileName:
    """A table of a branch that is long enough for a filter."""
    lake, repo, _, _ = setup
    branches.create(lake, repo, "long", "main~1")
    put(lake, repo, "long", *(f"long/{number}" for number in range(20)))
    compaction.compact(lake, repo, "long", Compaction.MINOR, force=True)
    l2 = record_of(setup, "long").l2
    assert l2 is not None
    return l2.tables[0].file


@pytest.mark.parametrize(
    "edit",
    [{"min": "a"}, {"max": "zzz"}, {"count": 7}, {"tombstones": 2}],
    ids=lambda edit: next(iter(edit)),
)
def test_a_branch_that_says_something_else_of_a_table_is_told(setup: Setup, edit: dict[str, object]) -> None:
    entries_layer(setup)
    l2 = record_of(setup, "long").l2
    assert l2 is not None
    table = msgspec.structs.replace(l2.tables[0], **edit)
    rewrite(setup, "long", l2=msgspec.structs.replace(l2, tables=(table,)))
    [one] = found(setup)
    assert (one.what, one.where) == ("table", "branch 'long'")


def tree_of(setup: Setup, tables: list[pa.Table], edit: Callable[[dict[str, Any]], object] = lambda row: None) -> None:
    """A tag on a tree whose ranges hold these rows, as no writer would cut or order them."""
    lake, repo, kv, blobs = setup
    rows = []
    for table in tables:
        data = memoryview(files.encode(files.RANGE, table, {}))
        content = digest("range", table)
        name = fresh_name(content, data, REAL)
        blobs.put(f"_esker/ranges/{name}", data)
        paths = table["path"].to_pylist()
        size = sum(len(str(row[column]).encode()) for row in table.to_pylist() for column in TEXT) + 16 * len(paths)
        row = {"id": content, "name": name, "min": paths[0], "max": paths[-1], "count": len(paths), "bytes": size}
        edit(row)
        rows.append(row)
    meta = pa.Table.from_pylist(rows, schema=files.RANGES).combine_chunks()
    data = memoryview(files.encode(files.METARANGE, meta, {}))
    tree = fresh_name(digest("metarange", meta.drop_columns(["name"])), data, REAL)
    blobs.put(f"_esker/metaranges/{tree}", data)
    parent = commits.get(kv, repo.uid, head(lake, repo))
    planted = msgspec.structs.replace(parent, tree=tree, parents=(), generation=1, nonce="2" * 16)
    tags.create(kv, repo.uid, "planted", commits.put(kv, repo.uid, planted))


TEXT = ("path", "address", "checksum", "content_type", "metadata")


def rows_of(*paths: str) -> pa.Table:
    plain = {"address": "data/x", "size": 1, "checksum": "c", "mtime": 0, "content_type": "", "metadata": ""}
    return pa.Table.from_pylist([{"path": path, **plain} for path in paths], schema=SCHEMA).combine_chunks()


WHOLE = Cutting(entries_mean=1 << 60, entries_max=4, bytes_max=1 << 20)
"""Cuts after each fourth row, and nowhere else."""


@pytest.fixture
def whole() -> Setup:
    return new_setup(cutting=WHOLE)


def test_a_tree_cut_where_it_should_be_is_well(whole: Setup) -> None:
    tree_of(whole, [rows_of("a", "b", "c", "d"), rows_of("e", "f")])
    assert found(whole, deep=True) == []


@pytest.mark.parametrize(
    "tables",
    [
        [rows_of("a", "b"), rows_of("c", "d", "e")],
        [rows_of("a", "b", "c", "d", "e"), rows_of("f")],
    ],
    ids=["too early", "too late"],
)
def test_a_tree_cut_elsewhere_is_told_by_a_deep_look_alone(whole: Setup, tables: list[pa.Table]) -> None:
    tree_of(whole, tables)
    assert found(whole) == []
    assert whats(whole, deep=True) in (["tree"], ["range"])


@pytest.mark.parametrize(
    ("tables", "what"),
    [
        ([rows_of("b", "a", "c", "d")], "range"),
        ([rows_of("a", "a", "c", "d")], "range"),
        ([rows_of("e", "f", "g", "h"), rows_of("a", "b")], "tree"),
    ],
    ids=["rows", "twice", "ranges"],
)
def test_what_is_out_of_order_is_told(whole: Setup, tables: list[pa.Table], what: str) -> None:
    tree_of(whole, tables)
    assert what in whats(whole)


@pytest.mark.parametrize("field", ["min", "max", "count", "bytes", "id"])
def test_a_range_that_is_not_what_its_tree_says_is_told(whole: Setup, field: str) -> None:
    def edit(row: dict[str, Any]) -> None:
        row[field] = {"min": "A", "max": "z", "id": "0" * 64}.get(field, 3)

    tree_of(whole, [rows_of("a", "b", "c", "d")], edit)
    assert "range" in whats(whole)


def test_bytes_that_are_missing_or_cut_off_are_told_only_if_asked_for(whole: Setup) -> None:
    lake, repo, _, blobs = whole
    kept = [objects.put(lake, repo, "main", path, [b"bytes"]) for path in ("a", "b", "c")]
    commit.commit(lake, repo, "main", "three")
    kept += [objects.put(lake, repo, "main", path, [b"bytes"]) for path in ("d", "e")]
    assert found(whole, blobs=True) == []
    blobs.delete([kept[0].address, kept[3].address])
    blobs.put(kept[1].address, b"byte")
    assert found(whole) == []
    wrong = found(whole, blobs=True)
    assert [one.what for one in wrong] == ["blob"] * 3
    assert ["'a'" in wrong[0].message, "'b'" in wrong[1].message, "'d'" in wrong[2].message] == [True] * 3
