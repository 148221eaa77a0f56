"""Objects: list them, look at them, read them, delete them."""

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from esker.cli import arguments, places
from esker.cli.app import app
from esker.cli.everywhere import command
from esker.cli.output import Row, moment, size
from esker.cli.session import Session
from esker.errors import InvalidError, Kind


@command(app, panel="Objects")
def ls(
    session: Session,
    place: Annotated[
        str,
        typer.Argument(metavar="REPO/REF[/PREFIX]", help="A ref, or a prefix on it.", autocompletion=arguments.names),
    ],
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="All there is, not only the next level.")
    ] = False,
    long: Annotated[bool, typer.Option("--long", "-l", help="With size, time, checksum and type.")] = False,
    after: Annotated[str, typer.Option("--after", metavar="PATH", help="Begin after this path.")] = "",
    most: arguments.Most = None,
) -> None:
    """List objects, in order of their paths. What is below a / is one line that ends in /.

    \b
      esker ls sales/main/
      esker ls -l sales/v1.0/orders/2024
      esker ls -r sales/main/ --json | jq -r .path
    """
    at = places.on_ref(place)
    found = session.client.objects(
        at.repo, at.ref, prefix=at.path, delimiter="" if recursive else "/", after=after, most=most
    )
    if long:
        headings = ("size", "modified", "checksum", "type", "path")
        session.output.listing(headings, (_long(session, one) for one in found))
    else:
        session.output.listing(("path",), ((one, (one["path"],)) for one in found))


def _long(session: Session, one: dict[str, Any]) -> Row:
    if one["path_type"] == "common_prefix":
        return one, ("", "", "", "", one["path"])
    count = one["size_bytes"]
    return one, (
        size(count) if session.output.for_people else str(count),
        moment(one["mtime"]),
        one["checksum"],
        one.get("content_type", ""),
        one["path"],
    )


@command(app, panel="Objects")
def stat(session: Session, place: arguments.ObjectPlace) -> None:
    """Show what is known of an object.

    \b
      esker stat sales/main/orders/2024.csv
    """
    at = places.an_object(place)
    found = session.client.stat(at.repo, at.ref, at.path)
    facts = [
        ("path", found["path"]),
        ("size", found["size_bytes"]),
        ("modified", moment(found["mtime"])),
        ("checksum", found["checksum"]),
        ("type", found.get("content_type", "")),
        ("address", found["physical_address"]),
        *sorted((found.get("metadata") or {}).items()),
    ]
    session.output.thing(found, facts)


@command(app, panel="Objects")
def cat(
    session: Session,
    place: arguments.ObjectPlace,
    byte_range: Annotated[
        str, typer.Option("--range", metavar="FIRST-LAST", help="Only these bytes: 0-99, 100- or, the last, -100.")
    ] = "",
) -> None:
    """Write an object's bytes to standard output.

    \b
      esker cat sales/main/orders/2024.csv | head
      esker cat sales/main/orders/2024.parquet --range -8
    """
    at = places.an_object(place)
    if byte_range and not all(part.isdecimal() or not part for part in byte_range.split("-", 1)):
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{byte_range!r} is no range of bytes: write 0-99, 100- or -100")
    answer = session.client.read(at.repo, at.ref, at.path, byte_range=byte_range)
    try:
        for chunk in answer.chunks:
            sys.stdout.buffer.write(chunk)
    finally:
        answer.close()


@command(app, panel="Objects")
def presign(session: Session, place: arguments.ObjectPlace) -> None:
    """Print a URL by which whoever has it may read an object for a while, without a key.

    \b
      curl -o orders.csv "$(esker presign sales/main/orders/2024.csv)"
    """
    at = places.an_object(place)
    found = session.client.stat(at.repo, at.ref, at.path, presign=True)
    url = found["physical_address"]
    if url.startswith(session.client.transport.base) and not session.settings.endpoint:
        raise InvalidError(
            Kind.INVALID_ARGUMENT,
            f"the store of {at.repo} signs no URLs, and no server runs here that would: ask one, by --endpoint",
        )
    if session.output.as_json:
        session.output.thing(found, ())
    else:
        sys.stdout.write(f"{url}\n")


@command(app, panel="Objects")
def rm(
    session: Session,
    place: Annotated[
        str, typer.Argument(metavar="REPO/BRANCH/PATH", help="An object, or a prefix.", autocompletion=arguments.names)
    ],
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="All under the prefix, however much: it costs the same.")
    ] = False,
    yes: arguments.Yes = False,
) -> None:
    """Delete an object, or all under a prefix. Commits that have it keep it.

    \b
      esker rm sales/main/orders/2023.csv
      esker rm -r sales/main/orders/2023/
    """
    if not recursive:
        at = places.an_object(place)
        session.client.stat(at.repo, at.ref, at.path)
        session.client.delete(at.repo, at.ref, at.path)
        session.output.done({"deleted": at.path}, f"deleted {at}")
        return
    at = places.on_ref(place)
    first = next(_under(session, at), None)
    if first is None:
        session.output.done({"deleted": None}, f"there is nothing under {at}")
        return
    session.confirm(f"Delete all under {at}, which begins with {first}?", yes=yes)
    session.client.delete_prefix(at.repo, at.ref, at.path)
    session.output.done({"deleted": at.path}, f"deleted all under {at}")


def _under(session: Session, at: places.Place) -> Iterator[str]:
    for one in session.client.objects(at.repo, at.ref, prefix=at.path, most=1):
        yield one["path"]
