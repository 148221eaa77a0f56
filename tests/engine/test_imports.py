"""Imports, by the engine alone: what is in the status, what lands, and what does not."""

import gzip
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import esker
from esker.engine import imports
from esker.engine.imports import Source
from esker.engine.protection import Rule
from esker.engine.tasks import Task, TaskState
from esker.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from esker.model import Entry
from esker.stores.open_blobs import open_blobs
from esker.testing.faults import Call, Fault, FaultyBlobs
from esker.world import RealWorld


class Clock(RealWorld):
    """The real one, and some more."""

    more_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.more_ms


@pytest.fixture
def world() -> Clock:
    return Clock()


@pytest.fixture
def repo(tmp_path: Path, world: Clock) -> Iterator[esker.Repo]:
    with esker.open_lake((tmp_path / "lake").as_uri(), world=world) as lake:
        yield lake.create_repository("repo")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("a", "b/c", "z"):
        file = tmp_path / "source" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return tmp_path / "source"


def prefix(directory: Path, destination: str = "in/") -> Source:
    return Source(kind="common_prefix", address=f"file://{directory}/", destination=destination)


def run(repo: esker.Repo, *sources: Source) -> Task:
    name = imports.start(repo.engine, repo.record, "main", sources, message="m", committer="me", metadata={"k": "v"})
    imports.run(repo.engine, repo.record, name)
    return imports.status(repo.engine, repo.record, "main", name)


def listed(repo: esker.Repo) -> list[str]:
    return [entry.path for entry in repo.ref("main").list() if not isinstance(entry, str)]


def test_the_last_source_with_a_path_wins(repo: esker.Repo, source: Path) -> None:
    one = Source(kind="object", address=f"file://{source}/z", destination="in/a")
    task = run(repo, prefix(source), one)
    assert (task.state, task.progress) == (TaskState.DONE, {"objects": 4})
    assert listed(repo) == ["in/a", "in/b/c", "in/z"]
    assert repo.ref("main").get("in/a") == b"z"
    assert task.summary["commit"] == repo.ref("main").commit_id()
    _, commit = next(repo.ref("main").log())
    assert (commit.message, commit.committer, commit.metadata) == ("m", "me", {"k": "v"})


def test_an_import_replaces_what_was_below_its_destinations_and_nothing_else(repo: esker.Repo, source: Path) -> None:
    main = repo.branch("main")
    for path in ("in/old", "inner", "other"):
        main.put(path, b"x")
    main.commit("m")
    run(repo, prefix(source))
    assert listed(repo) == ["in/a", "in/b/c", "in/z", "inner", "other"]


def test_importing_the_same_again_commits_nothing(repo: esker.Repo, source: Path) -> None:
    first, second = run(repo, prefix(source)), run(repo, prefix(source))
    assert first.summary == second.summary
    (source / "a").write_text("more than before")
    assert run(repo, prefix(source)).summary != first.summary


@pytest.mark.parametrize("missing", ["nowhere", "source/nothing"])
def test_a_source_with_nothing_in_it_is_an_error(repo: esker.Repo, source: Path, missing: str) -> None:
    before = repo.ref("main").commit_id()
    task = run(repo, prefix(source), prefix(source.parent / missing))
    assert "there is nothing below" in task.error
    one = Source(kind="object", address=f"file://{source.parent}/{missing}", destination="one")
    assert "there is nothing at" in run(repo, one).error
    assert repo.ref("main").commit_id() == before


def test_a_path_that_would_be_too_long_is_an_error(repo: esker.Repo, source: Path) -> None:
    assert "1 to 1024 bytes" in run(repo, prefix(source, "x" * 1023 + "/")).error


def test_what_cannot_be_committed_to_is_refused_at_once(repo: esker.Repo, source: Path) -> None:
    start = imports.start
    with pytest.raises(InvalidError):
        start(repo.engine, repo.record, "main", [])
    with pytest.raises(NotFoundError):
        start(repo.engine, repo.record, "nowhere", [prefix(source)])
    repo.branch("main").put("staged", b"x")
    with pytest.raises(InvalidError, match="uncommitted"):
        start(repo.engine, repo.record, "main", [prefix(source)])
    repo.protect(Rule("main"))
    with pytest.raises(ForbiddenError):
        start(repo.engine, repo.record, "main", [prefix(source)])


