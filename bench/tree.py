"""The tree: build, apply, diff, merge, get, list and scan, against bare Parquet and git on the same paths."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench._data import FILES_A_DIRECTORY, entries, rows
from bench._report import Report, seconds
from esker.format import files
from esker.model import FileName
from esker.stores.blob_local import LocalBlobs
from esker.stores.cache import MemoryCache
from esker.streams.entries import CHANGES, as_changes
from esker.tree import reading
from esker.tree.build import build
from esker.tree.cutting import Cutting
from esker.tree.diff import diff
from esker.tree.merge import merge
from esker.tree.rewrite import apply
from esker.tree.trees import Trees

CACHE_BYTES = 1 << 30
PLACES = 40


def open_trees(root: Path, cache_bytes: int = CACHE_BYTES) -> Trees:
    """Trees on a local directory, as a lake opens them."""
    pool = ThreadPoolExecutor(8)
    return Trees(LocalBlobs(root), Cutting(salt=7), cache=MemoryCache(cache_bytes), pool=pool)


def clustered(n: int, version: int, at: float) -> pa.Table:
    """A thousand changes in one directory."""
    first = int(n * at) // FILES_A_DIRECTORY * FILES_A_DIRECTORY
    return as_changes(rows(np.arange(first, first + FILES_A_DIRECTORY), version))


def all_over(n: int, version: int) -> list[pa.Table]:
    """Clustered changes at many places: ranges differ in length, so one place says little."""
    return [clustered(n, version, (place + 0.5) / PLACES) for place in range(PLACES)]


def scattered(n: int, count: int, version: int, phase: int = 0) -> pa.Table:
    """Changes all over: of ten, eight are new content, one is a new path and one a delete."""
    step = n // count
    numbers = np.arange(phase, n, step)[:count]
    changed = rows(numbers, version)
    kinds = np.arange(len(numbers)) % 10
    paths = changed["path"].to_pylist()
    paths = [f"{path[:-8]}.new.parquet" if kind == 9 else path for path, kind in zip(paths, kinds, strict=True)]
    columns = [pa.array(paths), *changed.columns[1:], pa.array(kinds == 8)]
    table = pa.table(columns, names=CHANGES.names).cast(CHANGES)
    return table.sort_by("path").combine_chunks()


def encode_bare(table: pa.Table) -> int:
    """The floor of building: pyarrow alone, to memory, with the same encodings."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=files.RANGE.dictionary,
        column_encoding=files.RANGE.encoding,
    )
    return int(sink.getvalue().size)


def bench_tree(report: Report, n: int, big: int, here: Path) -> None:
    """The measures that need no peer but bare Parquet."""
    table = pa.concat_tables(list(entries(n))).combine_chunks()
    floor, size = seconds(lambda: encode_bare(table))
    trees = open_trees(here / "build")
    took, tree = seconds(lambda: build(trees, [table]))
    report.at_most(f"build {n:,} entries / bare Parquet encode", took / floor, 2, note=f"{floor:.2f} s bare")
    report.note("bytes an entry, encoded", f"{size / n:.0f}")
    ranges = len(trees.metarange(tree))

    report_get(report, trees, tree, table)
    report_scattered(report, here / "build", tree, n, ranges)
    report_opened(report, here / "build", tree, n)
    report_clustered(report, here, tree, n, big)


def report_get(report: Report, trees: Trees, tree: FileName, table: pa.Table) -> None:
    sample = table["path"].take(pa.array(np.linspace(0, table.num_rows - 1, 2000).astype(int))).to_pylist()

    def gets() -> None:
        for path in sample:
            assert reading.get(trees, tree, path) is not None

    gets()
    took, _ = seconds(gets)
    report.at_most("warm point get", took / len(sample) * 1e6, 50, "us")
    middle = sample[1000]
    took, page = seconds(lambda: reading.listing(trees, tree, after=middle, amount=1000), 10)
    assert len(page.items) == 1000
    report.at_most("warm listing page, 1,000 entries", took * 1e3, 5, "ms")
    list_directories(trees, tree)
    took, found = seconds(lambda: list_directories(trees, tree), 3)
    report.at_most("warm listing, 1,000 common prefixes", took / len(found) * 1e6, 5, "ms", f"{len(found)} in all")


def list_directories(trees: Trees, tree: FileName) -> list[object]:
    """As many pages as it takes of the directories, each sought past."""
    found: list[object] = []
    after = ""
    while True:
        page = reading.listing(trees, tree, delimiter="/part", after=after, amount=1000)
        found += page.items
        if page.next is None:
            return found
        after = page.next


