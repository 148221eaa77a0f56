"""Arguments and options that several commands take, with their help and their completion."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from esker.cli import places
from esker.cli.output import Row
from esker.errors import EskerError, InvalidError, Kind

if TYPE_CHECKING:
    from esker.client import Client

_NAMES_MAX: Final = 200
"""Offered for completion."""


def names(ctx: typer.Context, incomplete: str) -> list[str]:
    """What a place may be going on with: repositories, and then branches and tags, also behind the dots of a diff."""
    scheme = next((one for one in ("esker://", "lakefs://") if incomplete.startswith(one)), "")
    repo, slash, rest = incomplete.removeprefix(scheme).partition("/")
    if "/" in rest:
        return []
    if not slash:
        return _asked(ctx, lambda client: [f"{scheme}{name}" for name in _ids(client, "repositories", prefix=repo)])
    left, dots, right = rest.partition("..")
    if dots and right.startswith("."):
        dots, right = "...", right[1:]
    kept, prefix = (f"{left}{dots}", right) if dots else ("", rest)
    return _asked(ctx, lambda client: [f"{scheme}{repo}/{kept}{name}" for name in _refs(client, repo, prefix)])


def refs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Branches and tags of the repository that the command's first argument names."""
    first = next(one.name for one in ctx.command.params if one.param_type_name == "argument")
    place = str(ctx.params.get(first or "") or "")
    return _asked(ctx, lambda client: _refs(client, places.on_ref(place).repo, incomplete))


def _asked(ctx: typer.Context, ask: Callable[["Client"], list[str]]) -> list[str]:
    """Nothing, if that fails: a shell that waits for a completion has no use for an error."""
    from esker.cli.session import Session

    before = ctx.find_root().params
    lake, kv, endpoint = (ctx.params.get(name) or before.get(name) for name in ("lake", "kv", "endpoint"))
    session = Session(lake=lake, kv=kv, endpoint=endpoint)
    try:
        return ask(session.client)
    except EskerError:
        return []
    finally:
        session.close()


def _refs(client: "Client", repo: str, prefix: str) -> list[str]:
    return [name for kind in ("branches", "tags") for name in _ids(client, "repositories", repo, kind, prefix=prefix)]


def _ids(client: "Client", *path: str, prefix: str) -> list[str]:
    return [one["id"] for one in client.pages(*path, query={"prefix": prefix}, most=_NAMES_MAX)]


Rows = Iterator[Row]

Repo = Annotated[str, typer.Argument(metavar="REPO", help="A repository, by its name.", autocompletion=names)]
BranchPlace = Annotated[
    str, typer.Argument(metavar="REPO/BRANCH", help="A branch of a repository.", autocompletion=names)
]
RefPlace = Annotated[
    str,
    typer.Argument(metavar="REPO/REF", help="A branch, tag, commit id or expression (main~2).", autocompletion=names),
]
ObjectPlace = Annotated[str, typer.Argument(metavar="REPO/REF/PATH", help="An object on a ref.", autocompletion=names)]
Message = Annotated[str, typer.Option("--message", "-m", help="The commit's message.")]
Meta = Annotated[
    list[str] | None, typer.Option("--meta", metavar="KEY=VALUE", help="Metadata to keep with it. Repeatable.")
]
Most = Annotated[int | None, typer.Option("--number", "-n", min=1, help="Show so many at most.")]
Strategy = Annotated[
    str, typer.Option("--strategy", help="Where both sides changed a path: source-wins or dest-wins. Else a conflict.")
]
Parent = Annotated[int, typer.Option("--parent", min=0, help="Of a merge: against which of its parents, from 1.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def metadata(pairs: Sequence[str] | None) -> dict[str, str]:
    """From `key=value`s."""
    found = {}
    for pair in pairs or ():
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise InvalidError(Kind.INVALID_ARGUMENT, f"{pair!r} is no metadata: write --meta key=value")
        found[key] = value
    return found


def strategy_of(name: str) -> str:
    if name not in ("", "source-wins", "dest-wins"):
        raise InvalidError(
            Kind.INVALID_ARGUMENT, f"no merge strategy {name!r}: write source-wins or dest-wins, or leave it out"
        )
    return name
