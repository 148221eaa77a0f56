"""Repositories and their rules."""

from typing import Annotated, Any

import typer

from esker.cli import arguments, places
from esker.cli.app import app
from esker.cli.everywhere import command
from esker.cli.output import moment
from esker.cli.session import Session
from esker.errors import InvalidError, Kind

repos = typer.Typer(name="repo", help="Repositories: create, list, look at, protect, delete.", no_args_is_help=True)
app.add_typer(repos, rich_help_panel="Repositories and branches")


@command(repos)
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="REPO", help="3 to 63 of a-z, 0-9 and -.")],
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="URL", help="Where its data lies; by default below the lake's own.")
    ] = "",
    default_branch: Annotated[str, typer.Option("--default-branch", help="Its first branch.")] = "main",
    meta: arguments.Meta = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse all changes.")] = False,
) -> None:
    """Create a repository, with one branch of one empty commit.

    \b
      esker --lake file:///data/lake repo create sales
      esker repo create logs --namespace s3://bucket/logs --default-branch trunk
    """
    session.creates = True
    made = session.client.create_repository(
        places.repository(name),
        namespace=namespace,
        default_branch=default_branch,
        metadata=arguments.metadata(meta),
        read_only=read_only,
    )
    session.output.done(made, f"created repository {made['id']}, its data at {made['storage_namespace']}")


@command(repos, "list")
def list_(
    session: Session,
    prefix: Annotated[str, typer.Option("--prefix", help="Only names that begin so.")] = "",
) -> None:
    """List repositories.

    \b
      esker repo list
      esker repo list --json | jq -r .id
    """
    rows = (
        (one, (one["id"], one["default_branch"], moment(one["creation_date"]), one["storage_namespace"]))
        for one in session.client.repositories(prefix)
    )
    session.output.listing(("repository", "default branch", "created", "data"), rows)


@command(repos)
def show(session: Session, repo: arguments.Repo) -> None:
    """Show a repository: where its data lies, its metadata, its rules.

    \b
      esker repo show sales
    """
    name = places.repository(repo)
    found = session.client.repository(name)
    found["metadata"] = session.client.repository_metadata(name)
    found["protected_branches"] = session.client.protected(name)
    found["retention"] = session.client.retention(name)
    facts = [
        ("repository", found["id"]),
        ("data", found["storage_namespace"]),
        ("default branch", found["default_branch"]),
        ("created", moment(found["creation_date"])),
        ("read-only", "yes" if found["read_only"] else "no"),
        ("protected branches", ", ".join(found["protected_branches"]) or "none"),
        *((f"retention of {what}", days) for what, days in _kept(found["retention"])),
        *(sorted(found["metadata"].items())),
    ]
    session.output.thing(found, facts)


@command(repos)
def delete(
    session: Session,
    repo: arguments.Repo,
    yes: arguments.Yes = False,
    force: Annotated[bool, typer.Option("--force", help="Even if it is read-only.")] = False,
) -> None:
    """Delete a repository. Its objects stay in the store, and nothing names them any more.

    \b
      esker repo delete sales
    """
    name = places.repository(repo)
    session.client.repository(name)
    session.confirm(f"Delete repository {name} with all of its branches, tags and history?", yes=yes)
    session.client.delete_repository(name, force=force)
    session.output.done({"deleted": name}, f"deleted repository {name}")


@command(repos)
def protect(
    session: Session,
    repo: arguments.Repo,
    patterns: Annotated[
        list[str] | None, typer.Argument(metavar="[PATTERN]...", help="Branches, * for anything. None: show them.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Protect none.")] = False,
) -> None:
    """Show which branches are protected, or say it anew: they change by merges alone.

    \b
      esker repo protect sales main 'release-*'
      esker repo protect sales --clear
    """
    name = places.repository(repo)
    if clear and patterns:
        raise InvalidError(Kind.INVALID_ARGUMENT, "protect these branches, or --clear: not both")
    if clear or patterns:
        session.client.protect(name, patterns or ())
    found = session.client.protected(name)
    session.output.listing(("pattern",), (({"pattern": pattern}, (pattern,)) for pattern in found))
    if not found:
        session.output.note(f"no branch of {name} is protected")


@command(repos)
def retention(
    session: Session,
    repo: arguments.Repo,
    days: Annotated[int | None, typer.Option("--days", min=0, help="How long deleted objects are kept.")] = None,
    branch: Annotated[
        list[str] | None, typer.Option("--branch", metavar="BRANCH=DAYS", help="The same for a branch. Repeatable.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Keep everything.")] = False,
) -> None:
    """Show how long what was committed and then deleted is kept, or say it anew.

    \b
      esker repo retention sales --days 30 --branch main=90
    """
    name = places.repository(repo)
    if clear:
        session.client.delete_retention(name)
    elif days is not None:
        session.client.set_retention(name, days, dict(map(_branch_days, branch or ())))
    elif branch:
        raise InvalidError(Kind.INVALID_ARGUMENT, "say --days too: how long it is on all other branches")
    found = session.client.retention(name)
    session.output.thing(found, _kept(found))


def _kept(rules: dict[str, Any] | None) -> list[tuple[str, str]]:
    """For how long, by branch."""
    if rules is None:
        return [("all branches", "everything is kept")]
    branches = [(rule["branch_id"], f"{rule['retention_days']} days") for rule in rules["branches"]]
    return [("all branches", f"{rules['default_retention_days']} days"), *branches]


def _branch_days(pair: str) -> tuple[str, int]:
    name, _, days = pair.partition("=")
    if not name or not days.isdecimal():
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{pair!r} says no retention: write --branch main=90")
    return name, int(days)
