"""Settings: data, read from the environment in one place and passed on."""

import os
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from esker.errors import InvalidError, Kind
from esker.model import Staging


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What may differ between two processes on one lake. What must not is in the repository's record."""

    dirty_read_optimization: bool = True
    """Whether reads of a clean branch skip staging. Writers keep the flag either way, so it can be switched at once."""
    cache_bytes: int = 256 << 20
    """Decoded ranges kept in memory."""
    threads: int = 8
    """Of the pool for reading and writing ranges: they mostly wait for the store."""
    grace_s: float = 3600.0
    """How long what fell off a branch is kept for readers that still look at it. A read never takes half as long."""
    staging: Staging | None = None
    """Where single writes go; None: where the repository says."""
    memstore_wait_ms: int = 10
    """How long the memstore may hold a write, when those that it told a moment ago are likely to bring more."""


DEFAULTS = Settings()


class LogFormat(StrEnum):
    AUTO = "auto"
    """Lines for people on a terminal, JSON elsewhere."""
    JSON = "json"
    TEXT = "text"


class ServerSettings(Settings, frozen=True, kw_only=True):
    """What a server is told at its start. Each is an environment variable too: `workers` is `ESKER_WORKERS`."""

    lake: str = ""
    """The URL below which the lake's repositories lie; by default a directory of the user's, `~/esker-lake`."""
    kv: str = ""
    """The URL of the key-value store for refs, staged changes and users; a local lake has its own."""
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 2
    """Processes. Python runs one request's code at a time in each: as many as there are processors to spare."""
    requests: int = 64
    """Requests that a worker works on at a time; they mostly wait for the stores. Whoever comes beyond is told to come
    back later."""
    secret_key: str = ""
    """What secrets are sealed with, and tokens signed; by default a local lake keeps one beside its database."""
    secret_key_file: str = ""
    """A file to read it from; made where it is missing."""
    create_admin: bool = True
    """Whether the first start makes an admin and prints its key. Without, whoever comes first does, by the API."""
    sources: tuple[str, ...] = ()
    """URLs below which objects that lie elsewhere may be linked and imported; in the environment, between spaces."""
    login_s: int = 7 * 24 * 3600
    """How long a session lasts."""
    log_format: LogFormat = LogFormat.AUTO
    stop_s: int = 30
    """How long requests that run when the server is told to stop have to finish."""

    def __post_init__(self) -> None:
        for name, (low, high) in _BOUNDS.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"`{name}` is {low} to {high}, not {getattr(self, name)}")


_BOUNDS: Final = {
    "port": (1, 65535),
    "workers": (1, 256),
    "requests": (1, 1000),
    "threads": (1, 1000),
    "login_s": (60, 366 * 24 * 3600),
    "stop_s": (1, 3600),
    "memstore_wait_ms": (0, 1000),
}

_PREFIX: Final = "ESKER_"


def server_settings(environment: Mapping[str, str] | None = None, **given: Any) -> ServerSettings:
    """What is given (None: not), else what the environment says, else the default. InvalidError names what is wrong."""
    found: dict[str, Any] = {}
    for name, value in (os.environ if environment is None else environment).items():
        field = name.removeprefix(_PREFIX).lower()
        if name.startswith(_PREFIX) and field in ServerSettings.__struct_fields__:
            found[field] = value.split() if field == "sources" else value
    found |= {name: value for name, value in given.items() if value is not None}
    found.setdefault("lake", (Path.home() / "esker-lake").as_uri())
    try:
        return msgspec.convert(found, ServerSettings, strict=False)
    except msgspec.ValidationError as error:
        said, _, name = str(error).rstrip("`").partition(" - at `$.")
        where = f"the setting {name!r} ({_PREFIX}{name.upper()})" if name else "a setting"
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{where} is wrong: {said}") from None


def share_metrics(directory: Path) -> None:
    """Have the processes that are started from here on keep their metrics in a directory, for any of them to add up.

    The environment is how the metrics library is told, before it is imported.
    """
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)


def prefer_environment(name: str, value: str) -> None:
    """Have the programs that this process runs find a variable in their environment, unless somebody set it."""
    os.environ.setdefault(name, value)


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a lake is, and who asks: said on the command line, in the environment (`endpoint` is `ESKER_ENDPOINT`), or
    in a file."""

    lake: str = ""
    """The URL of a lake to open here,"""
    kv: str = ""
    """and of its key-value store, if that is not its own;"""
    endpoint: str = ""
    """or the URL of a server."""
    access_key_id: str = ""
    secret_access_key: str = ""
    token: str = ""
    """Of a session, instead of a key."""


WHO: Final = ("access_key_id", "secret_access_key", "token")
"""Settings that are for one server, and told to no other."""


def client_settings(given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> ClientSettings:
    """The first of command line, environment and file to name a lake or a server decides which; whoever asks is in the
    environment or, for the server that the file is about, in the file. InvalidError if one place names both."""
    said = os.environ if environment is None else environment
    names = ClientSettings.__struct_fields__
    told = {name: said[_PREFIX + name.upper()] for name in names if said.get(_PREFIX + name.upper())}
    filed = read_client_file(client_file(said))
    for where, place in (("the command line", given), ("the environment", told), ("the configuration", filed)):
        if place.get("lake") and place.get("endpoint"):
            raise InvalidError(
                Kind.INVALID_ARGUMENT, f"{where} names both a lake to open and a server to ask: leave one out"
            )
        if place.get("lake") or place.get("endpoint"):
            target = {name: place[name] for name in ("lake", "kv", "endpoint") if place.get(name)}
            break
    else:
        target = {}
    kv = given.get("kv") or told.get("kv")
    if target.get("lake") and kv:
        target["kv"] = kv
    who = {name: told[name] for name in WHO if name in told}
    if not who and target.get("endpoint") == filed.get("endpoint"):
        who = {name: filed[name] for name in WHO if name in filed}
    return ClientSettings(**target, **who)


def client_file(environment: Mapping[str, str] | None = None) -> Path:
    """Where a user's settings are kept."""
    said = os.environ if environment is None else environment
    if named := said.get("ESKER_CONFIG"):
        return Path(named)
    home = said.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "esker" / "config.toml"


def read_client_file(path: Path) -> dict[str, str]:
    """What it says; nothing, if there is none. InvalidError names what is wrong with it."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"the configuration in {path} cannot be read: {error}") from None
    for name, value in found.items():
        if name not in ClientSettings.__struct_fields__ or not isinstance(value, str):
            known = ", ".join(ClientSettings.__struct_fields__)
            raise InvalidError(
                Kind.INVALID_ARGUMENT,
                f"the configuration in {path} says {name!r}: no text, or none of {known}",
            )
    return found