def test_what_is_staged_meanwhile_stops_an_import(repo: esker.Repo, source: Path) -> None:
    name = imports.start(repo.engine, repo.record, "main", [prefix(source)])
    repo.branch("main").put("staged", b"x")
    imports.run(repo.engine, repo.record, name)
    assert "uncommitted" in imports.status(repo.engine, repo.record, "main", name).error
    assert listed(repo) == ["staged"]


def test_a_commit_meanwhile_stays(repo: esker.Repo, source: Path) -> None:
    name = imports.start(repo.engine, repo.record, "main", [prefix(source)])
    repo.branch("main").put("committed", b"x")
    repo.branch("main").commit("m")
    imports.run(repo.engine, repo.record, name)
    assert listed(repo) == ["committed", "in/a", "in/b/c", "in/z"]


def test_one_that_is_cancelled_changes_nothing(repo: esker.Repo, source: Path) -> None:
    """Cancelled while its source is being listed, by another thread."""
    record = repo.record
    listing, cancelled = threading.Event(), threading.Event()

    def pause(call: Call) -> None:
        if call.method == "list":
            listing.set()
            assert cancelled.wait(60)

    lake = replace(repo.engine, open_blobs=lambda url: FaultyBlobs(open_blobs(url), lambda _: None, pause), _stores={})
    name = imports.start(lake, record, "main", [prefix(source)])
    thread = threading.Thread(target=imports.run, args=(lake, record, name))
    thread.start()
    assert listing.wait(60)
    imports.cancel(lake, record, "main", name)
    cancelled.set()
    thread.join()
    assert imports.status(lake, record, "main", name).state is TaskState.CANCELLED
    assert listed(repo) == []
    with pytest.raises(ConflictError):
        imports.cancel(lake, record, "main", name)


def test_a_store_that_fails_ends_an_import(repo: esker.Repo, source: Path) -> None:
    def refuse(call: Call) -> Fault | None:
        return Fault.REFUSED if call.method == "list" else None

    lake = replace(repo.engine, open_blobs=lambda url: FaultyBlobs(open_blobs(url), refuse), _stores={})
    name = imports.start(lake, repo.record, "main", [prefix(source)])
    imports.run(lake, repo.record, name)
    assert imports.status(lake, repo.record, "main", name).error
    assert listed(repo) == []


def test_one_whose_process_died_is_told_to_have_stopped(repo: esker.Repo, source: Path, world: Clock) -> None:
    lake, record = repo.engine, repo.record
    name = imports.start(lake, record, "main", [prefix(source)])
    assert not imports.status(lake, record, "main", name).over
    world.more_ms += 11 * 60 * 1000
    assert "start it again" in imports.status(lake, record, "main", name).error


def test_an_import_is_known_on_its_branch_only(repo: esker.Repo, source: Path) -> None:
    name = run(repo, prefix(source)).id
    for branch, asked in (
        ("other", name),
        ("main", name + "0"),
        ("main", ""),
        ("main", "\ud800"),
        ("main", "x" * 5000),
    ):
        with pytest.raises(NotFoundError):
            imports.status(repo.engine, repo.record, branch, asked)


ODD = ("a b", "100%", "%41", "ö/🦉", "a+b", "x/y z/#?&=", "'\"\\")


def test_odd_names_are_imported_as_they_are_and_read_again(repo: esker.Repo, tmp_path: Path) -> None:
    for name in ODD:
        file = tmp_path / "odd" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    assert run(repo, prefix(tmp_path / "odd", "in//")).error == ""
    assert listed(repo) == sorted(f"in//{name}" for name in ODD)
    for name in ODD:
        assert repo.ref("main").get(f"in//{name}") == name.encode()


@pytest.mark.parametrize("name", [b"new\nline", b"no-utf-8-\xff"])
def test_a_name_by_which_it_could_not_be_read_is_an_error_that_names_it(
    repo: esker.Repo, source: Path, name: bytes
) -> None:
    with open(bytes(source / "b") + b"/" + name, "w"):
        pass
    error = run(repo, prefix(source)).error
    assert "source/b/n" in error
    assert listed(repo) == []


def test_links_are_no_objects(repo: esker.Repo, source: Path) -> None:
    (source / "link").symlink_to(source / "a")
    (source / "round").symlink_to(source)
    run(repo, prefix(source))
    assert listed(repo) == ["in/a", "in/b/c", "in/z"]


