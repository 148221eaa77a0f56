"""The commands, by what they are about. Importing a module of these adds its commands to the program."""

from esker.cli.app import app
from esker.cli.commands import access, branches, care, history, loading, merging, objects, repos, transfers

__all__ = ["access", "app", "branches", "care", "history", "loading", "merging", "objects", "repos", "transfers"]
