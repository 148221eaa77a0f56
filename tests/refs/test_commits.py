"""Commits are stored under the digest of their bytes, once and for all."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.errors import CorruptError, InvalidError, Kind, NotFoundError
from esker.model import Commit, CommitID, FileName
from esker.refs import commits
from esker.stores.kv import KVStore
from esker.stores.kv_memory import MemoryKV

UID = "7f"

ids = st.integers(0, 9).map(lambda n: CommitID(f"{n:064x}"))

some_commits = st.builds(
    Commit,
    tree=st.just(FileName("tree")),
    parents=st.lists(ids, max_size=3).map(tuple),
    committer=st.text(st.characters(codec="utf-8")),
    message=st.text(st.characters(codec="utf-8")),
    date_ms=st.integers(-(1 << 60), 1 << 60),
    metadata=st.dictionaries(st.text("ab"), st.text("ab"), max_size=3),
    generation=st.integers(1, 1 << 40),
    nonce=st.text("0123456789abcdef"),
)

COMMIT = Commit(
    tree=FileName("tree"), parents=(), committer="ann", message="first", date_ms=1, generation=1, nonce="00"
)


def numbered(n: int) -> Commit:
    return msgspec.structs.replace(COMMIT, nonce=str(n))


@given(some_commits)
def test_what_is_put_is_got(commit: Commit) -> None:
    kv = MemoryKV()
    name = commits.put(kv, UID, commit)
    assert commits.put(kv, UID, commit) == name == commits.commit_id(commit)
    assert commits.get(kv, UID, name) == commits.Commits(kv, UID).get(name) == commit
    record = kv.get(f"commits/{UID}", name.encode())
    assert record is not None
    assert hashlib.sha256(record.value).hexdigest() == name
    assert len(kv.scan(f"commits/{UID}")) == 1


def test_the_format_is_what_it_was() -> None:
    commit = msgspec.structs.replace(COMMIT, parents=(CommitID("p"),), metadata={"b": "2", "a": "1"})
    kv = MemoryKV()
    name = commits.put(kv, UID, commit)
    assert name == "84837060c70142ed0d8746e3defab369d64cea4c7c4d2277182e1b09fe6bb000"
    record = kv.get(f"commits/{UID}", name.encode())
    assert record is not None
    assert msgspec.msgpack.decode(record.value) == {
        "tree": "tree",
        "parents": ["p"],
        "committer": "ann",
        "message": "first",
        "date_ms": 1,
        "metadata": {"a": "1", "b": "2"},
        "generation": 1,
        "nonce": "00",
        "format_version": 1,
    }


def test_equal_commits_have_one_id_in_whatever_order_their_metadata_came() -> None:
    one, other = (
        msgspec.structs.replace(COMMIT, metadata=data) for data in ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})
    )
    assert commits.commit_id(one) == commits.commit_id(other)


def test_a_commit_is_of_one_repository() -> None:
    kv = MemoryKV()
    name = commits.put(kv, UID, COMMIT)
    with pytest.raises(NotFoundError, match=f"no commit {name}") as caught:
        commits.get(kv, "other", name)
    assert caught.value.kind is Kind.COMMIT_NOT_FOUND


def test_any_damage_is_seen_and_never_cached() -> None:
    kv = MemoryKV()
    name = commits.put(kv, UID, COMMIT)
    record = kv.get(f"commits/{UID}", name.encode())
    assert record is not None
    good = record.value
    reader = commits.Commits(kv, UID)
    for at in range(len(good)):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :]):
            kv.put(f"commits/{UID}", name.encode(), bad)
            with pytest.raises(CorruptError, match=name):
                reader.get(name)
    kv.put(f"commits/{UID}", name.encode(), good)
    assert reader.get(name) == COMMIT


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (b"\xc1", Kind.DAMAGED_RECORD),
        (b"\x81\xa4tree\xa1\xff", Kind.DAMAGED_RECORD),
        (msgspec.msgpack.encode({"tree": 1}), Kind.DAMAGED_RECORD),
        (msgspec.msgpack.encode({"shape": "new", "format_version": 2}), Kind.UNKNOWN_FORMAT),
    ],
)
def test_what_is_no_commit_is_not_read_as_one(record: bytes, kind: Kind) -> None:
    kv = MemoryKV()
    name = CommitID(hashlib.sha256(record).hexdigest())
    kv.put(f"commits/{UID}", name.encode(), record)
    with pytest.raises(CorruptError) as caught:
        commits.get(kv, UID, name)
    assert caught.value.kind is kind


def test_a_commit_too_long_to_store_is_refused_with_a_way_out() -> None:
    with pytest.raises(InvalidError, match="store the rest as an object"):
        commits.put(MemoryKV(), UID, msgspec.structs.replace(COMMIT, message="x" * 380_000))


@pytest.mark.parametrize("cached", [False, True])
def test_a_prefix_finds_the_one_commit_that_begins_so(cached: bool) -> None:
    kv = MemoryKV()
    found = sorted(commits.put(kv, UID, numbered(n)) for n in range(40))
    for name in found:
        for digits in (1, 2, 4, 63, 64):
            begin = [other for other in found if other.startswith(name[:digits])]
            if len(begin) == 1:
                assert find_prefix(kv, name[:digits], cached) == name
            else:
                with pytest.raises(InvalidError, match=begin[0][: digits + 8]) as caught:
                    find_prefix(kv, name[:digits], cached)
                assert caught.value.kind is Kind.AMBIGUOUS_REF
                assert ("and others" in str(caught.value)) == (len(begin) > 4)
    for missing in ("0" * 64, "f" * 64, found[3][:-1] + ("0" if found[3][-1] != "0" else "1"), "g"):
        assert find_prefix(kv, missing, cached) is None


def find_prefix(kv: KVStore, prefix: str, cached: bool) -> CommitID | None:
    return commits.Commits(kv, UID).find_prefix(prefix) if cached else commits.find_prefix(kv, UID, prefix)


def test_a_commit_is_read_once_while_it_is_kept() -> None:
    kv = MemoryKV()
    name = commits.put(kv, UID, COMMIT)
    reader = commits.Commits(kv, UID)
    for _ in range(3):
        assert reader.get(name) == COMMIT
        assert reader.find_prefix(name) == name
    assert kv.counts.reads["commits"] == 1


@pytest.mark.parametrize("bytes_max", [0, 3_000, 1 << 20])
def test_what_is_kept_is_bounded(bytes_max: int) -> None:
    kv = MemoryKV()
    found = [commits.put(kv, UID, numbered(n)) for n in range(50)]
    reader = commits.Commits(kv, UID, bytes_max)

    def read(turn: int) -> None:
        for n in range(50):
            at = 7 * (n + turn) % 50
            assert reader.get(found[at]) == numbered(at)
            assert reader.bytes_used <= bytes_max

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(8)))
    reads = kv.counts.reads["commits"]
    read(0)
    again = kv.counts.reads["commits"] - reads
    assert again == 0 if bytes_max == 1 << 20 else 40 < again <= 50


@pytest.mark.parametrize("bytes_max", [0, 1 << 20])
def test_commits_written_behind_are_known_at_once_and_stored_together(bytes_max: int) -> None:
    kv = MemoryKV()
    history = commits.Commits(kv, UID, bytes_max)
    with history.writing_behind():
        first = history.put(numbered(1))
        second = history.put(msgspec.structs.replace(numbered(2), parents=(first,)))
        assert history.get(history.get(second).parents[0]).nonce == "1"
        assert not kv.counts.writes
    assert [commits.get(kv, UID, name).nonce for name in (first, second)] == ["1", "2"]


def test_commits_written_behind_are_not_stored_after_an_error() -> None:
    kv = MemoryKV()
    history = commits.Commits(kv, UID)

    def fail() -> None:
        with history.writing_behind():
            history.put(numbered(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not kv.counts.writes
