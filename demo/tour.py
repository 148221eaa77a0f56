"""A tour of versions in Python alone, on a directory that is thrown away after: `make tour`."""

import hashlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import esker
from esker.model import CommitID, Entry
from esker.tree.past import StoredPast
from esker.tree.trees import TreeCounts

TABLES = ("clicks", "orders", "returns", "stock", "visits")
DAYS = 200
FILES_A_DAY = 100

LAST_DAY = f"tables/orders/day={DAYS - 1:03}/"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="esker-demo-") as directory, timed() as took:
        place = (Path(directory) / "lake").as_uri()
        say(f'lake = esker.open_lake("{place}")')
        with esker.open_lake(place) as lake:
            Tour(lake).run()
    print(f"\n\nThat was the tour, in {took[0]:.1f} s. Where to go next:\n")
    say(
        "docs/guide.md          the same by task, with examples to copy",
        "docs/consistency.md    what is guaranteed when many write at once, and why",
        "docs/architecture.md   how it works",
        "make bench             how fast it is, next to bare pyarrow and git",
    )


class Tour:
    def __init__(self, lake: esker.Lake) -> None:
        self.lake = lake
        self.repo = lake.create_repository("shop")
        self.main = self.repo.branch("main")

    def run(self) -> None:
        self.load()
        self.rewrite_a_partition()
        self.throw_away_a_bad_batch()
        self.race()
        self.conflict()
        self.drop_a_table()
        self.travel_in_time()
        self.look_at_what_is_stored()

    def load(self) -> None:
        chapter("1. A lake that exists already: 100,000 files become one commit")
        say(
            "An entry names a path, where its bytes lie, their size and checksum. No data is copied, or read.",
            "So many at once are laid on the branch as one sorted file, and then committed like anything staged.",
        )
        entries = [entry_of(name, day, file) for name in TABLES for day in range(DAYS) for file in range(FILES_A_DAY)]
        rows = []
        with self.counted("main.append(esker.entries_table(...))") as row:
            self.main.append(esker.entries_table(entries))
        rows.append(row)
        with self.counted("main.commit") as row:
            self.main.commit("All tables, as they are")
        rows.append(row)
        with self.counted("repo.tag('monday', 'main')") as row:
            self.repo.tag("monday", "main")
        rows.append(row)
        table(COUNTED, rows)
        days = list(self.main.list("tables/orders/", delimiter="/"))
        say("", f"tables/orders/ has {len(days)} days, the last one {days[-1]}")

    def rewrite_a_partition(self) -> None:
        chapter("2. A partition rewritten on a branch, while readers of main see the old one")
        say("A branch is one small record, whatever the size of the lake.")
        rows = []
        with self.counted("repo.create_branch('restate', 'main')") as row:
            restate = self.repo.create_branch("restate", "main")
        rows.append(row)
        with self.counted("restate.delete_prefix(<the last day>)") as row:
            restate.delete_prefix(LAST_DAY)
        rows.append(row)
        with self.counted("40 x restate.put(...), each durable") as row:
            for file in range(40):
                restate.put(f"{LAST_DAY}new-{file:05}.parquet", b"PAR1 and so on", metadata={"job": "restate"})
        rows.append(row)
        table(COUNTED, rows)
        seen = [self.files_of_the_last_day("nothing committed yet")]
        restate.commit("The last day, restated")
        seen.append(self.files_of_the_last_day("committed to restate"))
        with timed() as took:
            self.main.merge("restate")
        seen.append(self.files_of_the_last_day("merged into main"))
        table(("", "files of the day on main", "on restate"), seen)
        say("", f"The merge took {ms(took)}; no reader of main saw a day that was half written.")

    def files_of_the_last_day(self, when: str) -> tuple[str, str, str]:
        on_main, on_restate = (str(sum(1 for _ in self.repo.ref(ref).list(LAST_DAY))) for ref in ("main", "restate"))
        return when, on_main, on_restate

    def throw_away_a_bad_batch(self) -> None:
        chapter("3. A bad batch thrown away, a good one merged")
        say("What is staged on a branch is seen by those who read that branch, and by nobody else.")
        load = self.repo.create_branch("load", "main")
        bad = [entry_of("stock", day, file, version=13) for day in range(20) for file in range(FILES_A_DAY)]
        good = [entry_of("stock", DAYS, file) for file in range(2000)]
        rows = []

        def step(what: str, action: Callable[[], object]) -> None:
            with self.counted(what) as row:
                action()
            rows.append([*row, staged_on(load)])

        with ThreadPoolExecutor(16) as pool:
            step("2,000 x load.link(entry), 16 threads", lambda: list(pool.map(load.link, bad)))
            step("load.reset()", load.reset)
            step("2,000 x load.link(entry), 16 threads", lambda: list(pool.map(load.link, good)))
        step("load.commit", lambda: load.commit("A day of stock"))
        step("main.merge('load')", lambda: self.main.merge("load"))
        table((*COUNTED, "load.uncommitted()"), rows)

    def race(self) -> None:
        chapter("4. Two writers race for one path: exactly one wins")
        say("Absence is looked at, and the write made, as one step: as a lock, or so that no file is written over.")
        rows = []
        for number in range(5):
            path = f"locks/{number}"
            with ThreadPoolExecutor(2) as pool:
                outcomes = list(pool.map(self.claim, [(path, "first"), (path, "second")]))
            assert sorted(outcomes) == ["refused", "won"]
            rows.append((path, *outcomes, self.main.get(path).decode()))
        table(("main.put(path, ..., if_absent=True)", "first", "second", "path holds"), rows)
        self.main.commit("Locks")

    def claim(self, wanted: tuple[str, str]) -> str:
        path, writer = wanted
        try:
            self.main.put(path, writer.encode(), if_absent=True)
        except esker.PreconditionError:
            return "refused"
        return "won"

    def conflict(self) -> None:
        chapter("5. A conflict: listed, then decided by a strategy")
        say("Two branches change one file; what else they changed does not collide.")
        ours = f"{LAST_DAY}new-00007.parquet"
        audit = self.repo.create_branch("audit", "main")
        audit.put(ours, b"as audited")
        audit.put("tables/returns/checked.txt", b"yes")
        audit.commit("Audited")
        self.main.put(ours, b"as restated again")
        self.main.commit("Once more")
        table(
            ("repo.diff('main', 'audit', three_dot=True)", ""),
            [(change.path, change.kind) for change in self.repo.diff("main", "audit", three_dot=True)],
        )
        try:
            self.main.merge("audit")
        except esker.ConflictError as error:
            say("", "main.merge('audit') changes nothing, and raises ConflictError:", f"  {error}")
            say(f"  error.paths == {error.paths}")
        else:
            raise AssertionError("a conflict went unseen")
        with timed() as took:
            self.main.merge("audit", strategy="source-wins")
        say("", f"main.merge('audit', strategy='source-wins') took {ms(took)}. The file now says: {self.text(ours)}")

    def drop_a_table(self) -> None:
        chapter("6. A table of 20,000 files deleted as one record, and brought back")
        say("Files inside of the prefix are dropped, and put back, without being opened.")
        rows = []

        def step(what: str, action: Callable[[], object]) -> None:
            with self.counted(what) as row:
                action()
            rows.append((*row, f"{sum(1 for _ in self.main.list('tables/clicks/')):,}"))

        step("main.delete_prefix('tables/clicks/')", lambda: self.main.delete_prefix("tables/clicks/"))
        step("main.commit", lambda: self.main.commit("Clicks are gone"))
        step("main.revert('main')", lambda: self.main.revert("main"))
        table((*COUNTED, "files"), rows)
        before, after = (self.tree_of(ref) for ref in ("main~2", "main"))
        say(
            "",
            "Equal content is one tree, by whatever road it was reached:",
            f"  before the delete   {before}",
            f"  after the revert    {after}",
        )
        assert before == after

    def travel_in_time(self) -> None:
        chapter("7. Reading the past: by tag, by steps back, by commit")
        say("Every commit stays readable, and a tag keeps its name.")
        path = f"{LAST_DAY}new-00007.parquet"
        rows = []
        for ref in ("main", "main~1", "main~4", "monday", str(self.main.commit_id())[:12]):
            with timed() as took:
                clicks, files = (sum(1 for _ in self.repo.ref(ref).list(at)) for at in ("tables/clicks/", LAST_DAY))
            rows.append((ref, f"{clicks:,}", str(files), self.text(path, ref), ms(took)))
        table(("ref", "clicks", "files of the last day", ".../new-00007.parquet", "time"), rows)
        say("", "main.log(prefixes=[<that day>]):")
        table(
            ("commit", "message"),
            [(name[:12], message) for name, message in self.log(prefixes=[LAST_DAY])],
        )

    def look_at_what_is_stored(self) -> None:
        chapter("8. What that took")
        root = Path(self.repo.record.namespace.removeprefix("file://"))
        sizes = [file.stat().st_size for file in (root / "_esker").rglob("*") if file.is_file()]
        files = sum(1 for _ in self.main.list())
        say(
            f"{len(self.log())} versions of {files:,} files: {sum(sizes) / 1e6:.1f} MB of metadata in {len(sizes)} "
            "Parquet files, sorted,",
            "named by their content and checked whenever one is read. Any engine that reads Parquet can read them.",
        )

    def text(self, path: str, ref: str = "main") -> str:
        found = self.repo.ref(ref)
        return found.get(path).decode() if found.exists(path) else "-"

    def log(self, prefixes: Sequence[str] = ()) -> list[tuple[CommitID, str]]:
        return [(name, commit.message) for name, commit in self.main.log(prefixes=prefixes)]

    def tree_of(self, ref: str) -> str:
        _, commit = next(self.repo.ref(ref).log())
        return commit.tree.partition("-")[0][:32]

    @contextmanager
    def counted(self, what: str) -> Iterator[list[str]]:
        """A row for `COUNTED`, filled in when the block ends."""
        row: list[str] = [what]
        before = self.counts()
        with timed() as took:
            yield row
        done = self.counts() - before
        row += [str(done.ranges_read), str(done.ranges_written), ms(took)]

    def counts(self) -> TreeCounts:
        past = self.lake.engine.past(self.repo.record)
        assert isinstance(past, StoredPast)
        return past.trees.counts()


COUNTED = ("", "ranges read", "written", "time")


def staged_on(branch: esker.Branch) -> str:
    kinds = Counter(str(change.kind) for change in branch.uncommitted())
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()) or "nothing"


def entry_of(name: str, day: int, file: int, version: int = 1) -> Entry:
    path = f"tables/{name}/day={day:03}/part-{file:05}.parquet"
    checksum = hashlib.md5(f"{path} {version}".encode()).hexdigest()
    return Entry(
        path=path,
        address=f"s3://warehouse/{path}",
        size=1_000_000 + int(checksum[:5], 16),
        checksum=checksum,
        mtime_ms=1_760_000_000_000 + 1000 * day,
    )


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
