"""A tour of what works today, on a directory that is thrown away after: `make demo`."""

import hashlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from esker.errors import CorruptError
from esker.model import Entry, FileName
from esker.stores.blob_local import LocalBlobs
from esker.stores.cache import MemoryCache
from esker.stores.kv_sqlite import SQLiteKV
from esker.streams.entries import as_changes, changes_of, table_of
from esker.tree.build import build
from esker.tree.cutting import Cutting
from esker.tree.diff import diff
from esker.tree.merge import Strategy, merge
from esker.tree.reading import get, listing, scan
from esker.tree.rewrite import apply
from esker.tree.trees import TreeCounts, Trees

TABLES = ("clicks", "orders", "returns", "stock", "visits")
DAYS = 200
FILES_A_DAY = 100


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="esker-demo-") as directory,
        ThreadPoolExecutor(4) as pool,
        timed() as took,
    ):
        Tour(Path(directory), pool).run()
    print(f"\nThat was all that works today, in {took[0]:.1f} s. Branches and commits come next.")


class Tour:
    def __init__(self, directory: Path, pool: ThreadPoolExecutor) -> None:
        self.directory = directory
        self.pool = pool
        self.blobs = LocalBlobs(directory / "lake")
        self.trees = self.open_trees()

    def open_trees(self) -> Trees:
        """As another process would: nothing cached."""
        return Trees(
            self.blobs, Cutting(entries_mean=2000, entries_max=16000), cache=MemoryCache(256 << 20), pool=self.pool
        )

    def run(self) -> None:
        self.swap_a_name()
        main = self.build_a_tree()
        changed = self.change_it(main)
        self.compare(main, changed)
        self.merge(main, changed)
        self.look_inside(changed)
        self.damage_it(changed)

    def swap_a_name(self) -> None:
        chapter("1. Names that change: a key-value store with compare-and-swap")
        say(
            "All that is mutable is small and lives here: in SQLite, or in PostgreSQL or DynamoDB for many machines.",
            "Two writers read the same record, and both try to replace what they saw:",
        )
        kv = SQLiteKV(self.directory / "kv.sqlite")
        kv.put("branches", b"main", b"tree 0")
        seen = kv.get("branches", b"main")
        assert seen is not None
        rows = []
        for writer in ("first", "second"):
            with timed() as took:
                won = kv.put_if("branches", b"main", f"tree of the {writer}".encode(), seen.version)
            rows.append((writer, "stored" if won else "refused: look again", ms(took)))
        table(("writer", "outcome", "time"), rows)
        kv.close()

    def build_a_tree(self) -> FileName:
        chapter("2. The past: a tree of sorted Parquet files, named by their content")
        entries = lake()
        with self.counted("build") as row:
            tree = build(self.trees, [entries])
        meta = self.trees.metarange(tree)
        stored = sum(blob.size for blob in self.blobs.list())
        say(
            f"{meta.count:,} objects stand in {len(meta)} range files; where one ends is decided by the paths in it.",
            f"All metadata together: {stored / 1e6:.1f} MB, {stored / meta.count:.0f} bytes an object.",
        )
        table(COUNTED, [row])
        return tree

    def change_it(self, main: FileName) -> FileName:
        chapter("3. Changing it: only what is touched is opened")
        say("A new version of one day, ten files less in another; then a whole table away, and back again.")
        day = [entry_of("orders", DAYS - 1, file, version=2) for file in range(FILES_A_DAY)]
        dropped = [path_of("orders", 0, file) for file in range(10)]
        with self.counted("100 puts, 10 deletes") as few:
            changed = apply(self.trees, main, [changes_of(day, dropped)])
        with self.counted("a table dropped") as prefix:
            without = apply(self.trees, changed, [], ["tables/returns/"])
        with self.counted("the table put back") as back:
            again = apply(self.trees, without, [under(self.trees, main, "tables/returns/")])
        table(COUNTED, [few, prefix, back])
        ids = [self.trees.metarange(tree).id for tree in (changed, again)]
        say(
            "",
            "Equal content is one tree, by whatever road it was reached:",
            f"  before the table was dropped   {ids[0][:32]}",
            f"  after it was put back          {ids[1][:32]}",
        )
        assert ids[0] == ids[1]
        return changed

    def compare(self, main: FileName, changed: FileName) -> None:
        chapter("4. Comparing: equal files are never opened")
        say("Nothing is cached here: each comparison starts as another process would.")
        rows = []
        for what, left, right in (("equal trees", main, main), ("what step 3 changed", main, changed)):
            self.trees = self.open_trees()
            with self.counted(what) as row:
                deltas = sum(batch.num_rows for batch in diff(self.trees, left, right))
            rows.append((*row, f"{deltas} paths"))
        table((*COUNTED, "differ"), rows)

    def merge(self, base: FileName, dest: FileName) -> None:
        chapter("5. Merging: three ways, path by path, by content")
        say(
            "Somebody else started from the first tree too. What only they changed is taken; what both changed is a",
            "conflict, or what the strategy says. Ranges that either side has written already are not written again.",
        )
        theirs = [entry_of("visits", 3, file, version=3) for file in range(50)]
        source = apply(self.trees, base, [changes_of(theirs)])
        clash = apply(
            self.trees, base, [changes_of([entry_of("orders", DAYS - 1, 7, version=4)], [path_of("stock", 9, 9)])]
        )
        rows = []
        for what, side, strategy in (
            ("another table", source, Strategy.NONE),
            ("the same file", clash, Strategy.NONE),
            ("the same file, source wins", clash, Strategy.SOURCE_WINS),
        ):
            self.trees = self.open_trees()
            with self.counted(what) as row:
                merged = merge(self.trees, base, side, dest, strategy)
            rows.append((*row, "merged" if merged.tree else f"conflict: {merged.conflicts[0].rpartition('/')[2]}"))
        table((*COUNTED, "outcome"), rows)

    def look_inside(self, tree: FileName) -> None:
        chapter("6. Reading: one entry, a page, all of it")
        say("A listing seeks past what lies under a common prefix, and does not read it.")
        path = path_of("orders", DAYS - 1, 42)
        get(self.trees, tree, path)
        with timed() as point:
            entry = get(self.trees, tree, path)
        assert entry is not None
        with timed() as top:
            days = listing(self.trees, tree, prefix="tables/orders/", delimiter="/")
        with timed() as whole:
            count = sum(batch.num_rows for batch in scan(self.trees, tree))
        table(
            ("question", "answer", "time"),
            [
                (f"get .../{path.rpartition('/')[2]}", f"{entry.size:,} bytes at {entry.address}", ms(point)),
                ("list tables/orders/ by '/'", f"{len(days.items)} days, the first {days.items[0]}", ms(top)),
                ("scan everything", f"{count:,} entries", ms(whole)),
            ],
        )

    def damage_it(self, tree: FileName) -> None:
        chapter("7. Damage is seen, never read")
        info = self.trees.metarange(tree).info(0)
        file = next(self.directory.rglob(info.name))
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        try:
            get(self.open_trees(), tree, info.min)
        except CorruptError as error:
            say(f"One bit of a file of {len(data):,} bytes was flipped. Reading it raises CorruptError:", f"  {error}")
        else:
            raise AssertionError("damage went unseen")

    @contextmanager
    def counted(self, what: str) -> Iterator[list[str]]:
        """A row for `COUNTED`, filled in when the block ends."""
        row: list[str] = [what]
        before = self.trees.counts()
        with timed() as took:
            yield row
        done: TreeCounts = self.trees.counts() - before
        row += [str(done.ranges_read), str(done.ranges_written), ms(took)]


