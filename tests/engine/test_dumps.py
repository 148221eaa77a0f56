"""A dump holds all that a repository made from it needs to go on as the one that was dumped."""

from esker.engine import commit, dumps, entries, repositories
from esker.engine.lake import Lake
from esker.engine.repositories import cutting_of
from esker.format.names import digest_of
from esker.model import CommitID, Digest, Repository
from tests.engine.lakes import contents, entry, new_setup


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
