"""Where the secret key comes from."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from esker.auth.secret_key import from_file, from_text
from esker.errors import InvalidError, Kind
from esker.world import REAL


def test_the_first_start_makes_a_file_that_its_owner_alone_reads(tmp_path: Path) -> None:
    path = tmp_path / "lake" / "esker.key"
    made = from_file(path, REAL)
    assert len(made) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert from_file(path, REAL) == made
    assert [*path.parent.iterdir()] == [path]


def test_all_who_come_first_get_the_same(tmp_path: Path) -> None:
    path = tmp_path / "esker.key"
    with ThreadPoolExecutor(8) as pool:
        assert len({*pool.map(lambda _: from_file(path, REAL), range(64))}) == 1
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "esker.key"
    from_file(path, REAL)
    path.chmod(0o640)
    with pytest.raises(InvalidError, match="chmod 600") as caught:
        from_file(path, REAL)
    assert caught.value.kind is Kind.SECRET_KEY


def test_what_cannot_be_read_or_made_is_told_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "esker.key"):
        with pytest.raises(InvalidError, match="ESKER_SECRET_KEY"):
            from_file(path, REAL)


def test_a_key_has_to_be_long() -> None:
    assert from_text(" " + "x" * 32 + "\n") == b"x" * 32
    with pytest.raises(InvalidError, match="openssl rand -hex 32"):
        from_text("x" * 31)
