"""`make tour` tells what happens, and ends well."""

import subprocess
import sys
from pathlib import Path


def test_the_tour_goes_through(tmp_path: Path) -> None:
    tour = Path(__file__).parents[1] / "demo" / "tour.py"
    done = subprocess.run([sys.executable, tour], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    before, after = (
        line.split()[-1] for line in done.stdout.splitlines() if "the delete " in line or "the revert" in line
    )
    assert before == after, "equal content is one tree"
    assert "That was the tour" in done.stdout
    assert list(tmp_path.iterdir()) == [], "nothing is left"
