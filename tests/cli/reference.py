"""`docs/cli.md` from the program itself: `python -m tests.cli.reference` writes it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer.main

from esker.cli.commands import app
from esker.cli.everywhere import PANEL
from esker.cli.exits import CODES, FOUND, HERE, INTERRUPTED

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "cli.md"
MARK: Final = "<!-- commands: written by `python -m tests.cli.reference` -->"


def reference() -> str:
    """All that follows the mark."""
    return "\n".join([MARK, "", *_codes(), *_commands()])


def written() -> tuple[str, str]:
    """What people wrote before the mark, and what follows."""
    before, mark, after = DOCUMENT.read_text("utf-8").partition(MARK)
    return before, mark + after


def _codes() -> Iterator[str]:
    yield "## Exit codes"
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield "| 0 | it was done |"
    yield f"| {FOUND} | something was found: by `fsck`, by `doctor`, or files that could not be transferred |"
    for kind, code in CODES.items():
        said = " ".join((kind.__doc__ or "").split())
        yield f"| {code} | `{kind.__name__}`: {said} |"
    yield f"| {HERE} | this machine refused: a file that cannot be read or written |"
    yield f"| {INTERRUPTED} | interrupted |"
    yield ""


def _commands() -> Iterator[str]:
    yield "## Commands"
    yield ""
    for name, command in sorted(commands(typer.main.get_command(app), "esker")):
        yield f"### {name}"
        yield ""
        text, _, examples = (command.help or "").partition("\b\n")
        yield text.strip()
        yield ""
        if examples:
            yield from (f"    {line.strip()}" for line in examples.rstrip().splitlines())
            yield ""
        params = [
            one for one in command.params if getattr(one, "rich_help_panel", None) != PANEL and one.name != "help"
        ]
        for param in params:
            names = ", ".join(f"`{one}`" for one in param.opts) if param.param_type_name == "option" else ""
            label = names or f"`{param.metavar or param.name}`"
            yield f"- {label}: {getattr(param, 'help', None) or ''}"
        if params:
            yield ""


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Each that does something, by its whole name."""
    found = getattr(command, "commands", None)
    if found is None:
        yield name, command
        return
    for one, other in found.items():
        yield from commands(other, f"{name} {one}")


if __name__ == "__main__":
    before, _ = written()
    DOCUMENT.write_text(before + reference(), "utf-8")
    sys.stdout.write(f"wrote {DOCUMENT}\n")
