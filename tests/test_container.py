"""The container file: its commands are run here, in directories in the place of its own, and what they make is served.

What it takes an engine of containers for (the base image, the user, the layers) is only read.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.server.running import Client
from tests.services import free_port, running, wait

ROOT: Final = Path(__file__).parents[1]


class Step(NamedTuple):
    word: str
    text: str


def steps() -> list[Step]:
    lines = re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(), flags=re.MULTILINE)
    joined = re.sub(r"\\\n\s*", "", lines)
    return [Step(*line.split(maxsplit=1)) for line in joined.splitlines() if line]


def said(word: str) -> list[str]:
    return [step.text for step in steps() if step.word == word]


def test_what_is_copied_is_in_the_repository_and_in_the_context() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    copied = [words.split()[:-1] for words in said("COPY") if not words.startswith("--from")]
    for name in (name for names in copied for name in names):
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignored, name
    assert ignored[0] == "*"


def test_it_runs_as_nobody_in_particular_from_a_stage_of_its_own() -> None:
    words = [step.word for step in steps()]
    assert words.count("FROM") == 2
    assert "COPY" in words[words.index("FROM", 1) :]
    assert said("USER") == ["10001"]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert "--uid 10001" in said("RUN")[1]


@pytest.mark.timeout(600)
def test_its_commands_make_a_server_that_its_check_finds_healthy(tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in said("COPY")[0].split()[:-1]:
        shutil.copy(ROOT / name, source)
    places = {"/opt/esker": tmp_path / "opt", "/etc/esker": tmp_path / "etc", "/lake": tmp_path / "lake"}

    def placed(text: str) -> str:
        for place, here in places.items():
            text = text.replace(place, str(here))
        return text

    install, _, configure = said("RUN")
    cached = install.replace("--no-cache-dir", "--no-compile --quiet")
    with_python = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # as the image has it
    subprocess.run(["sh", "-ec", placed(cached)], check=True, cwd=source, env=with_python)
    subprocess.run(["sh", "-ec", placed(configure)], check=True, cwd=source, env=with_python)
    assert f'lake = "file://{tmp_path / "lake"}"' in (tmp_path / "etc" / "server.toml").read_text()

    port = free_port()
    told = dict(pair.split("=", 1) for pair in placed(said("ENV")[0]).split() if pair.startswith("ESKER_"))
    told["ESKER_PORT"] = str(port)
    environment = [f"{name}={value}" for name, value in {**told, "HOME": str(tmp_path)}.items()]
    command = [*json.loads(placed(said("ENTRYPOINT")[0])), *json.loads(said("CMD")[0])]
    check = json.loads(placed(said("HEALTHCHECK")[0].partition(" CMD ")[2]))

    def healthy() -> bool:
        done = subprocess.run(check, env={**os.environ, **told}, capture_output=True)
        return done.returncode == 0

    assert not healthy()
    with running(["env", *environment, *command], tmp_path / "log") as died:
        wait(healthy, died)
        assert Client(f"http://127.0.0.1:{port}").ask("GET", "/_ready").status == 200
        assert (tmp_path / "lake" / "esker.db").exists()
    shutil.rmtree(tmp_path / "opt")