COUNTED = ("operation", "ranges read", "ranges written", "time")


def lake() -> pa.Table:
    """A lake of tables, partitioned by day."""
    entries = [entry_of(name, day, file) for name in TABLES for day in range(DAYS) for file in range(FILES_A_DAY)]
    return table_of(entries)


def path_of(name: str, day: int, file: int) -> str:
    return f"tables/{name}/day={day:03}/part-{file:05}.parquet"


def entry_of(name: str, day: int, file: int, version: int = 1) -> Entry:
    path = path_of(name, day, file)
    checksum = hashlib.md5(f"{path} {version}".encode()).hexdigest()
    return Entry(
        path=path,
        address=f"data/{checksum[:20]}",
        size=1_000_000 + int(checksum[:5], 16),
        checksum=checksum,
        mtime_ms=1_760_000_000_000 + 1000 * day,
    )


def under(trees: Trees, tree: FileName, prefix: str) -> pa.Table:
    """What a tree has under a prefix, as changes that put it."""
    return pa.concat_tables(as_changes(batch) for batch in scan(trees, tree, prefix=prefix))


def chapter(title: str) -> None:
    print(f"\n\n{title}\n")


def say(*lines: str) -> None:
    for line in lines:
        print(f"  {line}".rstrip())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    print()
    for row in (head, ["-" * width for width in widths], *rows):
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@contextmanager
def timed() -> Iterator[list[float]]:
    """A list that holds the block's seconds once it has ended."""
    took: list[float] = []
    start = time.perf_counter()
    yield took
    took.append(time.perf_counter() - start)


def ms(took: list[float]) -> str:
    return f"{took[0] * 1000:,.2f} ms"


if __name__ == "__main__":
    main()
