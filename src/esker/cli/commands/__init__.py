"""The commands, by what they are about. Importing a module of these adds its commands to the program."""

from esker.cli.app import app
from esker.cli.commands import (
    branches,
    garbage,
    history,
    loading,
    merging,
    objects,
    repos,
    running,
    spark,
    tasks,
    transfers,
    users,
)

__all__ = [
    "app",
    "branches",
    "garbage",
    "history",
    "loading",
    "merging",
    "objects",
    "repos",
    "running",
    "spark",
    "tasks",
    "transfers",
    "users",
]
