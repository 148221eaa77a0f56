"""The repositories that a worker knows, so that most requests need not read which there are.

A repository's record never changes. It may be deleted, though, and another be created under its name; so a deletion is
answered only when nobody remembers what was deleted. Then no worker of any server on the lake takes the one for the
other, or finds what is gone: a deletion by a program other than a server shows `AGE_S` later.
"""

from typing import Final

from esker.engine import repositories
from esker.engine.lake import Lake
from esker.model import Repository
from esker.server.places import Place, place

AGE_S: Final = 0.5

_KNOWN_MAX: Final = 10_000


class Known:
    """Of one worker. Shared by threads."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._found: dict[str, tuple[float, Repository]] = {}
        self._homes: tuple[float, tuple[tuple[str, Place], ...]] = (0.0, ())

    def get(self, name: str) -> Repository:
        """The repository of this name. NotFoundError if there is none."""
        now_s = self._lake.world.monotonic_s()
        found = self._found.get(name)
        if found is not None and now_s < found[0]:
            return found[1]
        repo = repositories.get(self._lake, name)
        if len(self._found) >= _KNOWN_MAX:
            self._found.clear()
        self._found[name] = (now_s + AGE_S, repo)
        return repo

    def homes(self) -> tuple[tuple[str, Place], ...]:
        """The repositories there are, or were `AGE_S` ago, and where they lie. One that is newer may have been made
        after the question as well."""
        until_s, found = self._homes
        now_s = self._lake.world.monotonic_s()
        if now_s >= until_s:
            found = tuple((repo.name, place(repo.namespace)) for repo in repositories.every(self._lake))
            self._homes = now_s + AGE_S, found
        return found

    def delete(self, name: str) -> None:
        """Forget a repository: everywhere, when this returns."""
        try:
            repositories.delete(self._lake, name)
        finally:
            self._lake.world.sleep(AGE_S)
            self._found.pop(name, None)
