"""For the tests of the committer: what a branch shows, who watches it meanwhile, and jobs that wait for a word."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from tests import services
from tests.server.live import Live

Shown = frozenset[str]


class Table:
    """A directory on a branch."""

    def __init__(self, server: Live, repo: str, name: str = "t", branch: str = "main") -> None:
        self.server = server
        self.repo = repo
        self.name = name
        self.branch = branch

    @property
    def url(self) -> str:
        return f"lakefs://{self.repo}/{self.branch}/{self.name}"

    def paths(self, ref: str | None = None) -> Shown:
        """The files in it, as they are listed at one moment; those of no data left out."""
        asked = {"prefix": f"{self.name}/", "amount": 1000}
        answer = self.server.ask("GET", f"/repositories/{self.repo}/refs/{ref or self.branch}/objects/ls", query=asked)
        assert answer.status == 200, answer
        found = [item["path"].removeprefix(f"{self.name}/") for item in answer.json["results"]]
        assert not answer.json["pagination"]["has_more"]
        return frozenset(path for path in found if not path.rpartition("/")[2].startswith("_") and path)

    def log(self) -> list[dict[str, Any]]:
        """The branch's commits, newest first."""
        answer = self.server.ask("GET", f"/repositories/{self.repo}/refs/{self.branch}/commits")
        found: list[dict[str, Any]] = answer.json["results"]
        return found

    def uncommitted(self) -> list[str]:
        answer = self.server.ask("GET", f"/repositories/{self.repo}/branches/{self.branch}/diff")
        return [change["path"] for change in answer.json["results"]]

    def jobs(self) -> dict[str, str]:
        """The states of its repository's jobs."""
        found = self.server.ask("GET", f"/repositories/{self.repo}/jobs", query={"amount": 1000}).json["results"]
        return {job["id"]: job["state"] for job in found}

    @contextmanager
    def watched(self) -> Iterator[list[Shown]]:
        """What readers saw all through the block: each state once, in the order in which they first saw it."""
        seen: list[Shown] = [self.paths()]
        over = threading.Event()

        def watch() -> None:
            while not over.is_set():
                now = self.paths()
                if now != seen[-1]:
                    seen.append(now)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield seen
        finally:
            over.set()
            watcher.join()
            if (last := self.paths()) != seen[-1]:
                seen.append(last)


class Gate:
    """Holds tasks until it is opened."""

    def __init__(self, directory: Path) -> None:
        self.reached = directory / "reached"
        self.opened = directory / "opened"

    def hold(self, frame: DataFrame) -> DataFrame:
        """The same rows, once the gate is open. The first column has to be `id`."""
        reached, opened = str(self.reached), str(self.opened)

        def held(number: int) -> int:
            path = Path(opened)
            Path(reached).touch()
            while not path.exists():
                time.sleep(0.02)
            return number

        return frame.withColumn("id", udf(held, LongType(), useArrow=False)("id"))

    @contextmanager
    def opening(self) -> Iterator[None]:
        """The block runs when a task has come to the gate, and opens it, however it ends."""
        try:
            services.wait(self.reached.exists, lambda: None)
            yield
        finally:
            self.opened.touch()
