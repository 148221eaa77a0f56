"""Every verb equals the obvious one on dicts, whatever the settings, with cleaning between any two steps.

A machine does the same steps to a lake and to a model: commits are dicts, and so is what a branch shows. Each machine
below has other settings; since all agree with the model, they agree with each other.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from esker.engine import branches, changes, commit, compaction, entries, layers, log, merge, refs, reset, stashes
from esker.engine.changes import ChangeKind
from esker.engine.cleaning import Cleaner
from esker.engine.policy import Compaction
from esker.errors import ConflictError, EskerError, Kind
from esker.format.names import digest_of
from esker.model import CommitID, Entry, Staging
from esker.refs import tags
from esker.settings import Settings
from esker.staging import stack, tables
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.kv import KVStore
from esker.stores.kv_memory import MemoryKV
from esker.streams.entries import changes_of, table_of
from esker.streams.rows import Changes
from esker.tree.cutting import Cutting
from esker.tree.merge import Strategy
from tests.engine.lakes import (
    AT_ONCE,
    Clock,
    NoGuardsKV,
    Shown,
    assert_nothing_leaked,
    committed,
    entry,
    new_setup,
    shown,
)
from tests.tree.test_model import merged

PATHS: Final = ["a", "a/", "a/b", "a/b/c", "a/c", "ab", "b/1", "b/2", "b/2\0", "é/x", "z~", "\U0010ffff"]
PREFIXES: Final = ["", "a", "a/", "a/b", "a/b/", "b/", "é", "q", "z~", "\U0010ffff"]
BRANCHES: Final = ["main", "dev", "x-1"]
TAGS: Final = ["v1", "v1.0", "dev"]

_PARTS: Final = re.compile("([^~^]*)(.*)")

some_path = st.sampled_from(PATHS)
some_prefix = st.sampled_from(PREFIXES)
some_steps = st.sampled_from([*[""] * 10, "~", "~", "~2", "^", "^2", "^0", "~1^1", "^2~1"])
some_branch = st.sampled_from(BRANCHES[:2] * 8 + BRANCHES)
some_entry = st.builds(entry, some_path, st.integers(0, 2), st.integers(0, 1))


@dataclass(frozen=True)
class ModelCommit:
    tree: Shown
    parents: tuple[CommitID, ...]
    place: tuple[int, int, CommitID]
    """Where it stands in a log."""


@dataclass(frozen=True)
class ModelBranch:
    head: CommitID
    shows: Shown
    stashes: Mapping[str, tuple[CommitID, Shown]] = field(default_factory=dict)
    """The commit that each was made at, and what the branch showed."""


@dataclass
class Model:
    commits: dict[CommitID, ModelCommit] = field(default_factory=dict)
    branches: dict[str, ModelBranch] = field(default_factory=dict)
    tags: dict[str, CommitID] = field(default_factory=dict)

    def tree(self, name: str) -> Shown:
        return self.commits[self.branches[name].head].tree

    def dirty(self, name: str) -> bool:
        return self.branches[name].shows != self.tree(name)

    def ancestors(self, name: CommitID) -> set[CommitID]:
        found: set[CommitID] = set()
        waiting = [name]
        while waiting:
            if (name := waiting.pop()) not in found:
                found.add(name)
                waiting += self.commits[name].parents
        return found

    def merge_base(self, one: CommitID, other: CommitID) -> CommitID:
        common = self.ancestors(one) & self.ancestors(other)
        best = [name for name in common if not any(name in self.ancestors(c) for c in common if c != name)]
        return min(best, key=lambda name: self.commits[name].place)

    def log(self, name: CommitID, *, first_parent: bool) -> list[CommitID]:
        found = [name, *self.first_parents(name)] if first_parent else list(self.ancestors(name))
        return sorted(found, key=lambda name: self.commits[name].place)

    def first_parents(self, name: CommitID) -> Iterator[CommitID]:
        while self.commits[name].parents:
            name = self.commits[name].parents[0]
            yield name

    def resolve(self, ref: str) -> tuple[CommitID, str | None] | Kind:
        """The commit, and the branch if what is staged on it counts; or what is wrong."""
        parts = _PARTS.fullmatch(ref)
        assert parts is not None, "it matches anything"
        base, steps = parts.groups()
        view = base[-1] if base[-1] in "@$" else ""
        base = base.removesuffix(view)
        found: CommitID
        branch: str | None = None
        if base in self.commits:
            found = CommitID(base)
        elif base in self.branches:
            found, branch = self.branches[base].head, base
        elif base in self.tags:
            found = self.tags[base]
        else:
            starting = [name for name in self.commits if len(base) >= 4 and name.startswith(base)]
            if len(starting) != 1:
                return Kind.AMBIGUOUS_REF if starting else Kind.REF_NOT_FOUND
            (found,) = starting
        if view and branch is None:
            return Kind.INVALID_REF
        while steps:
            sign, steps = steps[0], steps[1:]
            digits = steps[: len(steps) - len(steps.lstrip("0123456789"))]
            steps = steps[len(digits) :]
            n = int(digits or 1)
            if sign == "^":
                way = [found, *self.commits[found].parents]
            else:
                way = [found, *self.first_parents(found)]
            if n >= len(way):
                return Kind.COMMIT_NOT_FOUND
            found, branch = way[n], None
        return found, None if view == "@" else branch


def pages(shows: Shown, prefix: str, delimiter: str, after: str) -> list[Entry | str]:
    """A whole listing behind `after`."""
    found: list[Entry | str] = []
    for path in sorted(shows):
        if not path.startswith(prefix) or path <= after:
            continue
        is_common = delimiter and after.find(delimiter, len(prefix)) == len(after) - 1 >= len(prefix)
        if is_common and path.startswith(after):
            continue
        cut = path.find(delimiter, len(prefix)) if delimiter else -1
        item = shows[path] if cut < 0 else path[: cut + 1]
        if item not in found[-1:]:
            found.append(item)
    return found


def identity(found: Entry | None) -> object:
    return found and found.identity()


class Machine(RuleBasedStateMachine):
    """With the settings that most people have."""

    options: ClassVar[Settings] = AT_ONCE
    cutting: ClassVar[Cutting] = Cutting()
    window_rows: ClassVar[int] = 256
    table_rows: ClassVar[int] = 2
    compacts: ClassVar[bool] = False
    """After every write."""

    @staticmethod
    def open_kv() -> KVStore:
        return MemoryKV()

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(stack, "WINDOW_ROWS", self.window_rows)
        self.patch.setattr(entries, "_FEW", 2)
        for module in (tables, compaction):
            self.patch.setattr(module, "ROWS", self.table_rows)
            self.patch.setattr(module, "TABLES_MAX", 3)
        self.patch.setattr(layers, "DELETES_MAX", 1)
        self.setup = new_setup(self.open_kv(), MemoryBlobs(), self.options, Clock(), self.cutting)
        self.lake, self.repo = self.setup.lake, self.setup.repo
        self.cleaner = Cleaner(self.lake, self.repo)
        self.model = Model()
        first = self.lake.branches(self.repo).get("main").commit
        self.adopt(first, {}, ())
        self.model.branches["main"] = ModelBranch(first, {})
        self.put("main", [entry(path) for path in PATHS[1::2]])
        self.commit("main", False, {})
        branches.create(self.lake, self.repo, "dev", "main")
        self.model.branches["dev"] = self.model.branches["main"]
        self.put("dev", [entry("a/b", 1), entry("new")])

    # ------------------------------------------------------------------ helpers

    def adopt(self, made: CommitID, tree: Shown, parents: tuple[CommitID, ...]) -> None:
        """Enter a commit that was made into the model: it holds `tree`, and has these parents."""
        assert made not in self.model.commits, "each act of committing has an id of its own"
        stored = self.lake.commits(self.repo).get(made)
        assert stored.parents == parents
        assert committed(self.lake, self.repo, made) == tree
        assert digest_of(stored.tree) == digest_of(self.lake.past(self.repo).build([table_of(tree.values())])), (
            "equal content, equal digest"
        )
        self.model.commits[made] = ModelCommit(dict(tree), parents, (-stored.generation, -stored.date_ms, made))

    def land(self, branch: str, made: CommitID, tree: Shown, *others: CommitID) -> None:
        self.adopt(made, tree, (self.model.branches[branch].head, *others))
        self.model.branches[branch] = replace(self.model.branches[branch], head=made, shows=dict(tree))

    def change(self, branch: str, shows: Shown) -> None:
        self.model.branches[branch] = replace(self.model.branches[branch], shows=shows)
        if self.compacts:
            how = Compaction.MAJOR if len(shows) % 3 == 0 else Compaction.MINOR
            compaction.compact(self.lake, self.repo, branch, how)

    def fails(self, call: Callable[[], object], *kinds: Kind | None | bool) -> bool:
        """Whether the first of `kinds` that is one says that the call must fail; it then did, and changed nothing."""
        expected = next((kind for kind in kinds if isinstance(kind, Kind)), None)
        if expected is None:
            return False
        with pytest.raises(EskerError) as caught:
            call()
        assert caught.value.kind is expected
        return True

    def missing(self, branch: str) -> Kind | None:
        return None if branch in self.model.branches else Kind.BRANCH_NOT_FOUND

    def dirty(self, branch: str) -> Kind | None:
        return Kind.DIRTY_BRANCH if branch in self.model.branches and self.model.dirty(branch) else None

    def a_ref(self, data: st.DataObject) -> str:
        """Mostly one that stands for something."""
        names, commits = sorted(self.model.branches), sorted(self.model.commits)
        base = data.draw(
            st.sampled_from(
                [
                    *names * 5,
                    *(f"{name}@" for name in names),
                    *(f"{name}$" for name in names),
                    *self.model.tags,
                    "x-1",
                    "v1@",
                    *commits,
                    *(name[:12] for name in commits),
                ]
            ),
            label="ref",
        )
        if base[-1] in "@$":
            return base
        return base + data.draw(
            st.sampled_from([*[""] * 10, "~", "~", "~2", "^", "^2", "^0", "~1^1", "^2~1"]), label="steps"
        )

    # ------------------------------------------------------------------ writing

    @rule(branch=some_branch, new=st.lists(some_entry, min_size=1, max_size=5))
    def put(self, branch: str, new: list[Entry]) -> None:
        for one in new:
            call = partial(entries.put, self.lake, self.repo, branch, one)
            if not self.fails(call, self.missing(branch)):
                call()
                self.change(branch, self.model.branches[branch].shows | {one.path: one})

    @rule(branch=some_branch, new=st.lists(some_entry, min_size=1, max_size=5))
    def put_and_commit(self, branch: str, new: list[Entry]) -> None:
        self.put(branch, new)
        self.commit(branch, True, {})

    @rule(branch=some_branch, new=some_entry)
    def put_if_absent(self, branch: str, new: Entry) -> None:
        call = partial(entries.put, self.lake, self.repo, branch, new, if_absent=True)
        there = branch in self.model.branches and new.path in self.model.branches[branch].shows
        if not self.fails(call, self.missing(branch), Kind.OBJECT_EXISTS if there else None):
            call()
            self.change(branch, self.model.branches[branch].shows | {new.path: new})

    @rule(branch=some_branch, new=st.lists(some_entry, max_size=3), gone=st.lists(some_path, max_size=3))
    def write_many(self, branch: str, new: list[Entry], gone: list[str]) -> None:
        call = partial(entries.write_many, self.lake, self.repo, branch, new, gone)
        if not self.fails(call, self.missing(branch) if new or gone else None):
            call()
            if new or gone:
                shows = {p: e for p, e in self.model.branches[branch].shows.items() if p not in gone}
                self.change(branch, shows | {one.path: one for one in new})

    @rule(branch=some_branch, path=some_path)
    def delete(self, branch: str, path: str) -> None:
        call = partial(entries.delete, self.lake, self.repo, branch, path)
        if not self.fails(call, self.missing(branch)):
            call()
            self.change(branch, {p: e for p, e in self.model.branches[branch].shows.items() if p != path})

    @rule(branch=some_branch, prefix=some_prefix)
    def delete_prefix(self, branch: str, prefix: str) -> None:
        call = partial(entries.delete_prefix, self.lake, self.repo, branch, prefix)
        if not self.fails(call, self.missing(branch)):
            call()
            shows = self.model.branches[branch].shows
            self.change(branch, {p: e for p, e in shows.items() if not p.startswith(prefix)})

    @rule(branch=some_branch, allow_empty=st.booleans(), metadata=st.sampled_from([{}, {"job": "7"}]))
    def commit(self, branch: str, allow_empty: bool, metadata: Mapping[str, str]) -> None:
        call = partial(
            commit.commit,
            self.lake,
            self.repo,
            branch,
            f"on {branch}",
            committer="me",
            metadata=metadata,
            allow_empty=allow_empty,
        )
        nothing = not allow_empty and branch in self.model.branches and not self.model.dirty(branch)
        if not self.fails(call, self.missing(branch), Kind.NO_CHANGES if nothing else None):
            made = call()
            self.land(branch, made, self.model.branches[branch].shows)
            stored = self.lake.commits(self.repo).get(made)
            assert (stored.message, stored.committer, stored.metadata) == (f"on {branch}", "me", metadata)

    @rule(branch=some_branch, prefix=st.one_of(st.none(), some_prefix))
    def reset(self, branch: str, prefix: str | None) -> None:
        def call() -> None:
            if prefix is None:
                reset.reset(self.lake, self.repo, branch)
            else:
                reset.reset_prefix(self.lake, self.repo, branch, prefix)

        if not self.fails(call, self.missing(branch)):
            call()
            shows, tree = self.model.branches[branch].shows, self.model.tree(branch)
            under = prefix or ""
            self.change(
                branch,
                {p: e for p, e in shows.items() if not p.startswith(under)}
                | {p: e for p, e in tree.items() if p.startswith(under)},
            )

    @rule(branch=some_branch, path=some_path)
    def reset_path(self, branch: str, path: str) -> None:
        call = partial(reset.reset_path, self.lake, self.repo, branch, path)
        if not self.fails(call, self.missing(branch)):
            call()
            shows, tree = self.model.branches[branch].shows, self.model.tree(branch)
            self.change(
                branch, {p: e for p, e in shows.items() if p != path} | {p: e for p, e in tree.items() if p == path}
            )

    # ------------------------------------------------------------------ branches, tags

    @rule(data=st.data(), branch=some_branch)
    def create_branch(self, data: st.DataObject, branch: str) -> None:
        source = self.a_ref(data)
        found = self.model.resolve(source)
        call = partial(branches.create, self.lake, self.repo, branch, source)
        kinds = (
            found if isinstance(found, Kind) else None,
            Kind.INVALID_REF if source.endswith("$") else None,
            Kind.BRANCH_EXISTS if branch in self.model.branches else None,
        )
        if not self.fails(call, *kinds):
            assert not isinstance(found, Kind)
            assert call() == found[0]
            self.model.branches[branch] = ModelBranch(found[0], dict(self.model.commits[found[0]].tree))

    @rule(branch=st.sampled_from(BRANCHES[::-1]))
    def delete_branch(self, branch: str) -> None:
        call = partial(branches.delete, self.lake, self.repo, branch)
        if not self.fails(call, Kind.DEFAULT_BRANCH if branch == "main" else None, self.missing(branch)):
            call()
            del self.model.branches[branch]

    @rule(data=st.data(), tag=st.sampled_from(TAGS))
    def tag(self, data: st.DataObject, tag: str) -> None:
        if tag in self.model.tags:
            tags.delete(self.lake.kv, self.repo.uid, tag)
            del self.model.tags[tag]
            return
        target = data.draw(st.sampled_from(sorted(self.model.commits)))
        tags.create(self.lake.kv, self.repo.uid, tag, target)
        self.model.tags[tag] = target

    # ------------------------------------------------------------------ merging

    @rule(
        data=st.data(),
        branch=some_branch,
        strategy=st.sampled_from(Strategy),
        squash=st.booleans(),
        allow_empty=st.booleans(),
    )
    def merge(self, data: st.DataObject, branch: str, strategy: Strategy, squash: bool, allow_empty: bool) -> None:
        source = self.a_ref(data)
        found = self.model.resolve(source)
        call = partial(
            merge.merge, self.lake, self.repo, source, branch, strategy=strategy, squash=squash, allow_empty=allow_empty
        )
        kinds = (
            found if isinstance(found, Kind) else None,
            Kind.INVALID_REF if source.endswith("$") else None,
            self.missing(branch),
            self.dirty(branch),
        )
        if self.fails(call, *kinds):
            return
        assert not isinstance(found, Kind)
        theirs, ours = found[0], self.model.branches[branch].head
        base = self.model.merge_base(theirs, ours)
        before, source_tree, dest_tree = (self.model.commits[name].tree for name in (base, theirs, ours))
        tree, conflicts = merged(before, source_tree, dest_tree, strategy)
        if conflicts:
            with pytest.raises(ConflictError) as caught:
                call()
            assert caught.value.kind is Kind.MERGE_CONFLICT
            assert caught.value.paths == conflicts
            return
        empty = base == theirs or (squash and tree == dest_tree)
        if not self.fails(call, Kind.NO_CHANGES if empty and not allow_empty else None):
            self.land(branch, call(), tree, *(() if squash else (theirs,)))

    @rule(
        data=st.data(),
        branch=some_branch,
        parent=st.sampled_from([0, 0, 1, 1, 2, 3]),
        picks=st.booleans(),
        allow_empty=st.booleans(),
    )
    def revert_or_cherry_pick(
        self, data: st.DataObject, branch: str, parent: int, picks: bool, allow_empty: bool
    ) -> None:
        ref = self.a_ref(data)
        found = self.model.resolve(ref)

        def call() -> CommitID:
            if picks:
                return merge.cherry_pick(self.lake, self.repo, branch, ref, parent=parent)
            return merge.revert(self.lake, self.repo, branch, ref, parent=parent, allow_empty=allow_empty)

        if self.fails(
            call,
            found if isinstance(found, Kind) else None,
            Kind.INVALID_REF if ref.endswith("$") else None,
        ):
            return
        assert not isinstance(found, Kind)
        of = self.model.commits[found[0]]
        n = len(of.parents)
        wrong_parent = (parent == 0 and n > 1) or parent > max(n, 1)
        if self.fails(call, Kind.NEEDS_PARENT if wrong_parent else None, self.missing(branch), self.dirty(branch)):
            return
        before = self.model.commits[of.parents[max(parent, 1) - 1]].tree if n else {}
        here = self.model.tree(branch)
        tree, conflicts = (
            merged(before, of.tree, here, Strategy.NONE) if picks else merged(of.tree, before, here, Strategy.NONE)
        )
        if conflicts:
            with pytest.raises(ConflictError) as caught:
                call()
            assert caught.value.paths == conflicts
        elif not self.fails(call, Kind.NO_CHANGES if tree == here and (picks or not allow_empty) else None):
            self.land(branch, call(), tree)

    @rule(data=st.data(), branch=some_branch)
    def move(self, data: st.DataObject, branch: str) -> None:
        ref = self.a_ref(data)
        found = self.model.resolve(ref)
        call = partial(merge.move, self.lake, self.repo, branch, ref)
        if not self.fails(
            call,
            found if isinstance(found, Kind) else None,
            Kind.INVALID_REF if ref.endswith("$") else None,
            self.missing(branch),
            self.dirty(branch),
        ):
            assert not isinstance(found, Kind)
            call()
            tree = dict(self.model.commits[found[0]].tree)
            self.model.branches[branch] = replace(self.model.branches[branch], head=found[0], shows=tree)

    # ------------------------------------------------------------------ layers

    @rule(
        branch=some_branch, new=st.lists(some_entry, max_size=5), gone=st.lists(some_path), under=st.lists(some_prefix)
    )
    def append(self, branch: str, new: list[Entry], gone: list[str], under: list[str]) -> None:
        rows = changes_of(new, gone)
        call = partial(layers.append, self.lake, self.repo, branch, Changes(rows, tuple(under)))
        if not self.fails(call, self.missing(branch)):
            call()
            shows = {p: e for p, e in self.model.branches[branch].shows.items() if not p.startswith(tuple(under))}
            shows = {p: e for p, e in shows.items() if p not in gone}
            self.change(branch, shows | {one.path: one for one in new})

    @rule(branch=some_branch, how=st.sampled_from(Compaction), force=st.booleans())
    def compact(self, branch: str, how: Compaction, force: bool) -> None:
        call = partial(compaction.compact, self.lake, self.repo, branch, how, force=force)
        if not self.fails(call, self.missing(branch)):
            call()
            record = self.lake.branches(self.repo).get(branch)
            assert record.claim is None, "there is nobody else"
            assert not record.dirty
            assert not record.sealed
            assert record.l2 is None or how is Compaction.MINOR

    @rule(branch=some_branch, name=st.sampled_from(["s", "t"]))
    def stash(self, branch: str, name: str) -> None:
        call = partial(stashes.stash, self.lake, self.repo, branch, name)
        if self.fails(call, self.missing(branch)):
            return
        model = self.model.branches[branch]
        if self.lake.branches(self.repo).get(branch).clean:
            assert self.fails(call, Kind.NO_CHANGES)
        elif not self.fails(call, Kind.STASH_EXISTS if name in model.stashes else None):
            call()
            kept = {**model.stashes, name: (model.head, model.shows)}
            self.model.branches[branch] = replace(model, shows=dict(self.model.tree(branch)), stashes=kept)
            assert self.lake.branches(self.repo).get(branch).clean

    @rule(branch=some_branch, name=st.sampled_from(["s", "t"]), strategy=st.sampled_from(Strategy))
    def pop(self, branch: str, name: str, strategy: Strategy) -> None:
        call = partial(stashes.pop, self.lake, self.repo, branch, name, strategy=strategy)
        missing = branch in self.model.branches and name not in self.model.branches[branch].stashes
        if self.fails(call, self.missing(branch), Kind.STASH_NOT_FOUND if missing else None):
            return
        model = self.model.branches[branch]
        at, stashed = model.stashes[name]
        base = self.model.commits[at].tree
        if at == model.head:
            call()
            shows = shown(self.lake, self.repo, branch)
            for path in {*base, *stashed, *model.shows, *shows}:
                here, there = model.shows.get(path), stashed.get(path)
                # Where it undid what it had done, it may lie on top of what was done since, or not.
                either = there == base.get(path) and here != base.get(path)
                assert shows.get(path) in ((there, here) if either else (there,))
        else:
            shows, conflicts = merged(base, stashed, model.shows, strategy)
            if conflicts:
                with pytest.raises(ConflictError) as caught:
                    call()
                assert caught.value.paths == conflicts
                return
            call()
        left = {other: kept for other, kept in model.stashes.items() if other != name}
        self.model.branches[branch] = replace(model, shows=shows, stashes=left)

    @rule(branch=some_branch, name=st.sampled_from(["s", "t"]))
    def drop_stash(self, branch: str, name: str) -> None:
        call = partial(stashes.drop, self.lake, self.repo, branch, name)
        missing = branch in self.model.branches and name not in self.model.branches[branch].stashes
        if not self.fails(call, self.missing(branch), Kind.STASH_NOT_FOUND if missing else None):
            call()
            model = self.model.branches[branch]
            left = {other: kept for other, kept in model.stashes.items() if other != name}
            self.model.branches[branch] = replace(model, stashes=left)

    # ------------------------------------------------------------------ behind the scenes

    @rule()
    def clean(self) -> None:
        self.cleaner.run()

    @rule()
    def open_again(self) -> None:
        """As another process would: nothing is cached."""
        self.lake = self.setup.again()
        self.cleaner = Cleaner(self.lake, self.repo)

    # ------------------------------------------------------------------ reading

    def shows(self, ref: str) -> Shown | Kind:
        found = self.model.resolve(ref)
        if isinstance(found, Kind):
            return found
        name, branch = found
        return self.model.branches[branch].shows if branch else self.model.commits[name].tree

    @rule(data=st.data(), path=some_path)
    def get(self, data: st.DataObject, path: str) -> None:
        ref = self.a_ref(data)
        shows = self.shows(ref)
        call = partial(entries.get, self.lake, self.repo, ref, path)
        if isinstance(shows, Kind):
            self.fails(call, shows)
        elif not self.fails(call, Kind.OBJECT_NOT_FOUND if path not in shows else None):
            assert call() == shows[path]

    @rule(
        data=st.data(),
        prefix=some_prefix,
        delimiter=st.sampled_from(["", "/", "b"]),
        after=st.sampled_from(["", *PATHS, *PREFIXES]),
        amount=st.integers(1, 4),
    )
    def listing(self, data: st.DataObject, prefix: str, delimiter: str, after: str, amount: int) -> None:
        ref = self.a_ref(data)
        shows = self.shows(ref)
        if isinstance(shows, Kind):
            self.fails(lambda: entries.listing(self.lake, self.repo, ref), shows)
            return
        found: list[Entry | str] = []
        token: str | None = after
        while token is not None:
            page = entries.listing(
                self.lake, self.repo, ref, prefix=prefix, after=token, delimiter=delimiter, amount=amount
            )
            assert len(page.items) == amount or page.next is None
            found += page.items
            token = page.next
        assert found == pages(shows, prefix, delimiter, after)

    @rule(branch=some_branch, prefix=some_prefix, after=st.sampled_from(["", *PATHS]), amount=st.integers(1, 4))
    def uncommitted(self, branch: str, prefix: str, after: str, amount: int) -> None:
        if branch not in self.model.branches:
            return
        tree, shows = self.model.tree(branch), self.model.branches[branch].shows
        self.compare(
            tree,
            shows,
            lambda token: changes.uncommitted(self.lake, self.repo, branch, prefix=prefix, after=token, amount=amount),
            prefix,
            after,
        )
        clean = all(identity(tree.get(path)) == identity(shows.get(path)) for path in tree.keys() | shows.keys())
        assert changes.is_clean(self.lake, self.repo, branch) == clean

    @rule(data=st.data(), prefix=some_prefix, after=st.sampled_from(["", *PATHS]), amount=st.integers(1, 4))
    def two_dots(self, data: st.DataObject, prefix: str, after: str, amount: int) -> None:
        left, right = self.a_ref(data), self.a_ref(data)
        found = [self.model.resolve(ref) for ref in (left, right)]
        if any(isinstance(one, Kind) for one in found) or left.endswith("$") or right.endswith("$"):
            return
        here, there = (self.model.commits[one[0]].tree for one in found if not isinstance(one, Kind))
        self.compare(
            here,
            there,
            lambda token: changes.between(self.lake, self.repo, left, right, prefix=prefix, after=token, amount=amount),
            prefix,
            after,
        )

    @rule(data=st.data())
    def three_dots(self, data: st.DataObject) -> None:
        """What a merge would bring, and where it would conflict."""
        left, right = self.a_ref(data), self.a_ref(data)
        found = [self.model.resolve(ref) for ref in (left, right)]
        if any(isinstance(one, Kind) for one in found) or left.endswith("$") or right.endswith("$"):
            return
        ours, theirs = (one[0] for one in found if not isinstance(one, Kind))
        base = self.model.merge_base(ours, theirs)
        before, dest, source = (self.model.commits[name].tree for name in (base, ours, theirs))
        expected = {}
        for path in before.keys() | dest.keys() | source.keys():
            was, here, there = (identity(tree.get(path)) for tree in (before, dest, source))
            if there in (was, here):
                continue
            if here != was:
                expected[path] = ChangeKind.CONFLICT
            else:
                expected[path] = (
                    ChangeKind.REMOVED if there is None else ChangeKind.ADDED if was is None else ChangeKind.CHANGED
                )
        page = changes.between(self.lake, self.repo, left, right, three_dot=True)
        assert {change.path: change.kind for change in page.items} == expected
        assert [change.path for change in page.items] == sorted(expected)

    def compare(
        self, left: Shown, right: Shown, ask: Callable[[str], changes.ChangePage], prefix: str, after: str
    ) -> None:
        expected = []
        for path in sorted(left.keys() | right.keys()):
            before, now = left.get(path), right.get(path)
            if path.startswith(prefix) and path > after and identity(before) != identity(now):
                kind = ChangeKind.REMOVED if now is None else ChangeKind.CHANGED if before else ChangeKind.ADDED
                expected.append((kind, path, now or before))
        found = []
        token: str | None = after
        while token is not None:
            page = ask(token)
            found += [(change.kind, change.path, change.entry) for change in page.items]
            token = page.next
        assert found == expected

    @rule(data=st.data(), first_parent=st.booleans())
    def the_log(self, data: st.DataObject, first_parent: bool) -> None:
        ref = self.a_ref(data)
        found = self.model.resolve(ref)
        if isinstance(found, Kind) or ref.endswith("$"):
            return
        listed: list[CommitID] = []
        after: CommitID | None = None
        while True:
            page = log.log(self.lake, self.repo, ref, first_parent=first_parent, after=after, amount=3)
            listed += [name for name, _ in page.items]
            if (after := page.next) is None:
                break
        assert listed == self.model.log(found[0], first_parent=first_parent)

    @rule(data=st.data())
    def resolve(self, data: st.DataObject) -> None:
        ref = self.a_ref(data)
        found = self.model.resolve(ref)
        call = partial(refs.resolve, self.lake, self.repo, ref)
        if isinstance(found, Kind):
            self.fails(call, found)
        else:
            assert (call().commit, call().branch) == found

    @invariant()
    def branches_show_what_they_should(self) -> None:
        assert {name: record.commit for name, record in branches.every(self.lake, self.repo)} == {
            name: branch.head for name, branch in self.model.branches.items()
        }
        for name, branch in self.model.branches.items():
            assert shown(self.lake, self.repo, name) == branch.shows

    def teardown(self) -> None:
        try:
            self.lake = self.setup.again()
            for name, of in self.model.commits.items():
                assert committed(self.lake, self.repo, name) == of.tree
            if self.options.grace_s == 0:
                assert_nothing_leaked(self.setup)
        finally:
            self.patch.undo()


class TinyRangesNoCache(Machine):
    options = Settings(cache_bytes=0, grace_s=0.0)
    cutting = Cutting(entries_mean=2, entries_max=3, bytes_max=1 << 20)
    window_rows = 2


class NoDirtyReads(Machine):
    """Reads look into staging whatever the flag says."""

    options = Settings(dirty_read_optimization=False, grace_s=0.0)
    cutting = Cutting(entries_mean=1, entries_max=1, bytes_max=1)
    window_rows = 1


class CompactedAtEveryWrite(Machine):
    """What lies in which level makes no difference."""

    cutting = Cutting(entries_mean=2, entries_max=3, bytes_max=1 << 20)
    window_rows = 2
    compacts = True


class NoGuards(Machine):
    """As on DynamoDB."""

    cutting = Cutting(entries_mean=3, entries_max=100, bytes_max=1 << 20)
    window_rows = 3

    @staticmethod
    def open_kv() -> KVStore:
        return NoGuardsKV()


class ThroughTheMemstore(Machine):
    """Single writes become tables."""

    options = Settings(staging=Staging.LSM, grace_s=0.0)
    cutting = Cutting(entries_mean=2, entries_max=3, bytes_max=1 << 20)
    window_rows = 2


class NothingIsCleaned(Machine):
    """The grace time does not pass."""

    options = Settings()


def _case(machine: type[Machine], examples: int) -> Any:
    case = machine.TestCase
    case.settings = settings(
        max_examples=int(os.environ.get("ESKER_MODEL_EXAMPLES", examples)),
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return case


TestDefault = _case(Machine, 120)
TestTinyRangesNoCache = _case(TinyRangesNoCache, 20)
TestNoDirtyReads = _case(NoDirtyReads, 70)
TestCompactedAtEveryWrite = _case(CompactedAtEveryWrite, 70)
TestNoGuards = _case(NoGuards, 70)
TestThroughTheMemstore = _case(ThroughTheMemstore, 35)
TestNothingIsCleaned = _case(NothingIsCleaned, 60)
