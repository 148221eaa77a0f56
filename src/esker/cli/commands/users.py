"""Who asks and where: the configuration, logging in, users."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from esker.cli import arguments
from esker.cli.app import app
from esker.cli.everywhere import command
from esker.cli.output import moment
from esker.cli.session import Session
from esker.errors import InvalidError, Kind
from esker.settings import WHO, ClientSettings, client_file, read_client_file
from esker.settings_file import VERSION

config = typer.Typer(name="config", help="What `esker` remembers of where your lake is.", no_args_is_help=True)
group = typer.Typer(name="user", help="Users of a server: their roles and keys.", no_args_is_help=True)
keys = typer.Typer(name="key", help="A user's access keys.", no_args_is_help=True)
app.add_typer(config, rich_help_panel="Around a lake")
app.add_typer(group, rich_help_panel="Around a lake")
group.add_typer(keys)

_SECRET: Final = ("secret_access_key", "token")
_SETTINGS: Final = ClientSettings.__struct_fields__

Name = Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(_SETTINGS)}.")]
User = Annotated[str, typer.Argument(metavar="USER", help="A user's name.")]


@command(app, panel="Around a lake")
def login(
    session: Session,
    url: Annotated[str, typer.Argument(metavar="URL", help="Of a server: http://host:8000.")] = "",
    short: Annotated[
        bool, typer.Option("--session", help="Keep a session's token that ends by itself, and not the key.")
    ] = False,
) -> None:
    """Try an access key at a server, and remember both for all commands to come.

    The key is taken from ESKER_ACCESS_KEY_ID and ESKER_SECRET_ACCESS_KEY, or asked for.

    \b
      esker login http://localhost:8000
    """
    from esker.client import Client, HttpTransport

    said = session.settings
    where = url or said.endpoint
    if not where:
        raise InvalidError(Kind.INVALID_ARGUMENT, "which server? esker login http://host:8000")
    key_id, secret = said.access_key_id, said.secret_access_key
    if url and url != said.endpoint and read_client_file(client_file()).get("access_key_id") == key_id:
        key_id = secret = ""  # that one is another server's
    key_id = key_id or _asked("Access key id", hide=False)
    secret = secret or _asked("Secret access key", hide=True)
    transport = HttpTransport(where)
    try:
        made = Client(transport).login(key_id, secret)
    finally:
        transport.close()
    kept = {"endpoint": transport.base}
    kept |= {"token": made["token"]} if short else {"access_key_id": key_id, "secret_access_key": secret}
    path = _write(kept)
    session.output.done(
        {"endpoint": transport.base, "file": str(path), "token_expiration": made["token_expiration"]},
        f"logged in at {transport.base}; remembered in {path}",
    )


@command(config)
def show(session: Session) -> None:
    """Show what is remembered. Secrets are not shown.

    \b
      esker config show
    """
    path = client_file()
    found = {name: _masked(name, value) for name, value in read_client_file(path).items()}
    session.output.thing({"file": str(path), **found}, [("file", str(path)), *found.items()])


@command(config, "set")
def set_(
    session: Session,
    name: Name,
    value: Annotated[str, typer.Argument(metavar="[VALUE]", help="Secrets are asked for.")] = "",
) -> None:
    """Remember a setting. The environment and the command line come before what is remembered.

    \b
      esker config set lake file:///data/lake
      esker config set secret_access_key
    """
    _check(name)
    if name in _SECRET and value:
        raise InvalidError(
            Kind.INVALID_ARGUMENT,
            f"{name} does not belong on a command line, which others can see: leave it out to be asked",
        )
    found = read_client_file(client_file())
    found[name] = value or _asked(name, hide=name in _SECRET)
    if found.get("lake") and found.get("endpoint"):
        other = "endpoint" if name == "lake" else "lake"
        raise InvalidError(
            Kind.INVALID_ARGUMENT, f"it says {other} already, and can be of one lake only: esker config unset {other}"
        )
    path = _write(found)
    session.output.done({name: _masked(name, found[name])}, f"remembered in {path}")


@command(config)
def unset(session: Session, name: Name) -> None:
    """Forget a setting.

    \b
      esker config unset lake
    """
    _check(name)
    found = read_client_file(client_file())
    if name not in found:
        session.output.done({"forgotten": None}, f"{name} is not remembered in {client_file()}")
        return
    del found[name]
    if name == "endpoint":
        found = {other: value for other, value in found.items() if other not in WHO}
    path = _write(found)
    session.output.done({"forgotten": name}, f"forgotten in {path}")


@command(config)
def path(session: Session) -> None:
    """Print where it is kept.

    \b
      esker config path
    """
    session.output.lines({"file": str(client_file())}, [str(client_file())])


@command(group)
def whoami(session: Session) -> None:
    """Show who asks, and what they may do.

    \b
      esker user whoami
    """
    _show(session, session.client.whoami())


@command(group, "list")
def list_users(session: Session) -> None:
    """List users.

    \b
      esker user list
    """
    rows = ((one, (one["id"], _roles(one), moment(one["creation_date"]))) for one in session.client.users())
    session.output.listing(("user", "roles", "created"), rows)


@command(group, "show")
def show_user(session: Session, user: User) -> None:
    """Show a user: their roles and keys.

    \b
      esker user show ada
    """
    found = session.client.user(user)
    found["keys"] = [one["access_key_id"] for one in session.client.keys(user)]
    _show(session, found)


@command(group, "create")
def create_user(session: Session, user: User) -> None:
    """Make a user, who may do nothing until a role is granted.

    \b
      esker user create ada
      esker user roles ada writer:sales reader:'*'
      esker user key create ada
    """
    made = session.client.create_user(user)
    session.output.done(made, f"made user {user}: grant roles by `esker user roles {user} writer:REPO`")


@command(group, "delete")
def delete_user(session: Session, user: User, yes: arguments.Yes = False) -> None:
    """Delete a user, and all their keys.

    \b
      esker user delete ada
    """
    session.client.user(user)
    session.confirm(f"Delete user {user} and all their keys?", yes=yes)
    session.client.delete_user(user)
    session.output.done({"deleted": user}, f"deleted user {user}")


@command(group)
def roles(
    session: Session,
    user: User,
    grants: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ROLE:REPO]...", help="admin, writer or reader, and of which; * is anything. None: show them."
        ),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Take all away.")] = False,
) -> None:
    """Show a user's roles, or say them anew.

    \b
      esker user roles ada writer:sales reader:'*'
      esker user roles ada --none
    """
    if none and grants:
        raise InvalidError(Kind.INVALID_ARGUMENT, "grant these roles, or --none: not both")
    asked = []
    for grant in grants or ():
        role, _, pattern = grant.partition(":")
        if role not in ("admin", "writer", "reader") or not pattern:
            raise InvalidError(
                Kind.INVALID_ARGUMENT, f"{grant!r} is no role: write admin:*, writer:sales, reader:logs-*"
            )
        asked.append({"role": role, "repositories": pattern})
    _show(session, session.client.set_roles(user, asked) if none or asked else session.client.user(user))


@command(keys, "list")
def list_keys(session: Session, user: User) -> None:
    """List a user's keys.

    \b
      esker user key list ada
    """
    rows = ((one, (one["access_key_id"], moment(one["creation_date"]))) for one in session.client.keys(user))
    session.output.listing(("access key id", "created"), rows)


@command(keys, "create")
def create_key(session: Session, user: User) -> None:
    """Make a key. Its secret is shown now, and never again.

    \b
      esker user key create ada
    """
    made = session.client.create_key(user)
    session.output.thing(
        made, [("access key id", made["access_key_id"]), ("secret access key", made["secret_access_key"])]
    )


@command(keys, "delete")
def delete_key(
    session: Session,
    user: User,
    key: Annotated[str, typer.Argument(metavar="KEY", help="An access key's id.")],
    yes: arguments.Yes = False,
) -> None:
    """Delete a key, and the sessions that were opened with it.

    \b
      esker user key delete ada AKIA3F2A91C0
    """
    session.confirm(f"Delete key {key} of {user}, and the sessions that were opened with it?", yes=yes)
    session.client.delete_key(user, key)
    session.output.done({"deleted": key}, f"deleted key {key} of {user}")


def _show(session: Session, found: dict[str, Any]) -> None:
    facts = [("user", found["id"]), ("roles", _roles(found)), ("created", moment(found["creation_date"]))]
    if "keys" in found:
        facts.append(("keys", ", ".join(found["keys"]) or "none"))
    session.output.thing(found, facts)


def _roles(found: dict[str, Any]) -> str:
    return ", ".join(f"{one['role']}:{one['repositories']}" for one in found["roles"]) or "none"


def _check(name: str) -> None:
    if name not in _SETTINGS:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"no setting {name!r}: there are {', '.join(_SETTINGS)}")


def _masked(name: str, value: str) -> str:
    return "(not shown)" if name in _SECRET else value


def _asked(what: str, *, hide: bool) -> str:
    """From the user; or a line of standard input, where there is no terminal."""
    if sys.stdin.isatty():
        return str(typer.prompt(what, hide_input=hide, err=True))
    line = sys.stdin.readline().strip()
    if not line:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"there is nobody to ask for: {what}")
    return line


def _write(settings: dict[str, str]) -> Path:
    """Replace the file whole. Nobody else may read it: it may hold a secret."""
    path = client_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    said = {"version": VERSION, **dict(sorted(settings.items()))}
    text = "".join(f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in said.items())
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    return path
