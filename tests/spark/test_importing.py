"""Imports by Spark make the tree that one process makes, whatever becomes of them on the way."""

import itertools
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import esker
import esker.spark
from esker.engine import elsewhere, garbage, imports, repositories, tasks
from esker.engine.imports import Source
from esker.errors import ConflictError, InvalidError, NotFoundError
from esker.model import Entry
from esker.spark import importing
from esker.stores.open_blobs import open_blobs
from esker.tree.cutting import Cutting

NAMES = itertools.count()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[esker.Lake]:
    with esker.open_lake(tmp_path_factory.mktemp("imports").as_uri()) as opened:
        yield opened


@pytest.fixture
def repo(lake: esker.Lake) -> esker.Repo:
    """Its ranges are short, so that there are many."""
    name = f"imports-{next(NAMES)}"
    repositories.create(
        lake.engine, name, f"{lake.url}/{name}", cutting=Cutting(salt=5, entries_mean=8, entries_max=40)
    )
    repo = lake.repository(name)
    repo.branch("main").link_many([entry(f"{where}/{n:02}") for where in ("in/b", "kept", "in") for n in range(30)])
    repo.branch("main").commit("before")
    return repo


def entry(path: str) -> Entry:
    return Entry(path=path, address="data/x", size=1, checksum="c", mtime_ms=0)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four hundred objects in directories of unequal size, some of them odd."""
    here = tmp_path_factory.mktemp("source")
    for n in range(400):
        file = here / f"year={n % 3}" / f"{'a b' if n % 2 else 'ö %41'}" / f"d{n % 19}" / f"{n:03}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(n))
    for name in ("a", "year", "year=1.txt", "z"):
        (here / name).write_text(name)
    return here


def alone(lake: esker.Lake, repo: esker.Repo, sources: Sequence[Source]) -> Any:
    """The tree that a single process makes of it, on a branch of its own."""
    branch = f"alone-{next(NAMES)}"
    repo.create_branch(branch, "main")
    name = imports.start(lake.engine, repo.record, branch, sources)
    imports.run(lake.engine, repo.record, name)
    return imports.status(lake.engine, repo.record, branch, name).summary["tree"]


def inventory(source: Path, at: Path) -> str:
    """In no order, in two files' worth of one."""
    files = [file for file in source.rglob("*") if file.is_file()]
    random.Random(1).shuffle(files)
    lines = [f'"{file}",{file.stat().st_size},{file.stat().st_mtime_ns // 1_000_000}' for file in files + files[:9]]
    at.write_text("key,size,mtime\n" + "\n".join(lines) + "\n")
    return at.as_uri()


@pytest.mark.parametrize("shape", ["one", "apart", "nested", "inventory"])
def test_the_tree_is_that_of_one_process(
    spark: SparkSession, lake: esker.Lake, repo: esker.Repo, source: Path, tmp_path: Path, shape: str
) -> None:
    uri = source.as_uri()
    sources = {
        "one": [Source.below(uri, "in/")],
        "apart": [Source.below(uri, "in/b"), Source.below(f"{uri}/year=1", "a/"), Source.at(f"{uri}/z", "in/b/z")],
        "nested": [
            Source.at(f"{uri}/a", "in/z"),
            Source.at(f"{uri}/a", "zz"),
            Source.below(uri, "in/"),
            Source.below(f"{uri}/year=1", "in/year=2/"),
        ],
        "inventory": [Source.below(uri, "in/b/", inventory(source, tmp_path / "inventory.csv"))],
    }[shape]
    expected = alone(lake, repo, sources)
    told: list[int] = []
    done = esker.spark.import_objects(spark, repo.name, "main", sources, message="m", lake=lake, progress=told.append)
    assert done.state is tasks.TaskState.DONE
    assert done.summary["tree"] == expected
    assert done.summary["commit"] == repo.ref("main").commit_id()
    assert done.progress["objects"] >= 404
    assert told[-1] == done.progress["objects"]
    assert list(lake.engine.blobs(repo.record).list(done.data)) == []
    again = esker.spark.import_objects(spark, repo.name, "main", sources, lake=lake)
    assert again.summary == done.summary


