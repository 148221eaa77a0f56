"""Running a lake: served by one command, checked on what is stored, and its surroundings looked at."""

import signal
import subprocess
import sys
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import pytest

from esker.cli.output import lasted
from tests import services
from tests.cli.program import COMMAND, Esker
from tests.server.live import Live


def test_fsck_finds_nothing_in_a_healthy_repository_and_names_what_is_damaged(esker: Esker, repo: str) -> None:
    esker.ok("upload", esker.wrote("a", "1"), f"{repo}/main/")
    esker.ok("commit", f"{repo}/main", "-m", "a")
    well = esker.ok("fsck", repo, "--deep", "--blobs")
    assert (well.out, well.err) == ("", "nothing is wrong\n")
    [file] = (esker.lake / repo / "_esker" / "ranges").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[:100] + b"?" + data[101:])
    found = esker.run("fsck", repo, "--json")
    assert found.code == 1
    [one] = found.lines
    assert (one["what"], file.name in one["message"]) == ("range", True)
    file.unlink()
    found = esker.run("fsck", repo)
    assert [row[0] for row in found.rows] == ["range"]
    file.write_bytes(data)
    [blob] = (path for path in (esker.lake / repo / "data").rglob("*") if path.is_file())
    blob.unlink()
    assert esker.ok("fsck", repo).out == ""
    assert [row[0] for row in esker.run("fsck", repo, "--blobs").rows] == ["blob"]
    assert esker.run("fsck", "nothing").code == 3


def test_the_doctor_finds_all_well(esker: Esker, repo: str) -> None:
    said = esker.ok("doctor", "--json")
    assert {one["state"] for one in said.lines} <= {"ok", "note"}
    known = {one["what"] for one in said.lines}
    assert known >= ({"server", "user", "clock"} if esker.remote else {"key-value store", "object store", "disk"})


def test_the_doctor_says_what_is_wrong_and_the_way_out(remote: Esker, server: Live, tmp_path: Path) -> None:
    remote.config.write_text(f'endpoint = "{server.url}"\naccess_key_id = "no"\nsecret_access_key = "no"\n')
    remote.config.chmod(0o644)
    wrong = {"ESKER_ACCESS_KEY_ID": "no", "ESKER_SECRET_ACCESS_KEY": "no"}
    said = remote.run("doctor", "--json", **wrong)
    assert said.code == 1
    bad = {one["what"]: one["message"] for one in said.lines if one["state"] == "bad"}
    assert set(bad) == {"configuration", "user"}
    assert f"chmod 600 {remote.config}" in bad["configuration"]
    assert f"esker login {server.url}" in bad["user"]
    gone = remote.run("doctor", "--endpoint", "http://127.0.0.1:9", "--json")
    assert gone.code == 1
    assert [one["what"] for one in gone.lines if one["state"] == "bad"] == ["configuration", "server"]
    missing = remote.run("doctor", "--lake", (tmp_path / "nothing").as_uri(), "--json")
    assert [one["what"] for one in missing.lines if one["state"] == "bad"] == ["configuration", "key-value store"]


