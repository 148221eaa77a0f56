"""Cleaning: taking away what fell off branches, once no reader can still look at it.

    1. note     what a branch dropped goes to the `cleanup` partition
    2. forget   it is taken off the branch's record, by swap
    3. wait     the grace time, on this process's own clock, from when it first saw the note
    4. delete   the token's records and guard, the tables, what a compacted tree has for itself; then the note

A crash after any step leaves a note, or a layer that is still on its branch's record, and the next cleaner goes on.
Deleting twice is no error, so several may run at once.
"""

from contextlib import suppress
from typing import Final

import msgspec

from esker.engine.lake import Lake
from esker.errors import EskerError, NotFoundError
from esker.model import Repository, Waste
from esker.refs.records import Branch
from esker.staging import tokens
from esker.stores.kv import items

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Waste)
_BATCH: Final = 1000
_DROPPED_MAX: Final = 100
_AGAIN: Final = b"again/"
_ROUNDS_A_GRACE: Final = 4


def clean_now_and_then(lake: Lake, repo: Repository) -> None:
    """A round of cleaning, if the last of this process is a while ago."""
    now_s = lake.world.monotonic_s()
    cleaner = _cleaner(lake, repo)
    if now_s - cleaner.ran_s >= lake.settings.grace_s / _ROUNDS_A_GRACE:
        with suppress(EskerError):  # whoever came here has done what he came for; the next round goes on
            cleaner.run()


def relieve(lake: Lake, repo: Repository, branch: str, record: Branch) -> None:
    """Something fell off the branch: have its repository cleaned, if anybody cleans in this process. Perhaps nobody
    does, and the record, which everybody reads, must not grow for ever: if it is much, hand it over now."""
    _cleaner(lake, repo)
    if len(record.dropped) >= _DROPPED_MAX:
        with suppress(EskerError):
            hand_over(lake, repo, branch, record)


def _cleaner(lake: Lake, repo: Repository) -> "Cleaner":
    found: Cleaner | None = lake.cleaners.get(repo.uid)
    return found or lake.cleaners.setdefault(repo.uid, Cleaner(lake, repo))


def hand_over(lake: Lake, repo: Repository, branch: str, record: Branch) -> None:
    """Move what the branch dropped to the notes."""
    notes = ((waste.id.encode(), _ENCODER.encode(waste)) for waste in record.dropped)
    lake.kv.put_many(_notes(repo), notes)
    lake.branches(repo).forget(branch, [waste.id for waste in record.dropped])


def _notes(repo: Repository) -> str:
    return f"cleanup/{repo.uid}"


class Cleaner:
    """Cleans one repository; remembers when it first saw each note, so it must live as long as the grace time."""

    def __init__(self, lake: Lake, repo: Repository) -> None:
        self._lake = lake
        self.repo = repo
        self._notes = _notes(repo)
        self._seen_s: dict[bytes, float] = {}
        self.ran_s = float("-inf")

    def run(self) -> int:
        """One round: how many things were deleted for good."""
        self._collect()
        notes = {item.key: _DECODER.decode(item.record.value) for item in items(self._lake.kv, self._notes)}
        self.ran_s = now_s = self._lake.world.monotonic_s()  # after that: some were perhaps made while we looked
        self._seen_s = {key: self._seen_s.get(key, now_s) for key in notes}
        # A tree that another was to leave files to tells which those are, so it stays until that one is gone.
        needed = {tree for waste in notes.values() for tree in waste.kept_trees}
        due = [
            key
            for key, waste in notes.items()
            if now_s - self._seen_s[key] >= self._lake.settings.grace_s and waste.tree not in needed
        ]
        for key in due:
            waste = notes[key]
            self._delete(waste)
            if waste.token and not self._lake.kv.guards and not key.startswith(_AGAIN):
                # A write that was stalled may still come: nothing guards the token. So once more, a grace time later.
                self._lake.kv.put(self._notes, _AGAIN + key, _ENCODER.encode(waste))
            self._lake.kv.delete(self._notes, key)
        return len(due)

    def _collect(self) -> None:
        """Move what branches dropped to the notes."""
        for name, record in self._lake.branches(self.repo).page("", _BATCH, deleted=True):
            if record.dropped or record.deleted:
                hand_over(self._lake, self.repo, name, record)

    def _delete(self, waste: Waste) -> None:
        lake, repo = self._lake, self.repo
        if waste.token:
            partition = tokens.partition(waste.token)
            while found := lake.kv.scan(partition, limit=_BATCH):
                lake.kv.delete_many(partition, [item.key for item in found])
            if lake.kv.guards:
                guard = lake.branches(repo).guard(waste.token)
                lake.kv.delete(guard.partition, guard.key)
        for file in waste.files:
            lake.tables(repo).delete(file)
        if waste.tree:
            try:
                kept = [*waste.kept_trees, *(lake.commits(repo).get(commit).tree for commit in waste.kept_commits)]
            except NotFoundError:
                return  # collected as garbage, as the tree will be
            lake.past(repo).delete_tree(waste.tree, kept)
