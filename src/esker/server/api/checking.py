"""A repository's invariants, checked on what is stored: what is wrong is told as it is found."""

import threading
from collections.abc import Iterator
from queue import Empty, Queue
from typing import Final

import msgspec

from esker.auth import Need
from esker.engine import fsck
from esker.errors import EskerError
from esker.model import Repository
from esker.server import wire
from esker.server.call import Call, NoQuery, Operation, Stream
from esker.server.errors import status_of

LINES: Final = "application/x-ndjson"

TOLD_S: Final = 1.0
"""Between two lines: who waits knows that it goes on, and who has left is noticed."""

_WAITING_MAX: Final = 1000
"""Findings that were not sent yet."""


class CheckQuery(NoQuery, frozen=True, kw_only=True):
    """How thoroughly: `deep`, whether trees are cut where they should be; `blobs`, whether objects' bytes are there."""

    deep: bool = False
    blobs: bool = False


def check_repository(call: Call[CheckQuery, None]) -> Stream:
    """Check a repository's invariants on what is stored, and change nothing. The answer is JSON, a line for each thing
    that is wrong, and one a second of how many were `looked` at; the last says `done`, or what `error` ended it."""
    checked = _Check(call, call.repo)
    call.response.content_type = LINES
    return Stream(checked.lines())


class _LeftError(Exception):
    """Nobody waits for the answer any more."""


class _Check:
    """It runs in a thread of its own, so that there is something to tell while nothing wrong is found."""

    def __init__(self, call: Call[CheckQuery, None], repo: Repository) -> None:
        query = call.query
        self._found = fsck.check(call.lake, repo, deep=query.deep, blobs=query.blobs, advance=self._advance)
        self._lines: Queue[msgspec.Struct | None] = Queue(_WAITING_MAX)
        self._looked = self._wrong = 0
        self._left = False

    def lines(self) -> Iterator[bytes]:
        thread = threading.Thread(target=self._run, name="fsck", daemon=True)
        thread.start()
        try:
            while True:
                try:
                    line = self._lines.get(timeout=TOLD_S)
                except Empty:
                    line = wire.CheckProgress(looked=self._looked)
                if line is None:
                    return
                yield msgspec.json.encode(line) + b"\n"
        finally:
            self._left = True
            while thread.is_alive():  # it may be waiting for room
                try:
                    self._lines.get(timeout=TOLD_S)
                except Empty:
                    continue

    def _advance(self) -> None:
        if self._left:
            raise _LeftError
        self._looked += 1

    def _run(self) -> None:
        try:
            for finding in self._found:
                self._wrong += 1
                self._lines.put(finding)
            self._lines.put(wire.CheckDone(done=True, looked=self._looked, wrong=self._wrong))
        except EskerError as error:
            self._lines.put(
                wire.CheckFailed(error=wire.Error(message=error.message, kind=error.kind), status=status_of(error))
            )
        except _LeftError:
            return
        finally:
            self._lines.put(None)


OPERATIONS: Final = [
    Operation(
        id="checkRepository",
        method="GET",
        path="/repositories/{repository}/fsck",
        need=Need.ADMIN,
        handler=check_repository,
        ours=True,
    ),
]
