"""Exit codes: the class of an error is its code, as it is its status over HTTP."""

from typing import Final

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
    UnauthenticatedError,
    UnavailableError,
)

FOUND: Final = 1
"""What was looked for is there: `fsck` found damage, `doctor` something to mend, a transfer files that failed."""

CODES: Final[dict[type[EskerError], int]] = {
    InvalidError: 2,
    NotFoundError: 3,
    ConflictError: 4,
    ForbiddenError: 5,
    UnauthenticatedError: 6,
    PreconditionError: 7,
    ContentionError: 8,
    UnavailableError: 9,
    OutcomeUnknownError: 10,
    CorruptError: 11,
}
"""2 is also what a command line gets that cannot be read: both are for the caller to mend."""


HERE: Final = 12
"""This machine refused: a file that cannot be read or written."""

INTERRUPTED: Final = 130


def code_of(error: EskerError) -> int:
    return CODES[type(error)]
