"""One run of a command: where the lake is, who asks, how to answer. What it opened is closed when the command ends."""

import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from esker.cli.output import Output
from esker.errors import InvalidError, Kind, NotFoundError
from esker.settings import ClientSettings, client_settings, trace_context

if TYPE_CHECKING:
    from esker.client import Client
    from esker.engine.lake import Lake


class Session:
    def __init__(
        self,
        *,
        lake: str | None = None,
        kv: str | None = None,
        endpoint: str | None = None,
        as_json: bool = False,
        quiet: bool = False,
    ) -> None:
        self.given = {
            name: value for name, value in (("lake", lake), ("kv", kv), ("endpoint", endpoint)) if value is not None
        }
        self.output = Output(as_json=as_json, quiet=quiet)
        self.creates = False
        """Whether a lake that is not there yet is one that the command makes."""
        self.sources: Sequence[str] = ()
        """Places outside of a lake that the command may read."""
        self.targets: Sequence[str] = ()
        """Places outside of a lake that it may write."""
        self.connections = 1
        self._open = ExitStack()

    @cached_property
    def settings(self) -> ClientSettings:
        return client_settings(self.given)

    @cached_property
    def client(self) -> "Client":
        """Who answers the API: a server, or a lake that is opened here."""
        from esker.client import Client, HttpTransport, WsgiTransport, basic, bearer

        said = self.settings
        if said.endpoint:
            authorization = bearer(said.token) if said.token else ""
            if said.access_key_id:
                authorization = basic(said.access_key_id, said.secret_access_key)
            http = HttpTransport(said.endpoint, connections=self.connections, trace=trace_context())
            self._open.callback(http.close)
            return Client(http, authorization=authorization)
        from esker.server.app import create_app

        logging.getLogger("esker.server").setLevel(logging.ERROR)  # what the answer tells is not told twice
        app = create_app(self.lake, storage=self.lake_url, directory=None, sources=self.sources, targets=self.targets)
        return Client(WsgiTransport(app))

    @cached_property
    def lake(self) -> "Lake":
        """The lake itself, opened here."""
        from esker.embedded import open_lake
        from esker.engine.opening import lacks_database

        url, kv = self.lake_url, self.settings.kv or None
        if not kv and not self.creates and lacks_database(url):
            raise NotFoundError(
                Kind.REPOSITORY_NOT_FOUND,
                f"there is no lake at {url}: `esker repo create` makes one there, or name another by --lake",
            )
        opened = open_lake(url, kv=kv)
        self._open.callback(opened.close)
        return opened.engine

    @cached_property
    def lake_url(self) -> str:
        said = self.settings
        if not said.lake and said.endpoint:
            raise InvalidError(
                Kind.INVALID_ARGUMENT,
                "this reads the lake itself, past any server: name it by --lake file:///data/lake",
            )
        if not said.lake:
            raise InvalidError(
                Kind.INVALID_ARGUMENT,
                "which lake? Say --lake file:///data/lake to open one here, or --endpoint http://host:8000 to ask a "
                "server; or set ESKER_LAKE or ESKER_ENDPOINT; or `esker login`",
            )
        return said.lake if "://" in said.lake else Path(said.lake).absolute().as_uri()

    def confirm(self, question: str, *, yes: bool) -> None:
        """Go on only if the user says so; without a terminal, only with `--yes`."""
        if yes:
            return
        if not sys.stdin.isatty():
            raise InvalidError(Kind.INVALID_ARGUMENT, f"{question} There is nobody to ask: say --yes")
        import typer

        typer.confirm(question, abort=True, err=True)

    def close(self) -> None:
        self._open.close()
