"""Branches, what is staged on them, tags and stashes."""

from typing import Annotated

import typer

from esker.cli import arguments, places
from esker.cli.app import app
from esker.cli.everywhere import command
from esker.cli.output import counted, moment, size
from esker.cli.session import Session

branches = typer.Typer(name="branch", help="Branches: create, list, look into, delete.", no_args_is_help=True)
tags = typer.Typer(name="tag", help="Tags: names for commits, for good.", no_args_is_help=True)
stashes = typer.Typer(name="stash", help="Set aside what is staged, and lay it on again.", no_args_is_help=True)

for _group in (branches, tags, stashes):
    app.add_typer(_group, rich_help_panel="Repositories and branches")

StashName = Annotated[str, typer.Argument(metavar="NAME", help="A stash.")]


@command(branches, "create")
def create_branch(
    session: Session,
    branch: arguments.BranchPlace,
    source: Annotated[
        str, typer.Option("--from", metavar="REF", help="Where it starts; by default at the default branch.")
    ] = "",
    hidden: Annotated[bool, typer.Option("--hidden", help="Leave it out of listings.")] = False,
) -> None:
    """Create a branch. It costs the same however large the repository is.

    \b
      esker branch create sales/dev
      esker branch create sales/fix --from v1.2
    """
    at = places.whole_ref(branch)
    start = source or session.client.repository(at.repo)["default_branch"]
    commit = session.client.create_branch(at.repo, at.ref, start, hidden=hidden)
    session.output.done({"id": at.ref, "commit_id": commit}, f"created branch {at.ref} at {commit[:12]}")


@command(branches, "list")
def list_branches(
    session: Session,
    repo: arguments.Repo,
    prefix: Annotated[str, typer.Option("--prefix", help="Only names that begin so.")] = "",
    hidden: Annotated[bool, typer.Option("--hidden", help="Hidden ones too.")] = False,
) -> None:
    """List branches, and the commits that they are at.

    \b
      esker branch list sales
    """
    found = session.client.branches(places.repository(repo), prefix=prefix, hidden=hidden)
    session.output.listing(("branch", "commit"), ((one, (one["id"], one["commit_id"])) for one in found))


@command(branches, "show")
def show_branch(session: Session, branch: arguments.BranchPlace) -> None:
    """Show a branch: its commit, and what is staged on it, layer by layer as a reader goes through it.

    \b
      esker branch show sales/main
    """
    at = places.whole_ref(branch)
    found = session.client.branch(at.repo, at.ref)
    staged = session.client.staged(at.repo, at.ref)
    found["layers"] = staged["results"]
    since = found["compacting_since"] = staged.get("compacting_since")
    if session.output.as_json:
        session.output.thing(found, ())
        return
    session.output.thing(
        found,
        [
            ("branch", found["id"]),
            ("commit", found["commit_id"]),
            ("staged", counted(len(found["layers"]), "layer") if found["layers"] else "nothing"),
            *([("compacting since", moment(since))] if since else []),
        ],
    )
    rows = (
        (
            layer,
            (
                layer["level"],
                f"{layer['rows']}{'+' * layer['more']}",
                layer["tombstones"],
                layer["prefix_deletes"],
                layer["files"],
                size(layer["size_bytes"]) if session.output.for_people else layer["size_bytes"],
                moment(layer["creation_date"]),
                layer["id"],
            ),
        )
        for layer in found["layers"]
    )
    session.output.listing(("layer", "rows", "tombstones", "prefixes", "files", "size", "since", "id"), rows)


@command(branches, "delete")
def delete_branch(session: Session, branch: arguments.BranchPlace, yes: arguments.Yes = False) -> None:
    """Delete a branch, and what is staged on it. Its commits stay for whatever else leads to them.

    \b
      esker branch delete sales/dev
    """
    at = places.whole_ref(branch)
    session.client.branch(at.repo, at.ref)
    session.confirm(f"Delete branch {at} and what is staged on it?", yes=yes)
    session.client.delete_branch(at.repo, at.ref)
    session.output.done({"deleted": at.ref}, f"deleted branch {at.ref}")


@command(tags, "create")
def create_tag(
    session: Session,
    tag: Annotated[str, typer.Argument(metavar="REPO/TAG", help="The tag to be.")],
    ref: Annotated[
        str,
        typer.Argument(metavar="REF", help="What it names: a branch, a commit, main~2.", autocompletion=arguments.refs),
    ],
) -> None:
    """Name a commit, for good.

    \b
      esker tag create sales/v1.0 main
    """
    at = places.whole_ref(tag)
    made = session.client.create_tag(at.repo, at.ref, ref)
    session.output.done(made, f"tagged {made['commit_id'][:12]} as {made['id']}")


@command(tags, "list")
def list_tags(
    session: Session,
    repo: arguments.Repo,
    prefix: Annotated[str, typer.Option("--prefix", help="Only names that begin so.")] = "",
) -> None:
    """List tags, and the commits that they name.

    \b
      esker tag list sales
    """
    found = session.client.tags(places.repository(repo), prefix)
    session.output.listing(("tag", "commit"), ((one, (one["id"], one["commit_id"])) for one in found))


@command(tags, "show")
def show_tag(
    session: Session,
    tag: Annotated[
        str, typer.Argument(metavar="REPO/TAG", help="A tag of a repository.", autocompletion=arguments.names)
    ],
) -> None:
    """Show which commit a tag names.

    \b
      esker tag show sales/v1.0
    """
    at = places.whole_ref(tag)
    found = session.client.tag(at.repo, at.ref)
    session.output.thing(found, [("tag", found["id"]), ("commit", found["commit_id"])])