def report_scattered(report: Report, root: Path, tree: FileName, n: int, ranges: int) -> None:
    changes = scattered(n, n // 10, 1)

    def bare() -> None:
        trees = open_trees(root, 0)
        meta = trees.metarange(tree)
        for at in range(len(meta)):
            encode_bare(trees.rows(meta.info(at)).table)

    def ours() -> Trees:
        trees = open_trees(root, 0)
        apply(trees, tree, [changes])
        return trees

    floor, _ = seconds(bare, 2)
    took, trees = seconds(ours, 2)
    counts = trees.counts()
    report.at_most(
        f"apply {n // 10:,} scattered / decode + encode of {ranges} ranges",
        took / floor,
        2.5,
        note=f"{counts.ranges_read} read, {counts.ranges_written} written",
    )


def report_opened(report: Report, root: Path, tree: FileName, n: int) -> None:
    """Range files opened by diff and merge, cold."""
    source, dest = (apply(open_trees(root), tree, [clustered(n, 5, at)]) for at in (0.3, 0.7))
    for what, k_of in (("diff", 1), ("merge", 2)):
        trees = open_trees(root)
        if what == "diff":
            list(diff(trees, tree, source))
        else:
            assert merge(trees, tree, source, dest).tree
        counts = trees.counts()
        base, one, two = (set(trees.metarange(name).table["id"].to_pylist()) for name in (tree, source, dest))
        k = max(len(base - one), len(one - base)) + (max(len(base - two), len(two - base)) if k_of == 2 else 0)
        report.at_most(f"range files opened by {what}, k = {k} ranges differ", counts.ranges_read, 2 * k + 2, "")
    trees = open_trees(root)
    list(diff(trees, tree, tree))
    merge(trees, tree, tree, source)
    report.at_most("range files opened by diff and merge of equal trees", trees.counts().ranges_read, 0, "")


def report_clustered(report: Report, here: Path, tree: FileName, n: int, big: int) -> None:
    trees_big = open_trees(here / "big")
    tree_big = build(trees_big, entries(big))
    took = {}
    for size, root, name in ((n, here / "build", tree), (big, here / "big", tree_big)):
        trees = open_trees(root)
        for changes in all_over(size, 1):
            apply(trees, name, [changes])  # warm
        before, turn = trees.counts(), all_over(size, 2)
        took[size], _ = seconds(partial(apply_each, trees, name, turn))
        counts = trees.counts() - before
        report.note(
            f"apply 1,000 clustered to {size:,}",
            f"{took[size] / PLACES * 1e3:.1f} ms; ranges read {counts.ranges_read}, written "
            f"{counts.ranges_written / PLACES / 3:.1f} each, of {len(trees.metarange(name))}",
        )
    report.at_most(f"apply 1,000 clustered: {big:,} / {n:,} entries", took[big] / took[n], 1.3)
    report.at_most("resident memory of a scan of the larger tree", scan_memory(here / "big", tree_big), 300, "MB")


def apply_each(trees: Trees, tree: FileName, turn: list[pa.Table]) -> FileName:
    """Each of the changes to the same tree; the last result."""
    for changes in turn:
        last = apply(trees, tree, [changes])
    return last


def scan_memory(root: Path, tree: FileName) -> float:
    """Peak resident megabytes of a process that scans a tree, and does nothing else."""
    out = subprocess.run(
        [sys.executable, "-m", "bench.tree", "--scan", str(root), tree], check=True, capture_output=True, text=True
    )
    return float(out.stdout)


def scan(root: Path, tree: FileName) -> None:
    trees = open_trees(root, 64 << 20)
    assert sum(table.num_rows for table in reading.scan(trees, tree)) == trees.metarange(tree).count
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())  # getrusage would count the parent's
    assert peak
    print(int(peak[1]) / 1024)


def count_changes(trees: Trees, left: FileName, right: FileName) -> int:
    return sum(batch.num_rows for batch in diff(trees, left, right))


