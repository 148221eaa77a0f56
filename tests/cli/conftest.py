"""The same program on both kinds of lake: each test that takes `esker` is run on a lake opened here and on a server."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Esker
from tests.server.live import Live, live

_NAMES = itertools.count()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A live server, with an admin's key."""
    base: Path = tmp_path_factory.mktemp("cli-server")
    with live(base) as started:
        yield started


@pytest.fixture(scope="session")
def local_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli-lake") / "lake"


@pytest.fixture
def local(tmp_path: Path, local_lake: Path) -> Esker:
    """On a lake that it opens itself."""
    return Esker(tmp_path / "home", {"ESKER_LAKE": local_lake.as_uri()}, local_lake)


@pytest.fixture
def remote(tmp_path: Path, server: Live) -> Esker:
    """On a server, as its admin."""
    told = {
        "ESKER_ENDPOINT": server.url,
        "ESKER_ACCESS_KEY_ID": server.key_id,
        "ESKER_SECRET_ACCESS_KEY": server.secret,
    }
    return Esker(tmp_path / "home", told, server.lake, remote=True)


@pytest.fixture(params=["local", "remote"])
def esker(request: pytest.FixtureRequest) -> Esker:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Esker)
    return found


@pytest.fixture
def repo(esker: Esker) -> str:
    """A repository of the test's own, empty."""
    name = f"repo-{next(_NAMES)}"
    esker.ok("repo", "create", name)
    return name
