"""One server for all tests that only talk to one: as people start it, on SQLite and a directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.live import Live, live


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A live server. Repositories made by different tests have different names. Whatever they asked of it, nothing went
    wrong in it."""
    base: Path = tmp_path_factory.mktemp("server")
    with live(base) as started:
        yield started
    said = (base / "log").read_text()
    assert "Traceback" not in said, said


@pytest.fixture
def repo(server: Live) -> str:
    """The name of a repository of the test's own, empty."""
    return server.create_repository()
