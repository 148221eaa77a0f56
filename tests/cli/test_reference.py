"""The help teaches, the reference is what the program says, and asking for help loads nothing heavy."""

import os
import pty
import shlex
import subprocess
import sys

import pytest
import typer.main

from esker.cli import places
from esker.cli.commands import app
from esker.cli.exits import CODES
from esker.errors import EskerError, InvalidError
from tests.cli.program import COMMAND, Esker
from tests.cli.reference import commands, reference, written

ALL = sorted(commands(typer.main.get_command(app), "esker"))


def test_the_document_has_what_the_program_says() -> None:
    assert written()[1] == reference(), "python -m tests.cli.reference"


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_every_command_has_an_example_of_itself_and_a_way_to_answer_programs(name: str, command: typer.Typer) -> None:
    text = getattr(command, "help", "") or ""
    assert name in text.replace("--lake file:///data/lake ", ""), "an example"
    assert text.partition("\b")[0].strip(), "what it does"
    options = {option for param in getattr(command, "params", ()) for option in param.opts}
    assert {"--json", "--quiet", "--lake", "--endpoint"} <= options


def test_every_class_of_errors_has_a_code_of_its_own() -> None:
    assert set(CODES) == set(EskerError.__subclasses__())
    assert len(set(CODES.values())) == len(CODES)


@pytest.mark.parametrize("arguments", [["--help"], ["ls", "--help"], ["branch", "create", "--help"], ["version"]])
def test_help_loads_nothing_that_reads_or_serves_lakes(arguments: list[str]) -> None:
    program = (
        "import sys, atexit\n"
        f"sys.argv = ['esker', *{arguments}]\n"
        "heavy = ('pyarrow', 'numpy', 'falcon', 'granian', 'obstore', 'urllib3')\n"
        "atexit.register(lambda: sys.stderr.write(repr([name for name in heavy if name in sys.modules])))\n"
        "from esker.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "[]"


def test_a_table_on_a_narrow_terminal_loses_nothing(local: Esker) -> None:
    path = "a-path-that-is-much-longer-than-the-terminal-is-wide/" * 3 + "[red]end[/red]"
    local.ok("repo", "create", "narrow")
    local.ok("upload", local.wrote("x", "1"), f"narrow/main/{path}")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "ls", "-rl", "narrow/main"],
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        env={**local.environment, "COLUMNS": "60", "TERM": "xterm", "NO_COLOR": "1"},
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # how a terminal says that the other side has closed it
            break
        if not chunk:
            break
        said += chunk
    os.close(ours)
    assert process.wait() == 0
    column = [line[-1:] and line for line in said.decode().splitlines()[1:]]
    start = max(len(line) - len(line.lstrip()) for line in column)
    assert "".join(line[start:].strip() for line in column) == path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sales/main", ("sales", "main", "")),
        ("sales/main/", ("sales", "main", "")),
        ("esker://sales/main~2/a/b", ("sales", "main~2", "a/b")),
        ("lakefs://sales/v1.0/a//b/", ("sales", "v1.0", "a//b/")),
        ("sales/main//a", ("sales", "main", "/a")),
    ],
)
def test_places_are_a_repository_a_ref_and_all_that_follows(text: str, expected: tuple[str, str, str]) -> None:
    assert places.on_ref(text) == expected


@pytest.mark.parametrize("text", ["", "sales", "sales/", "/main", "s3://bucket/x", "esker://", "esker://sales"])
def test_what_names_no_place_is_refused(text: str) -> None:
    with pytest.raises(InvalidError):
        places.on_ref(text)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("esker stas", ["stash"]),
        ("esker ls completed", ["completed-1", "completed-2"]),
        (
            "esker ls esker://completed-1/",
            ["esker://completed-1/dev", "esker://completed-1/main", "esker://completed-1/v1"],
        ),
        ("esker branch delete completed-1/d", ["completed-1/dev"]),
        ("esker --lake /nowhere ls c", []),
        ("esker merge completed-1/dev m", ["main"]),
        ("esker merge esker://completed-1/dev ", ["dev", "main", "v1"]),
        ("esker tag create completed-1/v2 d", ["dev"]),
        ("esker merge nothing/dev m", []),
        ("esker merge dev m", []),
        ("esker diff completed-1/v1..", ["completed-1/v1..dev", "completed-1/v1..main", "completed-1/v1..v1"]),
        ("esker diff completed-1/main...d", ["completed-1/main...dev"]),
    ],
)
def test_names_are_completed(completed: Esker, words: str, expected: list[str]) -> None:
    asked = {"_ESKER_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    assert completed.ok(**asked).out.split() == expected


def test_a_shell_that_was_told_how_completes(completed: Esker) -> None:
    program = completed.wrote("bin/esker", f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    script = completed.ok("completion", "bash").out
    words = "COMP_WORDS=(esker ls completed); COMP_CWORD=2; _esker_completion esker"
    environment = {**completed.environment, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", f'{script}\n{words}\necho "${{COMPREPLY[*]}}"'], capture_output=True, text=True, env=environment
    )
    assert (done.stdout, done.stderr) == ("completed-1 completed-2\n", "")


@pytest.fixture
def completed(local: Esker) -> Esker:
    """On a lake with two repositories."""
    if local.run("repo", "create", "completed-1").code == 0:
        local.ok("repo", "create", "completed-2")
        local.ok("branch", "create", "completed-1/dev")
        local.ok("tag", "create", "completed-1/v1", "main")
    return local