class Git:
    """A bare repository in which only trees are real: git's best case, since it never opens a blob here."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self("init", "--quiet", "--bare", str(root))
        self("config", "core.looseCompression", "0")

    def __call__(self, *arguments: str, stdin: bytes | None = None, index: str = "index") -> str:
        environment = {**os.environ, "GIT_DIR": str(self.root), "GIT_INDEX_FILE": str(self.root / index)}
        done = subprocess.run(["git", *arguments], input=stdin, env=environment, capture_output=True, check=True)
        return done.stdout.decode()

    def commit(self, tree: str, *parents: str) -> str:
        who = {
            "GIT_AUTHOR_NAME": "b",
            "GIT_AUTHOR_EMAIL": "b@b",
            "GIT_COMMITTER_NAME": "b",
            "GIT_COMMITTER_EMAIL": "b@b",
        }
        os.environ.update(who)
        return self("commit-tree", "-m", "x", *(f"-p{parent}" for parent in parents), tree).strip()

    def write(self, index: str, lines: bytes) -> str:
        """Change the index, and write its tree."""
        self("update-index", "--index-info", stdin=lines, index=index)
        return self("write-tree", "--missing-ok", index=index).strip()

    def copy_index(self, target: str) -> None:
        shutil.copyfile(self.root / "index", self.root / target)

    def pack(self) -> None:
        """All loose objects into one pack, as `git gc` would."""
        names = [
            f"{directory.name}{file.name}"
            for directory in (self.root / "objects").iterdir()
            if len(directory.name) == 2
            for file in directory.iterdir()
        ]
        self("pack-objects", "-q", str(self.root / "objects/pack/pack"), stdin="\n".join(names).encode())
        self("prune-packed", "-q")


def index_lines(changes: pa.Table) -> bytes:
    """Changes as `git update-index --index-info` reads them; the blob's name is made from the checksum."""
    lines = []
    for path, checksum, gone in zip(*(changes[c].to_pylist() for c in ("path", "checksum", "tombstone")), strict=True):
        lines.append(f"0 {'0' * 40}\t{path}" if gone else f"100644 {checksum}00000000\t{path}")
    return ("\n".join(lines) + "\n").encode()


def bench_git(report: Report, n: int, here: Path) -> None:
    """The same commits, diffs and merges in git: whole commands, as a person would run them, one process each."""
    git = Git(here / "git")
    initial = b"".join(index_lines(as_changes(batch)) for batch in entries(n))
    base_git = git.write("index", initial)
    git.pack()
    trees = open_trees(here / "peer")
    base = build(trees, entries(n))
    few, many = all_over(n, 3), scattered(n, n // 10, 3)
    ours_side, their_side = (scattered(n, 1000, version, phase) for version, phase in ((4, 0), (5, n // 2000)))

    def both(what: str, turn: list[pa.Table], limit: float) -> tuple[FileName, str]:
        lines = [index_lines(changes) for changes in turn[-3:]]

        def in_git() -> str:
            for line in lines:
                git.copy_index("work")
                written = git.write("work", line)
            return written

        copying, _ = seconds(lambda: git.copy_index("work"), 3)
        theirs, tree_git = seconds(in_git, 1)
        theirs = theirs / len(lines) - copying
        apply_each(trees, base, turn)
        took, tree = seconds(partial(apply_each, trees, base, turn))
        took /= len(turn)
        report.at_least(f"commit {what}: git / esker", theirs / took, limit, note=f"{theirs:.3f} s / {took:.4f} s")
        return tree, tree_git

    tree_few, git_few = both("1,000 clustered", few, 100)
    tree_many, git_many = both(f"{n // 10:,} scattered", [many], 5)
    git.pack()
    for what, tree, other, limit in (
        ("1,000 clustered", tree_few, git_few, 20),
        (f"{n // 10:,} scattered", tree_many, git_many, 5),
    ):
        theirs, out = seconds(partial(git, "diff-tree", "-r", base_git, other), 3)
        took, found = seconds(partial(count_changes, trees, base, tree), 5)
        assert len(out.splitlines()) == found, (len(out.splitlines()), found)
        report.at_least(f"diff {what}: git / esker", theirs / took, limit, note=f"{theirs:.4f} s / {took:.4f} s")

    source, dest = apply(trees, base, [ours_side]), apply(trees, base, [their_side])
    sides = []
    for side in (ours_side, their_side):
        git.copy_index("work")
        sides.append(git.write("work", index_lines(side)))
    root = git.commit(base_git)
    heads = [git.commit(side, root) for side in sides]
    git.pack()
    theirs, _ = seconds(lambda: git("merge-tree", "--write-tree", *heads), 3)
    took, merged = seconds(lambda: merge(trees, base, source, dest), 3)
    assert merged.tree is not None
    report.at_least(
        "merge 1,000 + 1,000 scattered: git / esker", theirs / took, 10, note=f"{theirs:.3f} s / {took:.4f} s"
    )


def main() -> int:
    """How many promises were missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="40 thousand entries instead of a million")
    parser.add_argument("--scan", nargs=2, metavar=("ROOT", "TREE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.scan:
        scan(Path(arguments.scan[0]), FileName(arguments.scan[1]))
        return 0
    n = 40_000 if arguments.quick else 1_000_000
    report = Report()
    with tempfile.TemporaryDirectory(prefix="esker-bench-") as here:
        bench_tree(report, n, 10 * n, Path(here))
        bench_git(report, n, Path(here))
    return report.missed


if __name__ == "__main__":
    sys.exit(main())
