"""The suite of benchmarks: what it keeps of programs that end, miss, die and are run again. The programs here are some
of the tests' own, which measure nothing."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from bench import _figures
from bench._summary import Table, is_worse, tables

ROOT: Final = Path(__file__).parents[1]

PROGRAM: Final = """
import sys
from bench._report import Report

report = Report()
report.at_most("time of one", {time}, 2)
report.note("about", "a | b")
{then}
report.at_least("rate of two", {rate}, 10, "/s")
sys.exit(report.missed)
"""


class Suite:
    """A copy of the suite, with other programs."""

    def __init__(self, directory: Path) -> None:
        self.root = directory
        (directory / "bench").mkdir()
        for file in (ROOT / "bench").glob("_*.py"):
            shutil.copy(file, directory / "bench")
        shutil.copy(ROOT / "README.md", directory)

    def program(self, name: str, *, time: float = 1, rate: float = 20, then: str = "") -> None:
        (self.root / "bench" / f"{name}.py").write_text(PROGRAM.format(time=time, rate=rate, then=then))

    def run(self, *arguments: str) -> tuple[int, str]:
        """Its exit status, and its summary."""
        command = [sys.executable, "-m", "bench", *arguments]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True)
        return done.returncode, done.stdout.partition("== summary\n")[2]

    def page(self, name: str = "README.md") -> str:
        return (self.root / "bench" / "results" / name).read_text()

    def lines(self, name: str) -> dict[str, dict[str, Any]]:
        found = json.loads(self.page(f"{name}.json"))
        return {line["what"]: line for line in found["lines"]}


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


def test_what_all_programs_measured_is_on_one_page_with_what_was_missed(suite: Suite) -> None:
    suite.program("one")
    suite.program("two", rate=4)
    status, summary = suite.run("--quick")
    assert status == 0, "promises are of full sizes"
    assert "3 of 4 promises kept, 2 programs" in summary
    assert "missed: two: rate of two: 4 /s (>= 10 /s)" in summary
    page = suite.page("README-quick.md")
    assert "| time of one | 1 x | <= 2 x |  |  |" in page
    assert "| rate of two | 4 /s **missed** | >= 10 /s |  |  |" in page
    assert "| about | | | | a \\| b |" in page
    assert "On: processors " in page
    assert str(suite.root) not in page
    assert "![" in page
    assert (suite.root / "bench/results/promises-quick.png").stat().st_size > 1000
    assert not (suite.root / "bench/results/README.md").exists(), "quick and full runs are kept apart"
    assert suite.run("two")[0] == 1


def test_a_program_that_dies_leaves_what_it_had_measured_and_what_others_did(suite: Suite) -> None:
    for name in ("broken", "killed", "raises", "well"):
        suite.program(name, rate=30)
    assert suite.run()[0] == 0
    (suite.root / "bench" / "broken.py").write_text("import nowhere")
    suite.program("killed", time=1.1, then="import os; os.kill(os.getpid(), 9)")
    suite.program("raises", time=1.1, then="raise RuntimeError('out of luck')")
    status, summary = suite.run()
    assert status == 1
    assert "4 of 8 promises kept, 4 programs" in summary
    assert "died: broken: what it had measured is kept; 2 known promises were not measured" in summary
    for name in ("killed", "raises"):
        assert f"died: {name}: what it had measured is kept; 1 known promises were not measured" in summary
        assert suite.lines(name)["time of one"]["value"] == 1.1
    assert suite.lines("well")["rate of two"]["value"] == 30
    assert "| rate of two | not this time | >= 10 /s | 30 |  |" in suite.page()
    suite.program("raises", rate=31)
    assert suite.run("raises")[0] == 0
    assert suite.lines("raises")["rate of two"]["last"] == 30, "what was measured last, though that was long ago"


def test_what_is_worse_than_the_last_time_is_told_and_noise_is_not(suite: Suite) -> None:
    for name in ("one", "other"):
        suite.program(name, time=1.0, rate=100)
    suite.run()
    suite.program("one", time=1.2, rate=60)
    status, summary = suite.run("one")
    assert status == 0
    assert "2 of 2 promises kept, 1 program" in summary
    assert "worse than the last run: one: rate of two: 60 /s, was 100" in summary
    assert "worse than the last run: one: time of one" not in summary
    assert "| rate of two | 60 /s | >= 10 /s | 100 **worse now** |" in suite.page()
    assert "## other" in suite.page(), "who was not run keeps its table"
    assert not is_worse({"what": "count", "promised": "<= 1", "value": 0, "last": 0})
    assert suite.run("nobody")[0] == 2


def test_a_figure_is_in_the_readme_once_it_is_measured() -> None:
    [(module, what, words)] = [figure for figure in _figures.FIGURES if figure[1].startswith("planning")]
    line = {"what": what, "value": 0.82, "unit": "s", "promised": "<= 1", "kept": True, "note": ""}
    table = Table(name=module, ended=True, seconds=1, environment={}, lines=[line])
    assert f"| {words} | 0.82 s | <= 1 s | `make bench ARGS={module}` |\n" in _figures.block([table])


def test_the_figures_in_the_readme_are_those_of_the_run_that_is_kept() -> None:
    kept = tables(quick=False)
    assert _figures.written() == _figures.block(kept)
    there = {(table.name, line["what"]) for table in kept for line in table.promises}
    for module, what, _ in _figures.FIGURES:
        assert (ROOT / "bench" / f"{module}.py").exists()
        assert module not in {table.name for table in kept} or (module, what) in there, what
