"""What comes to a lake by other ways: imports of what lies elsewhere, and jobs."""

from pathlib import Path
from typing import Annotated

import typer

from esker.cli import arguments, places
from esker.cli.app import app
from esker.cli.commands.tasks import follow
from esker.cli.everywhere import command
from esker.cli.output import counted, moment, size
from esker.cli.session import Session
from esker.errors import InvalidError, Kind

jobs = typer.Typer(name="jobs", help="Jobs: many files, published in one commit.", no_args_is_help=True)
app.add_typer(jobs, rich_help_panel="Objects")


@command(app, "import", panel="Objects")
def import_(
    session: Session,
    source: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="A directory of a store, or with --object one object: s3://..., file:///..."
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="REPO/BRANCH[/PATH]", help="In whose place; what was there goes.", autocompletion=arguments.names
        ),
    ],
    message: arguments.Message = "",
    meta: arguments.Meta = None,
    one: Annotated[bool, typer.Option("--object", help="URL is one object, and not a directory.")] = False,
    inventory: Annotated[
        str,
        typer.Option(
            "--inventory", metavar="URL", help="A list of what lies there: Parquet, ORC, CSV, or S3's manifest.json."
        ),
    ] = "",
) -> None:
    """Take in objects that lie elsewhere, without their bytes, in a commit of its own.

    They are put in the place of all that was below the path; an import that fails changes nothing. A server takes them
    from where its ESKER_SOURCES allows.

    \b
      esker import s3://landing/orders/ sales/main/orders/ -m "orders as they landed"
      esker import s3://landing/ sales/main/ --inventory s3://landing/inventory/manifest.json
    """
    at = places.on_ref(target)
    url = source if "://" in source else Path(source).absolute().as_uri()
    if one and not at.path:
        raise InvalidError(Kind.INVALID_ARGUMENT, "an object needs a path to be imported to: repo/branch/path")
    location = {"type": "object" if one else "common_prefix", "path": url, "destination": at.path}
    if inventory:
        location["inventory"] = inventory if "://" in inventory else Path(inventory).absolute().as_uri()
    session.sources = (url, *([location["inventory"]] if inventory else []))
    text = message or f"Import {url}"
    name = session.client.start_import(at.repo, at.ref, [location], text, arguments.metadata(meta))
    follow(session, at.repo, name, "objects", _objects)
    found = session.client.import_status(at.repo, at.ref, name)
    made = found["commit"]["id"]
    session.output.done(found, f"imported {counted(found['ingested_objects'], 'object')} to {at}: {made[:12]}")


@command(app, "export", panel="Objects")
def export(
    session: Session,
    source: Annotated[
        str,
        typer.Argument(metavar="REPO/REF[/PREFIX]", help="What is committed there.", autocompletion=arguments.names),
    ],
    target: Annotated[str, typer.Argument(metavar="URL", help="A directory of a store: s3://..., file:///...")],
    since: Annotated[
        str,
        typer.Option("--since", metavar="REF", help="Only what changed after it; what was removed is deleted there."),
    ] = "",
) -> None:
    """Copy the objects of a ref, under their paths, to a plain place: for those who have no lake.

    When all is there, so is _esker_export/_SUCCESS, a manifest. After a failure, or to be sure, do it again: only what
    is missing is copied. A server exports to where its ESKER_TARGETS allows.

    \b
      esker export sales/v1.2 s3://partner/sales/
      esker export sales/v1.3 s3://partner/sales/ --since v1.2
    """
    at = places.on_ref(source)
    url = target if "://" in target else Path(target).absolute().as_uri()
    session.targets = (url,)
    name = session.client.start_export(at.repo, at.ref, url, since=since, prefix=at.path)
    found = follow(session, at.repo, name, "objects", _objects)
    told = found["summary"]
    session.output.done(
        told,
        f"exported {counted(told['objects'], 'object')}, {size(told['bytes'])}, to {url}: {told['copied']} copied, "
        f"{told['deleted']} deleted",
    )


def _objects(progress: dict[str, int]) -> int:
    return progress.get("objects", 0)


@command(jobs, "list")
def list_jobs(session: Session, repo: arguments.Repo) -> None:
    """List jobs that are known.

    \b
      esker jobs list sales
    """
    rows = (
        (
            one,
            (
                one["id"],
                one["state"],
                one["branch"],
                moment(one["started_ms"] // 1000),
                moment(one["seen_ms"] // 1000),
                one.get("reference") or "",
            ),
        )
        for one in session.client.jobs(places.repository(repo))
    )
    session.output.listing(("job", "state", "branch", "started", "seen", "commit"), rows)


@command(jobs)
def abort(
    session: Session,
    repo: arguments.Repo,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Its id.")],
    yes: arguments.Yes = False,
) -> None:
    """End a job without a trace on its branch. One that was published already stays so.

    \b
      esker jobs abort sales 3f2a91c0
    """
    name = places.repository(repo)
    session.confirm(f"Abort job {job}?", yes=yes)
    found = session.client.abort_job(name, job)
    session.output.done(found, f"job {job} is {found['state']}")
