"""esker: git for a data lake."""

from esker.embedded import Branch, Lake, Ref, Repo, open_lake
from esker.errors import (
    ConflictError,
    ContentionError,
    CorruptError,
    EskerError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    OutcomeUnknownError,
    PreconditionError,
    UnavailableError,
)
from esker.model import Entry
from esker.settings import Settings

__all__ = [
    "Branch",
    "ConflictError",
    "ContentionError",
    "CorruptError",
    "Entry",
    "EskerError",
    "ForbiddenError",
    "InvalidError",
    "Lake",
    "NotFoundError",
    "OutcomeUnknownError",
    "PreconditionError",
    "Ref",
    "Repo",
    "Settings",
    "UnavailableError",
    "open_lake",
]
