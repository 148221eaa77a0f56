"""The lake that a session is on, for what goes past the server: bulk work on metadata reads files by itself.

Refs are read on the driver, where the lake is opened by its URL, as the command line does; executors read and write
files (`esker.spark.stores`). A session that was made for a lake knows its URL; one that was made for a server does not,
and is told: by `lake=`, by the setting `spark.esker.lake`, or by `ESKER_LAKE` in the driver's environment.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from esker.engine.lake import Lake
from esker.engine.opening import lacks_database, open_stores
from esker.errors import InvalidError, Kind, NotFoundError
from esker.settings import client_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAKE: Final = "spark.esker.lake"


class Opened(Protocol):
    """A lake that is open: `esker.open_lake`."""

    @property
    def url(self) -> str: ...
    @property
    def kv(self) -> str | None: ...
    @property
    def engine(self) -> Lake: ...


class Where(NamedTuple):
    """How to open a lake."""

    url: str
    kv: str | None


def where(spark: "SparkSession", lake: Opened | str | None = None) -> Where:
    """The lake that is meant. InvalidError if nobody said which."""
    if lake is not None and not isinstance(lake, str):
        found = Where(lake.url, lake.kv)
    else:
        url = lake or spark.conf.get(LAKE, "") or ""
        said = client_settings({"lake": url} if url else {})
        if not said.lake:
            raise InvalidError(
                Kind.INVALID_ARGUMENT,
                f"which lake? This works on its files, past any server: pass lake='s3://...', set {LAKE} or ESKER_LAKE",
            )
        found = Where(said.lake, said.kv or None)
    if found.url.startswith("memory:"):
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{found.url} is in the memory of one process: Spark has several")
    return found


@contextmanager
def opened(spark: "SparkSession", lake: Opened | str | None = None) -> Iterator[Lake]:
    """The lake, open on the driver."""
    if lake is not None and not isinstance(lake, str):
        where(spark, lake)
        yield lake.engine
        return
    with opened_at(where(spark, lake)) as engine:
        yield engine


@contextmanager
def opened_at(place: Where) -> Iterator[Lake]:
    """NotFoundError if there is none: to open it would make an empty one."""
    if not place.kv and lacks_database(place.url):
        raise NotFoundError(
            Kind.REPOSITORY_NOT_FOUND,
            f"there is no lake at {place.url}: `esker --lake {place.url} repo create` makes one there, or name another",
        )
    engine, close = open_stores(place.url, kv=place.kv)
    try:
        yield engine
    finally:
        close()