def test_a_lake_is_served_until_it_is_told_to_stop(tmp_path: Path) -> None:
    port = services.free_port()
    esker = Esker(tmp_path / "home", {}, tmp_path / "lake")
    command = [*COMMAND, "serve", "--lake", str(esker.lake), "--port", str(port), "--workers", "1"]
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(command, env=esker.environment, stdout=out, stderr=err)
    try:
        services.wait(lambda: services.accepts(port), lambda: None)
        said = (tmp_path / "out").read_text().split()
        key_id, secret = said[said.index("id") + 1], said[-1]
        who = {"ESKER_ACCESS_KEY_ID": key_id, "ESKER_SECRET_ACCESS_KEY": secret}
        assert esker.ok("--endpoint", f"http://127.0.0.1:{port}", "repo", "create", "served", **who).code == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(services.STOP_TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
    assert esker.ok("--lake", str(esker.lake), "repo", "list").rows[0][0] == "served"


def test_settings_in_force_are_printed_and_a_wrong_file_is_told(tmp_path: Path) -> None:
    esker = Esker(tmp_path / "home", {}, tmp_path / "lake")
    file = Path(esker.wrote("server.toml", 'version = 1\nworkers = 3\nsecret_key = "sesame"\n'))
    shown = esker.ok("serve", "--config", str(file), "--lake", "lake", "--print-config", ESKER_PORT="81").out
    lines = {line.partition(" = ")[0]: line.partition(" = ")[2] for line in shown.splitlines()}
    assert lines["workers"] == f"3  # {file}"
    assert lines["port"] == "81  # ESKER_PORT"
    assert lines["lake"] == f'"{(esker.home / "lake").as_uri()}"  # command line'
    assert "sesame" not in shown
    file.write_text("version = 1\nwokers = 3\n")
    said = esker.run("serve", "--config", str(file))
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert f"{file} sets `wokers`, and there is no such setting; did you mean `workers`?" in said.err


def test_the_version_is_told(tmp_path: Path) -> None:
    said = Esker(tmp_path / "home", {}, tmp_path / "lake").ok("--version")
    assert said.out == f"esker {version('esker')}\n"


def test_who_interrupts_it_at_its_start_is_told_nothing() -> None:
    program = """
import sys

class Interrupted:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
from esker.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert (done.returncode, done.stderr) == (130, b"")


def test_what_lies_elsewhere_is_imported(esker: Esker, repo: str, request: pytest.FixtureRequest) -> None:
    elsewhere = esker.home / "landing"
    if esker.remote:
        server = request.getfixturevalue("server")
        elsewhere = server.elsewhere / repo
    for name in ("1.csv", "2.csv", "deep/3.csv"):
        path = elsewhere / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    said = esker.ok("import", str(elsewhere), f"{repo}/main/landed/", "-m", "landed", "--json").json
    assert said["ingested_objects"] == 3
    assert esker.ok("cat", f"{repo}/main/landed/deep/3.csv").out == "deep/3.csv"
    assert esker.ok("log", f"{repo}/main", "-n", "1", "--json").lines[0]["message"] == "landed"
    one = (elsewhere / "1.csv").as_uri()
    listed = elsewhere / "list.csv"
    listed.write_text(f"key,size\n{one},5\n")
    esker.ok("import", str(elsewhere), f"{repo}/main/listed/", "--inventory", str(listed))
    assert [row["path"] for row in esker.ok("ls", f"{repo}/main/listed/", "--json").lines] == ["listed/1.csv"]
    assert esker.run("import", "--object", one, f"{repo}/main/one.csv", "--inventory", str(listed)).code == 2
    assert "--object" in esker.run("import", one, f"{repo}/main/one.csv").err
    esker.ok("import", "--object", one, f"{repo}/main/one.csv")
    assert esker.ok("cat", f"{repo}/main/one.csv").out == "1.csv"
    if esker.remote:
        for hidden in (
            ((esker.home / "home").as_uri(),),
            (str(elsewhere), "--inventory", str(esker.home / "home/1.csv")),
        ):
            refused = esker.run("import", hidden[0], f"{repo}/main/x/", *hidden[1:])
            assert (refused.code, "ESKER_SOURCES" in refused.err) == (5, True)


@pytest.fixture
def place(esker: Esker, repo: str, request: pytest.FixtureRequest) -> Path:
    """Where what is exported may lie."""
    if not esker.remote:
        return esker.home / "place"
    server: Live = request.getfixturevalue("server")
    return server.elsewhere / f"place of {repo}"


def test_what_is_committed_is_exported_and_then_what_changed(esker: Esker, repo: str, place: Path) -> None:
    for name in ("a/1", "a/2", "b/3"):
        esker.wrote(f"up/{name}", name)
    esker.ok("upload", "-r", esker.home / "up", f"{repo}/main/")
    esker.ok("commit", f"{repo}/main", "-m", "first")
    said = esker.ok("export", f"{repo}/main", place.as_uri(), "--json").json
    assert (said["objects"], said["copied"], said["bytes"]) == (3, 3, 9)
    assert (place / "a" / "2").read_text() == "a/2"
    assert (place / "_esker_export" / "_SUCCESS").exists()
    assert "0 copied" in esker.ok("export", f"{repo}/main", place).err
    esker.ok("rm", f"{repo}/main/a/1", "-y")
    esker.ok("commit", f"{repo}/main", "-m", "second")
    assert esker.ok("export", f"{repo}/main", place, "--since", "main~1", "--json").json["deleted"] == 1
    assert not (place / "a" / "1").exists()
    assert esker.ok("export", f"{repo}/main~1/b/", place, "--json").json["objects"] == 1
    states = [task["state"] for task in esker.ok("task", "list", repo, "--json").lines if task["kind"] == "export"]
    assert states == ["done"] * 4
    if esker.remote:
        refused = esker.run("export", f"{repo}/main", (esker.home / "own").as_uri())
        assert (refused.code, "may export to" in refused.err, "--target" in refused.err) == (5, True, True)
    own = esker.run("export", f"{repo}/main", (esker.lake / repo / "data" / "x").as_uri())
    assert own.code == (5 if esker.remote else 2)


def test_a_task_that_fails_ends_the_command_with_the_code_of_its_error(esker: Esker, repo: str, place: Path) -> None:
    esker.ok("upload", esker.wrote("file", "content"), f"{repo}/main/a")
    esker.ok("commit", f"{repo}/main", "-m", "a")
    (stored,) = (file for file in (esker.lake / repo).rglob("*") if file.is_file() and file.read_bytes() == b"content")
    stored.write_bytes(b"less")
    damaged = esker.run("export", f"{repo}/main", place)
    assert (damaged.code, "should be 7" in damaged.err) == (11, True)
    stored.unlink()
    gone = esker.run("export", f"{repo}/main", place)
    assert (gone.code, "are gone" in gone.err) == (3, True)
    told = {task["error_kind"]: task["error_status"] for task in esker.ok("task", "list", repo, "--json").lines}
    assert told == {"damaged-file": 500, "blob-not-found": 410}


def test_a_task_is_told_in_words_and_units(esker: Esker, repo: str, place: Path) -> None:
    esker.ok("upload", esker.wrote("file", "x" * 2048), f"{repo}/main/a")
    esker.ok("commit", f"{repo}/main", "-m", "a")
    esker.ok("export", f"{repo}/main", place)
    esker.ok("gc", "run", repo, "--dry-run")
    collected, exported = esker.ok("task", "list", repo).rows
    task, kind, about, *told, started, took, error = exported
    assert (kind, about, error) == ("export", f"main to {place.as_uri()}", "")
    assert told == ["done", "objects 1, bytes 2 KiB"]
    assert datetime.fromisoformat(started).tzinfo
    assert took.endswith(" s")
    shown = esker.ok("task", "show", repo, task).out
    assert {"done: objects 1, bytes 2 KiB", f"took: {took}", "copied: 1"} <= set(shown.splitlines())
    shown = esker.ok("task", "show", repo, collected[0]).out
    assert {"dry run: yes", "dead bytes: 0 B"} <= set(shown.splitlines())


@pytest.mark.parametrize(("ms", "expected"), [(250, "0.25 s"), (200_000, "3 min 20 s"), (7_500_000, "2 h 5 min")])
def test_how_long_something_took_is_told_in_two_units_at_most(ms: int, expected: str) -> None:
    assert lasted(ms) == expected


def test_garbage_is_collected_where_the_lake_is_opened_and_by_a_server(esker: Esker, repo: str) -> None:
    esker.ok("upload", esker.wrote("file", "x"), f"{repo}/main/a")
    esker.ok("commit", f"{repo}/main", "-m", "a")
    found = esker.ok("gc", "run", repo, "--dry-run", "--json").json
    assert (found["dry_run"], found["dead"], found["deleted"], found["by_prefix"]) == (True, 0, 0, {})
    assert found["listed"] > 3
    assert esker.ok("gc", "run", repo).out.splitlines()[-1] == "deleted: 0, 0 B"
    tasks = [task for task in esker.ok("task", "list", repo, "--json").lines if task["kind"] == "gc"]
    assert {task["about"] for task in tasks} == {"dry run", ""}
    assert {task["state"] for task in tasks} == {"done"}
    esker.ok("repo", "create", f"{repo}-fixed", "--read-only")
    assert esker.run("gc", "run", f"{repo}-fixed").code == 5


def test_how_much_there_is_is_told_by_directory_and_by_commit(local: Esker) -> None:
    local.ok("repo", "create", "much")
    for name in ("a/1", "a/b/2", "c"):
        local.wrote(f"up/{name}", name)
    local.ok("upload", "-r", local.home / "up", "much/main/")
    local.ok("commit", "much/main", "-m", "three")
    assert [row[:3] for row in local.ok("du", "much/main").rows] == [[".", "1", "1"], ["a/", "2", "8"]]
    assert [row[0] for row in local.ok("du", "much/main/a/", "--depth", "2").rows] == ["a/", "a/b/"]
    newest, first = local.ok("du", "much/main", "--by-commit", "--json").lines
    assert (newest["message"], newest["added"], newest["bytes_added"], first["objects"]) == ("three", 3, 9, 0)
