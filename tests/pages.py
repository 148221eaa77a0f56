"""The pages of the documentation, and somebody who does what they say: every block of code, in order.

A fenced block in a language that runs is run; one without a language right below it is what it prints, `...` standing
for anything. A page keeps its directory, its environment, its names in Python and its server from block to block.
What cannot be run here is marked, with the reason, on the line before: `<!-- not run: takes a cluster -->`. Then the
options of its `esker` commands are parsed all the same, and its Python compiled.
"""

import contextlib
import io
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import tomllib
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer.main
import urllib3

from esker.cli.commands import app
from esker.errors import EskerError
from tests import services

ROOT: Final = Path(__file__).parents[1]
RUNS: Final = frozenset({"python", "sh", "sql"})
READS: Final = frozenset({"json", "properties", "text", "toml", "yaml"})
"""Looked at, or only shown."""

_BLOCK: Final = re.compile(
    r"^(?:<!-- not run: (?P<why>.+?) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$(?:\n\n```\n(?P<output>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)
_SERVE: Final = re.compile(r"^(esker\b(?!.*--print-config).*\bserve\b.*\n)", re.MULTILINE)
_TOLD: Final = re.compile(r"access key id +(\S+)\s+secret access key +(\S+)")
_BREAK: Final = frozenset({"|", "||", "&&", ";", "&", ">", ">>", "<", "(", ")"})
_TIMEOUT_S: Final = 120


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    """Of its first line of code."""
    language: str
    code: str
    output: str
    why_not: str
    """It cannot be run here."""

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """All of them."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("code")) + 1
        yield Block(page, line, found["language"], found["code"], found["output"] or "", found["why"] or "")


def outside(page: Path) -> str:
    """The page without its blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def commands(script: str) -> Iterator[list[str]]:
    """The arguments of each `esker` in a script, those in `$(...)` too."""
    for nested in re.findall(r"\$\((esker [^)]*)\)", script):
        yield from commands(nested)
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(re.split(r" {3,}", line.strip())[0], posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in _BREAK:
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    del words[0]
                if words[:1] == ["esker"]:
                    yield words[1:]
                words = []
            else:
                words.append(word)


def parse(arguments: list[str]) -> None:
    """Whether the program takes these: raises what it would say. Nothing is run."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("esker", list(arguments))
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)


class Reader:
    """Somebody at a terminal, in `directory`, on a machine of their own: `replace` says what stands here for the places
    that pages name."""

    def __init__(self, directory: Path, *, replace: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self.directory = directory
        self.port = services.free_port()
        self.replace = {"http://localhost:8000": f"http://127.0.0.1:{self.port}", **replace}
        home = directory / "home"
        home.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ESKER_", "XDG_"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        mine = {
            "HOME": str(home),
            "PATH": path,
            "TERM": "dumb",  # a terminal all the same
            "COLUMNS": "120",
            "ESKER_PORT": str(self.port),
            "ESKER_WORKERS": "1",
        }
        self.environment = {**kept, **mine, **environment}
        self.names: dict[str, Any] = {"__name__": "page"}
        self._server: subprocess.Popen[bytes] | None = None

    def follow(self, page: Path) -> int:
        """Do what a page says: how many blocks were run. Fails where it does not do what the page says."""
        ran = 0
        for block in blocks(page):
            if block.why_not or block.language not in RUNS:
                check(block)
                continue
            did = self._do(block)
            assert re.fullmatch(self._pattern(block.output), did, re.DOTALL), (
                f"{block.where} says\n{block.output}\nand does\n{did}"
            )
            ran += 1
        return ran

    def close(self) -> None:
        """End what a page has left running."""
        if self._server:
            self._server.send_signal(signal.SIGTERM)
            self._server.wait(services.STOP_TIMEOUT_S)
            self._server = None

    def _do(self, block: Block) -> str:
        match block.language:
            case "python":
                return self._python(block, self._here(block.code))
            case "sql":
                for statement in filter(str.strip, self._here(block.code).split(";\n")):
                    self.names["spark"].sql(statement.strip().rstrip(";"))
                return ""
            case _:
                said = ""
                for part in _SERVE.split(block.code):
                    if _SERVE.match(part):
                        self._serve(self._here(part.strip()))
                    elif part.strip():
                        said += self._shell(block, self._here(part))
                return said if block.output else ""

    def _here(self, text: str) -> str:
        for there, here in self.replace.items():
            text = text.replace(there, here)
        return text

    def _pattern(self, output: str) -> str:
        return ".*".join(re.escape(part) for part in self._here(output).split("..."))

    def _python(self, block: Block, code: str) -> str:
        """What it prints. It may end in an error of ours: then also the last line of the traceback, folded to the
        page."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            try:
                exec(compile("\n" * (block.line - 1) + code, block.page, "exec"), self.names)
            except EskerError as error:
                last = "".join(traceback.format_exception_only(error))
                out.write(textwrap.fill(last, 120, subsequent_indent="    ", break_long_words=False) + "\n")
        return out.getvalue()

    def _shell(self, block: Block, script: str) -> str:
        """What it shows on a terminal; where it is and what it exports stay for the next."""
        after = self.directory.parent / f"{self.directory.name}-after"
        command = ["bash", "-euo", "pipefail", "-c", f"{script}\n{{ pwd; env -0; }} >{shlex.quote(str(after))}"]
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
            )
            os.close(theirs)
            said = b""
            with contextlib.suppress(OSError):  # how a terminal says that the other side has closed it
                while chunk := terminal.read(1 << 16):
                    said += chunk
        text = "".join(f"{line.rstrip()}\n" for line in said.decode().splitlines() if line.strip())
        assert process.wait(_TIMEOUT_S) == 0, f"{block.where}: {process.returncode}\n{text}"
        where, _, exported = after.read_text().partition("\n")
        self.directory = Path(where)
        self.environment = dict(pair.split("=", 1) for pair in exported.split("\0") if "=" in pair)
        return text

    def _serve(self, line: str) -> None:
        """Start a server, as in another terminal; the next one takes its place."""
        self.close()
        said = self.directory.parent / f"{self.directory.name}-served"
        with said.open("wb") as out:
            self._server = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        server = self._server
        services.wait(
            lambda: ready(self.port), lambda: None if server.poll() is None else f"{line}: {said.read_text()}"
        )
        if told := _TOLD.search(said.read_text()):
            self.replace |= {"AKES...": told[1], "SECRET...": told[2]}


def check(block: Block) -> None:
    """What can be said of a block that is not run."""
    code = block.code
    match block.language:
        case "python":
            compile(code, block.page, "exec")
        case "sh":
            subprocess.run(["bash", "-n", "-c", code], check=True)
        case "toml":
            tomllib.loads(code)
        case "json":
            json.loads(code)
        case "properties":
            assert all(re.match(r"#|[\w.]+[ =]", line) for line in code.splitlines() if line), block.where
        case "text" | "yaml" | "sql":
            pass
        case _:
            raise AssertionError(f"{block.where}: {block.language!r} is none of {sorted(RUNS | READS)}")


def ready(port: int) -> bool:
    """Whether a server there takes requests."""
    try:
        return urllib3.request("GET", f"http://127.0.0.1:{port}/_ready", retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False
