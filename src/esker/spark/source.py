"""`spark.read.format("esker")`: a repository's metadata as Spark's own tables.

Spark makes a source from its class and options, in a Python process of its own on the driver's machine, and has it plan
there; parts are read by executors. So the lake travels with the class, as `register` made it.

Filters on paths narrow what is planned, and Spark filters again: a bound that is too wide costs time and no more.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from esker.errors import EskerError
from esker.spark import lakes, reading
from esker.spark.lakes import Where
from esker.spark.reading import Asked
from esker.streams.arrays import after_prefix

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "esker"

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Where it is off, Spark refuses to read a source that could push filters down."""


_told: dict[str, tuple[Where, bool]] = {}
"""What the formats of this process's sessions were last told."""


class Source(DataSource):
    lake: ClassVar[Where]
    pushes: ClassVar[bool]
    called: ClassVar[str] = NAME

    @classmethod
    def name(cls) -> str:
        return cls.called

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(reading.SCHEMAS[reading.asked_of(dict(self.options)).table])

    def reader(self, schema: StructType) -> "Reader":
        return (PushingReader if self.pushes else Reader)(self.lake, reading.asked_of(dict(self.options)))


class Part(InputPartition):
    def __init__(self, part: reading.Part) -> None:
        super().__init__(part)


class Reader(DataSourceReader):
    def __init__(self, lake: Where, asked: Asked) -> None:
        self.lake = lake
        self.asked = asked

    def partitions(self) -> list[InputPartition]:
        try:
            with lakes.opened_at(self.lake) as lake:
                return [Part(part) for part in reading.plan(lake, self.asked)] or [Part(reading.NOTHING)]
        except EskerError as error:
            raise error.with_traceback(None) from None  # Spark tells the whole of it

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return reading.read(self.asked, partition.value)


class PushingReader(Reader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        for one in filters:
            if getattr(one, "attribute", None) == ("path",):
                self.asked = self.asked.within(*_bounds(one))
        return filters


def register(spark: "SparkSession", lake: lakes.Opened | str | None = None) -> None:
    """Have the session know `format("esker")`, on this lake or its own."""
    spark.dataSource.register(_source(spark, lake))


def registered(spark: "SparkSession", lake: lakes.Opened | str | None) -> str:
    """The name of a format that is on this lake, or the session's own, from now on. It is this session's alone: what
    others registered before it was made can be neither replaced nor found in it."""
    made = _source(spark, lake)
    made.called = f"{NAME}-{spark._jsparkSession.sessionUUID()}"
    if _told.get(made.called) != (made.lake, made.pushes):  # Spark warns of what takes another's place
        spark.dataSource.register(made)
        _told[made.called] = made.lake, made.pushes
    return made.called


def _source(spark: "SparkSession", lake: lakes.Opened | str | None) -> type[Source]:
    """A class made here travels whole, as a class of a module would not: with it, the lake."""
    pushes = spark.conf.get(_PUSHDOWN, "false") == "true"
    return type("Source", (Source,), {"lake": lakes.where(spark, lake), "pushes": pushes})


def _bounds(one: Filter) -> tuple[str, str | None]:
    """Paths outside of which nothing passes the filter."""
    match one:
        case EqualTo(value=str(value)):
            return value, value + "\0"
        case In(value=(str(), *_) as values) if all(isinstance(value, str) for value in values):
            return min(values), max(values) + "\0"
        case GreaterThan(value=str(value)) | GreaterThanOrEqual(value=str(value)):
            return value, None
        case LessThan(value=str(value)):
            return "", value
        case LessThanOrEqual(value=str(value)):
            return "", value + "\0"
        case StringStartsWith(value=str(value)):
            return value, after_prefix(value)
    return "", None
