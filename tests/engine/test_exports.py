"""Exports: what is in the place afterwards, whatever became of those before, and what is refused."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import esker
from esker.engine import exports, garbage, repositories, tasks
from esker.engine.exports import OWN, SUCCESS, Manifest
from esker.engine.tasks import TaskState
from esker.errors import ConflictError, ContentionError, EskerError, InvalidError, Kind, NotFoundError
from esker.model import Entry
from esker.stores.open_blobs import open_blobs
from esker.tree.cutting import Cutting


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[esker.Lake]:
    with esker.open_lake((tmp_path / "lake").as_uri()) as opened:
        yield opened


@pytest.fixture
def repo(lake: esker.Lake) -> esker.Repo:
    """Its ranges are short, so that exports have many parts."""
    cutting = Cutting(salt=3, entries_mean=4, entries_max=16)
    repositories.create(lake.engine, "repo", f"{lake.url}/repo", cutting=cutting)
    return lake.repository("repo")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "place"


def export(repo: esker.Repo, ref: str, place: Path, **how: Any) -> Manifest:
    task = exports.start(repo.engine, repo.record, ref, place.as_uri(), **how)
    return exports.export(repo.engine, repo.record, task)


def put(repo: esker.Repo, files: dict[str, bytes], delete: tuple[str, ...] = ()) -> str:
    main = repo.branch("main")
    main.put_many(files)
    for path in delete:
        main.delete(path)
    return main.commit("m")


def there(place: Path) -> dict[str, bytes]:
    """What is in a place, the export's own aside."""
    blobs = open_blobs(place.as_uri())
    return {info.name: blobs.get(info.name) or b"" for info in blobs.list() if not info.name.startswith(OWN)}


def shown(repo: esker.Repo, ref: str, prefix: str = "") -> dict[str, bytes]:
    return {one.path: repo.ref(ref).get(one.path) for one in repo.ref(ref).list(prefix) if isinstance(one, Entry)}


def noted(place: Path) -> list[tuple[str, bool]]:
    """Paths in the notes that the mark names, and whether they are gone."""
    mark = json.loads((place / SUCCESS).read_text())
    tables = [pq.read_table(place / part) for part in mark["parts"]]
    rows = pa.concat_tables(tables) if tables else None
    return [*zip(rows["path"].to_pylist(), rows["gone"].to_pylist(), strict=True)] if rows else []


FILES = {f"t/{n % 7}/{n:03}": str(n).encode() for n in range(120)}


@pytest.mark.parametrize("seed", range(2))
def test_a_place_holds_what_the_ref_shows_and_then_what_changed(repo: esker.Repo, place: Path, seed: int) -> None:
    """Of any history: the first is whole, and each that follows brings what changed."""
    dice = random.Random(seed)
    before = put(repo, FILES)
    export(repo, "main", place)
    for _ in range(4):
        assert there(place) == shown(repo, "main")
        some = dice.sample(sorted(shown(repo, "main")), 12)
        after = put(repo, {path: str(dice.random()).encode() for path in some[:6]}, tuple(some[6:]))
        put(repo, {f"new/{dice.random()}": b"x" for _ in range(dice.randrange(1, 9))})
        made = export(repo, "main", place, since=before)
        assert (made.deleted, made.since) == (6, before)
        assert made.objects == made.copied == 6 + len([*repo.diff(after, "main")])
        assert noted(place) == sorted((one.path, one.kind == "removed") for one in repo.diff(before, "main"))
        before = repo.ref("main").commit_id()
    assert there(place) == shown(repo, "main")


def test_the_manifest_tells_what_is_there(repo: esker.Repo, place: Path) -> None:
    commit = put(repo, FILES)
    made = export(repo, "main", place)
    assert json.loads((place / SUCCESS).read_text())["commit"] == commit
    assert (made.objects, made.copied, made.bytes) == (120, 120, sum(map(len, FILES.values())))
    assert noted(place) == [(path, False) for path in sorted(FILES)]
    (task,) = tasks.every(repo.engine, repo.record)
    assert (task.kind, task.state) == ("export", TaskState.DONE)
    assert task.progress == {"objects": 120, "bytes": made.bytes}
    assert task.summary == {
        "commit": commit,
        "objects": 120,
        "bytes": made.bytes,
        "copied": 120,
        "deleted": 0,
        "manifest": f"{place.as_uri()}/{SUCCESS}",
    }


def test_nothing_of_a_place_stays_open(repo: esker.Repo, place: Path) -> None:
    """A server may export to a new place every day."""
    put(repo, FILES)
    export(repo, "main", place)
    export(repo, "main", place, since="main~1")
    opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert not [path for path in opened if path.startswith(str(place))]


def test_done_again_it_copies_only_what_is_missing(repo: esker.Repo, place: Path) -> None:
    put(repo, FILES)
    export(repo, "main", place)
    (place / "t/3/003").unlink()
    (place / "t/4/004").write_bytes(b"of another size")
    made = export(repo, "main", place)
    assert (made.objects, made.copied) == (120, 2)
    assert there(place) == shown(repo, "main")


def test_what_another_export_put_there_is_not_taken_for_its_own(repo: esker.Repo, place: Path) -> None:
    """Even where its size is the same."""
    put(repo, FILES)
    export(repo, "main", place)
    put(repo, dict.fromkeys(FILES, b"xyz"[:3]))
    export(repo, "main", place)
    assert export(repo, "main~1", place).copied == 120
    assert there(place) == shown(repo, "main~1")


