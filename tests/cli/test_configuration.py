"""Where a lake is: the command line before the environment before the file; and no key for another server."""

import stat
from pathlib import Path

import pytest

from esker.errors import InvalidError
from esker.settings import client_settings
from tests.cli.program import Esker
from tests.server.live import Live


@pytest.fixture
def bare(tmp_path: Path) -> Esker:
    """Told nothing."""
    return Esker(tmp_path / "home", {}, tmp_path / "lake")


def test_a_login_is_remembered_for_all_commands_to_come(bare: Esker, server: Live) -> None:
    refused = bare.run("login", server.url, stdin=f"{server.key_id}\nwrong\n")
    assert refused.code == 6
    assert not bare.config.exists()
    said = bare.ok("login", f"{server.url}/", stdin=f"{server.key_id}\n{server.secret}\n")
    assert server.secret not in said.out + said.err
    assert stat.S_IMODE(bare.config.stat().st_mode) == 0o600
    assert bare.ok("user", "whoami", "--json").json["id"] == "admin"
    shown = bare.ok("config", "show", "--json").json
    assert shown["endpoint"] == server.url
    assert server.secret not in str(shown)
    assert bare.ok("version").out.count(":") >= 3, "the server's too"


def test_a_session_can_be_kept_instead_of_a_key(bare: Esker, server: Live) -> None:
    environment = {"ESKER_ACCESS_KEY_ID": server.key_id, "ESKER_SECRET_ACCESS_KEY": server.secret}
    bare.ok("login", server.url, "--session", **environment)
    assert server.secret not in bare.config.read_text()
    assert bare.ok("user", "whoami", "--json").json["id"] == "admin"


def test_settings_are_set_and_forgotten(bare: Esker) -> None:
    bare.lake = bare.home / "my lake"
    bare.ok("config", "set", "lake", str(bare.lake))
    assert bare.ok("config", "path").out.strip() == str(bare.config)
    bare.ok("repo", "create", "sales")
    assert bare.lake.is_dir(), "a directory is as good as its URL"
    assert bare.ok("repo", "list").rows[0][0] == "sales"
    assert bare.run("config", "set", "endpoint", "http://localhost:1").code == 2, "it says a lake already"
    assert bare.run("config", "set", "secret_access_key", "visible").code == 2
    assert bare.run("config", "set", "colour", "red").code == 2
    bare.ok("config", "unset", "lake")
    assert "not remembered" in bare.ok("config", "unset", "lake").err
    asking = bare.run("du", "sales/main", "--endpoint", "http://localhost:1")
    assert (asking.code, "--lake" in asking.err) == (2, True)
    nowhere = bare.run("repo", "list")
    assert nowhere.code == 2
    assert "--lake" in nowhere.err


@pytest.mark.parametrize(("option", "url"), [("--lake", "ftp://host/lake"), ("--kv", "mysql://host/esker")])
def test_a_store_that_there_is_none_of_is_refused_by_the_name_of_its_setting(
    bare: Esker, option: str, url: str
) -> None:
    for command in (("serve", "--print-config"), ("repo", "list")):
        refused = bare.run(*command, "--lake", "file:///x", option, url)
        assert (refused.code, f"`{option[2:]}` is a URL that begins with" in refused.err) == (2, True)


def test_a_lake_that_is_not_there_is_no_empty_lake(bare: Esker) -> None:
    said = bare.run("--lake", str(bare.lake), "repo", "list")
    assert said.code == 3
    assert not bare.lake.exists()


def test_options_may_stand_before_a_command_and_after(bare: Esker) -> None:
    bare.ok("-l", str(bare.lake), "--json", "repo", "create", "sales")
    before = bare.ok("--json", "-l", str(bare.lake), "repo", "list")
    assert before.out == bare.ok("repo", "list", "--lake", str(bare.lake), "--json").out


def test_no_server_answers_is_unavailable(bare: Esker) -> None:
    said = bare.run("--endpoint", "http://127.0.0.1:9", "repo", "list")
    assert said.code == 9
    assert "127.0.0.1:9" in said.err
    assert bare.run("--endpoint", "localhost:9", "repo", "list").code == 2