@pytest.mark.parametrize(
    "destinations", [("in/", "in/b/"), ("in/b/", "in/"), ("in/", "in/"), ("", "in/"), ("in/a", "in/"), ("x/", "in/")]
)
def test_of_sources_that_overlap_the_later_wins_path_by_path(
    repo: esker.Repo, source: Path, tmp_path: Path, destinations: tuple[str, str]
) -> None:
    other = tmp_path / "other"
    for name in ("a", "b/c", "c", "b/b/c"):
        file = other / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"other {name}")
    repo.branch("main").link_many([entry(path) for path in ("in/old", "in/b/old", "kept")])
    repo.branch("main").commit("m")
    expected: dict[str, bytes] = {}
    for directory, destination in zip((source, other), destinations, strict=True):
        for file in directory.rglob("*"):
            if file.is_file():
                expected[destination + str(file.relative_to(directory))] = file.read_bytes()
    kept = [path for path in ("in/old", "in/b/old", "kept") if not path.startswith(destinations)]
    run(repo, prefix(source, destinations[0]), prefix(other, destinations[1]))
    assert listed(repo) == sorted([*expected, *kept])
    assert {path: repo.ref("main").get(path) for path in expected} == expected


def test_an_object_is_overtaken_by_a_later_prefix_that_has_its_path_and_else_stays(
    repo: esker.Repo, source: Path
) -> None:
    one, two = (Source(kind="object", address=f"file://{source}/z", destination=f"in/{to}") for to in ("a", "new"))
    assert run(repo, one, two, prefix(source)).error == ""
    assert {path: repo.ref("main").get(path) for path in listed(repo)} == {
        "in/a": b"a",
        "in/b/c": b"b/c",
        "in/new": b"z",
        "in/z": b"z",
    }


def test_data_of_repositories_is_not_imported(repo: esker.Repo, source: Path) -> None:
    lake = Path(repo.record.namespace.removeprefix("file://")).parent
    for place in (lake / "repo", lake / "repo" / "data", lake, lake.parent):
        with pytest.raises(InvalidError, match="is, or holds, data of repository 'repo'"):
            imports.start(repo.engine, repo.record, "main", [prefix(source), prefix(place)])
    one = Source(kind="object", address=f"file://{lake}/repo/data/x", destination="x")
    with pytest.raises(InvalidError, match="data of repository"):
        imports.start(repo.engine, repo.record, "main", [one])


def entry(path: str) -> Entry:
    return Entry(path=path, address="data/x", size=1, checksum="c", mtime_ms=0)


def inventory(at: Path, directory: Path) -> Source:
    return Source(kind="common_prefix", address=f"file://{directory}/", destination="in/", inventory=at.as_uri())


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet", "orc"])
def test_an_inventory_in_any_order_takes_the_place_of_a_listing(
    repo: esker.Repo, source: Path, tmp_path: Path, form: str
) -> None:
    """By names of its own, with what lies outside of the source, and marks of directories, left out."""
    found = [*source.rglob("*")]
    keys = [f"{file}{'/' * file.is_dir()}" for file in reversed(found)] + [str(tmp_path / "elsewhere")]
    sizes = [file.stat().st_size if file.is_file() else 0 for file in reversed(found)] + [7]
    times = [pa.scalar(1_700_000_000_000 + n, pa.timestamp("ms", tz="UTC")).as_py() for n in range(len(keys))]
    etags = [f'"{n:032x}"' for n in range(len(keys))]
    where = tmp_path / f"inventory.{form}"
    if form in ("parquet", "orc"):
        table = pa.table([keys, sizes, times, etags], names=["Key", "size", "last_modified_date", "e_tag"])
        (pq.write_table if form == "parquet" else orc.write_table)(table, where)
    else:
        rows = zip(keys, sizes, (time.strftime("%Y-%m-%dT%H:%M:%S.000Z") for time in times), etags, strict=True)
        text = "key,size,LastModified,ETag\n" + "".join(
            f'{key},{size},{time},"{etag.replace(chr(34), chr(34) * 2)}"\n' for key, size, time, etag in rows
        )
        where.write_bytes(gzip.compress(text.encode()) if form == "csv.gz" else text.encode())
    assert run(repo, inventory(where, source)).error == ""
    assert {path: repo.ref("main").get(path) for path in listed(repo)} == {
        "in/a": b"a",
        "in/b/c": b"b/c",
        "in/z": b"z",
    }
    at = keys.index(str(source / "a"))
    known = repo.ref("main").stat("in/a")
    assert known.checksum == f"{at:032x}"
    assert known.mtime_ms // 1000 == int(times[at].timestamp())


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("i.csv", "key\n/x\n", "no column 'size'"),
        ("i.csv", "key,size\nx,many\n", "wrong size"),
        ("i.csv", "key,size\nx,-1\n", "lacks a size"),
        ("i.csv", "key,size\nx\n", "line 2"),
        ("i.csv", "key,size,mtime\nx,1,yesterday\n", "wrong time"),
        ("i.csv", "key,size\n", "nothing below"),
        ("i.csv", "key,size\nSOURCE/a//b,1\n", "a//b"),
        ("i.parquet", "no parquet", "cannot be read"),
        ("i.csv.gz", "no gzip", "cannot be read"),
        ("i.orc", "no orc", "cannot be read"),
        ("i.xml", "", "is no inventory"),
        ("i.json", "{}", "no manifest"),
        ("i.json", "[1]", "no manifest"),
    ],
)
def test_an_inventory_that_makes_no_sense_is_an_error_that_says_why(
    repo: esker.Repo, source: Path, tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text.replace("SOURCE", str(source)))
    assert said in run(repo, inventory(tmp_path / name, source)).error
    assert "no inventory at" in run(repo, inventory(tmp_path / "none.csv", source)).error
    assert listed(repo) == []