def test_a_source_is_cut_into_parts_at_its_directories(source: Path) -> None:
    blobs, name = open_blobs(source.parent.as_uri()), f"{source.name}/"

    def listed(after: str, until: str | None) -> list[str]:
        tables = elsewhere.listing(blobs, "", name, "", after, until)
        return [path for table in tables for path in table["path"].to_pylist()]

    whole = listed("", None)
    assert len(whole) == 404
    for wanted in (1, 3, 20, 1000):
        cuts = elsewhere.cuts(blobs, name, wanted)
        assert cuts == sorted(set(cuts))
        assert len(cuts) <= wanted
        parts = list(map(listed, ["", *cuts], [*cuts, None]))
        assert list(itertools.chain(*parts)) == whole
        if wanted == 20:
            assert sum(map(bool, parts)) > 5


def test_what_failed_goes_on_from_there(
    spark: SparkSession, lake: esker.Lake, repo: esker.Repo, source: Path, tmp_path: Path
) -> None:
    """What was listed is not listed again: not even where it has changed since."""
    there = tmp_path / "there"
    for directory in ("a", "b", "c"):
        (there / directory).mkdir(parents=True)
        for n in range(50):
            (there / directory / f"{n:02}").write_text("x")
    bad = there / "c" / "new\nline"
    bad.write_text("x")
    sources = [Source.below(there.as_uri(), "in/")]
    with pytest.raises(InvalidError, match="new"):
        esker.spark.import_objects(spark, repo.name, "main", sources, message="mine", lake=lake)
    (failed,) = [task for task in tasks.every(lake.engine, repo.record) if task.state is tasks.TaskState.FAILED]
    assert "new" in failed.error
    bad.unlink()
    (there / "a" / "later").write_text("x")
    (there / "c" / "later").write_text("x")
    done = esker.spark.import_objects(spark, repo.name, "", resume=failed.id, lake=lake)
    assert repo.ref("main").exists("in/c/later")
    assert not repo.ref("main").exists("in/a/later")
    assert len([*repo.ref("main").list("in/")]) == 151
    _, commit = next(repo.ref("main").log())
    assert commit.message == "mine"
    with pytest.raises(ConflictError, match="nothing is to be resumed"):
        esker.spark.import_objects(spark, repo.name, "", resume=done.id, lake=lake)
    with pytest.raises(NotFoundError):
        esker.spark.import_objects(spark, repo.name, "", resume="none", lake=lake)


def test_one_that_is_cancelled_changes_nothing(
    spark: SparkSession, lake: esker.Lake, repo: esker.Repo, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = repo.ref("main").commit_id()
    started = threading.Event()

    def wait_for_that(_: int) -> None:
        started.set()
        thread.join()

    def cancel() -> None:
        started.wait(60)
        (running,) = [task for task in tasks.every(lake.engine, repo.record) if not task.over]
        tasks.cancel(lake.engine, repo.record, running.id)

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(ConflictError, match="cancelled"):
        esker.spark.import_objects(
            spark,
            repo.name,
            "main",
            Source.below(source.as_uri(), "in/"),
            lake=lake,
            progress=wait_for_that,
        )
    assert repo.ref("main").commit_id() == before


@pytest.mark.parametrize("what", ["nowhere", "own", "memory", "unreadable inventory", "empty inventory"])
def test_what_cannot_be_imported_is_said(
    spark: SparkSession, lake: esker.Lake, repo: esker.Repo, source: Path, tmp_path: Path, what: str
) -> None:
    listed = tmp_path / "inventory.csv"
    listed.write_text("key,size\n" if what == "empty inventory" else "nothing")
    sources, said = {
        "nowhere": (Source.below((tmp_path / "none").as_uri(), ""), "nothing below"),
        "own": (Source.below(f"{lake.url}/{repo.name}/data/", ""), "data of repository"),
        "memory": (Source.below(source.as_uri(), "x\ud800"), "UTF-8"),
        "unreadable inventory": (Source.below(source.as_uri(), "", listed.as_uri()), "no column"),
        "empty inventory": (Source.below(source.as_uri(), "", listed.as_uri()), "nothing below"),
    }[what]
    with pytest.raises(InvalidError, match=said):
        esker.spark.import_objects(spark, repo.name, "main", sources, lake=lake)


def test_leftovers_are_gone_on_with_only_while_they_cannot_have_been_collected() -> None:
    assert importing.RESUME_S_MAX * 2 <= garbage.GRACE_S
