"""All benchmarks: `python -m bench [--quick]`.

Each module beside this one is a program (`python -m bench.tree [--quick]`) that prints its tables and exits with 1 if a
promised ratio was missed. Each gets a process of its own, so that no peak of memory is another's.
"""

import subprocess
import sys
from pathlib import Path

from bench._report import RESULTS, as_markdown


def main(arguments: list[str]) -> int:
    """How many of the benchmarks failed."""
    modules = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))
    failed = []
    for module in modules:
        print(f"== {module}", flush=True)
        if subprocess.run([sys.executable, "-m", f"bench.{module}", *arguments]).returncode:
            failed.append(module)
    quick = "--quick" in arguments
    (RESULTS / f"README{'-quick' if quick else ''}.md").write_text(as_markdown(quick))
    if failed:
        print(f"missed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
