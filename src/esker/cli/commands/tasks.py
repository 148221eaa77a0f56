"""Long work on a repository: what runs, what came of it, and to stop it."""

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from esker.cli import arguments, places
from esker.cli.app import app
from esker.cli.everywhere import command
from esker.cli.output import lasted, moment, size
from esker.cli.progress import progress
from esker.cli.session import Session
from esker.errors import EskerError
from esker.world import REAL

tasks = typer.Typer(name="task", help="Long work: imports, exports, garbage collections.", no_args_is_help=True)
app.add_typer(tasks, rich_help_panel="Around a lake")

_POLL_S: Final = 0.2

Task = Annotated[str, typer.Argument(metavar="TASK", help="Its id.")]


@command(tasks, "list")
def list_tasks(session: Session, repo: arguments.Repo) -> None:
    """List long work on a repository, the newest first: what runs, and what is over.

    \b
      esker task list sales
    """
    found = sorted(session.client.tasks(places.repository(repo)), key=lambda one: -int(one["started_ms"]))
    rows = (
        (
            one,
            (
                one["id"],
                one["kind"],
                one["about"],
                _state(one),
                _done(one),
                moment(one["started_ms"] // 1000),
                _lasted(one),
                one.get("error") or "",
            ),
        )
        for one in found
    )
    session.output.listing(("task", "kind", "", "state", "done", "started", "took", "error"), rows)


@command(tasks)
def show(session: Session, repo: arguments.Repo, task: Task) -> None:
    """Show how far a task is, and what came of it.

    \b
      esker task show sales 3f2a91c05be1
    """
    found = session.client.task(places.repository(repo), task)
    facts = (
        ("task", found["id"]),
        ("kind", found["kind"]),
        ("about", found["about"]),
        ("state", _state(found)),
        ("started", moment(found["started_ms"] // 1000)),
        ("took", _lasted(found)),
        ("last seen", "" if found["state"] == "done" else moment(found["seen_ms"] // 1000)),
        ("done", _done(found)),
        ("error", found.get("error") or ""),
        *(_fact(name, value) for name, value in found["summary"].items()),
    )
    session.output.thing(found, (fact for fact in facts if fact[1]))


@command(tasks)
def cancel(session: Session, repo: arguments.Repo, task: Task) -> None:
    """Have a task stop, which it does when it next looks. What it did already stays.

    \b
      esker task cancel sales 3f2a91c05be1
    """
    found = session.client.cancel_task(places.repository(repo), task)
    session.output.done(found, f"task {task} was told to stop")


def follow(session: Session, repo: str, task: str, what: str, count: Callable[[dict[str, int]], int]) -> dict[str, Any]:
    """Wait for a task, with a line that shows how much of `what` is done: its document. Who interrupts it stops it."""
    seen = 0
    try:
        with progress(session.output, what) as advance:
            while True:
                found = session.client.task(repo, task)
                now = count(found["progress"])
                advance(now - seen, 0)
                seen = now
                if found["state"] != "running":
                    break
                REAL.sleep(_POLL_S)
    except KeyboardInterrupt:
        session.client.cancel_task(repo, task)
        raise
    if found["state"] != "done":
        raise _failure(found)
    return found


def _failure(task: dict[str, Any]) -> EskerError:
    """As if the request that began it had failed so. What an older server tells no status of is taken for the caller's
    to mend."""
    from esker.client.failures import error_of

    how = "was cancelled" if task["state"] == "cancelled" else f"failed: {task['error']}"
    said = {"kind": task.get("error_kind"), "message": f"task {task['id']} {how}"}
    return error_of(task.get("error_status") or 400, said, reads=False)


def _state(task: dict[str, Any]) -> str:
    return "stopping" if task["cancelled"] and task["state"] == "running" else str(task["state"])


def _done(task: dict[str, Any]) -> str:
    """`objects 12, bytes 3.4 KiB`."""
    return ", ".join(" ".join(_fact(name, count)) for name, count in task["progress"].items())


def _lasted(task: dict[str, Any]) -> str:
    """Until it ended or was last seen, or until now."""
    until_ms = REAL.now_ms() if task["state"] == "running" else task["seen_ms"]
    return lasted(max(0, until_ms - task["started_ms"]))  # clocks differ


def _fact(name: str, value: int | str) -> tuple[str, str]:
    """What a number counts is in its name."""
    if isinstance(value, int) and "bytes" in name:
        text = size(value)
    elif isinstance(value, int) and name.endswith("_ms"):
        text = moment(value // 1000)
    elif name == "dry_run":
        text = "yes" if value else "no"
    else:
        text = str(value)
    return name.removesuffix("_ms").replace("_", " "), text
