"""What goes over the wire, by the API's own names. Times are in seconds since the epoch, sizes in bytes.

Fields that clients may leave out have a default; what is None is not sent. Fields that nobody here knows are passed
over, since clients send more than any server needs.
"""

from datetime import datetime
from typing import Annotated, Literal

import msgspec

METADATA = dict[str, str]

Seconds = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799)]
"""Since the epoch, up to the year 9999, where calendars of most libraries end."""

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]

ParentNumber = Annotated[int, msgspec.Meta(ge=0, le=1000)]
PartNumber = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
Days = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Size = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Body(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Of a request or an answer."""


# answers


class Error(Body):
    message: str
    kind: str | None = None
    """Stable, for programs to go by."""
    hint: str | None = None
    """To be passed to the next try of the same merge, which it makes cheaper."""


class MergeConflict(Body):
    reference: str
    """Empty: nothing was merged."""
    message: str
    kind: str
    conflicts: list[str]
    """The first of the paths that both sides changed."""


class Pagination(Body):
    has_more: bool
    next_offset: str
    """What to pass as `after` for the next page; empty if there is none."""
    results: int
    max_per_page: int


class Repository(Body):
    id: str
    creation_date: int
    default_branch: str
    storage_id: str
    storage_namespace: str
    read_only: bool


class RepositoryList(Body):
    pagination: Pagination
    results: list[Repository]


class Ref(Body):
    id: str
    commit_id: str


class RefList(Body):
    pagination: Pagination
    results: list[Ref]


class Commit(Body):
    id: str
    parents: list[str]
    committer: str
    message: str
    creation_date: int
    meta_range_id: str
    metadata: METADATA
    generation: int
    version: int


class CommitList(Body):
    pagination: Pagination
    results: list[Commit]


class MergeResult(Body):
    reference: str


class MergeBase(Body):
    source_commit_id: str
    destination_commit_id: str
    base_commit_id: str


class DiffObjectStat(Body):
    checksum: str
    mtime: int
    content_type: str
    metadata: METADATA


class Diff(Body):
    type: str
    path: str
    path_type: str
    size_bytes: int | None = None
    right: DiffObjectStat | None = None


class DiffList(Body):
    pagination: Pagination
    results: list[Diff]


class ObjectStats(Body):
    path: str
    path_type: str
    physical_address: str
    checksum: str
    mtime: int
    size_bytes: int | None = None
    physical_address_expiry: int | None = None
    metadata: METADATA | None = None
    content_type: str | None = None


class ObjectStatsList(Body):
    pagination: Pagination
    results: list[ObjectStats]


class ObjectError(Body):
    status_code: int
    message: str
    path: str


class ObjectErrorList(Body):
    errors: list[ObjectError]


class ObjectsRenamed(Body):
    count: int


class UnderlyingProperties(Body):
    storage_class: str | None = None


class StagingLocation(Body):
    physical_address: str | None = None
    presigned_url: str | None = None
    presigned_url_expiry: int | None = None


class StorageURI(Body):
    location: str


class ImportCreationResponse(Body):
    id: str


class ImportStatus(Body):
    completed: bool
    update_time: datetime
    ingested_objects: int
    metarange_id: str | None = None
    commit: Commit | None = None
    error: Error | None = None


class RefsDump(Body):
    """Names of the files of a dump. They are no metaranges here."""

    commits_meta_range_id: str
    tags_meta_range_id: str
    branches_meta_range_id: str


class PresignMultipartUpload(Body):
    upload_id: str
    physical_address: str
    presigned_urls: list[str]


class UploadTo(Body):
    presigned_url: str


class TaskInfo(Body):
    id: str


class RestoreStatus(Body):
    id: str
    done: bool
    update_time: datetime
    error: str | None = None


class DumpStatus(RestoreStatus, kw_only=True):
    refs: RefsDump | None = None


class VersionConfig(Body):
    version: str
    version_context: str
    upgrade_recommended: bool


class StorageConfig(Body):
    blockstore_type: str
    blockstore_namespace_example: str
    blockstore_namespace_validity_regex: str = msgspec.field(name="blockstore_namespace_ValidityRegex")
    default_namespace_prefix: str
    pre_sign_support: bool
    pre_sign_support_ui: bool
    pre_sign_multipart_upload: bool
    import_support: bool
    import_validity_regex: str


class UIConfig(Body):
    custom_viewers: list[str]


class CapabilitiesConfig(Body):
    async_ops: bool


class JobStatus(Body):
    id: str
    branch: str
    base: str
    """The head of the branch when it started."""
    state: str
    started_ms: int
    seen_ms: int
    transaction: bool
    reference: str | None = None
    """The commit that published it."""


class Job(JobStatus, kw_only=True):
    data: str
    """Where its blobs lie, below the repository's namespace."""
    physical_prefix: str
    """The same as a URL of the store."""
    upload_prefix: str
    """A URL of this server below which its blobs can be uploaded, for whoever cannot reach the store."""
    own_branch: str | None = None
    """Of a transaction: what its jobs are published to."""


class JobList(Body):
    pagination: Pagination
    results: list[JobStatus]


class JobCleaning(Body):
    aborted: list[JobStatus]


class Task(Body):
    id: str
    kind: str
    about: str
    state: str
    started_ms: int
    seen_ms: int
    cancelled: bool
    """Somebody asked it to stop."""
    progress: dict[str, int]
    summary: dict[str, int | str]
    error: str | None = None
    error_kind: str | None = None
    """Stable, for programs to go by."""
    error_status: int | None = None
    """What a request would have been answered with that failed so."""


class TaskList(Body):
    pagination: Pagination
    results: list[Task]


class Config(Body):
    version_config: VersionConfig
    storage_config: StorageConfig
    storage_config_list: list[StorageConfig]
    ui_config: UIConfig
    capabilities_config: CapabilitiesConfig


class ExportCreation(Body):
    destination: str
    """The URL of a directory."""
    since: str = ""
    """A ref: only what changed after it, and what was removed since is deleted there."""
    prefix: str = ""


class GarbageCollection(Body):
    dry_run: bool = False
    """Delete nothing."""


class GarbageCollectionConfig(Body):
    grace_period: int


class GarbageCollectionPrepared(Body):
    run_id: str
    gc_commits_location: str
    gc_addresses_location: str
    """Where whoever collects may put addresses that nothing names any more."""


class GarbageCollectionPreparation(Body):
    task_id: str
    completed: bool
    update_time: datetime
    result: GarbageCollectionPrepared | None = None
    error: Error | None = None


class UsageReport(Body):
    installation_id: str
    reports: list[dict[str, int]]


class Status(Body):
    status: str


class CheckProgress(Body):
    looked: int


class CheckDone(Body):
    done: bool
    looked: int
    wrong: int


class CheckFailed(Body):
    error: Error
    status: int


# bodies that may also be answers


class BranchProtectionRule(Body):
    pattern: str


class GarbageCollectionRule(Body):
    branch_id: str
    retention_days: Days


class GarbageCollectionRules(Body):
    default_retention_days: Days
    branches: list[GarbageCollectionRule]


# bodies of requests


class RepositoryCreation(Body):
    name: str
    storage_namespace: str = ""
    default_branch: str | None = None
    sample_data: bool | None = None
    read_only: bool | None = None
    metadata: METADATA | None = None


class RepositoryMetadataSet(Body):
    metadata: METADATA


class RepositoryMetadataKeys(Body):
    keys: list[str]


class RefsRestore(RefsDump, kw_only=True):
    force: bool | None = None


class BranchCreation(Body):
    name: str
    source: str
    force: bool | None = None
    hidden: bool | None = None


class ResetCreation(Body):
    type: Literal["object", "common_prefix", "reset"]
    path: str | None = None
    force: bool | None = None


class CommitOverrides(Body):
    message: str | None = None
    metadata: METADATA | None = None


class RevertCreation(Body):
    ref: str
    parent_number: ParentNumber = 0
    commit_overrides: CommitOverrides | None = None
    force: bool | None = None
    allow_empty: bool | None = None


class CherryPickCreation(Body):
    ref: str
    parent_number: ParentNumber | None = None
    commit_overrides: CommitOverrides | None = None
    force: bool | None = None


class CommitCreation(Body):
    message: str
    metadata: METADATA | None = None
    date: Seconds | None = None
    allow_empty: bool | None = None
    force: bool | None = None


class Merge(Body):
    message: str | None = None
    metadata: METADATA | None = None
    strategy: Literal["", "dest-wins", "source-wins"] | None = None
    force: bool | None = None
    allow_empty: bool | None = None
    squash_merge: bool | None = None
    expected_head: str | None = None
    """The commit that the destination has to be at; else 412."""
    hint: str | None = None
    """From the answer 429 of an earlier try."""


class TagCreation(Body):
    id: str
    ref: str
    force: bool | None = None


class PathList(Body):
    paths: list[str]


class ObjectCopyCreation(Body):
    src_path: str
    src_ref: str | None = None
    force: bool | None = None
    shallow: bool | None = None


class ObjectRenaming(Body):
    source: str
    target: str
    overwrite: bool | None = None
    """Whether an object may take another's place, and a directory that of an empty one."""
    force: bool | None = None


class ObjectStageCreation(Body):
    physical_address: str
    checksum: str
    size_bytes: Size
    mtime: Seconds | None = None
    metadata: METADATA | None = None
    content_type: str | None = None
    force: bool | None = None


class StagingMetadata(Body):
    staging: StagingLocation
    checksum: str
    size_bytes: Size
    user_metadata: METADATA | None = None
    content_type: str | None = None
    mtime: Seconds | None = None
    force: bool | None = None


class UploadedPart(Body):
    part_number: PartNumber
    etag: str


class CompletePresignMultipartUpload(Body):
    physical_address: str
    parts: list[UploadedPart]
    user_metadata: METADATA | None = None
    content_type: str | None = None


class MultipartAddress(Body):
    physical_address: str


class CopyPartSource(Body):
    repository: str
    ref: str
    path: str
    range: str | None = None
    """`bytes=first-last`, both included."""


class UploadPartCopyFrom(Body):
    physical_address: str
    copy_source: CopyPartSource


class UpdateObjectUserMetadata(Body):
    set: METADATA


class ImportLocation(Body):
    type: Literal["common_prefix", "object"]
    path: str
    destination: str
    inventory: str | None = None
    """Of a prefix: where a list of what lies below it is, to go by instead of the store's."""


class ImportCreation(Body):
    paths: list[ImportLocation]
    commit: CommitCreation
    force: bool | None = None


class JobCreation(Body):
    id: str | None = None
    """One of the caller's own: a lost answer can then be asked for again."""
    transaction: bool | None = None


class JobEntry(Body):
    path: str
    address: str
    """Relative to the repository's namespace."""
    size: Size
    checksum: str
    mtime_ms: Milliseconds
    content_type: str = ""
    metadata: METADATA | None = None


class JobBlobs(Body):
    names: list[str]


class JobUploads(Body):
    urls: list[str]
    """To PUT each of them to, good for 15 minutes."""


class JobTask(Body):
    entries: list[JobEntry]


class JobPublication(Body):
    entries: list[JobEntry] = []
    tasks: bool | None = None
    """With the entries of all tasks."""
    deletes: list[str] = []
    """Prefixes under which everything is deleted that the entries do not put."""
    removes: list[str] = []
    """Single paths to be deleted."""
    expect_empty: list[str] = []
    """Prefixes under which there must be nothing; else 409."""
    message: str | None = None
    metadata: METADATA | None = None
    force: bool | None = None
    """Even if others have changed the same meanwhile."""


class StatsEvent(Body):
    name: str
    count: int


class StatsEventsList(Body):
    events: list[StatsEvent]


# layers and stashes, which are ours


class Layer(Body):
    level: str
    id: str
    rows: int
    more: bool
    """Whether there are more rows than were counted."""
    tombstones: int
    size_bytes: int
    files: int
    prefix_deletes: int
    creation_date: int


class Appended(Body):
    rows: int


class LayerList(Body):
    results: list[Layer]
    compacting_since: int | None = None
    """When somebody began to fold them, who is at it still, or was stopped."""


class Compacted(Body):
    compacted: bool
    """Whether there was anything to fold."""


class Stash(Body):
    id: str
    commit_id: str
    layers: int
    creation_date: int


class StashList(Body):
    results: list[Stash]
