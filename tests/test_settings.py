"""Settings are read from the command line, the environment and a file, checked, and documented."""

import re
from pathlib import Path

import msgspec
import pytest

from esker.errors import InvalidError
from esker.settings import LogFormat, in_force, server_settings
from tests.settings_reference import reference, written


def test_what_is_given_comes_before_the_environment_and_that_before_the_default() -> None:
    environment = {"ESKER_PORT": "9000", "ESKER_WORKERS": "3", "ESKER_KV": "postgresql://x", "PORT": "1"}
    found = server_settings(environment, workers=4, host=None)
    assert (found.port, found.workers, found.kv, found.host) == (9000, 4, "postgresql://x", "127.0.0.1")
    assert server_settings({}).lake == (Path.home() / "esker-lake").as_uri()


def test_values_are_of_their_types() -> None:
    environment = {
        "ESKER_CREATE_ADMIN": "false",
        "ESKER_LOG_FORMAT": "json",
        "ESKER_GRACE_S": "2.5",
        "ESKER_SOURCES": "s3://a/b  file:///data/in",
    }
    found = server_settings(environment)
    assert (found.create_admin, found.log_format, found.grace_s) == (False, LogFormat.JSON, 2.5)
    assert found.sources == ("s3://a/b", "file:///data/in")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ESKER_PORT", "eighty"),
        ("ESKER_PORT", "0"),
        ("ESKER_WORKERS", "-1"),
        ("ESKER_CACHE_BYTES", "-1"),
        ("ESKER_GRACE_S", "nan"),
        ("ESKER_LOG_FORMAT", "xml"),
        ("ESKER_CREATE_ADMIN", "perhaps"),
        ("ESKER_STOP_S", "0"),
        ("ESKER_LAKE", "ftp://host/lake"),
        ("ESKER_KV", "mysql://host/esker"),
        ("ESKER_KV", "/data/refs.db"),
        ("ESKER_SECRET_KEY_FILE", "s3://bucket/key"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_its_setting(name: str, value: str) -> None:
    with pytest.raises(InvalidError, match=name.removeprefix("ESKER_").lower()):
        server_settings({name: value})


def filed(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "server.toml"
    path.write_text(text)
    return {"ESKER_CONFIG_FILE": str(path), "XDG_CONFIG_HOME": str(tmp_path)}


def test_a_file_comes_before_the_default_and_after_all_else(tmp_path: Path) -> None:
    text = 'version = 1\nport = 1000\nworkers = 10\nhost = "filed"\nsources = ["s3://a/b"]\ngrace_s = 5\n'
    environment = filed(tmp_path, text) | {"ESKER_PORT": "2000", "ESKER_WORKERS": "20"}
    found = in_force(environment, given={"workers": 30})
    assert (found.settings.workers, found.settings.port, found.settings.host) == (30, 2000, "filed")
    assert (found.settings.sources, found.settings.grace_s, found.settings.requests) == (("s3://a/b",), 5.0, 64)
    file = environment["ESKER_CONFIG_FILE"]
    said = {"workers": "command line", "port": "ESKER_PORT", "host": file, "sources": file, "grace_s": file}
    assert found.said == said
    other = tmp_path / "other.toml"
    other.write_text("version = 1\nrequests = 7\n")
    assert in_force(environment, file=other).settings.requests == 7


def test_a_file_in_the_usual_place_is_read_and_one_that_was_named_must_be_there(tmp_path: Path) -> None:
    usual = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert server_settings(usual).port == 8000
    (tmp_path / "esker").mkdir()
    (tmp_path / "esker" / "server.toml").write_text("version = 1\nport = 81\n")
    assert server_settings(usual).port == 81
    with pytest.raises(InvalidError, match="no file /nowhere"):
        server_settings(usual | {"ESKER_CONFIG_FILE": "/nowhere"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port = 1", "says no version: write `version = 1` at its top"),
        ("version = 2", "is of version 2, which this esker does not know"),
        ("version = true", "is of version True"),
        ("version = 1\nwokers = 2", "sets `wokers`, and there is no such setting; did you mean `workers`?"),
        ("version = 1\nlog-format = 'json'", "did you mean `log_format`?"),
        ("version = 1\nwhatever = 2", "there are cache_bytes, create_admin, dirty_read_optimization"),
        ("version = 1\n[server]\nport = 2", "sets `server`, and there is no such setting"),
        ("version = 1\nport = '80'", "`port` is a whole number, not text"),
        ("version = 1\nport = 80.5", "`port` is a whole number, not a number"),
        ("version = 1\nport = 80000", "`port` is 1 to 65535, not 80000"),
        ("version = 1\nhost = 80", "`host` is text, not a whole number"),
        ("version = 1\ncreate_admin = 'yes'", "`create_admin` is true or false, not text"),
        ("version = 1\nsources = 's3://a'", "`sources` is a list of texts, not text"),
        ("version = 1\nlog_format = 'xml'", '`log_format` is "auto", "json" or "text", not another text'),
        ("version = 1\nstaging = 'x'", '`staging` is "kv" or "lsm", not another text'),
        ("version = 1\nlake = 'ftp://x'", "`lake` is a URL that begins with file://, s3://, gs://, az:// or memory://"),
        (
            "version = 1\nkv = 'mysql://x'",
            "postgresql://, postgres://, dynamodb:// or memory://, not mysql:",
        ),
        ("version = 1\nport =", "cannot be read"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_file_setting_and_way_out(tmp_path: Path, text: str, said: str) -> None:
    environment = filed(tmp_path, text)
    with pytest.raises(InvalidError, match=re.escape(said)) as error:
        server_settings(environment)
    assert environment["ESKER_CONFIG_FILE"] in error.value.message


def test_what_is_in_force_is_a_file_that_says_the_same_but_for_secrets(tmp_path: Path) -> None:
    text = 'version = 1\nsecret_key = "hidden-1"\nkv = "postgresql://me:hidden-2@db/x"\nsources = ["s3://a"]\n'
    found = in_force(filed(tmp_path, text), given={"port": 9})
    shown = found.as_toml()
    assert "hidden-" not in shown
    assert "postgresql://me:(not shown)@db/x" in shown
    assert re.search(r"^port = 9 +# command line$", shown, re.MULTILINE)
    assert re.search(r"^workers = 2 +# default$", shown, re.MULTILINE)
    (tmp_path / "again.toml").write_text(shown)
    again = in_force({}, file=tmp_path / "again.toml").settings
    known = {"secret_key": "", "kv": ""}
    assert msgspec.structs.replace(again, **known) == msgspec.structs.replace(found.settings, **known)


def test_urls_of_all_stores_that_there_are_and_paths_of_lakes_are_settings() -> None:
    for kv in ("sqlite:///x.db", "postgresql://x", "postgres://x", "dynamodb://x", "memory://", ""):
        assert server_settings({"ESKER_KV": kv}).kv == kv
    for lake in ("file:///x", "s3://x", "gs://x", "az://x", "memory://", "/x", "x:y"):
        assert server_settings({"ESKER_LAKE": lake}).lake == lake


def test_no_message_shows_a_secret(tmp_path: Path) -> None:
    with pytest.raises(InvalidError) as error:
        server_settings(filed(tmp_path, 'version = 1\nsecret_key = ["hidden"]\n'))
    assert "hidden" not in error.value.message
    with pytest.raises(InvalidError) as error:
        server_settings(filed(tmp_path, 'version = 1\nkv = "mysql://me:hidden@host/x"\n'))
    assert "hidden" not in error.value.message


def test_the_page_has_every_setting_as_the_code_says() -> None:
    assert written()[1] == reference(), "python -m tests.settings_reference"
