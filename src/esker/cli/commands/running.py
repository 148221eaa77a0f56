"""Running a lake: serve it, check it, see what is wrong around it."""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from typer._completion_shared import Shells, get_completion_script

from esker.cli import arguments, places
from esker.cli.app import app
from esker.cli.everywhere import command
from esker.cli.exits import FOUND
from esker.cli.output import counted
from esker.cli.progress import progress
from esker.cli.session import Session


@command(app, panel="Around a lake")
def serve(
    session: Session,
    host: Annotated[str | None, typer.Option("--host", help="Where to listen; 0.0.0.0: everywhere.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="By default 8000.")] = None,
    workers: Annotated[int | None, typer.Option("--workers", help="Processes: processors to spare.")] = None,
    requests: Annotated[int | None, typer.Option("--requests", help="Of a worker, at a time.")] = None,
    secret_key_file: Annotated[
        str | None, typer.Option("--secret-key-file", metavar="FILE", help="Made where it is missing.")
    ] = None,
    source: Annotated[
        list[str] | None, typer.Option("--source", metavar="URL", help="From below which may be imported. Repeatable.")
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option("--target", metavar="URL", help="To below which may be exported. Repeatable.")
    ] = None,
    log_format: Annotated[str | None, typer.Option("--log-format", help="auto, json or text.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings; by default ESKER_CONFIG_FILE's.")
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option("--print-config", help="Print the settings in force, and where each was said; serve nothing."),
    ] = False,
) -> None:
    """Serve a lake over the REST API until told to stop. The first start prints the first user's key, once.

    Every option, and more, may be said in a file (TOML, docs/settings.md) or in the environment (ESKER_PORT, ...): the
    command line comes before the environment, and that before the file.

    \b
      esker serve --lake file:///data/lake
      esker serve --lake s3://bucket/lake --kv postgresql://host/esker --secret-key-file /etc/esker.key --workers 8
      esker serve --config /etc/esker/server.toml --print-config
    """
    from esker.settings import in_force

    remembered = session.settings
    found = in_force(
        file=config,
        given={
            "lake": session.given.get("lake"),
            "kv": session.given.get("kv"),
            "host": host,
            "port": port,
            "workers": workers,
            "requests": requests,
            "secret_key_file": secret_key_file,
            "sources": tuple(source) if source else None,
            "targets": tuple(target) if target else None,
            "log_format": log_format,
        },
        remembered={"lake": remembered.lake or None, "kv": remembered.kv or None},
    )
    settings = found.settings
    if "://" not in settings.lake:
        settings = msgspec.structs.replace(settings, lake=Path(settings.lake).absolute().as_uri())
    if print_config:
        sys.stdout.write(found._replace(settings=settings).as_toml())
        return
    from esker.server.serve import serve as run

    run(settings)


@command(app, panel="Around a lake")
def fsck(
    session: Session,
    repo: arguments.Repo,
    deep: Annotated[bool, typer.Option("--deep", help="Also whether every tree was cut where it should be.")] = False,
    blobs: Annotated[
        bool, typer.Option("--blobs", help="Also whether the bytes of all that branches and tags show are there.")
    ] = False,
) -> None:
    """Check a repository's invariants on what is stored, and say what is wrong and where. Changes nothing.

    Branches may be written to meanwhile. A server does it for admins of the repository.

    \b
      esker fsck sales
      esker --lake s3://bucket/lake --kv postgresql://host/esker fsck sales --deep --blobs
    """
    found = looked = 0

    def rows() -> "arguments.Rows":
        nonlocal found, looked
        with progress(session.output, "things checked") as advance:
            for said in session.client.check(places.repository(repo), deep=deep, blobs=blobs):
                if "looked" in said:
                    advance(said["looked"] - looked, 0)
                    looked = said["looked"]
                else:
                    found += 1
                    yield said, (said["what"], said["where"], said["message"])

    session.output.listing(("what", "where", "why"), rows())
    if found:
        session.output.note(f"wrong: {counted(found, 'thing')}")
        raise typer.Exit(FOUND)
    session.output.note("nothing is wrong")


@command(app, panel="Around a lake")
def doctor(session: Session) -> None:
    """Look at the surroundings: versions, configuration, whether server and stores answer, clocks, permissions.

    For what is wrong, it says the way out.

    \b
      esker doctor
      esker doctor --endpoint http://localhost:8000
    """
    from esker.cli import examining

    bad = 0

    def rows() -> "arguments.Rows":
        nonlocal bad
        for one in examining.examine(session):
            bad += one.state == examining.BAD
            yield one, (one.state, one.what, one.message)

    session.output.listing(("", "what", ""), rows())
    if bad:
        raise typer.Exit(FOUND)


@command(app, panel="Around a lake")
def completion(session: Session, shell: Annotated[Shells, typer.Argument(help="For which shell.")]) -> None:
    """Print what has a shell complete commands, repositories, branches and tags. --install-completion also installs it.

    \b
      esker completion bash >> ~/.bashrc
      esker completion fish > ~/.config/fish/completions/esker.fish
    """
    script = get_completion_script(prog_name="esker", complete_var="_ESKER_COMPLETE", shell=shell.value)
    session.output.lines({"shell": shell.value, "script": script}, (script,))


@command(app, panel="Around a lake")
def version(session: Session) -> None:
    """Print the version; with a server named, the server's too.

    \b
      esker version
    """
    from importlib.metadata import version as installed

    found = {"esker": installed("esker")}
    if session.settings.endpoint:
        said = session.client.config()["version_config"]
        found |= {"server": said["version_context"], "interface": said["version"]}
    session.output.thing(found, found.items())
