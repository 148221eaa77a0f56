"""Every command does what it says, on a lake that is opened here and on a server alike."""

import pytest
import urllib3

from tests.cli.program import Esker


def committed(esker: Esker, repo: str, branch: str, **files: str) -> str:
    """The id of a commit that puts these."""
    for name, content in files.items():
        esker.ok("upload", esker.wrote(name, content), f"{repo}/{branch}/")
    return str(esker.ok("commit", f"{repo}/{branch}", "-m", f"put {', '.join(files)}", "--json").json["id"])


def paths(esker: Esker, place: str) -> list[str]:
    return [row["path"] for row in esker.ok("ls", "-r", place, "--json").lines]


def test_an_object_is_uploaded_looked_at_and_read_and_is_not_committed_by_that(esker: Esker, repo: str) -> None:
    esker.wrote("may.csv", "id,total\n")
    made = esker.ok("upload", "may.csv", f"{repo}/main/orders/", "--meta", "source=shop", "--json").json
    assert (made["path"], made["size_bytes"], made["metadata"]) == ("orders/may.csv", 9, {"source": "shop"})
    place = f"{repo}/main/orders/may.csv"
    assert esker.ok("stat", place, "--json").json["checksum"] == made["checksum"]
    assert "source: shop" in esker.ok("stat", place).out
    assert esker.ok("cat", f"lakefs://{place}").out == "id,total\n"
    assert esker.ok("cat", place, "--range", "3-4").out == "to"
    assert esker.ok("cat", place, "--range", "-6").out == "total\n"
    past = esker.run("cat", place, "--range", "10-20")
    assert (past.code, "the 9 bytes of 'orders/may.csv'" in past.err) == (2, True)
    assert esker.ok("ls", f"{repo}/main").rows == [["orders/"]]
    assert esker.ok("ls", "-l", f"esker://{repo}/main/orders/").rows[0][0] == "9"
    assert [one["path"] for one in esker.ok("diff", f"{repo}/main", "--json").lines] == ["orders/may.csv"]
    assert esker.ok("diff", f"{repo}/main").rows == [["+", "orders/may.csv", "9"]]


def test_history_is_committed_shown_and_drawn(esker: Esker, repo: str) -> None:
    first = committed(esker, repo, "main", a="1", b="1")
    esker.ok("rm", f"{repo}/main/b")
    second = esker.ok("commit", f"{repo}/main", "-m", "without b", "--meta", "why=test", "--json").json
    assert second["parents"] == [first]
    assert esker.ok("log", f"{repo}/main", "--metadata", "-n", "1").rows[0][-2:] == ["without b", "why=test"]
    assert second["metadata"] == {"why": "test"}
    log = esker.ok("log", f"{repo}/main", "--json").lines
    assert [one["id"] for one in log[:2]] == [second["id"], first]
    assert [one["id"] for one in esker.ok("log", f"{repo}/main", "a", "--json").lines] == [first]
    assert [row[0] for row in esker.ok("log", f"{repo}/main", "-n", "1").rows] == [second["id"]]
    drawn = esker.ok("log", f"{repo}/main", "--graph").out.splitlines()
    assert [line[:1] for line in drawn] == ["*", "*", "*"]
    assert drawn[0].endswith("without b")
    shown = esker.ok("show", f"{repo}/main", "--json").json
    assert [(one["type"], one["path"]) for one in shown["changes"]] == [("removed", "b")]
    assert "-\tb\t1" in esker.ok("show", f"{repo}/main").out


