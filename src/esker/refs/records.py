"""The branch record and its transitions: pure functions from one record to the next.

A reader stacks, newest first: the open token (if dirty), each of `sealed`, `l2`, and then the compacted tree if there
is one, else the commit's. Only the open token takes writes. A record is never edited: each transition returns the next
one, or None where it was overtaken, and `refs.branches.update` installs it by compare-and-swap.

Rules that hold throughout, and every transition keeps:

- `dirty` belongs to the current token. It falls only when a fresh token takes its place, empty by construction.
- Whatever changes what is visible below the open token first seals that token, if it is dirty, in the same swap.
- What a fold made is installed only where all that it folded still is what is lowest: a `Basis` compares. Commits win
  over compactions, since they take the claim that a compaction needs to finish.
- Whatever leaves the record, and no stash keeps, goes to `dropped`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from esker.model import Claim, CommitID, FileName, Layer, LayerID, Stash, Token, Waste

RECENT_MAX: Final = 64
"""How many swaps a record remembers: a writer that lost an answer can tell within so many whether it was applied."""

LAYERS_MAX: Final = 1000
"""Keeps the record far below a store's largest value. Compaction and commits make room."""


class Basis(msgspec.Struct, frozen=True):
    """What a fold relies on: a commit, what compaction made of it, and the layers that were folded over that."""

    commit: CommitID
    compacted: FileName | None
    l2: Layer | None
    sealed: tuple[Layer, ...]
    """Newest first."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All that lies over the commit's tree, or the compacted one, newest first."""
        return self.sealed if self.l2 is None else (*self.sealed, self.l2)


