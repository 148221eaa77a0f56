"""Errors: the class is the remedy, the kind is the cause, the message is prose.

A new class is due only where a caller would *do* something different; a new kind wherever a client may want to tell
two causes apart. A message names the thing and the way out.
"""

from collections.abc import Sequence
from enum import StrEnum


class Kind(StrEnum):
    """Stable codes. Append only: clients match on them."""

    INVALID_ARGUMENT = "invalid-argument"
    INVALID_PATH = "invalid-path"
    INVALID_URL = "invalid-url"
    INVALID_BATCH = "invalid-batch"
    MISSING_EXTRA = "missing-extra"
    BLOB_NOT_FOUND = "blob-not-found"
    OBJECT_NOT_FOUND = "object-not-found"
    BRANCH_NOT_FOUND = "branch-not-found"
    BRANCH_EXISTS = "branch-exists"
    REPOSITORY_NOT_FOUND = "repository-not-found"
    REPOSITORY_EXISTS = "repository-exists"
    CONTENTION = "contention"
    NO_CHANGES = "no-changes"
    DIRTY_BRANCH = "dirty-branch"
    PROTECTED_BRANCH = "protected-branch"
    READ_ONLY = "read-only"
    DEFAULT_BRANCH = "default-branch"
    OBJECT_EXISTS = "object-exists"
    NEEDS_PARENT = "needs-parent"
    TOO_MANY_LAYERS = "too-many-layers"
    STASH_EXISTS = "stash-exists"
    STASH_NOT_FOUND = "stash-not-found"
    JOB_NOT_FOUND = "job-not-found"
    JOB_EXISTS = "job-exists"
    JOB_ABORTED = "job-aborted"
    JOB_OVERLAP = "job-overlap"
    LAYERS_ONLY = "layers-only"
    HEAD_MOVED = "head-moved"
    NO_MERGE_BASE = "no-merge-base"
    INVALID_HINT = "invalid-hint"
    MERGE_CONFLICT = "merge-conflict"
    PATH_ESCAPES = "path-escapes"
    STORE_UNAVAILABLE = "store-unavailable"
    OUTCOME_UNKNOWN = "outcome-unknown"
    DAMAGED_FILE = "damaged-file"
    DAMAGED_RECORD = "damaged-record"
    MISSING_FILE = "missing-file"
    UNKNOWN_FORMAT = "unknown-format"
    TAG_NOT_FOUND = "tag-not-found"
    TAG_EXISTS = "tag-exists"
    COMMIT_NOT_FOUND = "commit-not-found"
    REF_NOT_FOUND = "ref-not-found"
    INVALID_NAME = "invalid-name"
    INVALID_REF = "invalid-ref"
    AMBIGUOUS_REF = "ambiguous-ref"
    UNAUTHENTICATED = "unauthenticated"
    INVALID_ADDRESS = "invalid-address"
    IMPORT_NOT_FOUND = "import-not-found"
    IMPORT_OVER = "import-over"
    RULES_NOT_FOUND = "rules-not-found"
    RULES_CHANGED = "rules-changed"
    RULE_EXISTS = "rule-exists"
    REPORT_NOT_FOUND = "report-not-found"
    NOT_ALLOWED = "not-allowed"
    USER_NOT_FOUND = "user-not-found"
    USER_EXISTS = "user-exists"
    KEY_NOT_FOUND = "key-not-found"
    KEY_EXISTS = "key-exists"
    LAST_ADMIN = "last-admin"
    ALREADY_SET_UP = "already-set-up"
    SECRET_KEY = "secret-key"  # noqa: S105 - a kind of error
    SESSION_RUNS = "session-runs"
    TASK_NOT_FOUND = "task-not-found"
    TASK_OVER = "task-over"
    TASK_CANCELLED = "task-cancelled"
    RELEASED = "released"
    OTHER_RECORDS = "other-records"
    JOB_PUBLISHED = "job-published"
    TASK_STOPPED = "task-stopped"


class EskerError(Exception):
    """Catch this to catch only ours."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message

    def __reduce__(self) -> tuple[type["EskerError"], tuple[object, ...]]:
        """Errors cross process boundaries (Spark workers), so both arguments must survive pickling."""
        return (type(self), (self.kind, self.message))


class NotFoundError(EskerError):
    """Ask for something else."""


class ConflictError(EskerError):
    """Look at what is there, then decide. `paths` are those in conflict, if that is the cause."""

    def __init__(self, kind: Kind, message: str, paths: Sequence[str] = ()) -> None:
        super().__init__(kind, message)
        self.paths = paths

    def __reduce__(self) -> tuple[type["EskerError"], tuple[object, ...]]:
        return (type(self), (self.kind, self.message, self.paths))


class InvalidError(EskerError):
    """Fix the request."""


class ForbiddenError(EskerError):
    """The rules here refuse it."""


class UnauthenticatedError(EskerError):
    """Say who you are, with a key or a token that is good."""


class PreconditionError(EskerError):
    """The caller's own condition failed."""


class ContentionError(EskerError):
    """Others kept winning: try again later. `hint`, if any, spares the next try the work of this one."""

    def __init__(self, kind: Kind, message: str, hint: str = "") -> None:
        super().__init__(kind, message)
        self.hint = hint

    def __reduce__(self) -> tuple[type["EskerError"], tuple[object, ...]]:
        return (type(self), (self.kind, self.message, self.hint))


class UnavailableError(EskerError):
    """A store did not answer: try again later. Nothing was changed."""


class OutcomeUnknownError(EskerError):
    """A store did not answer a write: it may or may not have been applied. Read before writing again."""

    def __init__(self, kind: Kind = Kind.OUTCOME_UNKNOWN, message: str = "the outcome of a write is unknown") -> None:
        super().__init__(kind, message)


class CorruptError(EskerError):
    """Stored bytes break the format. Nothing that a retry would mend."""
