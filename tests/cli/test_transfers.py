"""Trees of files go up and come down as they are, in any names; what was interrupted goes on where it was."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.cli.output import Output
from esker.cli.places import Place
from esker.cli.session import Session
from esker.cli.transfer import Result, local_path, upload_one, walk
from esker.errors import EskerError, Kind
from tests.cli.program import COMMAND, Esker

ODD: Final = (
    "plain.txt",
    "a b/with space.csv",
    "a.b",
    "a/b",
    "a-b/x",
    "per%20cent/%2F",
    "plus+and&amp=?#frag",
    "ünï/çødé-日本/🙂.bin",
    "-dash/--help",
    "line\nbreak\ttab",
    'quote"and\\back',
    "[bold]not markup[/bold]",
    "deep/" + "d/" * 60 + "leaf",
    "empty",
)


def tree(esker: Esker, name: str) -> Path:
    for at, path in enumerate(ODD):
        esker.wrote(f"{name}/{path}", b"" if path == "empty" else f"{at}: {path}".encode())
    return esker.home / name


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_tree_of_odd_names_comes_back_as_it_went(esker: Esker, repo: str) -> None:
    source = tree(esker, "odd")
    up = esker.ok("upload", "-r", source, f"{repo}/main/to here", "--json").json
    assert (up["transferred"], up["skipped"], up["failed"]) == (len(ODD), 0, 0)
    there = [one["path"] for one in esker.ok("ls", "-r", f"{repo}/main", "--json").lines]
    assert there == sorted(f"to here/{path}" for path in ODD)
    assert len(esker.ok("ls", "-r", f"{repo}/main").rows) == len(ODD), "a line for each, whatever is in its name"
    down = esker.ok("download", "-r", f"{repo}/main/to here/", "back", "--json").json
    assert (down["transferred"], down["failed"]) == (len(ODD), 0)
    assert contents(esker.home / "back") == contents(source)
    (esker.home / "back" / "a.b").write_bytes(b"other")
    (esker.home / "back" / "empty").unlink()
    again = esker.ok("download", "-r", f"{repo}/main/to here/", "back", "--json").json
    assert (again["transferred"], again["skipped"]) == (2, len(ODD) - 2)
    (source / "plain.txt").write_bytes(b"newer")
    again = esker.ok("upload", "-r", source, f"{repo}/main/to here/", "--json").json
    assert (again["transferred"], again["skipped"]) == (1, len(ODD) - 1)


def test_an_upload_that_was_killed_goes_on_where_it_was(esker: Esker, repo: str) -> None:
    count = 400
    for number in range(count):
        esker.wrote(f"many/{number:04}", f"{number}")
    process = esker.start("upload", "-r", "many", f"{repo}/main/", "-p", "2")
    data = esker.lake / repo / "data"
    while process.poll() is None and sum(1 for _ in data.rglob("*")) < 20:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was still at it"
    again = esker.ok("upload", "-r", "many", f"{repo}/main/", "--json").json
    assert again["transferred"] + again["skipped"] == count
    assert 0 < again["transferred"] < count
    down = esker.ok("download", "-r", f"{repo}/main/", "back", "--json").json
    assert down["transferred"] == count
    assert contents(esker.home / "back") == contents(esker.home / "many")


def test_what_cannot_be_a_file_fails_alone(esker: Esker, repo: str) -> None:
    esker.wrote("x", "bytes")
    for path in ("good", "../evil", "/etc/evil", "a//b", "a/./b", "f", "f/below"):
        esker.ok("upload", "x", f"{repo}/main/in/{path}")
    said = esker.run("download", "-r", f"{repo}/main/in/", "back/deep", "-p", "1", "--json")
    assert said.code == 1
    assert (said.json["transferred"], said.json["failed"]) == (2, 5)
    assert contents(esker.home / "back") == {"deep/good": b"bytes", "deep/f": b"bytes"}
    assert not (esker.home / "evil").exists()
    assert len([line for line in said.err.splitlines() if line.startswith("error: ")]) == 5


def test_what_is_no_file_here_fails_alone(local: Esker) -> None:
    local.ok("repo", "create", "no-files")
    local.wrote("mixed/good", "1")
    os.mkfifo(local.home / "mixed" / "pipe")
    (local.home / "mixed" / "loop").symlink_to(local.home / "mixed")
    (local.home / "mixed" / "gone").symlink_to(local.home / "nothing")
    with open(os.fsencode(local.home / "mixed") + b"/\xff\xfe", "wb"):
        pass
    said = local.run("upload", "-r", "mixed", "no-files/main/", "--json")
    assert said.code == 1
    assert (said.json["transferred"], said.json["failed"]) == (1, 4)
    assert "UTF-8" in said.err


def test_a_file_that_cannot_be_read_is_no_failure_of_the_lake(
    esker: Esker, repo: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in esker.environment.items():
        if name.startswith("ESKER_"):
            monkeypatch.setenv(name, value)
    session = Session()
    try:
        with pytest.raises(IsADirectoryError) as caught:
            upload_one(session.client, esker.home, Place(repo, "main", "x"), {})
    finally:
        session.close()
    assert caught.value.filename == str(esker.home)
    assert capfd.readouterr() == ("", "")


def test_a_branch_that_refuses_is_told_before_anything_is_sent(esker: Esker, repo: str) -> None:
    source = tree(esker, "odd")
    esker.ok("repo", "protect", repo, "main")
    said = esker.run("upload", "-r", source, f"{repo}/main/")
    assert said.code == 5
    assert len(said.err.splitlines()) == 1
    assert not (esker.lake / repo / "data").exists()


PEAK: Final = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""


def test_a_large_object_goes_up_and_down_at_constant_memory(esker: Esker, repo: str) -> None:
    large = esker.home / "large"
    with large.open("wb") as file:
        file.truncate(300 << 20)
    for arguments in (
        ["upload", str(large), f"{repo}/main/large"],
        ["download", f"{repo}/main/large", "back"],
        ["cat", f"{repo}/main/large"],
    ):
        said = subprocess.run(
            [sys.executable, "-c", PEAK, *COMMAND, *arguments],
            capture_output=True,
            text=True,
            env=esker.environment,
            cwd=esker.home,
        )
        code, mebibytes = map(int, said.stdout.split())
        assert code == 0, said.stderr
        assert mebibytes < 200, arguments
    assert (esker.home / "back").stat().st_size == 300 << 20


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=6).filter(
    lambda name: name not in (".", "..")
)


@given(st.sets(st.lists(NAMES, min_size=1, max_size=3).map("/".join), max_size=12))
def test_files_are_walked_in_the_order_of_a_listing(paths: set[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        made = set()
        for path in sorted(paths):
            where = Path(name) / path
            try:
                where.parent.mkdir(parents=True, exist_ok=True)
                where.write_text("x")
            except OSError:
                continue  # a file of one is a directory of another
            made.add(path)
        result = Result(Output(as_json=True, quiet=True), "walked")
        assert [file.path for file in walk(Path(name), result)] == sorted(made)
        assert result.failed == []


@pytest.mark.parametrize("path", ["", "/", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\0b", "x.esker-part"])
def test_no_path_leads_out_of_a_directory(path: str) -> None:
    with pytest.raises(EskerError) as caught:
        local_path(path)
    assert caught.value.kind is Kind.PATH_ESCAPES
