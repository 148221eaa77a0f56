"""How far a long piece of work is: a line at the bottom of a terminal, and nothing anywhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from esker.cli.output import Output

Advance = Callable[[int, int], None]
"""Called with how many things and bytes were done since."""


@contextmanager
def progress(output: Output, what: str, *, in_bytes: bool = False) -> Iterator[Advance]:
    """Things, and with `in_bytes` also bytes, are counted; how many there will be, nobody knows ahead."""
    if output.quiet or not sys.stderr.isatty():
        yield lambda things, size: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TransferSpeedColumn

    sizes = [TextColumn("{task.fields[shown]}"), TransferSpeedColumn()] if in_bytes else []
    columns = (SpinnerColumn(), TextColumn(f"{what} {{task.fields[things]:,}}"), *sizes, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        from esker.cli.output import size as sized

        task = bar.add_task(what, total=None, things=0, shown="")
        done = [0, 0]

        def advance(things: int, size: int) -> None:
            done[0] += things
            done[1] += size
            bar.update(task, completed=done[1] if in_bytes else done[0], things=done[0], shown=sized(done[1]))

        yield advance