def configured(path: Path, text: str) -> dict[str, str]:
    path.write_text(text)
    return {"ESKER_CONFIG": str(path)}


def test_the_command_line_comes_first_then_the_environment_then_the_file(tmp_path: Path) -> None:
    environment = configured(tmp_path / "c", 'lake = "file:///filed"\nkv = "sqlite:///filed"\n')
    assert client_settings({}, environment).lake == "file:///filed"
    assert client_settings({}, environment).kv == "sqlite:///filed"
    environment |= {"ESKER_LAKE": "file:///told"}
    assert client_settings({}, environment).lake == "file:///told"
    assert client_settings({}, environment).kv == "", "that was of another lake"
    given = client_settings({"endpoint": "http://given"}, environment)
    assert (given.lake, given.endpoint) == ("", "http://given")


def test_a_remembered_key_is_told_to_its_own_server_alone(tmp_path: Path) -> None:
    text = 'endpoint = "http://mine"\naccess_key_id = "id"\nsecret_access_key = "secret"\n'
    environment = configured(tmp_path / "c", text)
    assert client_settings({}, environment).secret_access_key == "secret"
    assert client_settings({"endpoint": "http://mine"}, environment).secret_access_key == "secret"
    assert client_settings({"endpoint": "http://other"}, environment).secret_access_key == ""
    assert client_settings({"lake": "file:///lake"}, environment).secret_access_key == ""
    told = {"ESKER_ACCESS_KEY_ID": "theirs", "ESKER_SECRET_ACCESS_KEY": "other"}
    assert client_settings({}, environment | told).secret_access_key == "other"
    with pytest.raises(InvalidError, match="ESKER_ACCESS_KEY_ID is set, and empty"):
        client_settings({}, environment | {"ESKER_ACCESS_KEY_ID": ""})


@pytest.mark.parametrize("text", ["lake = ", "colour = 'red'", "lake = 3", 'lake = "a"\nendpoint = "b"'])
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidError, match="configuration"):
        client_settings({}, configured(tmp_path / "c", text))


def test_users_are_made_given_roles_and_keys_and_deleted(remote: Esker, server: Live) -> None:
    remote.ok("repo", "create", "of-users")
    remote.ok("user", "create", "ada")
    made = remote.ok("user", "key", "create", "ada", "--json").json
    ada = {"ESKER_ACCESS_KEY_ID": made["access_key_id"], "ESKER_SECRET_ACCESS_KEY": made["secret_access_key"]}
    assert remote.run("ls", "of-users/main", **ada).code == 5
    granted = remote.ok("user", "roles", "ada", "reader:of-*", "--json").json
    assert granted["roles"] == [{"role": "reader", "repositories": "of-*"}]
    assert remote.ok("ls", "of-users/main", **ada).out == ""
    refused = remote.run("branch", "create", "of-users/dev", **ada)
    assert (refused.code, "takes the role writer:of-users" in refused.err) == (5, True)
    assert remote.run("user", "roles", "ada", "king:*").code == 2
    assert remote.ok("user", "roles", "ada", "--json").json["roles"] == granted["roles"], "it only shows them"
    shown = remote.ok("user", "show", "ada", "--json").json
    assert shown["keys"] == [made["access_key_id"]]
    assert [row[:2] for row in remote.ok("user", "list").rows] == [["ada", "reader:of-*"], ["admin", "admin:*"]]
    assert remote.ok("user", "roles", "ada", "--none", "--json").json["roles"] == []
    assert remote.run("user", "key", "delete", "ada", made["access_key_id"]).code == 2, "nobody was asked"
    remote.ok("user", "key", "delete", "ada", made["access_key_id"], "--yes")
    assert remote.run("ls", "of-users/main", **ada).code == 6
    assert remote.ok("user", "key", "list", "ada").out == ""
    remote.ok("user", "delete", "ada", "--yes")
    assert remote.run("user", "show", "ada").code == 3