def test_branches_differ_and_are_merged_and_a_conflict_is_shown(esker: Esker, repo: str) -> None:
    base = committed(esker, repo, "main", a="1", b="1")
    assert esker.ok("branch", "create", f"{repo}/dev", "--json").json == {"id": "dev", "commit_id": base}
    committed(esker, repo, "dev", b="2", c="2")
    committed(esker, repo, "main", b="3")
    assert [row[0] for row in esker.ok("branch", "list", repo).rows] == ["dev", "main"]
    assert [row[:2] for row in esker.ok("diff", f"{repo}/main..dev").rows] == [["~", "b"], ["+", "c"]]
    assert [row[:2] for row in esker.ok("diff", f"{repo}/main...dev").rows] == [["!", "b"], ["+", "c"]]
    assert [row[:2] for row in esker.ok("diff", f"{repo}/main...dev/c").rows] == [["+", "c"]]

    tried = esker.run("merge", f"{repo}/dev", "main", "--dry-run", "--json")
    assert tried.code == 4
    assert tried.err.startswith("1 path in conflict")
    assert [(one["type"], one["path"]) for one in tried.lines] == [("conflict", "b"), ("added", "c")]
    refused = esker.run("merge", f"{repo}/dev", "main")
    assert refused.code == 4
    assert refused.rows == [["!", "b"]]
    assert refused.err.startswith("error: ")
    assert "'b'" in refused.err
    head = esker.ok("branch", "show", f"{repo}/main", "--json").json["commit_id"]
    stale = esker.run("merge", f"{repo}/dev", "main", "--strategy", "source-wins", "--expected-head", base)
    assert stale.code == 7
    how = ("--strategy", "source-wins", "--expected-head", head, "-m", "dev is done")
    made = esker.ok("merge", f"{repo}/dev", "main", *how, "--json").json
    assert esker.ok("cat", f"{repo}/main/b").out == "2"
    shown = esker.ok("show", f"{repo}/main", "--json").json
    assert (shown["id"], shown["message"], len(shown["parents"])) == (made["reference"], "dev is done", 2)
    drawn = esker.ok("log", f"{repo}/main", "--graph").out.splitlines()
    assert [line.split("  ")[0] for line in drawn] == ["*", "|-\\", "* |", "| *", "|-/", "*", "*"]
    assert "--parent 1" in esker.run("revert", f"{repo}/main", "main").err
    esker.ok("branch", "delete", f"{repo}/dev", "--yes")
    assert esker.run("branch", "show", f"{repo}/dev").code == 3


def test_commits_are_reverted_picked_and_branches_moved(esker: Esker, repo: str) -> None:
    first = committed(esker, repo, "main", a="1")
    esker.ok("branch", "create", f"{repo}/dev")
    picked = committed(esker, repo, "dev", c="1")
    assert esker.ok("cherry-pick", f"{repo}/main", picked, "-m", "c too", "--json").json["message"] == "c too"
    assert paths(esker, f"{repo}/main") == ["a", "c"]
    esker.ok("revert", f"{repo}/main", "main", "-m", "c no more")
    assert "nothing to bring" in esker.ok("merge", f"{repo}/main", "main", "--dry-run").err
    assert paths(esker, f"{repo}/main") == ["a"]
    esker.ok("move", f"{repo}/main", "dev", "--yes")
    assert esker.ok("branch", "show", f"{repo}/main", "--json").json["commit_id"] == picked
    esker.ok("tag", "create", f"{repo}/v1", "main~1")
    assert esker.ok("tag", "show", f"{repo}/v1", "--json").json == {"id": "v1", "commit_id": first}
    assert [one["id"] for one in esker.ok("tag", "list", repo, "--json").lines] == ["v1"]
    assert paths(esker, f"{repo}/v1") == ["a"]
    assert "'v1' is a tag" in esker.run("upload", esker.wrote("x"), f"{repo}/v1/x").err
    esker.ok("tag", "delete", f"{repo}/v1", "-y")
    assert esker.run("ls", f"{repo}/v1").code == 3


def test_what_is_staged_is_reset_by_path_by_prefix_and_as_a_whole(esker: Esker, repo: str) -> None:
    for path in ("a", "d/1", "d/2", "e"):
        esker.ok("upload", esker.wrote("x", path), f"{repo}/main/{path}")
    esker.ok("reset", f"{repo}/main/a", "-y")
    assert paths(esker, f"{repo}/main") == ["d/1", "d/2", "e"]
    assert esker.ok("reset", f"{repo}/main/d", "-y").err == f"nothing was staged at {repo}/main/d\n"
    assert esker.ok("reset", "-r", f"{repo}/main/d/", "-y").err == f"dropped what was staged under {repo}/main/d/\n"
    assert paths(esker, f"{repo}/main") == ["e"]
    unasked = esker.run("reset", f"{repo}/main")
    assert unasked.code == 2, "without a terminal there is nobody to ask"
    assert "--yes" in unasked.err
    esker.ok("reset", f"{repo}/main", "-y")
    assert paths(esker, f"{repo}/main") == []


