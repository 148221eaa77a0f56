"""Commits: make one, look at one, at how they follow each other, and at what changed between them."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

import typer

from esker.cli import arguments, graph, places
from esker.cli.app import app
from esker.cli.everywhere import command
from esker.cli.output import moment, shown, size
from esker.cli.session import Session
from esker.errors import InvalidError, Kind

SIGNS: Final = {"added": "+", "removed": "-", "changed": "~", "prefix_changed": "~", "conflict": "!"}

_ID_SHOWN: Final = 12


@command(app, panel="History")
def commit(
    session: Session,
    branch: arguments.BranchPlace,
    message: arguments.Message = "",
    meta: arguments.Meta = None,
    allow_empty: Annotated[bool, typer.Option("--allow-empty", help="Even if nothing is staged.")] = False,
) -> None:
    """Commit all that is staged on a branch.

    \b
      esker commit sales/main -m "orders of may" --meta source=shop
    """
    at = places.whole_ref(branch)
    if not message:
        raise InvalidError(Kind.INVALID_ARGUMENT, "a commit needs a message: -m 'what was done, and why'")
    made = session.client.commit(at.repo, at.ref, message, metadata=arguments.metadata(meta), allow_empty=allow_empty)
    session.output.done(made, f"committed {made['id'][:_ID_SHOWN]} on {at}")


@command(app, panel="History")
def log(
    session: Session,
    ref: arguments.RefPlace,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]...", help="Only commits that changed one; with / at its end, anything under it."
        ),
    ] = None,
    most: arguments.Most = None,
    first_parent: Annotated[
        bool, typer.Option("--first-parent", help="Of merges, follow the branch they were made on.")
    ] = False,
    draw: Annotated[bool, typer.Option("--graph", help="Draw which commits descend from which.")] = False,
    metadata: Annotated[
        bool,
        typer.Option(
            "--metadata", help="Also what is kept with each: of a Spark job, its application, user, query, rows, files."
        ),
    ] = False,
) -> None:
    """Show the commits that a ref descends from, newest first.

    \b
      esker log sales/main
      esker log sales/main --metadata -n 1
      esker log sales/main --graph -n 20
      esker log sales/main orders/ customers.csv
    """
    at = places.whole_ref(ref)
    if draw and paths:
        raise InvalidError(Kind.INVALID_ARGUMENT, "--graph draws all commits: leave the paths out")
    found = session.client.log(
        at.repo,
        at.ref,
        most=most,
        first_parent=first_parent,
        objects=[path for path in paths or () if not path.endswith("/")],
        prefixes=[path for path in paths or () if path.endswith("/")],
    )
    if draw and not session.output.as_json:
        parents = (lambda one: one["parents"][:1]) if first_parent else (lambda one: one["parents"])
        session.output.lines(None, graph.drawn(found, parents, _line))
        return
    rows = (
        (
            one,
            (
                one["id"][:_ID_SHOWN] if session.output.for_people else one["id"],
                *_about(one),
                *([", ".join(f"{key}={value}" for key, value in one["metadata"].items())] if metadata else []),
            ),
        )
        for one in found
    )
    headings = ("commit", "date", "committer", "message", *(["metadata"] if metadata else []))
    session.output.listing(headings, rows)


@command(app, panel="History")
def show(session: Session, ref: arguments.RefPlace, most: arguments.Most = None) -> None:
    """Show a commit, and what it changed against its first parent.

    \b
      esker show sales/main
      esker show sales/v1.0 -n 100
    """
    at = places.whole_ref(ref)
    found = session.client.commit_of(at.repo, at.ref)
    parents = found["parents"]
    changes = session.client.diff(at.repo, parents[0], found["id"], most=most) if parents else iter(())
    if session.output.as_json:
        session.output.thing({**found, "changes": list(changes)}, ())
        return
    session.output.thing(
        found,
        [
            ("commit", found["id"]),
            *(("parent", parent) for parent in parents),
            ("date", moment(found["creation_date"])),
            ("committer", found["committer"]),
            ("message", found["message"]),
            *sorted(found["metadata"].items()),
        ],
    )
    _changes(session, changes)


@command(app, panel="History")
def diff(
    session: Session,
    what: Annotated[
        str,
        typer.Argument(
            metavar="REPO/WHAT[/PREFIX]",
            help="BRANCH: what is staged there. LEFT..RIGHT: from one ref to another. LEFT...RIGHT: what merging RIGHT "
            "into LEFT would bring.",
            autocompletion=arguments.names,
        ),
    ],
    recursive: Annotated[
        bool, typer.Option("--recursive/--directories", "-r/-d", help="Every path, or only what it is in.")
    ] = True,
    most: arguments.Most = None,
) -> None:
    """Show what changed: + added, - removed, ~ changed, ! in conflict.

    \b
      esker diff sales/main                   what is staged
      esker diff sales/main/orders/           the same, under a prefix
      esker diff sales/v1.0..main             from a tag to a branch
      esker diff sales/main...dev             what merging dev into main would bring
    """
    at = places.on_ref(what)
    delimiter = "" if recursive else "/"
    left, dots, right = at.ref.partition("..")
    if not dots:
        found = session.client.uncommitted(at.repo, at.ref, prefix=at.path, delimiter=delimiter, most=most)
    else:
        three = right.startswith(".")
        right = right.removeprefix(".")
        if not left or not right:
            raise InvalidError(
                Kind.INVALID_ARGUMENT, f"{what!r} names no two refs: write repo/left..right or repo/left...right"
            )
        found = session.client.diff(
            at.repo, left, right, three_dot=three, prefix=at.path, delimiter=delimiter, most=most
        )
    _changes(session, found)


def _changes(session: Session, changes: Iterable[dict[str, Any]]) -> None:
    session.output.listing(("", "path", "size"), change_rows(session, changes))


def change_rows(session: Session, changes: Iterable[dict[str, Any]]) -> Iterator[tuple[object, tuple[str, str, str]]]:
    """Of a listing of changes."""
    for one in changes:
        count = one.get("size_bytes")
        text = "" if count is None else size(count) if session.output.for_people else str(count)
        yield one, (SIGNS[one["type"]], one["path"], text)


def _about(one: dict[str, Any]) -> tuple[str, str, str]:
    return moment(one["creation_date"]), one["committer"], one["message"]


def _line(one: dict[str, Any]) -> str:
    return "  ".join(shown(text) for text in (one["id"][:_ID_SHOWN], *_about(one)) if text)
