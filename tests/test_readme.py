"""The README's example runs, and prints what the README says."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    match = re.search(r"```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", README.read_text(), re.DOTALL)
    assert match
    done = subprocess.run([sys.executable, "-c", match[1]], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (match[2], "")
