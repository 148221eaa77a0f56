"""`esker` as people run it: a process of its own, on a lake that it opens or on a server that it asks."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

COMMAND: Final = (sys.executable, "-m", "esker.cli")
TIMEOUT_S: Final = 120


class Said(NamedTuple):
    """What a run of it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its one document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The documents of its listing."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        """A listing, as it goes down a pipe."""
        return [line.split("\t") for line in self.out.splitlines()]


class Esker:
    """Runs it, with nothing of this process's environment that it would look at."""

    def __init__(self, home: Path, environment: Mapping[str, str], lake: Path, *, remote: bool = False) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self.lake = lake
        """Where the lake's files are, whoever opens it."""
        self.remote = remote
        self.config = home / "config.toml"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ESKER_", "XDG_"))}
        self.environment = {**kept, "ESKER_CONFIG": str(self.config), "HOME": str(home), **environment}

    def run(self, *arguments: str | Path, stdin: str = "", **environment: str) -> Said:
        done = subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            cwd=self.home,
            env={**self.environment, **environment},
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str | Path, **how: str) -> Said:
        """The same, of what has to go well."""
        said = self.run(*arguments, **how)
        assert said.code == 0, said
        return said

    def start(self, *arguments: str | Path) -> "subprocess.Popen[bytes]":
        """Without waiting for its end."""
        return subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.home,
            env=self.environment,
        )

    def wrote(self, name: str, content: str | bytes = "") -> Path:
        """A file of the user's."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path
