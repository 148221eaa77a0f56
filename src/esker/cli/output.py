"""What a command says: tables for people, tab-separated lines down a pipe, JSON for programs.

Results go to standard output and nothing else does; notes go to standard error. No value is ever cut to fit, and what
could move a terminal's cursor is escaped.
"""

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final

import msgspec

Cell = str | int
Row = tuple[object, Sequence[Cell]]
"""What programs get, and what people get."""

_TABLE_ROWS: Final = 500
"""Of a table on a terminal. A longer listing becomes several: columns are as wide as what is at hand."""

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Output:
    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.for_people = sys.stdout.isatty() and not as_json

    def listing(self, headings: Sequence[str], rows: Iterable[Row]) -> None:
        """Many things of a kind, as they come: as JSON, one document a line."""
        if self.as_json:
            for document, _ in rows:
                self._json(document)
        elif self.for_people:
            self._tables(headings, (cells for _, cells in rows))
        else:
            for _, cells in rows:
                sys.stdout.write("\t".join(shown(str(cell)) for cell in cells) + "\n")

    def thing(self, document: object, facts: Iterable[tuple[str, Cell]]) -> None:
        """One thing, and what is known of it."""
        if self.as_json:
            self._json(document)
            return
        known = list(facts)
        width = max((len(name) for name, _ in known), default=0) if self.for_people else 0
        for name, value in known:
            sys.stdout.write(f"{name + ':':<{width + 1}} {shown(str(value))}\n")

    def done(self, document: object, text: str) -> None:
        """Something was done. For people that is a note: `text`."""
        if self.as_json:
            self._json(document)
        else:
            self.note(text)

    def lines(self, document: object, lines: Iterable[str]) -> None:
        """One thing, told in lines of its own kind."""
        if self.as_json:
            self._json(document)
        else:
            for line in lines:
                sys.stdout.write(f"{line}\n")

    def note(self, text: str) -> None:
        if not self.quiet:
            sys.stderr.write(f"{shown(text)}\n")

    def warn(self, text: str) -> None:
        """What is said even so."""
        sys.stderr.write(f"error: {shown(text)}\n")

    @staticmethod
    def _json(document: object) -> None:
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")

    @staticmethod
    def _tables(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console(highlight=False)
        left = iter(rows)
        while some := list(islice(left, _TABLE_ROWS)):
            table = Table(box=None, pad_edge=False, header_style="bold")
            for at, heading in enumerate(headings):
                right = all(isinstance(row[at], int) for row in some)
                table.add_column(heading, justify="right" if right else "left", overflow="fold")
            for row in some:
                table.add_row(*(Text(shown(str(cell))) for cell in row))
            console.print(table)


def shown(text: str) -> str:
    """With whatever a terminal would not print as it is, escaped."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def moment(seconds: int) -> str:
    """A time, where the user is."""
    if not seconds:
        return ""
    return datetime.fromtimestamp(seconds, UTC).astimezone().isoformat(" ", "seconds")


def lasted(ms: int) -> str:
    """How long: `0.25 s`, `3 min 20 s`, `2 h 5 min`."""
    if ms < 59_500:
        return f"{ms / 1000:.3g} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def counted(count: int, thing: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count} {thing}{'s' * (count != 1)}"


def size(count: int) -> str:
    """For people: three digits and a unit."""
    value = float(count)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.3g} {unit}"