@command(tags, "delete")
def delete_tag(
    session: Session,
    tag: Annotated[
        str, typer.Argument(metavar="REPO/TAG", help="A tag of a repository.", autocompletion=arguments.names)
    ],
    yes: arguments.Yes = False,
) -> None:
    """Delete a tag. Its commit stays.

    \b
      esker tag delete sales/v1.0
    """
    at = places.whole_ref(tag)
    session.client.tag(at.repo, at.ref)
    session.confirm(f"Delete tag {at}?", yes=yes)
    session.client.delete_tag(at.repo, at.ref)
    session.output.done({"deleted": at.ref}, f"deleted tag {at.ref}")


@command(stashes)
def save(session: Session, branch: arguments.BranchPlace, name: StashName) -> None:
    """Set aside all that is staged on a branch, under a name.

    \b
      esker stash save sales/main half-done
    """
    at = places.whole_ref(branch)
    session.client.stash(at.repo, at.ref, name)
    session.output.done({"id": name}, f"set aside what was staged on {at} as {name}")


@command(stashes, "list")
def list_stashes(session: Session, branch: arguments.BranchPlace) -> None:
    """List what was set aside on a branch.

    \b
      esker stash list sales/main
    """
    at = places.whole_ref(branch)
    rows = (
        (one, (one["id"], one["commit_id"], one["layers"], moment(one["creation_date"])))
        for one in session.client.stashes(at.repo, at.ref)
    )
    session.output.listing(("stash", "made at commit", "layers", "since"), rows)


@command(stashes)
def pop(session: Session, branch: arguments.BranchPlace, name: StashName, strategy: arguments.Strategy = "") -> None:
    """Lay a stash on top of what is there, and forget it. After commits since, it is merged.

    \b
      esker stash pop sales/main half-done
    """
    at = places.whole_ref(branch)
    session.client.pop(at.repo, at.ref, name, strategy=arguments.strategy_of(strategy))
    session.output.done({"id": name}, f"laid {name} on {at}")


@command(stashes)
def drop(session: Session, branch: arguments.BranchPlace, name: StashName, yes: arguments.Yes = False) -> None:
    """Forget a stash, and what is in it.

    \b
      esker stash drop sales/main half-done
    """
    at = places.whole_ref(branch)
    session.confirm(f"Forget stash {name} of {at}?", yes=yes)
    session.client.drop_stash(at.repo, at.ref, name)
    session.output.done({"deleted": name}, f"forgot {name}")


@command(app, panel="Repositories and branches")
def compact(
    session: Session,
    branch: arguments.BranchPlace,
    minor: Annotated[bool, typer.Option("--minor", help="Small tables into few; the tree stays.")] = False,
) -> None:
    """Fold what is staged on a branch, so that reading it costs what reading a clean one does.

    It also happens by itself.

    \b
      esker compact sales/main
    """
    at = places.whole_ref(branch)
    folded = session.client.compact(at.repo, at.ref, minor=minor)
    session.output.done({"compacted": folded}, f"folded {at}" if folded else f"nothing to fold on {at}")


@command(app, panel="Repositories and branches")
def reset(
    session: Session,
    place: Annotated[
        str,
        typer.Argument(metavar="REPO/BRANCH[/PATH]", help="A branch, or a path on it.", autocompletion=arguments.names),
    ],
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="All under PATH, as a prefix.")] = False,
    yes: arguments.Yes = False,
) -> None:
    """Drop what is staged: of a whole branch, of one path, or under a prefix.

    \b
      esker reset sales/main
      esker reset sales/main/orders/today.csv
      esker reset -r sales/main/orders/
    """
    at = places.on_ref(place)
    what = f"under {at}" if recursive and at.path else f"at {at}" if at.path else f"on {at}"
    session.confirm(f"Drop what is staged {what}?", yes=yes)
    first = next(session.client.uncommitted(at.repo, at.ref, prefix=at.path, most=1), None)
    was = first and (recursive or not at.path or first["path"] == at.path)
    if not at.path:
        session.client.reset(at.repo, at.ref)
    elif recursive:
        session.client.reset(at.repo, at.ref, prefix=at.path)
    else:
        session.client.reset(at.repo, at.ref, path=at.path)
    session.output.done({"reset": str(at)}, f"{'dropped what' if was else 'nothing'} was staged {what}")


@command(app, panel="Repositories and branches")
def move(
    session: Session,
    branch: arguments.BranchPlace,
    ref: Annotated[
        str,
        typer.Argument(
            metavar="REF", help="Where to: a branch, a tag, a commit, main~2.", autocompletion=arguments.refs
        ),
    ],
    yes: arguments.Yes = False,
) -> None:
    """Point a branch, on which nothing is staged, at any commit: a hard reset.

    \b
      esker move sales/main main~1
    """
    at = places.whole_ref(branch)
    target = session.client.commit_of(at.repo, ref)["id"]
    now = session.client.branch(at.repo, at.ref)["commit_id"]
    session.confirm(f"Point {at} at {target[:12]}? It is at {now[:12]}.", yes=yes)
    session.client.move(at.repo, at.ref, target)
    session.output.done({"id": at.ref, "commit_id": target}, f"{at} is at {target[:12]} now; it was at {now}")
