"""Settings are read from the environment, checked, and documented."""

import re
from pathlib import Path

import pytest

from esker.errors import InvalidError
from esker.settings import LogFormat, ServerSettings, server_settings

PAGE = Path(__file__).parents[1] / "docs" / "server.md"


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
        ("ESKER_LOG_FORMAT", "xml"),
        ("ESKER_CREATE_ADMIN", "perhaps"),
        ("ESKER_STOP_S", "0"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_its_setting(name: str, value: str) -> None:
    with pytest.raises(InvalidError, match=name.removeprefix("ESKER_").lower()):
        server_settings({name: value})


def test_the_page_on_the_server_has_every_setting_with_its_default() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    told: dict[str, str] = {}
    for names, defaults in rows:
        parts = re.findall(r"`(\w+)`", names)
        values = defaults.split(", ") if len(parts) > 1 else [defaults]
        told |= dict(zip(parts, values, strict=True))
    defaults = ServerSettings()
    assert {*ServerSettings.__struct_fields__} <= {*told}
    for name in ServerSettings.__struct_fields__:
        value = getattr(defaults, name)
        if value not in ("", (), None):
            said = (
                str(value).lower()
                if isinstance(value, bool)
                else f"{value:g}"
                if isinstance(value, float)
                else f"{value}"
            )
            assert told[name].strip("`") == said, name
