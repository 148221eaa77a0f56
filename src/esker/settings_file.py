"""Settings from outside, checked against the record that they fill: each error names the setting, where it was said,
and the way out. Values are never told: some are secrets."""

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect

from esker.errors import InvalidError, Kind

VERSION: Final = 1
"""Of the files: what a later esker understands differently, it asks for by another number."""


def read(path: Path, schema: type[msgspec.Struct], *, must_tell_version: bool = True) -> dict[str, Any]:
    """What the file sets, each of its type, beside its version. FileNotFoundError if there is none; InvalidError names
    what is wrong with it."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise _wrong(f"the configuration in {path} cannot be read: {error}") from None
    version = found.pop("version", None if must_tell_version else VERSION)
    if type(version) is not int or version != VERSION:
        said = "says no version" if version is None else f"is of version {version!r}, which this esker does not know"
        raise _wrong(f"the configuration in {path} {said}: write `version = {VERSION}` at its top")
    where = f"the configuration in {path}"
    for name in found:
        check_name(name, schema, where)
    return {name: checked(value, name, schema, where) for name, value in found.items()}


def check_name(name: str, schema: type[msgspec.Struct], where: str) -> None:
    """InvalidError, with the setting that may have been meant, unless it is one."""
    known = schema.__struct_fields__
    if name not in known:
        close = get_close_matches(name.lower().replace("-", "_"), known, n=1)
        way_out = f"did you mean `{close[0]}`?" if close else f"there are {', '.join(sorted(known))}"
        raise _wrong(f"{where} sets `{name}`, and there is no such setting; {way_out}")


def checked(value: object, name: str, schema: type[msgspec.Struct], where: str, *, strict: bool = True) -> Any:
    """The value of a setting, of its type; not strictly: as text says it."""
    kind = next(field.type for field in msgspec.structs.fields(schema) if field.name == name)
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError:
        told = described(kind)
        one_of = isinstance(value, str) and told.startswith('"')
        got = "another text" if one_of else _GOT.get(type(value), "something else")
        raise _wrong(f"{where}: `{name}` is {told}, not {got}") from None


def described(kind: Any) -> str:
    """A setting's type, for people."""
    return _described(inspect.type_info(kind))


def masked_url(url: str) -> str:
    """A URL without the password that may be in it."""
    scheme, separator, rest = url.partition("://")
    who, at, place = rest.rpartition("@")
    if not at:
        return url
    user, colon, _ = who.partition(":")
    return f"{scheme}{separator}{user}{colon and ':' + HIDDEN}@{place}"


HIDDEN: Final = "(not shown)"

_GOT: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a table",
}


def _described(kind: inspect.Type) -> str:
    match kind:
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return "a whole number"
        case inspect.FloatType():
            return "a number"
        case inspect.EnumType():
            return either(f'"{one.value}"' for one in kind.cls)
        case inspect.VarTupleType():
            return f"a list of {_described(kind.item_type)}s"
        case inspect.UnionType():
            return either(_described(one) for one in kind.types if not isinstance(one, inspect.NoneType))
        case _:
            return "text"


def either(ways: Iterable[str]) -> str:
    *rest, last = ways
    return f"{', '.join(rest)} or {last}" if rest else last


def _wrong(message: str) -> InvalidError:
    return InvalidError(Kind.INVALID_ARGUMENT, message)
