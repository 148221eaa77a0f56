"""What every command has: options that say where the lake is and how to answer, and a session made of them.

They may stand before the command or after it: `esker --lake URL ls sales/main` is `esker ls sales/main --lake URL`.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import typer

from esker.cli.session import Session

P = ParamSpec("P")

PANEL: Final = "On every command"

Json = Annotated[
    bool,
    typer.Option("--json", help="Answer as JSON: one document, or one a line of a listing.", rich_help_panel=PANEL),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Only what was asked for: no notes, no progress.", rich_help_panel=PANEL)
]
_LAKE_HELP: Final = "Open this lake here: file:///data/lake, s3://bucket/prefix, a directory. (ESKER_LAKE)"
_KV_HELP: Final = "Its key-value store, if it does not keep its own: postgresql://..., sqlite:///... (ESKER_KV)"
_ENDPOINT_HELP: Final = (
    "Ask this server instead: http://host:8000. With the key in ESKER_ACCESS_KEY_ID and ESKER_SECRET_ACCESS_KEY, or as "
    "`esker login` keeps it. (ESKER_ENDPOINT)"
)
# `-l` stands only before a command: after `ls` it means "long".
RootLake = Annotated[str | None, typer.Option("--lake", "-l", metavar="URL", help=_LAKE_HELP, rich_help_panel=PANEL)]
_Lake = Annotated[str | None, typer.Option("--lake", metavar="URL", help=_LAKE_HELP, rich_help_panel=PANEL)]
Kv = Annotated[str | None, typer.Option("--kv", metavar="URL", help=_KV_HELP, rich_help_panel=PANEL)]
Endpoint = Annotated[str | None, typer.Option("--endpoint", metavar="URL", help=_ENDPOINT_HELP, rich_help_panel=PANEL)]

_COMMON: Final[dict[str, tuple[Any, object]]] = {
    "lake": (_Lake, None),
    "kv": (Kv, None),
    "endpoint": (Endpoint, None),
    "as_json": (Json, False),
    "quiet": (Quiet, False),
}


def command(
    app: typer.Typer, name: str | None = None, *, panel: str | None = None
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[Concatenate[Session, P], None]]:
    """Make a function a command. Its first argument is the session, its docstring what `--help` says, and what follows
    the first paragraph of that are examples. `panel` is where the program's help lists it."""

    def register(function: Callable[Concatenate[Session, P], None]) -> Callable[Concatenate[Session, P], None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        def run(ctx: typer.Context, **given: Any) -> None:
            before: dict[str, Any] = ctx.find_root().obj or {}
            said: dict[str, Any] = {key: given.pop(key) or before.get(key, _COMMON[key][1]) for key in _COMMON}
            session = Session(**said)
            try:
                function(session, **given)  # type: ignore[call-arg]
            finally:
                session.close()

        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
                *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own),
                *(
                    inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
                    for key, (kind, default) in _COMMON.items()
                ),
            ]
        )
        run.__name__, run.__doc__ = function.__name__, unwrapped(function.__doc__ or "")
        app.command(name, rich_help_panel=panel)(run)
        return function

    return register


def unwrapped(text: str) -> str:
    """With each paragraph in one line, for terminals to wrap; but examples as they are."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(one if one.startswith("\b") else one.replace("\n", " ") for one in paragraphs)
