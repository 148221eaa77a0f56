"""Tags: made once, never moved."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.errors import ConflictError, CorruptError, InvalidError, Kind, NotFoundError, OutcomeUnknownError
from esker.model import CommitID, Tag
from esker.refs import tags
from esker.stores.kv_memory import MemoryKV
from esker.testing.faults import Call, Fault, FaultyKV

UID = "7f"
ONE, OTHER = CommitID("1" * 64), CommitID("2" * 64)

names = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters="/~^:?*[\\.@$"), min_size=1
)


def test_a_tag_is_made_once() -> None:
    kv = MemoryKV()
    assert tags.find(kv, UID, "v1") is None
    tags.create(kv, UID, "v1", ONE)
    with pytest.raises(ConflictError, match="tag 'v1' exists") as caught:
        tags.create(kv, UID, "v1", OTHER)
    assert caught.value.kind is Kind.TAG_EXISTS
    assert tags.get(kv, UID, "v1") == tags.find(kv, UID, "v1") == Tag(commit=ONE)
    assert tags.find(kv, "other", "v1") is None


def test_a_deleted_tag_can_be_made_again() -> None:
    kv = MemoryKV()
    tags.create(kv, UID, "v1", ONE)
    tags.delete(kv, UID, "v1")
    for gone in (tags.get, tags.delete):
        with pytest.raises(NotFoundError, match="no tag 'v1'") as caught:
            gone(kv, UID, "v1")
        assert caught.value.kind is Kind.TAG_NOT_FOUND
    tags.create(kv, UID, "v1", OTHER)
    assert tags.get(kv, UID, "v1").commit == OTHER


@pytest.mark.parametrize("name", ["", "a/b", "x" * 256, "\ud800"])
def test_what_is_no_name_is_refused_for_a_tag_and_finds_none(name: str) -> None:
    kv = MemoryKV()
    with pytest.raises(InvalidError):
        tags.create(kv, UID, name, ONE)
    for anything in (name, 2000 * "x"):
        assert tags.find(kv, UID, anything) is None


@given(st.sets(names, max_size=20), names.map(lambda name: name[:1]) | st.just(""), st.integers(1, 5))
def test_pages_add_up_to_all_tags_with_the_prefix(some: set[str], prefix: str, amount: int) -> None:
    kv = MemoryKV()
    for name in some:
        tags.create(kv, UID, name, ONE)
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        items, after = tags.page(kv, UID, prefix=prefix, after=after, amount=amount)
        assert len(items) == amount if after is not None else len(items) <= amount
        assert items or not found, "no page is announced that turns out empty"
        found += [name for name, _ in items]
    assert found == sorted((name for name in some if name.startswith(prefix)), key=str.encode)


def test_a_page_has_a_size() -> None:
    for amount in (0, -1, 1001):
        with pytest.raises(InvalidError, match="1 to 1000 tags"):
            tags.page(MemoryKV(), UID, amount=amount)


def test_a_lost_answer_is_looked_up() -> None:
    kv = MemoryKV()

    def decide(call: Call) -> Fault | None:
        return Fault.LOST if call.writes else None

    faulty = FaultyKV(kv, decide)
    tags.create(faulty, UID, "v1", ONE)
    assert tags.get(kv, UID, "v1").commit == ONE
    tags.create(faulty, UID, "v1", ONE)
    with pytest.raises(ConflictError):
        tags.create(faulty, UID, "v1", OTHER)


def test_a_write_that_may_still_land_is_said_to_be_unknown() -> None:
    class Slow(MemoryKV):
        def _put_if(self, *_: object) -> bool:
            raise OutcomeUnknownError

    with pytest.raises(OutcomeUnknownError):
        tags.create(Slow(), UID, "v1", ONE)


@pytest.mark.parametrize(
    ("record", "kind"),
    [(b"\xc1", Kind.DAMAGED_RECORD), (msgspec.msgpack.encode({"format_version": 2}), Kind.UNKNOWN_FORMAT)],
)
def test_what_is_no_tag_is_not_read_as_one(record: bytes, kind: Kind) -> None:
    kv = MemoryKV()
    kv.put(f"tags/{UID}", b"v1", record)
    with pytest.raises(CorruptError, match="tag 'v1'") as caught:
        tags.get(kv, UID, "v1")
    assert caught.value.kind is kind