def test_what_failed_goes_on_from_there_and_is_not_marked(repo: esker.Repo, place: Path) -> None:
    put(repo, FILES)
    export(repo, "main", place)
    commit = put(repo, {path: b"new" + text for path, text in FILES.items()})
    last = repo.ref(commit).stat("t/6/118").address
    blobs = repo.engine.blobs(repo.record)
    kept = blobs.get(last)
    assert kept is not None
    blobs.delete([last])
    with pytest.raises(NotFoundError, match="t/6/118"):
        export(repo, "main", place)
    assert not (place / SUCCESS).exists()
    assert [task.state for task in tasks.every(repo.engine, repo.record)].count(TaskState.FAILED) == 1
    blobs.put(last, kept)
    assert 0 < export(repo, "main", place).copied < 40
    assert there(place) == shown(repo, "main")


def test_one_that_is_told_to_stop_leaves_no_mark(repo: esker.Repo, place: Path) -> None:
    put(repo, FILES)
    task = exports.start(repo.engine, repo.record, "main", place.as_uri())

    def stop(_: int, __: int) -> None:
        if not tasks.get(repo.engine, repo.record, task.id).cancelled:
            tasks.cancel(repo.engine, repo.record, task.id)

    with pytest.raises(ConflictError) as caught:
        exports.export(repo.engine, repo.record, task, progress=stop)
    assert caught.value.kind is Kind.TASK_CANCELLED
    assert not (place / SUCCESS).exists()


def test_a_directory_becomes_a_file_and_a_file_a_directory_wherever_parts_end(repo: esker.Repo, place: Path) -> None:
    """What was removed may be in a part far behind, or far before, that in which something takes its place."""
    inside = {f"d/{n:03}": b"x" for n in range(60)}
    before = put(repo, {**inside, "e": b"file"})
    export(repo, "main", place)
    between = {f"{first}!{n:03}": b"x" for first in "de" for n in range(60)}
    put(repo, {**between, "d": b"file", **{f"e/{n:03}": b"x" for n in range(60)}}, (*inside, "e"))
    for _ in range(2):
        made = export(repo, "main", place, since=before)
        assert (made.deleted, len(made.parts) > 5) == (61, True)
        assert there(place) == shown(repo, "main")


def test_of_two_to_one_place_the_later_goes_on_and_its_mark_is_true(repo: esker.Repo, place: Path) -> None:
    before = put(repo, FILES)
    put(repo, {path: b"new" + text for path, text in FILES.items()}, ("t/3/003",))
    task = exports.start(repo.engine, repo.record, before, place.as_uri())
    made: list[Manifest] = []

    def begin_another(objects: int, _: int) -> None:
        if objects > 50 and not made:
            made.append(export(repo, "main", place))

    with pytest.raises(ContentionError, match="began later"):
        exports.export(repo.engine, repo.record, task, progress=begin_another)
    assert json.loads((place / SUCCESS).read_text())["commit"] == made[0].commit
    assert there(place).items() >= shown(repo, "main").items()


def test_only_what_is_below_a_prefix_goes_under_its_whole_path(repo: esker.Repo, place: Path) -> None:
    put(repo, FILES)
    repo.branch("main").put("t/3/staged", b"not committed")
    assert export(repo, "main", place, prefix="t/3/").objects == 17
    assert there(place) == shown(repo, "main@", "t/3/")


def test_nothing_is_an_export_too(repo: esker.Repo, place: Path) -> None:
    put(repo, FILES)
    assert export(repo, "main", place, since="main").objects == 0
    assert noted(place) == []


def test_marks_of_directories_are_passed_over_and_what_no_file_can_be_called_is_said(
    repo: esker.Repo, place: Path
) -> None:
    main = repo.branch("main")
    main.put("d/", b"")
    main.put("d/1", b"x")
    main.commit("m")
    assert export(repo, "main", place).objects == 1
    for path in ("a//b", "d/../e", f"{OWN}x", "e/"):
        main.put(path, b"x")
        main.commit("m")
        with pytest.raises(InvalidError, match=r"a//b|\.\.|_esker_export|e/"):
            export(repo, "main", place, since="main~1")
        main.delete(path)
        main.commit("m")
    assert not (place.parent / "e").exists()


def test_the_data_of_a_repository_is_no_place_to_export_to(lake: esker.Lake, repo: esker.Repo, tmp_path: Path) -> None:
    lake.create_repository("other")
    for url in (f"{lake.url}/repo", f"{lake.url}/repo/data/x", lake.url, f"{lake.url}/other/", f"{tmp_path.as_uri()}"):
        with pytest.raises(InvalidError, match="data of repository"):
            exports.start(repo.engine, repo.record, "main", url)
    wrong = (
        ("nowhere", "main", ""),
        ("memory://x", "main", ""),
        ("s3://b/x", "none", ""),
        ("s3://b/x", "main", "none"),
    )
    for url, ref, since in wrong:
        with pytest.raises(EskerError):
            exports.start(repo.engine, repo.record, ref, url, since=since)
    assert [*tasks.every(repo.engine, repo.record)] == []


def test_what_an_export_reads_is_kept_as_long_as_it_runs(repo: esker.Repo, place: Path) -> None:
    engine, record = repo.engine, repo.record
    work = repo.create_branch("work", "main")
    work.put("a", b"x")
    commit = work.commit("m")
    task = exports.start(engine, record, "work", place.as_uri())
    repo.delete_branch("work")
    address = repo.ref(commit).stat("a").address
    for _ in range(3):
        garbage.collect(engine, record, grace_s=-1)
    assert exports.export(engine, record, task).objects == 1
    for _ in range(3):
        garbage.collect(engine, record, grace_s=-1)
    assert engine.blobs(record).head(address) is None
