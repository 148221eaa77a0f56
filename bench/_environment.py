"""What benchmarks ran on: enough to know whether two runs can be compared, and nothing about whose machine it is."""

import os
import platform
import re
import sqlite3
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Final

PACKAGES: Final = ("esker", "pyarrow", "obstore", "falcon", "granian", "pyspark")
PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "git": ("git", "--version"),
    "Java": ("java", "-version"),
    "PostgreSQL": ("pg_config", "--version"),
}


@cache
def here() -> dict[str, str]:
    """By what it is of."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = {
        "processors": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
    }
    found |= {name: version(name) for name in PACKAGES}
    found["SQLite"] = sqlite3.sqlite_version
    return found | {name: said for name, command in PROGRAMS.items() if (said := _version(command))}


def _version(command: tuple[str, ...]) -> str:
    """What a program calls itself; nothing, if it is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    found = re.search(r"\d+(?:\.\d+)+", done.stdout + done.stderr)
    return found[0] if found else ""
