"""Settings: data, read from the environment and from files in one place, and passed on."""

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from esker import settings_file
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
    """What a server is told at its start: on the command line, else in the environment (`workers` is `ESKER_WORKERS`),
    else in a file."""

    lake: str = ""
    """The URL below which the lake's repositories lie; by default a directory of the user's, `~/esker-lake`."""
    kv: str = ""
    """The URL of the key-value store for refs, staged changes and users; a local lake has its own."""
    host: str = "127.0.0.1"
    """At which address to listen; 0.0.0.0: everywhere."""
    port: int = 8000
    """Where to listen."""
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
    targets: tuple[str, ...] = ()
    """URLs below which exports may be written, in the same way."""
    login_s: int = 7 * 24 * 3600
    """How long a session lasts."""
    log_format: LogFormat = LogFormat.AUTO
    """`auto`: lines for people on a terminal, JSON elsewhere."""
    slow_s: float = 1.0
    """Requests, and work in the background, that take longer are logged with what they did. 0: none."""
    otlp_endpoint: str = ""
    """Where traces are sent, by OTLP over HTTP: `http://localhost:4318`. Takes `esker[otel]`."""
    trace_ratio: float = 1.0
    """Of the requests that begin a trace of their own, how many are traced. Callers decide it for theirs."""
    stop_s: int = 30
    """How long requests that run when the server is told to stop have to finish."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            check(name, getattr(self, name))


_BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "port": (1, 65535),
    "workers": (1, 256),
    "requests": (1, 1000),
    "threads": (1, 1000),
    "cache_bytes": (0, 1 << 40),
    "grace_s": (0, 30 * 24 * 3600),
    "login_s": (60, 366 * 24 * 3600),
    "stop_s": (1, 3600),
    "slow_s": (0, 3600),
    "trace_ratio": (0, 1),
    "memstore_wait_ms": (0, 1000),
}


_SCHEMES: Final[Mapping[str, tuple[str, ...]]] = {
    "lake": ("file", "s3", "gs", "az", "memory"),
    "kv": ("sqlite", "postgresql", "postgres", "dynamodb", "memory"),
}
"""Of the stores that can be opened, which `esker.stores` does."""


def check(name: str, value: Any) -> None:
    """ValueError, which tells of a URL no more than its scheme, unless the setting may have this value of its type."""
    if name in _BOUNDS:
        low, high = _BOUNDS[name]
        if not low <= value <= high:
            raise ValueError(f"`{name}` is {low} to {high}, not {value}")
    elif name == "secret_key_file" and "://" in value:
        raise ValueError(f"`{name}` is a path on this machine, not a URL")
    elif name in _SCHEMES and value:
        scheme, colon, _ = value.partition(":")
        is_path = name == "lake" and "://" not in value
        if not is_path and not (colon and scheme.lower() in _SCHEMES[name]):
            told = settings_file.either(f"{one}://" for one in _SCHEMES[name])
            raise ValueError(f"`{name}` is a URL that begins with {told}" + (f", not {scheme}:" if colon else ""))


_PREFIX: Final = "ESKER_"
SECRETS: Final = frozenset({"secret_key", "secret_access_key", "token"})
"""Settings that are shown to nobody."""

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class InForce(NamedTuple):
    """A server's settings, and where each was said."""

    settings: ServerSettings
    said: Mapping[str, str]
    """By name; what is not in it is the default."""

    def as_toml(self) -> str:
        """As a file that says the same, but for secrets, with where each comes from."""
        lines = [f"version = {settings_file.VERSION}"]
        for name in ServerSettings.__struct_fields__:
            value, where = getattr(self.settings, name), self.said.get(name, "default")
            if value is None:
                lines.append(f"# {name}: not set")
                continue
            if name in SECRETS:
                value = value and settings_file.HIDDEN
            elif isinstance(value, str):
                value = settings_file.masked_url(value)
            lines.append(f"{name} = {msgspec.json.encode(value).decode()}  # {where}")
        return "\n".join(lines) + "\n"


def server_settings(environment: Mapping[str, str] | None = None, **given: Any) -> ServerSettings:
    """What is given (None: not), else what the environment says, else the file, else the default. InvalidError names
    what is wrong."""
    return in_force(environment, given=given).settings