def test_what_is_staged_is_set_aside_folded_and_looked_into(esker: Esker, repo: str) -> None:
    esker.ok("upload", esker.wrote("x", "1"), f"{repo}/main/x")
    assert "the name of a stash" in esker.run("stash", "save", f"{repo}/main", "much later").err
    esker.ok("stash", "save", f"{repo}/main", "later")
    assert paths(esker, f"{repo}/main") == []
    assert [one["id"] for one in esker.ok("stash", "list", f"{repo}/main", "--json").lines] == ["later"]
    esker.ok("stash", "pop", f"{repo}/main", "later")
    assert paths(esker, f"{repo}/main") == ["x"]
    layers = esker.ok("branch", "show", f"{repo}/main", "--json").json["layers"]
    assert sum(layer["rows"] for layer in layers) == 1
    assert esker.ok("compact", f"{repo}/main", "--json").json == {"compacted": True}
    assert esker.ok("branch", "show", f"{repo}/main", "--json").json["layers"][0]["level"] == "compacted"
    esker.ok("stash", "save", f"{repo}/main", "later")
    esker.ok("stash", "drop", f"{repo}/main", "later", "--yes")
    assert esker.run("stash", "pop", f"{repo}/main", "later").code == 3


def test_a_prefix_is_deleted_and_a_missing_object_is_told(esker: Esker, repo: str) -> None:
    for path in ("d/1", "d/2", "e"):
        esker.ok("upload", esker.wrote("x", path), f"{repo}/main/{path}")
    assert esker.run("rm", f"{repo}/main/d").code == 3, "a single path is no prefix"
    esker.ok("rm", "-r", f"{repo}/main/d/", "--yes")
    assert paths(esker, f"{repo}/main") == ["e"]
    assert esker.ok("rm", "-r", f"{repo}/main/d/", "--json").json == {"deleted": None}


def test_repositories_are_listed_shown_protected_and_deleted(esker: Esker, repo: str) -> None:
    assert repo in [one["id"] for one in esker.ok("repo", "list", "--prefix", "repo-", "--json").lines]
    assert esker.ok("repo", "protect", repo, "main", "release-*").rows == [["main"], ["release-*"]]
    assert "everything is kept" in esker.ok("repo", "show", repo).out
    assert esker.ok("repo", "retention", repo, "--json").json is None
    esker.ok("repo", "retention", repo, "--days", "30", "--branch", "main=90")
    shown = esker.ok("repo", "show", repo, "--json").json
    assert shown["protected_branches"] == ["main", "release-*"]
    assert shown["retention"] == {
        "default_retention_days": 30,
        "branches": [{"branch_id": "main", "retention_days": 90}],
    }
    assert esker.ok("repo", "protect", repo, "--clear", "--json").out == ""
    assert esker.run("repo", "create", repo).code == 4
    esker.ok("repo", "delete", repo, "--yes")
    assert esker.run("repo", "show", repo).code == 3


def test_objects_are_copied_within_a_repository(esker: Esker, repo: str) -> None:
    committed(esker, repo, "main", a="1")
    esker.ok("cp", esker.wrote("n", "2"), f"esker://{repo}/main/d/")
    esker.ok("cp", f"esker://{repo}/main/a", f"esker://{repo}/main/d/")
    assert esker.ok("cp", "-r", f"esker://{repo}/main/d/", f"esker://{repo}/main/e", "--json").json == {"copied": 2}
    assert paths(esker, f"{repo}/main") == ["a", "d/a", "d/n", "e/a", "e/n"]
    esker.ok("cp", f"esker://{repo}/main/e/n", "back")
    assert (esker.home / "back").read_text() == "2"
    assert esker.run("cp", "back", "elsewhere").code == 2


