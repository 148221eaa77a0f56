"""All benchmarks: `python -m bench [--quick] [MODULE ...]`.

Each module beside this one is a program (`python -m bench.tree [--quick]`) that prints its tables and exits with how
many promises it missed. Each gets a process of its own, so that no peak of memory is another's, and one that dies takes
nothing of the others with it.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from bench import _figures
from bench._report import RESULTS, file_of, set_aside
from bench._summary import as_markdown, draw, tables, told

_LAST: Final = "pipeline"
"""It deletes a million files, and for minutes after that ext4 takes long to make any."""


def main(arguments: list[str]) -> int:
    """1 if a program died, or a promise was missed: that of quick runs is not told, promises are of full sizes."""
    found = (path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))
    modules = sorted(found, key=lambda module: (module == _LAST, module))
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, in about two minutes")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(modules)}; by default all")
    options = parser.parse_args(arguments)
    if unknown := set(options.modules) - set(modules):
        parser.error(f"there is no {', '.join(sorted(unknown))}: there are {', '.join(modules)}")
    for module in options.modules or modules:
        print(f"== {module}", flush=True)
        begun_s = time.monotonic()
        set_aside(file_of(module, quick=options.quick))
        command = [sys.executable, "-m", f"bench.{module}", *(["--quick"] if options.quick else [])]
        subprocess.run(command)
        print(f"  {time.monotonic() - begun_s:.0f} s", flush=True)
    results = tables(quick=options.quick)
    draw(results, quick=options.quick)
    page = RESULTS / f"README{'-quick' if options.quick else ''}.md"
    page.write_text(as_markdown(results, quick=options.quick), "utf-8")
    if not options.quick:
        _figures.write(results)
    ran = [table for table in results if table.name in (options.modules or modules)]
    print("== summary", *(f"  {line}" for line in told(ran)), f"  bench/results/{page.name}", sep="\n")
    missed = not options.quick and any(not line.get("kept") for table in ran for line in table.promises)
    return int(missed or not all(table.ended for table in ran))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
