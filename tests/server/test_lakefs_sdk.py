"""The generated client, `lakefs-sdk`: what the wrapper above it does not reach."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.server.live import Live, lakefs_sdk

ApiException = lakefs_sdk.ApiException


@pytest.fixture(scope="module")
def sdk(server: Live) -> Any:
    return server.sdk()


def status_of(error: Any) -> int:
    status: int = error.value.status
    return status


def test_a_repository_that_is_only_read_takes_no_writes_unless_forced(sdk: Any) -> None:
    name = "sdk-read-only"
    repositories, branches = sdk.repositories_api, sdk.branches_api
    creation = lakefs_sdk.RepositoryCreation(name=name, storage_namespace=f"local://{name}", read_only=True)
    assert repositories.create_repository(creation).read_only
    with pytest.raises(ApiException) as refused:
        branches.create_branch(name, lakefs_sdk.BranchCreation(name="dev", source="main"))
    assert status_of(refused) == 403
    with pytest.raises(ApiException) as refused:
        sdk.objects_api.delete_object(name, "main", "a")
    assert status_of(refused) == 403
    with pytest.raises(ApiException) as refused:
        repositories.delete_repository(name)
    assert status_of(refused) == 403
    branches.create_branch(name, lakefs_sdk.BranchCreation(name="dev", source="main", force=True))
    sdk.objects_api.delete_object(name, "main", "a", force=True)
    branches.delete_branch(name, "dev", force=True)
    repositories.delete_repository(name, force=True)
    with pytest.raises(ApiException) as gone:
        repositories.get_repository(name)
    assert status_of(gone) == 404


def test_repositories_are_searched(sdk: Any) -> None:
    for name in ("sdk-search-one", "sdk-search-two"):
        sdk.repositories_api.create_repository(
            lakefs_sdk.RepositoryCreation(name=name, storage_namespace=f"local://{name}")
        )
    found = sdk.repositories_api.list_repositories(search="search-t")
    assert [repo.id for repo in found.results] == ["sdk-search-two"]
    first = sdk.repositories_api.list_repositories(prefix="sdk-search-", amount=1)
    assert (first.pagination.has_more, first.pagination.next_offset) == (True, "sdk-search-one")
    assert first.pagination.max_per_page == 1000


def test_protected_branches_change_by_merges_only(sdk: Any, repo: str) -> None:
    settings = sdk.repositories_api
    rule = lakefs_sdk.BranchProtectionRule(pattern="main")
    assert settings.get_branch_protection_rules(repo) == []
    settings.set_branch_protection_rules(repo, [rule])
    got = settings.get_branch_protection_rules_with_http_info(repo)
    assert got.data == [rule]
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: sdk.objects_api.upload_object(repo, "main", "a", content=b"x"),
        lambda: sdk.objects_api.delete_object(repo, "main", "a"),
        lambda: sdk.commits_api.commit(repo, "main", lakefs_sdk.CommitCreation(message="m", allow_empty=True)),
        lambda: sdk.staging_api.get_physical_address(repo, "main", "a"),
    )
    for attempt in attempts:
        with pytest.raises(ApiException) as refused:
            attempt()
        assert status_of(refused) == 403
    sdk.branches_api.create_branch(repo, lakefs_sdk.BranchCreation(name="dev", source="main"))
    sdk.objects_api.upload_object(repo, "dev", "a", content=b"x")
    sdk.commits_api.commit(repo, "dev", lakefs_sdk.CommitCreation(message="m"))
    sdk.refs_api.merge_into_branch(repo, "dev", "main")
    etag = got.headers["ETag"]
    settings.set_branch_protection_rules(repo, [], if_match=etag)
    with pytest.raises(ApiException) as stale:
        settings.set_branch_protection_rules(repo, [rule], if_match=etag)
    assert status_of(stale) == 412
    assert settings.get_branch_protection_rules(repo) == []


def test_retention_rules_are_kept(sdk: Any, repo: str) -> None:
    settings = sdk.repositories_api
    with pytest.raises(ApiException) as none:
        settings.get_gc_rules(repo)
    assert status_of(none) == 404
    rules = lakefs_sdk.GarbageCollectionRules(
        default_retention_days=21, branches=[lakefs_sdk.GarbageCollectionRule(branch_id="main", retention_days=28)]
    )
    settings.set_gc_rules(repo, rules)
    assert settings.get_gc_rules(repo) == rules
    settings.delete_gc_rules(repo)
    with pytest.raises(ApiException) as none:
        settings.get_gc_rules(repo)
    assert status_of(none) == 404


def test_an_upload_may_come_as_a_form(sdk: Any, repo: str) -> None:
    stats = sdk.objects_api.upload_object(repo, "main", "form/a", content=b"in a form")
    assert (stats.size_bytes, stats.path_type) == (9, "object")
    assert bytes(sdk.objects_api.get_object(repo, "main", "form/a")) == b"in a form"


def test_what_is_deleted_in_bulk_tells_of_each_that_failed(sdk: Any, repo: str) -> None:
    sdk.objects_api.upload_object(repo, "main", "a", content=b"x")
    found = sdk.objects_api.delete_objects(repo, "main", lakefs_sdk.PathList(paths=["a", "", "b" * 1025]))
    assert [(error.path, error.status_code) for error in found.errors] == [("", 400), ("b" * 1025, 400)]
    assert sdk.objects_api.list_objects(repo, "main").results == []
    with pytest.raises(ApiException) as many:
        sdk.objects_api.delete_objects(repo, "main", lakefs_sdk.PathList(paths=["x"] * 1001))
    assert status_of(many) == 400
    with pytest.raises(ApiException) as missing:
        sdk.objects_api.delete_objects(repo, "nowhere", lakefs_sdk.PathList(paths=["x"]))
    assert status_of(missing) == 404


@pytest.mark.filterwarnings("ignore:PUT .* is deprecated")
def test_an_object_is_staged_where_it_lies(server: Live, sdk: Any, repo: str) -> None:
    """By an address that was given out, or one below a place that the server may read."""
    file = server.elsewhere / f"{repo} file%20.bin"
    file.write_bytes(b"12345")
    creation = lakefs_sdk.ObjectStageCreation(
        physical_address=file.as_uri(), checksum="abc", size_bytes=5, metadata={"my_Key": "grün"}, content_type="a/b"
    )
    made = sdk.internal_api.stage_object(repo, "main", "there", creation)
    assert made.metadata == {"my_Key": "grün"}
    assert bytes(sdk.objects_api.get_object(repo, "main", "there")) == b"12345"
    creation.physical_address = (server.lake / "esker.db").as_uri()
    with pytest.raises(ApiException) as refused:
        sdk.internal_api.stage_object(repo, "main", "database", creation)
    assert status_of(refused) == 403
    creation.physical_address = f"{server.elsewhere.as_uri()}/%2e%2e/lake/esker.db"
    with pytest.raises(ApiException) as refused:
        sdk.internal_api.stage_object(repo, "main", "database", creation)
    assert status_of(refused) == 400


def test_user_metadata_is_replaced(sdk: Any, repo: str) -> None:
    sdk.objects_api.upload_object(repo, "main", "a", content=b"x")
    new = lakefs_sdk.UpdateObjectUserMetadata(set={"a": "1"})
    sdk.experimental_api.update_object_user_metadata(repo, "main", "a", new)
    assert sdk.objects_api.stat_object(repo, "main", "a").metadata == {"a": "1"}
    assert sdk.objects_api.stat_object(repo, "main", "a", user_metadata=False).metadata is None


def test_a_branch_is_moved_to_any_commit(sdk: Any, repo: str) -> None:
    first = sdk.branches_api.get_branch(repo, "main").commit_id
    sdk.objects_api.upload_object(repo, "main", "a", content=b"x")
    with pytest.raises(ApiException) as dirty:
        sdk.experimental_api.hard_reset_branch(repo, "main", first)
    assert status_of(dirty) == 400
    sdk.commits_api.commit(repo, "main", lakefs_sdk.CommitCreation(message="m"))
    sdk.experimental_api.hard_reset_branch(repo, "main", first)
    assert sdk.branches_api.get_branch(repo, "main").commit_id == first


def test_a_merge_base_is_found(sdk: Any, repo: str) -> None:
    base = sdk.branches_api.get_branch(repo, "main").commit_id
    assert sdk.branches_api.create_branch(repo, lakefs_sdk.BranchCreation(name="dev", source="main")) == base
    heads = {}
    for branch in ("main", "dev"):
        sdk.objects_api.upload_object(repo, branch, branch, content=b"x")
        heads[branch] = sdk.commits_api.commit(repo, branch, lakefs_sdk.CommitCreation(message="m")).id
    found = sdk.refs_api.find_merge_base(repo, "dev", "main")
    assert found.base_commit_id == base
    assert (found.source_commit_id, found.destination_commit_id) == (heads["dev"], heads["main"])


def test_a_tag_is_looked_up(sdk: Any, repo: str) -> None:
    head = sdk.branches_api.get_branch(repo, "main").commit_id
    made = sdk.tags_api.create_tag(repo, lakefs_sdk.TagCreation(id="v1.0", ref="main"))
    assert made == sdk.tags_api.get_tag(repo, "v1.0") == lakefs_sdk.Ref(id="v1.0", commit_id=head)


def test_a_diff_tells_of_the_right_side_if_asked(sdk: Any, repo: str) -> None:
    sdk.objects_api.upload_object(repo, "main", "a", content=b"x")
    sdk.commits_api.commit(repo, "main", lakefs_sdk.CommitCreation(message="m"))
    plain = sdk.refs_api.diff_refs(repo, "main~1", "main")
    told = sdk.refs_api.diff_refs(repo, "main~1", "main", include_right_stats=True)
    stat = sdk.objects_api.stat_object(repo, "main", "a")
    assert plain.results[0].right is None
    assert told.results[0].right is not None
    assert told.results[0].right.checksum == stat.checksum


def test_the_files_of_a_tree_are_found(server: Live, sdk: Any, repo: str) -> None:
    sdk.objects_api.upload_object(repo, "main", "a", content=b"x")
    commit = sdk.commits_api.commit(repo, "main", lakefs_sdk.CommitCreation(message="m"))
    location = sdk.metadata_api.get_meta_range(repo, commit.meta_range_id).location
    assert location.startswith(server.lake.as_uri())
    assert f"_esker/metaranges/{commit.meta_range_id}" in location
    ranges = list((server.lake / repo / "_esker" / "ranges").iterdir())
    assert sdk.metadata_api.get_range(repo, ranges[0].name[:64]).location.endswith(ranges[0].name)
    with pytest.raises(ApiException) as missing:
        sdk.metadata_api.get_meta_range(repo, "0" * 64)
    assert status_of(missing) == 404


@pytest.mark.parametrize("presign", [False, True])
def test_the_files_of_a_tree_are_read(sdk: Any, repo: str, presign: bool) -> None:
    sdk.objects_api.upload_object(repo, "main", "a", content=b"x")
    commit = sdk.commits_api.commit(repo, "main", lakefs_sdk.CommitCreation(message="m"))
    read = sdk.internal_api.get_metadata_object
    ranges = pq.read_table(io.BytesIO(read(repo, commit.meta_range_id, "meta_range", presign=presign)))
    [name] = ranges["id"].to_pylist()
    entries = pq.read_table(io.BytesIO(read(repo, name, "range", presign=presign)))
    assert entries["path"].to_pylist() == ["a"]
    for kind, digest, status in (("range", "0" * 64, 404), ("range", "no-digest", 400), ("sstable", name, 400)):
        with pytest.raises(ApiException) as refused:
            read(repo, digest, kind)
        assert status_of(refused) == status


def test_what_is_said_of_a_repository_is_changed_and_taken_back(server: Live, sdk: Any) -> None:
    repositories, internal, name = sdk.repositories_api, sdk.internal_api, "sdk-metadata"
    creation = {"name": name, "metadata": {"team": "data", "cost": "1"}}
    assert server.ask("POST", "/repositories", body=creation).status == 201
    internal.set_repository_metadata(name, lakefs_sdk.RepositoryMetadataSet(metadata={"cost": "2", "tier": "gold"}))
    assert repositories.get_repository_metadata(name) == {"team": "data", "cost": "2", "tier": "gold"}
    internal.delete_repository_metadata(name, lakefs_sdk.RepositoryMetadataKeys(keys=["team", "nothing"]))
    assert repositories.get_repository_metadata(name) == {"cost": "2", "tier": "gold"}


@pytest.mark.filterwarnings("ignore:.* is deprecated")
def test_rules_are_kept_for_older_clients_too(sdk: Any, repo: str) -> None:
    internal = sdk.internal_api
    rule, other = (lakefs_sdk.BranchProtectionRule(pattern=pattern) for pattern in ("main", "release-*"))
    internal.internal_create_branch_protection_rule(repo, rule)
    internal.internal_create_branch_protection_rule(repo, other)
    with pytest.raises(ApiException) as twice:
        internal.internal_create_branch_protection_rule(repo, rule)
    assert status_of(twice) == 409
    assert internal.internal_get_branch_protection_rules(repo) == [rule, other]
    internal.internal_delete_branch_protection_rule(
        repo, lakefs_sdk.InternalDeleteBranchProtectionRuleRequest(pattern="main")
    )
    assert sdk.repositories_api.get_branch_protection_rules(repo) == [other]
    with pytest.raises(ApiException) as gone:
        internal.internal_delete_branch_protection_rule(
            repo, lakefs_sdk.InternalDeleteBranchProtectionRuleRequest(pattern="main")
        )
    assert status_of(gone) == 404
    rules = lakefs_sdk.GarbageCollectionRules(default_retention_days=3, branches=[])
    internal.internal_set_garbage_collection_rules(repo, rules)
    assert internal.internal_get_garbage_collection_rules(repo) == rules
    internal.internal_delete_garbage_collection_rules(repo)
    with pytest.raises(ApiException) as none:
        internal.internal_get_garbage_collection_rules(repo)
    assert status_of(none) == 404


def test_commits_are_written_down_for_other_collectors_of_garbage(server: Live, sdk: Any, repo: str) -> None:
    old = lakefs_sdk.CommitCreation(message="old", allow_empty=True, var_date=1)
    gone = sdk.commits_api.commit(repo, "main", old)
    newer = lakefs_sdk.CommitCreation(message="newer", allow_empty=True, var_date=2)
    kept = sdk.commits_api.commit(repo, "main", newer)
    rules = lakefs_sdk.GarbageCollectionRules(default_retention_days=1, branches=[])
    sdk.repositories_api.set_gc_rules(repo, rules)
    internal = sdk.internal_api
    task = internal.prepare_garbage_collection_commits_async(repo).id
    status = internal.prepare_garbage_collection_commits_status(repo, task)
    assert (status.completed, status.result.run_id) == (True, task)
    again = internal.prepare_garbage_collection_commits(repo)
    for made in (status.result, again):
        rows = [*csv.DictReader(Path(made.gc_commits_location.removeprefix("file://")).read_text().splitlines())]
        expired = {row["commit_id"]: row["expired"] for row in rows}
        assert len(rows) == 3
        assert (expired[gone.id], expired[kept.id]) == ("true", "false")
    dump = sdk.repositories_api.dump_submit(repo).id
    with pytest.raises(ApiException) as other:
        internal.prepare_garbage_collection_commits_status(repo, dump)
    assert status_of(other) == 404


def test_an_import_is_cancelled_or_over(server: Live, sdk: Any, repo: str) -> None:
    imports = sdk.import_api
    source = server.elsewhere / repo
    source.mkdir()
    (source / "a").write_bytes(b"x")

    def begin(url: str) -> str:
        location = lakefs_sdk.ImportLocation(type="common_prefix", path=url, destination="in/")
        creation = lakefs_sdk.ImportCreation(paths=[location], commit=lakefs_sdk.CommitCreation(message="m"))
        name: str = imports.import_start(repo, "main", creation).id
        return name

    name = begin(source.as_uri())
    while not (status := imports.import_status(repo, "main", name)).completed:
        assert status.error is None
    with pytest.raises(ApiException) as over:
        imports.import_cancel(repo, "main", name)
    assert status_of(over) == 409
    with pytest.raises(ApiException) as unknown:
        imports.import_status(repo, "main", "no-such-import")
    assert status_of(unknown) == 404
    empty = begin(f"{server.elsewhere.as_uri()}/not-there")
    while (status := imports.import_status(repo, "main", empty)).error is None:
        assert not status.completed
    assert "there is nothing below" in status.error.message
    for url, expected in (((server.lake / repo).as_uri(), 403), ("file:///etc/", 403), ("s3://bucket/x", 403)):
        with pytest.raises(ApiException) as refused:
            begin(url)
        assert status_of(refused) == expected


@pytest.mark.filterwarnings("ignore:GET .* is deprecated")
def test_small_questions_are_answered(sdk: Any, repo: str) -> None:
    sdk.health_check_api.health_check()
    sdk.internal_api.upload_object_preflight(repo, "main", "a")
    sdk.internal_api.create_branch_protection_rule_preflight(repo)
    sdk.internal_api.set_garbage_collection_rules_preflight(repo)
    sdk.internal_api.post_stats_events(lakefs_sdk.StatsEventsList(events=[]))
    assert sdk.internal_api.get_storage_config().import_support
    assert sdk.internal_api.get_lake_fs_version().version
    assert sdk.internal_api.get_garbage_collection_config().grace_period
    sdk.objects_api.upload_object(repo, "main", "a", content=b"x")
    assert sdk.objects_api.get_underlying_properties(repo, "main", "a").storage_class is None
    assert sdk.auth_api.get_current_user().user.id == "admin"
    with pytest.raises(ApiException) as uncounted:
        sdk.internal_api.get_usage_report_summary()
    assert status_of(uncounted) == 404


def test_what_is_not_there_yet_says_so(sdk: Any, repo: str) -> None:
    questions: tuple[Callable[[], Any], ...] = (
        lambda: sdk.actions_api.list_repository_runs(repo),
        lambda: sdk.pulls_api.list_pull_requests(repo),
        lambda: sdk.auth_api.list_groups(),
        lambda: sdk.internal_api.prepare_garbage_collection_uncommitted(repo),
    )
    for ask in questions:
        with pytest.raises(ApiException) as absent:
            ask()
        assert status_of(absent) == 501
        assert "does not have this operation" in str(absent.value.body)


def test_who_asks_for_an_upload_in_parts_is_told_how_to_upload(sdk: Any, repo: str) -> None:
    with pytest.raises(ApiException) as absent:
        sdk.experimental_api.create_presign_multipart_upload(repo, "main", "a")
    assert status_of(absent) == 501
    assert "upload the object in one request" in str(absent.value.body)