def test_a_url_is_signed_by_a_server_for_whoever_has_no_key(esker: Esker, repo: str) -> None:
    committed(esker, repo, "main", a="signed")
    said = esker.run("presign", f"{repo}/main/a")
    if not esker.remote:
        assert said.code == 2, "nobody here would answer it"
        return
    assert said.code == 0
    answer = urllib3.request("GET", said.out.strip(), retries=False)
    assert (answer.status, answer.data) == (200, b"signed")


def test_an_import_is_in_the_task_list(esker: Esker, repo: str) -> None:
    esker.wrote("landed/a", "1")
    if not esker.remote:
        esker.ok("import", (esker.home / "landed").as_uri(), f"{repo}/main/in/")
        (task,) = esker.ok("task", "list", repo, "--json").lines
        assert (task["kind"], task["state"], task["progress"]) == ("import", "done", {"objects": 1})
        assert esker.ok("task", "show", repo, task["id"], "--json").json == task
        assert "state: done" in esker.ok("task", "show", repo, task["id"]).out
        assert esker.run("task", "cancel", repo, task["id"]).code == 4
    assert esker.run("task", "show", repo, "nobody").code == 3


def test_jobs_are_listed_and_cleaned(esker: Esker, repo: str) -> None:
    assert esker.ok("jobs", "list", repo, "--json").out == ""
    assert esker.ok("spark-clean", repo, "--older-than", "0").out == ""
    assert esker.run("jobs", "abort", repo, "nobody", "--yes").code == 3


def test_spark_is_told_of_the_server_and_its_user(esker: Esker) -> None:
    if not esker.remote:
        refused = esker.run("spark-config")
        assert refused.code == 2
        assert "which server?" in refused.err
        return
    told = dict(line.split(None, 1) for line in esker.ok("spark-config").out.splitlines())
    assert told == esker.ok("spark-config", "--json").json
    assert told["spark.hadoop.fs.lakefs.endpoint"].startswith("http://127.0.0.1:")
    assert told["spark.hadoop.fs.lakefs.secret.key"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["ls", "{repo}/nope"], 3),
        (["ls", "{repo}"], 2),
        (["cat", "{repo}/main/nope"], 3),
        (["cat", "{repo}/main"], 2),
        (["commit", "{repo}/main", "-m", "nothing"], 2),
        (["commit", "{repo}/main"], 2),
        (["branch", "create", "{repo}/main"], 4),
        (["branch", "delete", "{repo}/main", "-y"], 5),
        (["branch", "create", "{repo}/no.name"], 2),
        (["upload", "no-such-file", "{repo}/main/x"], 3),
        (["merge", "{repo}/main", "main", "--strategy", "mine"], 2),
        (["diff", "{repo}/main.."], 2),
        (["import", "file:///no/such/place", "{repo}/main/x/"], 5),
        (["no-such-command"], 2),
        (["ls", "s3://bucket/x"], 2),
        (["show", "../{repo}/main"], 2),
        (["upload", "/dev/null", "{repo}/main/bad\udcff"], 2),
        (["commit", "{repo}/main", "-m", "bad\udcff"], 2),
        (["stash", "save", "{repo}/main", "a/b"], 2),
    ],
)
def test_the_exit_code_tells_what_to_do(remote: Esker, shared: str, arguments: list[str], code: int) -> None:
    said = remote.run(*(argument.format(repo=shared) for argument in arguments))
    assert said.code == code, said
    assert said.out == ""
    assert said.err


@pytest.fixture(scope="module")
def names() -> dict[str, str]:
    return {}


@pytest.fixture
def shared(remote: Esker, names: dict[str, str]) -> str:
    """One for all that do not change it."""
    if "repo" not in names:
        names["repo"] = "repo-of-errors"
        remote.ok("repo", "create", names["repo"])
    return names["repo"]