@pytest.fixture
def bucket(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_url)
    name = "landing"
    client = boto3.client("s3", endpoint_url=moto_url)
    client.create_bucket(Bucket=name)
    yield lambda key, data: client.put_object(Bucket=name, Key=key, Body=data)
    found = client.list_objects_v2(Bucket=name).get("Contents", [])
    client.delete_objects(Bucket=name, Delete={"Objects": [{"Key": one["Key"]} for one in found]})
    client.delete_bucket(Bucket=name)


def test_of_a_bucket_marks_of_directories_are_left_out_and_empty_objects_are_not(repo: esker.Repo, bucket: Any) -> None:
    for key, data in (("t/", b""), ("t/d/", b""), ("t/d/x", b"x"), ("t/d-1", b"1"), ("t/_SUCCESS", b""), ("t/e", b"")):
        bucket(key, data)
    bucket("t/e/", b"")
    assert run(repo, Source(kind="common_prefix", address="s3://landing/t/", destination="in/")).error == ""
    assert listed(repo) == ["in/_SUCCESS", "in/d-1", "in/d/x", "in/e"]


@pytest.mark.parametrize("key", ["t/a//b", "t//b", "t/./b", "/t"])
def test_of_a_bucket_a_name_that_cannot_be_read_is_an_error_that_names_it(
    repo: esker.Repo, bucket: Any, key: str
) -> None:
    bucket("t/x", b"x")
    bucket(key, b"x")
    error = run(repo, Source(kind="common_prefix", address="s3://landing/", destination="in/")).error
    assert key.lstrip("/") in error
    assert "name" in error


def test_an_inventory_of_s3_is_read_by_its_manifest(repo: esker.Repo, bucket: Any) -> None:
    bucket("t/a b+c", b"abc")
    bucket("t/old", b"old")
    manifest = {
        "sourceBucket": "landing",
        "destinationBucket": "arn:aws:s3:::landing",
        "fileFormat": "CSV",
        "fileSchema": "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag",
        "files": [{"key": "inventory/1.csv.gz"}],
    }
    lines = (
        '"landing","t/a+b%2Bc","1","true","false","3","2024-01-02T03:04:05.000Z","e1"\n'
        '"landing","t/old","1","false","false","3","2024-01-02T03:04:05.000Z","e2"\n'
        '"landing","t/gone","2","true","true","0","2024-01-02T03:04:05.000Z",""\n'
    )
    bucket("inventory/1.csv.gz", gzip.compress(lines.encode()))
    bucket("inventory/manifest.json", json.dumps(manifest).encode())
    listing = "s3://landing/inventory/manifest.json"
    told = Source(kind="common_prefix", address="s3://landing/t/", destination="in/", inventory=listing)
    assert run(repo, told).error == ""
    assert listed(repo) == ["in/a b+c"]
    bucket("inventory/manifest.json", json.dumps(manifest | {"destinationBucket": "arn:aws:s3:::other"}).encode())
    assert "in its own bucket" in run(repo, told).error
    assert repo.ref("main").get("in/a b+c") == b"abc"
    assert repo.ref("main").stat("in/a b+c").checksum == "e1"
