"""Garbage: what no ref reaches any more; and how much there is of all that one does."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from esker.cli import arguments, places
from esker.cli.app import app
from esker.cli.commands.tasks import follow
from esker.cli.everywhere import command
from esker.cli.output import Cell, moment, size
from esker.cli.session import Session

gc = typer.Typer(name="gc", help="Garbage: what no ref reaches any more.", no_args_is_help=True)
app.add_typer(gc, rich_help_panel="Around a lake")

_BY_PREFIX: Final = ("deleted ", "deleted_bytes ")


@command(gc)
def run(
    session: Session,
    repo: arguments.Repo,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Delete nothing: tell what would be. It counts as a collection.")
    ] = False,
) -> None:
    """Delete the files that no ref has reached for two days: those that two collections, so long apart, found.

    Run it daily. All history is reached, but for what `esker repo retention` lets go of. A large repository is better
    collected by Spark: esker.spark.collect_garbage, to the same result.

    \b
      esker gc run sales --dry-run
      esker gc run sales
    """
    name = places.repository(repo)
    task = session.client.collect_garbage(name, dry_run=dry_run)
    found = follow(session, name, task, "files", lambda progress: sum(progress.values()))
    report = _report(found["summary"])
    session.output.thing({"task": task, **report}, _facts(report))


def _report(summary: dict[str, Any]) -> dict[str, Any]:
    """As it was before it was laid flat."""
    report = {name: value for name, value in summary.items() if " " not in name}
    kinds = [name.removeprefix(_BY_PREFIX[0]) for name in summary if name.startswith(_BY_PREFIX[0])]
    report["dry_run"] = bool(report["dry_run"])
    report["by_prefix"] = {
        kind: {"files": summary[_BY_PREFIX[0] + kind], "bytes": summary[_BY_PREFIX[1] + kind]} for kind in kinds
    }
    return report


def _facts(report: dict[str, Any]) -> Iterator[tuple[str, Cell]]:
    yield "files", f"{report['listed']}, {size(report['listed_bytes'])}"
    yield "not reached", f"{report['dead']}, {size(report['dead_bytes'])}"
    done = "to be deleted" if report["dry_run"] else "deleted"
    yield done, f"{report['deleted']}, {size(report['deleted_bytes'])}"
    for kind, found in report["by_prefix"].items():
        yield f"{done} of {kind}", f"{found['files']}, {size(found['bytes'])}"
    if report.get("next_ms"):
        yield "the next may go", moment(report["next_ms"] // 1000)


@command(app, panel="Around a lake")
def du(
    session: Session,
    at: arguments.RefPlace,
    depth: Annotated[int, typer.Option("--depth", min=0, help="How deep directories are told apart.")] = 1,
    by_commit: Annotated[
        bool, typer.Option("--by-commit", help="What each commit added and removed instead, the newest first.")
    ] = False,
    number: arguments.Most = None,
) -> None:
    """Show how much there is on a ref: objects and bytes by directory, or what each commit changed.

    It reads the lake itself, past any server: name it by --lake.

    \b
      esker --lake file:///data/lake du sales/main
      esker --lake file:///data/lake du sales/main/orders/ --depth 2
      esker --lake file:///data/lake du sales/main --by-commit -n 20
    """
    from esker.engine import repositories, statistics

    place = places.whole_ref(at) if by_commit else places.on_ref(at)
    lake = session.lake
    repo = repositories.get(lake, place.repo)
    if by_commit:
        grown = statistics.by_commit(lake, repo, place.ref, amount=number or 100)
        session.output.listing(
            ("commit", "", "message", "objects", "added", "changed", "removed", "bytes added", "bytes removed"),
            (
                (
                    one,
                    (
                        one.commit[:12],
                        moment(one.date_ms // 1000),
                        one.message.partition("\n")[0],
                        one.objects,
                        one.added,
                        one.changed,
                        one.removed,
                        one.bytes_added,
                        one.bytes_removed,
                    ),
                )
                for one in grown
            ),
        )
        return
    found = statistics.by_prefix(lake, repo, place.ref, prefix=place.path, depth=depth)[:number]
    session.output.listing(
        ("directory", "objects", "bytes", ""),
        ((one, (one.prefix or ".", one.objects, one.bytes, size(one.bytes))) for one in found),
    )
