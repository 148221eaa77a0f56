"""`docs/settings.md` from the code: `python -m tests.settings_reference` writes it."""

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from esker.settings import _BOUNDS, SECRETS, ClientSettings, ServerSettings
from esker.settings_file import described

DOCUMENT: Final = Path(__file__).parents[1] / "docs" / "settings.md"
MARK: Final = "<!-- settings: written by `python -m tests.settings_reference` -->"


def reference() -> str:
    """All that follows the mark."""
    lines = [MARK, "", "## Of a server", "", *_table(ServerSettings)]
    return "\n".join([*lines, "## Of the command line", "", *_table(ClientSettings)])


def written() -> tuple[str, str]:
    """What people wrote before the mark, and what follows."""
    before, mark, after = DOCUMENT.read_text("utf-8").partition(MARK)
    return before, mark + after


def _table(schema: type[msgspec.Struct]) -> Iterator[str]:
    told = {name: text for kind in reversed(schema.__mro__) for name, text in _docstrings(kind)}
    yield "| setting | environment | type | default | |"
    yield "|---|---|---|---|---|"
    for field in msgspec.structs.fields(schema):
        kind = described(field.type)
        if field.name in _BOUNDS:
            kind += f", {_number(_BOUNDS[field.name][0])} to {_number(_BOUNDS[field.name][1])}"
        secret = " *Never shown.*" if field.name in SECRETS else ""
        variable = f"`ESKER_{field.name.upper()}`"
        yield f"| `{field.name}` | {variable} | {kind} | {_default(field.default)} | {told[field.name]}{secret} |"
    yield ""


def _default(value: object) -> str:
    if value in ("", (), None):
        return ""
    return f"`{msgspec.json.encode(value).decode()}`"


def _number(value: float) -> str:
    return f"{value:g}" if value < 1_000_000 else f"{int(value)}"


def _docstrings(kind: type) -> Iterator[tuple[str, str]]:
    """The text below each field of a class."""
    if not kind.__module__.startswith("esker."):
        return
    found = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(found, ast.ClassDef)
    for field, text in zip(found.body, found.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(text, ast.Expr), f"{field.target.id} says what it is"
            assert isinstance(text.value, ast.Constant)
            yield field.target.id, " ".join(str(text.value.value).split())


if __name__ == "__main__":
    before, _ = written()
    DOCUMENT.write_text(before + reference(), "utf-8")
    sys.stdout.write(f"wrote {DOCUMENT}\n")
