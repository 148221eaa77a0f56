"""A dump holds all that a repository made from it needs to go on as the one that was dumped."""

from esker.engine import branches, commit, dumps, entries, repositories, retention
from esker.engine.lake import Lake
from esker.engine.repositories import cutting_of
from esker.engine.retention import Retention
from esker.errors import Kind
from esker.format.names import digest_of
from esker.model import CommitID, Digest, Repository
from tests.engine.lakes import contents, entry, kind_of, new_setup, shown
from tests.engine.worn import Worn


def _write(lake: Lake, repo: Repository, paths: list[str]) -> CommitID:
    entries.write_many(lake, repo, "main", [entry(path) for path in paths])
    return commit.commit(lake, repo, "main", "more")


def _tree(lake: Lake, repo: Repository, name: CommitID) -> Digest:
    return digest_of(lake.commits(repo).get(name).tree)


def test_a_restored_repository_cuts_its_trees_as_the_dumped_one_did() -> None:
    """Else equal content would no longer have the equal tree."""
    setup = new_setup()
    lake, repo, _, _ = setup
    first = _write(lake, repo, [f"{number:03}" for number in range(100)])
    made = dumps.dump_of(dumps.dump(lake, repo))
    second = _write(lake, repo, ["050-and-a-half"])
    repositories.delete(lake, repo.name)

    fresh = setup.again()
    again = dumps.create_bare(fresh, "again", repo.namespace)
    assert cutting_of(again) == cutting_of(repo)
    assert again.uid != repo.uid
    dumps.restore(fresh, again, made)
    assert fresh.branches(again).get("main").commit == first
    assert _tree(fresh, again, _write(fresh, again, ["050-and-a-half"])) == _tree(lake, repo, second)
    assert contents(fresh, again, "main") == contents(lake, repo, "main")


def test_an_empty_place_makes_a_bare_repository_with_a_salt_of_its_own() -> None:
    lake, repo, _, _ = new_setup()
    bare = dumps.create_bare(lake, "bare", "memory://bare")
    assert not [*lake.branches(bare).page("", 10)]
    assert cutting_of(bare).salt != cutting_of(repo).salt


def test_what_was_let_go_of_since_the_dump_stays_so_and_the_restored_repository_can_be_collected() -> None:
    worn = Worn()
    for text in ("first", "second"):
        worn.put("a", text=text)
        worn.commit()
    made = dumps.dump_of(dumps.dump(worn.lake, worn.repo))
    retention.set_rules(worn.lake, worn.repo, Retention(default_days=0))
    worn.collect_all()
    repositories.delete(worn.lake, worn.repo.name)

    worn.lake = worn.setup.again()
    worn.repo = dumps.create_bare(worn.lake, "again", worn.repo.namespace)
    dumps.restore(worn.lake, worn.repo, made)
    assert kind_of(lambda: branches.create(worn.lake, worn.repo, "x", "main~1")) is Kind.RELEASED
    dropped = worn.put("a", text="third")
    worn.put("a", text="fourth")
    worn.commit()
    worn.collect_all()
    assert not worn.there(dropped)
    assert all(map(worn.there, shown(worn.lake, worn.repo, "main").values()))


def test_a_damaged_list_of_what_was_let_go_of_is_told_before_anything_is_stored() -> None:
    worn = Worn()
    made = dumps.dump_of(dumps.dump(worn.lake, worn.repo))
    worn.blobs.put(dumps.RELEASED, b"[1")
    repositories.delete(worn.lake, worn.repo.name)
    bare = dumps.create_bare(worn.lake, "bare", worn.repo.namespace)
    assert kind_of(lambda: dumps.restore(worn.lake, bare, made)) is Kind.DAMAGED_FILE
    assert not [*worn.lake.branches(bare).page("", 10)]