class Branch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The one mutable record of a branch."""

    commit: CommitID
    token: Token
    dirty: bool = True
    """Whether anything may have been written to the open token. A record from before the field reads as dirty."""
    sealed: tuple[Layer, ...] = ()
    """Newest first: sealed tokens, and tables of level 1."""
    l2: Layer | None = None
    """One level of larger tables, its prefix deletes those of the level."""
    compacted: FileName | None = None
    """A tree that stands in for the commit's, with what compaction folded into it."""
    claim: Claim | None = None
    stashes: dict[str, Stash] = {}
    dropped: tuple[Waste, ...] = ()
    """What fell off, not yet handed to the cleaner."""
    recent: tuple[str, ...] = ()
    """The operations of the last swaps, newest first."""
    seq: int = 0
    """How many swaps there have been."""
    born: str = ""
    """Drawn when the branch was created: a branch made again under an old name is another."""
    deleted: bool = False
    hidden: bool = False
    layers_only: bool = False
    """Of a transaction: what is staged is to be published as it was written, so it is neither committed nor folded
    into a tree."""
    format_version: int = 1

    @property
    def clean(self) -> bool:
        """Whether the branch shows its commit and nothing else. No scan decides it."""
        return not self.dirty and not self.sealed and self.l2 is None and self.compacted is None

    def is_same_moment(self, other: "Branch") -> bool:
        """Whether this is the very record that `other` is: no swap between them."""
        return (self.born, self.seq) == (other.born, other.seq)

    @property
    def open_layer(self) -> Layer:
        """The open token, as the layer that sealing it makes."""
        return Layer(id=LayerID(self.token), token=self.token)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All that may hold something staged over the compacted tree or the commit's, newest first."""
        above = (self.open_layer, *self.sealed) if self.dirty else self.sealed
        return above if self.l2 is None else (*above, self.l2)

    def basis(self, sealed: tuple[Layer, ...] | None = None) -> Basis:
        """What folding `sealed`, the oldest of its layers (by default all), relies on."""
        return Basis(self.commit, self.compacted, self.l2, self.sealed if sealed is None else sealed)

    def marked_dirty(self) -> "Branch":
        """Ready to take writes."""
        return self if self.dirty else msgspec.structs.replace(self, dirty=True)

    def rotated(self, fresh: Token) -> "Branch":
        """With the open token sealed, if it is dirty."""
        if not self.dirty:
            return self
        return msgspec.structs.replace(self, token=fresh, dirty=False, sealed=(self.open_layer, *self.sealed))

    def claimed(self, claim: Claim, fresh: Token) -> "Branch":
        """Sealed, and about to be folded by who holds `claim`: nobody else's compaction will land."""
        return self if self.clean else msgspec.structs.replace(self.rotated(fresh), claim=claim)

    def unclaimed(self, claim: Claim) -> "Branch":
        """For others to claim, if `claim` still is the one that it has."""
        return msgspec.structs.replace(self, claim=None) if self.claim and self.claim.id == claim.id else self

    def appended(self, layers: Sequence[Layer], fresh: Token) -> "Branch":
        """With layers, newest first, on top of all that was acknowledged before."""
        record = self.rotated(fresh)
        return msgspec.structs.replace(record, token=fresh, sealed=(*layers, *record.sealed))

    def holds(self, basis: Basis) -> bool:
        """Whether this still is what a fold relied on, at the bottom of all that was laid on it since."""
        oldest = self.sealed[len(self.sealed) - len(basis.sealed) :]
        return (
            self.commit == basis.commit
            and self.compacted == basis.compacted
            and _id(self.l2) == _id(basis.l2)
            and [layer.id for layer in oldest] == [layer.id for layer in basis.sealed]
        )

    def advanced(self, commit: CommitID, basis: Basis) -> "Branch | None":
        """Pointing at `commit`, which holds all of `basis`. Layers sealed since are newer, and stay.

        None if that is no longer what is lowest: another was first.
        """
        if not self.holds(basis):
            return None
        return msgspec.structs.replace(
            self._without(basis, kept_commits=(commit,)), commit=commit, l2=None, compacted=None, claim=None
        )

    def levelled(self, l2: Layer, basis: Basis, claim: Claim) -> "Branch | None":
        """With `l2` in place of the layers of `basis`. Of the former level it may have some tables still. None if
        overtaken, or the claim is another's."""
        if self.claim is None or self.claim.id != claim.id or not self.holds(basis):
            return None
        kept = self.sealed[: len(self.sealed) - len(basis.sealed)]
        dropped = tuple(waste(layer, kept=l2) for layer in basis.layers)
        return msgspec.structs.replace(self, sealed=kept, l2=l2, claim=None, dropped=self.dropped + dropped)

    def compacted_into(self, tree: FileName, basis: Basis, claim: Claim) -> "Branch | None":
        """Reading from `tree`, which holds all of `basis`. None if overtaken, or the claim is another's."""
        if self.claim is None or self.claim.id != claim.id or not self.holds(basis):
            return None
        record = self._without(basis, kept_trees=(tree,))
        return msgspec.structs.replace(record, l2=None, compacted=tree, claim=None)

    def touched(self) -> "Branch":
        """As it is, one swap later: what was about to be swapped in has to look again."""
        return msgspec.structs.replace(self)

    def reset(self, fresh: Token) -> "Branch":
        """Without anything staged. Stashes stay."""
        if self.clean:
            return self
        sealed = self.rotated(fresh)
        record = sealed._without(sealed.basis())
        return msgspec.structs.replace(record, token=fresh, l2=None, compacted=None, claim=None)

    def restored(self, layer: Layer, fresh: Token, *, basis: Basis) -> "Branch | None":
        """With `layer`, computed over `basis`, on top of all that was acknowledged before. None if that no longer is
        what is below."""
        return self.appended([layer], fresh) if self.holds(basis) else None

    def moved(self, commit: CommitID, *, base: CommitID) -> "Branch | None":
        """Pointing at `commit`. None unless the branch is clean, and at `base`."""
        if not self.clean or self.commit != base:
            return None
        return msgspec.structs.replace(self, commit=commit)

    def stashed(self, name: str, stash: Stash, basis: Basis) -> "Branch | None":
        """With all that was staged set aside as `stash`. None if more has been staged since, or the name is taken.

        What layers of `basis` it has are its own from then on. The others are dropped, and so is a compacted tree: the
        stash has a layer of what these changed.
        """
        if self.dirty or name in self.stashes or self.sealed != basis.sealed or not self.holds(basis):
            return None
        record = msgspec.structs.replace(self, sealed=(), l2=None, compacted=None, claim=None)
        dropped = self.dropped + tuple(waste(layer) for layer in basis.layers if layer not in stash.layers)
        dropped += self._compacted_waste(kept_commits=(), kept_trees=())
        return msgspec.structs.replace(record, stashes={**self.stashes, name: stash}, dropped=dropped)

    def popped(self, name: str, stash: Stash, layers: Sequence[Layer], fresh: Token) -> "Branch | None":
        """With a stash back on top, its layers under new ids. None if it is gone, or the branch at another commit."""
        if self.stashes.get(name) != stash or self.commit != stash.commit:
            return None
        return msgspec.structs.replace(self.appended(layers, fresh), stashes=_without_key(self.stashes, name))

    def pop_merged(
        self, name: str, stash: Stash, layers: Sequence[Layer], basis: Basis, fresh: Token
    ) -> "Branch | None":
        """With `layers`, what merging a stash into what `basis` shows brought, on top. None if more has been staged
        since."""
        if self.stashes.get(name) != stash or self.dirty or self.sealed != basis.sealed or not self.holds(basis):
            return None
        record = self.appended(layers, fresh) if layers else self
        return record.stash_dropped(name)

    def stash_dropped(self, name: str) -> "Branch | None":
        """Without a stash. None if there is none."""
        stash = self.stashes.get(name)
        if stash is None:
            return None
        dropped = self.dropped + tuple(waste(layer) for layer in stash.layers)
        return msgspec.structs.replace(self, stashes=_without_key(self.stashes, name), dropped=dropped)

    def removed(self, fresh: Token) -> "Branch":
        """A tombstone, so that what it dropped is still known. Whoever creates the branch again takes its place."""
        record = self.reset(fresh)
        stashed = tuple(waste(layer) for stash in record.stashes.values() for layer in stash.layers)
        return msgspec.structs.replace(
            record, deleted=True, token=fresh, dirty=False, stashes={}, dropped=record.dropped + stashed
        )

    def cleaned(self, wastes: Iterable[str]) -> "Branch":
        """Without these among the dropped: the cleaner has them."""
        done = set(wastes)
        return msgspec.structs.replace(self, dropped=tuple(waste for waste in self.dropped if waste.id not in done))

    def stamped(self, operation: str) -> "Branch":
        """One swap later."""
        return msgspec.structs.replace(self, seq=self.seq + 1, recent=(operation, *self.recent[: RECENT_MAX - 1]))

    def _without(
        self, basis: Basis, *, kept_commits: tuple[CommitID, ...] = (), kept_trees: tuple[FileName, ...] = ()
    ) -> "Branch":
        """With the layers of `basis`, and the compacted tree, among the dropped."""
        kept = self.sealed[: len(self.sealed) - len(basis.sealed)]
        dropped = tuple(waste(layer) for layer in basis.layers)
        tree = self._compacted_waste(kept_commits=kept_commits, kept_trees=kept_trees)
        return msgspec.structs.replace(self, sealed=kept, dropped=self.dropped + dropped + tree)

    def _compacted_waste(
        self, *, kept_commits: tuple[CommitID, ...], kept_trees: tuple[FileName, ...]
    ) -> tuple[Waste, ...]:
        """The compacted tree as waste: files of it that the commit's tree has, or its successor's, are not its own."""
        if self.compacted is None or self.compacted in kept_trees:
            return ()
        commits = tuple(dict.fromkeys((self.commit, *kept_commits)))
        return (Waste(id=self.compacted, tree=self.compacted, kept_commits=commits, kept_trees=kept_trees),)


def waste(layer: Layer, kept: Layer | None = None) -> Waste:
    """A layer as what is to be taken away, but for files that another one has, too."""
    used = kept.files if kept else ()
    return Waste(id=layer.id, token=layer.token, files=tuple(file for file in layer.files if file not in used))


def _id(layer: Layer | None) -> LayerID | None:
    return None if layer is None else layer.id


def _without_key(stashes: dict[str, Stash], name: str) -> dict[str, Stash]:
    return {other: stash for other, stash in stashes.items() if other != name}
