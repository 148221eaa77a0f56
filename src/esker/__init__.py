"""esker: git for a data lake."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from esker.embedded import Branch, Lake, Ref, Repo, open_lake
    from esker.engine.changes import Change
    from esker.engine.imports import Source
    from esker.engine.protection import Action, Rule
    from esker.errors import (
        ConflictError,
        ContentionError,
        CorruptError,
        EskerError,
        ForbiddenError,
        InvalidError,
        Kind,
        NotFoundError,
        OutcomeUnknownError,
        PreconditionError,
        UnavailableError,
    )
    from esker.model import Commit, Entry
    from esker.settings import Settings
    from esker.streams.entries import table_of as entries_table
    from esker.tree.merge import Strategy

__all__ = [
    "Action",
    "Branch",
    "Change",
    "Commit",
    "ConflictError",
    "ContentionError",
    "CorruptError",
    "Entry",
    "EskerError",
    "ForbiddenError",
    "InvalidError",
    "Kind",
    "Lake",
    "NotFoundError",
    "OutcomeUnknownError",
    "PreconditionError",
    "Ref",
    "Repo",
    "Rule",
    "Settings",
    "Source",
    "Strategy",
    "UnavailableError",
    "entries_table",
    "open_lake",
]

_ELSEWHERE = {
    "Action": "esker.engine.protection",
    "Change": "esker.engine.changes",
    "Commit": "esker.model",
    "Entry": "esker.model",
    "Kind": "esker.errors",
    "Rule": "esker.engine.protection",
    "Settings": "esker.settings",
    "Source": "esker.engine.imports",
    "Strategy": "esker.tree.merge",
    "entries_table": "esker.streams.entries",
}
_CALLED = {"entries_table": "table_of"}
"""What is called otherwise where it is at home."""


def __getattr__(name: str) -> object:
    """Imported when first asked for: `esker --help` is not to wait for what reads and writes lakes."""
    if name not in __all__:
        raise AttributeError(f"module 'esker' has no attribute {name!r}")
    home = _ELSEWHERE.get(name) or ("esker.errors" if name.endswith("Error") else "esker.embedded")
    value = globals()[name] = getattr(import_module(home), _CALLED.get(name, name))
    return value


def __dir__() -> list[str]:
    return [*globals(), *(name for name in __all__ if name not in globals())]
