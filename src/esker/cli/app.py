"""The program's own options. What its commands are, `esker.cli.commands` says."""

import sys
from importlib.metadata import version as installed
from typing import Annotated, Final

import typer

from esker.cli.everywhere import Endpoint, Json, Kv, Quiet, RootLake, unwrapped

_HELP: Final = """Git for a data lake: branches, commits, diffs and merges over the objects in your own store.

Things are named repo/ref/path: sales/main/2024/orders.csv is on branch main of repository sales. With esker:// before
it, or lakefs://, it is the same; cp needs that, to tell it from a local file.

\b
  esker --lake file:///data/lake repo create sales      open a lake here,
  esker login http://localhost:8000                     or have a server asked
  esker upload -r orders/ sales/main/orders/
  esker commit sales/main -m "first orders"
  esker branch create sales/dev
  esker diff sales/main...dev
  esker merge sales/dev main
"""

app: Final = typer.Typer(
    name="esker",
    help=unwrapped(_HELP),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"esker {installed('esker')}\n")
        raise typer.Exit


@app.callback()
def before(
    ctx: typer.Context,
    lake: RootLake = None,
    kv: Kv = None,
    endpoint: Endpoint = None,
    as_json: Json = False,
    quiet: Quiet = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    ctx.obj = {"lake": lake, "kv": kv, "endpoint": endpoint, "as_json": as_json, "quiet": quiet}
