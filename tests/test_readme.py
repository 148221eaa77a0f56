"""The README's example runs, and prints what the README says."""

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_spark_example_runs(tmp_path: Path) -> None:
    """In a process of its own, as it stands but for where the lake is."""
    match = re.search(r"```python\n(import esker, esker\.spark\n.*?)```", README.read_text(), re.DOTALL)
    assert match
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "orders.csv").write_text("customer,day,total\nann,1,10\nbob,1,20\nann,2,30\n")
    code = match[1].replace("file:///data/lake", (tmp_path / "lake").as_uri()) + "spark.stop()\n"
    assert (tmp_path / "lake").as_uri() in code
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "3", "the orders, as they were before the transaction"


def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    match = re.search(r"```python\n((?:(?!```).)*)```\n\nprints\n\n```\n(.*?)```", README.read_text(), re.DOTALL)
    assert match
    done = subprocess.run([sys.executable, "-c", match[1]], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (match[2], "")
