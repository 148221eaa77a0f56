"""Bytes between files and a lake, and within one."""

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from esker.cli import arguments, places
from esker.cli.app import app
from esker.cli.everywhere import command
from esker.cli.exits import FOUND
from esker.cli.output import counted
from esker.cli.session import Session
from esker.errors import InvalidError, Kind, NotFoundError

_HEADER: Final = re.compile(r"[A-Za-z0-9-]+")

Recursive = Annotated[bool, typer.Option("--recursive", "-r", help="All that is below.")]
Parallel = Annotated[int, typer.Option("--parallel", "-p", min=1, max=64, help="Files at a time.")]


@command(app, panel="Objects")
def upload(
    session: Session,
    source: Annotated[str, typer.Argument(metavar="FILE", help="A file; with -r, a directory.")],
    target: Annotated[
        str,
        typer.Argument(
            metavar="REPO/BRANCH/PATH", help="Where to; / at its end: into there.", autocompletion=arguments.names
        ),
    ],
    recursive: Recursive = False,
    parallel: Parallel = 8,
    meta: arguments.Meta = None,
) -> None:
    """Upload a file, or all files below a directory. Nothing is committed.

    With -r, files that are there already, with equal size and checksum, are left alone: after an interruption, say the
    same again.

    \b
      esker upload may.csv sales/main/orders/
      esker upload -r orders/ sales/main/orders/
    """
    _upload(session, source, target, recursive, parallel, meta)


@command(app, panel="Objects")
def download(
    session: Session,
    source: Annotated[
        str,
        typer.Argument(metavar="REPO/REF/PATH", help="An object; with -r, a prefix.", autocompletion=arguments.names),
    ],
    target: Annotated[str, typer.Argument(metavar="FILE", help="Where to: a file, or a directory.")] = ".",
    recursive: Recursive = False,
    parallel: Parallel = 8,
) -> None:
    """Download an object, or all objects under a prefix.

    With -r, files that are there already, with equal size and checksum, are left alone: after an interruption, say the
    same again.

    \b
      esker download sales/main/orders/may.csv
      esker download -r sales/v1.0/orders/ orders/
    """
    _download(session, source, target, recursive, parallel)


@command(app, panel="Objects")
def cp(
    session: Session,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A file, or esker://repo/ref/path.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A file, or esker://repo/branch/path.")],
    recursive: Recursive = False,
    parallel: Parallel = 8,
) -> None:
    """Copy from or to a lake, or from one ref to a branch of the same repository.

    Here esker:// is needed: it tells what is in the lake from what is on this machine.

    \b
      esker cp may.csv esker://sales/main/orders/
      esker cp -r esker://sales/v1.0/orders/ orders/
      esker cp esker://sales/v1.0/orders/may.csv esker://sales/main/orders/may.csv
    """
    match places.is_remote(source), places.is_remote(target):
        case False, True:
            _upload(session, source, target, recursive, parallel, None)
        case True, False:
            _download(session, source, target, recursive, parallel)
        case True, True:
            _copy(session, source, target, recursive)
        case _:
            raise InvalidError(
                Kind.INVALID_ARGUMENT, "neither is in a lake: write esker://repo/ref/path for what is, or use cp"
            )


def _upload(session: Session, source: str, target: str, recursive: bool, parallel: int, meta: list[str] | None) -> None:
    from esker.cli import transfer

    file, at, metadata = Path(source), places.on_ref(target), _headers(arguments.metadata(meta))
    if not file.exists():
        raise NotFoundError(Kind.OBJECT_NOT_FOUND, f"there is no file {source!r}")
    session.connections = parallel
    if recursive:
        if not file.is_dir():
            raise InvalidError(Kind.INVALID_ARGUMENT, f"{source!r} is no directory: leave -r out")
        session.client.may_upload(at.repo, at.ref, at.path or "-")  # any path: it is the branch that may refuse
        result = transfer.upload(session.client, session.output, file, at, parallel=parallel, metadata=metadata)
        result.tell()
        if result.failed:
            raise typer.Exit(FOUND)
        return
    if file.is_dir():
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{source!r} is a directory: say -r for all that is in it")
    if not at.path or at.path.endswith("/"):
        at = at._replace(path=at.path + file.name)
    session.client.may_upload(at.repo, at.ref, at.path)
    made = transfer.upload_one(session.client, file, at, metadata)
    session.output.done(made, f"uploaded {at}")


def _headers(metadata: dict[str, str]) -> dict[str, str]:
    """As metadata of an object, which travels in headers."""
    for key, value in metadata.items():
        if not _HEADER.fullmatch(key) or not value or not value.isascii() or not value.isprintable():
            raise InvalidError(
                Kind.INVALID_ARGUMENT,
                f"{key}={value} is no metadata of an object: keys are letters, digits and -, values ASCII",
            )
    return metadata


def _download(session: Session, source: str, target: str, recursive: bool, parallel: int) -> None:
    from esker.cli import transfer

    session.connections = parallel
    where = Path(target)
    if recursive:
        at = places.on_ref(source)
        if where.exists() and not where.is_dir():
            raise InvalidError(Kind.INVALID_ARGUMENT, f"{target!r} is a file, and not a directory to download into")
        session.client.commit_of(at.repo, at.ref)
        result = transfer.download(session.client, session.output, at, where, parallel=parallel)
        result.tell()
        if result.failed:
            raise typer.Exit(FOUND)
        return
    at = places.an_object(source)
    if where.is_dir():
        where /= transfer.local_path(at.path.rpartition("/")[2])
    known = session.client.stat(at.repo, at.ref, at.path)
    transfer.download_one(session.client, at, where, known["size_bytes"])
    session.output.done({**known, "file": str(where)}, f"downloaded {where}")


def _copy(session: Session, source: str, target: str, recursive: bool) -> None:
    one, other = places.on_ref(source), places.on_ref(target)
    if one.repo != other.repo:
        raise InvalidError(
            Kind.INVALID_ARGUMENT, "objects are copied within a repository: download them, and upload them there"
        )
    if not recursive:
        one = places.an_object(source)
        path = other.path
        if not path or path.endswith("/"):
            path += one.path.rpartition("/")[2]
        made = session.client.copy(one.repo, one.ref, one.path, other.ref, path)
        session.output.done(made, f"copied to {other._replace(path=path)}")
        return
    count = 0
    begin, end = (f"{path}/" if path and not path.endswith("/") else path for path in (one.path, other.path))
    for found in session.client.objects(one.repo, one.ref, prefix=begin):
        path = end + found["path"].removeprefix(begin)
        session.client.copy(one.repo, one.ref, found["path"], other.ref, path)
        count += 1
    session.output.done({"copied": count}, f"copied {counted(count, 'object')} to {other}")
