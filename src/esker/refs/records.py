"""The branch record and its transitions: pure functions from one record to the next.

A reader stacks, newest first: the open token (if dirty), each of `sealed`, then the commit's tree. Only the open token
takes writes. A record is never edited: each transition returns the next one, or None where it was overtaken, and
`refs.branches.update` installs it by compare-and-swap.

Two rules hold throughout, and every transition keeps them:

- `dirty` belongs to the current token. It falls only when a fresh token takes its place, empty by construction.
- Whatever changes what is visible below the open token first seals that token, if it is dirty, in the same swap.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from esker.model import CommitID, Layer, LayerID, Token

RECENT_MAX: Final = 64
"""How many swaps a record remembers: a writer that lost an answer can tell within so many whether it was applied."""

LAYERS_MAX: Final = 1000
"""Keeps the record far below a store's largest value. Committing makes room."""


class Branch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The one mutable record of a branch."""

    commit: CommitID
    token: Token
    dirty: bool = True
    """Whether anything may have been written to the open token. A record from before the field reads as dirty."""
    sealed: tuple[Layer, ...] = ()
    """Newest first."""
    dropped: tuple[Layer, ...] = ()
    """Layers that fell off, not yet handed to the cleaner."""
    recent: tuple[str, ...] = ()
    """The operations of the last swaps, newest first."""
    seq: int = 0
    """How many swaps there have been."""
    born: str = ""
    """Drawn when the branch was created: a branch made again under an old name is another."""
    deleted: bool = False
    hidden: bool = False
    format_version: int = 1

    @property
    def clean(self) -> bool:
        """Whether the branch shows its commit and nothing else. No scan decides it."""
        return not self.dirty and not self.sealed

    def is_same_moment(self, other: "Branch") -> bool:
        """Whether this is the very record that `other` is: no swap between them."""
        return (self.born, self.seq) == (other.born, other.seq)

    @property
    def open_layer(self) -> Layer:
        """The open token, as the layer that sealing it makes."""
        return Layer(id=LayerID(self.token), token=self.token)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All that may hold something staged, newest first."""
        return (self.open_layer, *self.sealed) if self.dirty else self.sealed

    def marked_dirty(self) -> "Branch":
        """Ready to take writes."""
        return self if self.dirty else msgspec.structs.replace(self, dirty=True)

    def rotated(self, fresh: Token) -> "Branch":
        """With the open token sealed, if it is dirty."""
        if not self.dirty:
            return self
        return msgspec.structs.replace(self, token=fresh, dirty=False, sealed=self.layers)

    def appended(self, layer: Layer, fresh: Token) -> "Branch":
        """With a layer on top of all that was acknowledged before."""
        record = self.rotated(fresh)
        return msgspec.structs.replace(record, token=fresh, sealed=(layer, *record.sealed))

    def holds(self, commit: CommitID, folded: tuple[Layer, ...]) -> bool:
        """Whether this still is `commit` with exactly `folded` as its oldest layers: what a fold relies on."""
        oldest = self.sealed[len(self.sealed) - len(folded) :]
        return self.commit == commit and [layer.id for layer in oldest] == [layer.id for layer in folded]

    def advanced(self, commit: CommitID, *, base: CommitID, folded: tuple[Layer, ...]) -> "Branch | None":
        """Pointing at `commit`, which holds what `base` and `folded` held. Layers sealed since are newer, and stay.

        None if the branch has moved off `base`, or `folded` are no longer its oldest layers: another was first.
        """
        if not self.holds(base, folded):
            return None
        kept = self.sealed[: len(self.sealed) - len(folded)]
        return msgspec.structs.replace(self, commit=commit, sealed=kept, dropped=self.dropped + folded)

    def reset(self, fresh: Token) -> "Branch":
        """Without anything staged."""
        if self.clean:
            return self
        return msgspec.structs.replace(self, token=fresh, dirty=False, sealed=(), dropped=self.dropped + self.layers)

    def restored(self, layer: Layer, fresh: Token, *, base: CommitID, folded: tuple[Layer, ...]) -> "Branch | None":
        """With `layer`, computed over `base` and `folded`, on top of all that was acknowledged before. None if those no
        longer are what is below."""
        return self.appended(layer, fresh) if self.holds(base, folded) else None

    def moved(self, commit: CommitID, *, base: CommitID) -> "Branch | None":
        """Pointing at `commit`. None unless the branch is clean, and at `base`."""
        if not self.clean or self.commit != base:
            return None
        return msgspec.structs.replace(self, commit=commit)

    def removed(self, fresh: Token) -> "Branch":
        """A tombstone, so that what it dropped is still known. Whoever creates the branch again takes its place."""
        return msgspec.structs.replace(self.reset(fresh), deleted=True, token=fresh, dirty=False)

    def cleaned(self, layers: Iterable[LayerID]) -> "Branch":
        """Without these among the dropped: the cleaner has them."""
        done = set(layers)
        return msgspec.structs.replace(self, dropped=tuple(layer for layer in self.dropped if layer.id not in done))

    def stamped(self, operation: str) -> "Branch":
        """One swap later."""
        return msgspec.structs.replace(self, seq=self.seq + 1, recent=(operation, *self.recent[: RECENT_MAX - 1]))