def in_force(
    environment: Mapping[str, str] | None = None,
    *,
    file: Path | None = None,
    given: Mapping[str, Any] = _NONE,
    remembered: Mapping[str, Any] = _NONE,
) -> InForce:
    """As `server_settings`, with where each was said. The file is the one named here, else by the environment, else the
    one in its usual place, if it is there. What is remembered comes last before the defaults."""
    environment = os.environ if environment is None else environment
    where, filed = _server_file(environment, file)
    found: dict[str, Any] = {}
    said: dict[str, str] = {}
    for name in ServerSettings.__struct_fields__:
        variable = _PREFIX + name.upper()
        text: Any = environment.get(variable)
        if text is not None and name in ("sources", "targets"):
            text = text.split()
        for place, value, strict in (
            ("command line", given.get(name), False),
            (variable, text, False),
            (where, filed.get(name), True),
            ("remembered", remembered.get(name), True),
        ):
            if value is None:
                continue
            try:
                found[name] = settings_file.checked(value, name, ServerSettings, place, strict=strict)
                check(name, found[name])
            except ValueError as error:
                raise InvalidError(Kind.INVALID_ARGUMENT, f"{place}: {error}") from None
            said[name] = place
            break
    found.setdefault("lake", (Path.home() / "esker-lake").as_uri())
    return InForce(ServerSettings(**found), said)


def _server_file(environment: Mapping[str, str], named: Path | None) -> tuple[str, dict[str, Any]]:
    asked = named or (Path(environment["ESKER_CONFIG_FILE"]) if environment.get("ESKER_CONFIG_FILE") else None)
    path = asked or _user_directory(environment) / "server.toml"
    try:
        return str(path), settings_file.read(path, ServerSettings)
    except FileNotFoundError:
        if asked:
            raise InvalidError(Kind.INVALID_ARGUMENT, f"there is no file {path} to read settings from") from None
        return "", {}


def share_metrics(directory: Path) -> None:
    """Have the processes that are started from here on keep their metrics in a directory, for any of them to add up.

    The environment is how the metrics library is told, before it is imported.
    """
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)


def trace_context(environment: Mapping[str, str] | None = None) -> str:
    """The W3C trace context that this program was started in, as those who start programs tell them."""
    return (os.environ if environment is None else environment).get("TRACEPARENT", "")


def prefer_environment(name: str, value: str) -> None:
    """Have the programs that this process runs find a variable in their environment, unless somebody set it."""
    os.environ.setdefault(name, value)


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a lake is, and who asks: said on the command line, in the environment (`endpoint` is `ESKER_ENDPOINT`), or
    in a file."""

    lake: str = ""
    """The URL of a lake to open here."""
    kv: str = ""
    """And of its key-value store, if that is not its own."""
    endpoint: str = ""
    """Or the URL of a server."""
    access_key_id: str = ""
    """Of a user of the server."""
    secret_access_key: str = ""
    """The key's secret."""
    token: str = ""
    """Of a session, instead of a key."""


WHO: Final = ("access_key_id", "secret_access_key", "token")
"""Settings that are for one server, and told to no other."""


def client_settings(given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> ClientSettings:
    """The first of command line, environment and file to name a lake or a server decides which; whoever asks is in the
    environment or, for the server that the file is about, in the file. InvalidError if one place names both."""
    said = os.environ if environment is None else environment
    names = ClientSettings.__struct_fields__
    told = {name: said[_PREFIX + name.upper()] for name in names if _PREFIX + name.upper() in said}
    for name, value in told.items():
        if not value:
            raise InvalidError(
                Kind.INVALID_ARGUMENT, f"{_PREFIX + name.upper()} is set, and empty: give it a value, or unset it"
            )
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
    try:
        for name, value in target.items():
            check(name, value)
    except ValueError as error:
        raise InvalidError(Kind.INVALID_URL, str(error)) from None
    who = {name: told[name] for name in WHO if name in told}
    if not who and target.get("endpoint") == filed.get("endpoint"):
        who = {name: filed[name] for name in WHO if name in filed}
    return ClientSettings(**target, **who)


def client_file(environment: Mapping[str, str] | None = None) -> Path:
    """Where a user's settings are kept."""
    said = os.environ if environment is None else environment
    if named := said.get("ESKER_CONFIG"):
        return Path(named)
    return _user_directory(said) / "config.toml"


def read_client_file(path: Path) -> dict[str, str]:
    """What it says; nothing, if there is none. InvalidError names what is wrong with it."""
    try:
        return settings_file.read(path, ClientSettings, must_tell_version=False)
    except FileNotFoundError:
        return {}


def _user_directory(environment: Mapping[str, str]) -> Path:
    home = environment.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "esker"
