"""Merge, revert, cherry-pick: changes of other commits, brought to a branch in one of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from esker.cli import arguments, places
from esker.cli.app import app
from esker.cli.commands.history import change_rows
from esker.cli.everywhere import command
from esker.cli.exits import CODES
from esker.cli.output import counted
from esker.cli.session import Session
from esker.errors import ConflictError, InvalidError, Kind

Onto = Annotated[
    str, typer.Argument(metavar="REF", help="The commit: its id, a tag, main~2.", autocompletion=arguments.refs)
]


@command(app, panel="History")
def merge(
    session: Session,
    source: Annotated[
        str, typer.Argument(metavar="REPO/SOURCE", help="What to bring: a ref.", autocompletion=arguments.names)
    ],
    branch: Annotated[str, typer.Argument(metavar="BRANCH", help="Where to.", autocompletion=arguments.refs)],
    message: arguments.Message = "",
    meta: arguments.Meta = None,
    strategy: arguments.Strategy = "",
    squash: Annotated[bool, typer.Option("--squash", help="As a commit with one parent.")] = False,
    allow_empty: Annotated[bool, typer.Option("--allow-empty", help="Even if there is nothing to bring.")] = False,
    expected_head: Annotated[
        str, typer.Option("--expected-head", metavar="COMMIT", help="Only if the branch is at this commit.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Merge nothing: show what it would bring, and what is in conflict.")
    ] = False,
    most: arguments.Most = None,
) -> None:
    """Bring what a ref has changed into a branch. What both changed differently is in conflict, and shown.

    \b
      esker merge sales/dev main --dry-run
      esker merge sales/dev main -m "may is complete"
      esker merge sales/dev main --strategy source-wins
    """
    at = places.whole_ref(source)
    arguments.strategy_of(strategy)
    target = places.whole_ref(branch).ref if "/" in branch else branch
    if dry_run:
        _try(session, at, target, strategy, most)
        return
    head = session.client.commit_of(at.repo, expected_head)["id"] if expected_head else ""
    try:
        made = session.client.merge(
            at.repo,
            at.ref,
            target,
            message=message,
            metadata=arguments.metadata(meta),
            strategy=strategy,
            squash=squash,
            allow_empty=allow_empty,
            expected_head=head,
        )
    except ConflictError as error:
        if error.kind is Kind.MERGE_CONFLICT:
            rows: list[tuple[Any, tuple[str, str]]] = [
                ({"type": "conflict", "path": path, "path_type": "object"}, ("!", path)) for path in error.paths
            ]
            session.output.listing(("", "in conflict"), rows)
        raise
    session.output.done({"reference": made}, f"merged {at.ref} into {target} of {at.repo}: {made[:12]}")


def _try(session: Session, at: places.Place, branch: str, strategy: str, most: int | None) -> None:
    """Ends with the code of a conflict if there is one that no strategy decides."""
    found = conflicts = 0

    def rows() -> Any:
        nonlocal found, conflicts
        for one in session.client.diff(at.repo, branch, at.ref, three_dot=True, most=most):
            found += 1
            conflicts += one["type"] == "conflict"
            yield one

    session.output.listing(("", "path", "size"), change_rows(session, rows()))
    if not found:
        session.output.note(f"nothing to bring: {branch} has all of {at.ref}")
    told = f"{counted(conflicts, 'path')} in conflict"
    if conflicts and not strategy:
        session.output.note(f"{told}: change one side, or choose a --strategy")
        raise typer.Exit(CODES[ConflictError])
    if conflicts:
        session.output.note(f"{told}: decided by {strategy}")


@command(app, panel="History")
def revert(
    session: Session,
    branch: arguments.BranchPlace,
    ref: Onto,
    message: arguments.Message = "",
    parent: arguments.Parent = 0,
    allow_empty: Annotated[bool, typer.Option("--allow-empty", help="Even if nothing of it is left.")] = False,
) -> None:
    """Undo on a branch what a commit changed, in a commit of its own.

    \b
      esker revert sales/main main~1
      esker revert sales/main 3f2a91c0 --parent 1
    """
    at = places.whole_ref(branch)
    with _parent_named():
        session.client.revert(at.repo, at.ref, ref, parent=parent, message=message, allow_empty=allow_empty)
    made = session.client.commit_of(at.repo, at.ref)
    session.output.done(made, f"reverted {ref} on {at}: {made['id'][:12]}")


@command(app, "cherry-pick", panel="History")
def cherry_pick(
    session: Session,
    branch: arguments.BranchPlace,
    ref: Onto,
    message: arguments.Message = "",
    parent: arguments.Parent = 0,
) -> None:
    """Make on a branch the change that a commit made elsewhere.

    \b
      esker cherry-pick sales/main dev~2
    """
    at = places.whole_ref(branch)
    with _parent_named():
        made = session.client.cherry_pick(at.repo, at.ref, ref, parent=parent, message=message)
    session.output.done(made, f"picked {ref} onto {at}: {made['id'][:12]}")


@contextmanager
def _parent_named() -> Iterator[None]:
    """Of a merge, the way out is an option."""
    try:
        yield
    except (ConflictError, InvalidError) as error:
        if error.kind is not Kind.NEEDS_PARENT:
            raise
        told = f"{error.message} (--parent 1 is the branch that it was made on)"
        raise InvalidError(error.kind, told) from None
