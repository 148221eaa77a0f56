"""Several tables, written together: all of them appear in one commit, or none.

    with esker.spark.transaction(spark, "sales", "main") as tx:
        orders.write.mode("overwrite").parquet(tx.path("orders"))
        totals.write.mode("append").parquet(tx.path("totals"))

Inside, what was written can be read by the same paths. Nobody else sees any of it before the block ends well; if it
raises, nobody ever does.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from esker.client.failures import error_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LAKE_EXCEPTION: Final = "io.esker.hadoop.LakeException"
_QUERY_ID: Final = "sql.streaming.queryId"
_NOTHING: Final[Mapping[str, str]] = {}


class Transaction:
    """One that runs, or has ended. `message` and `metadata` may be set until then."""

    def __init__(self, repository: str, started: Any, message: str, metadata: Mapping[str, str]) -> None:
        self.repository = repository
        self.id: str = started.id()
        self.branch: str = started.branch()
        """Hidden, and gone afterwards."""
        self.message = message
        self.metadata = dict(metadata)
        self.commit: str | None = None
        """What published it, once it is."""

    def path(self, table: str = "") -> str:
        """Where to write a table, and to read what is written."""
        return f"lakefs://{self.repository}/{self.branch}/{table}"


@contextmanager
def transaction(
    spark: "SparkSession",
    repository: str,
    branch: str,
    *,
    message: str = "",
    metadata: Mapping[str, str] = _NOTHING,
    force: bool = False,
) -> Iterator[Transaction]:
    """A transaction that is published to `branch` at the end of the block. It fails there, and changes nothing, if
    others than Spark's jobs have changed the same meanwhile, unless forced. Without a message, the commit's names the
    tables."""
    conf = _hadoop(spark)
    with _as_ours():
        started = _java(spark).begin(conf, repository, branch)
    with _ending(spark, started):
        running = Transaction(repository, started, message, metadata)
        yield running
        _publish(spark, started, running, force)


def once(
    repository: str, branch: str, write: "Callable[[DataFrame, Transaction], object]"
) -> "Callable[[DataFrame, int], None]":
    """For `foreachBatch`: writes each batch of a stream exactly once, as one commit.

        def write(batch, tx):
            batch.write.mode("append").parquet(tx.path("orders"))

        stream.writeStream.foreachBatch(esker.spark.once("sales", "main", write)).start(checkpointLocation=place)

    A batch is known by the query's id, which its checkpoint keeps, and its number. One that comes again because nobody
    noted that it was done is passed over; one that was not done begins anew.
    """

    def each(batch: "DataFrame", number: int) -> None:
        spark = batch.sparkSession
        query = spark.sparkContext.getLocalProperty(_QUERY_ID)
        assert query, "Spark names the query in whose batch this runs"
        with _as_ours():
            started = _java(spark).beginOnce(_hadoop(spark), repository, branch, f"{query}-{number}")
        if started is None:
            return
        with _ending(spark, started):
            running = Transaction(
                repository,
                started,
                f"Batch {number} of stream {query}",
                {"spark.stream": query, "spark.batch": f"{number}"},
            )
            write(batch, running)
            _publish(spark, started, running, force=False)

    return each


def _publish(spark: "SparkSession", started: Any, running: Transaction, force: bool) -> None:
    context = spark.sparkContext._jsc.sc()
    with _as_ours():
        running.commit = started.publish(context, running.message, json.dumps(running.metadata), force)


@contextmanager
def _as_ours() -> Iterator[None]:
    """What the server refused is the error that it raised. Whatever else fails in Java stays as it is."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        yield
    except Py4JJavaError as error:
        said = error.java_exception
        if said.getClass().getName() != _LAKE_EXCEPTION:
            raise
        told = {"kind": said.kind(), "message": said.getMessage(), "conflicts": list(said.paths())}
        raise error_of(said.status(), told, reads=False) from None


@contextmanager
def _ending(spark: "SparkSession", started: Any) -> Iterator[None]:
    """Abort it if the block fails. Should this fail too, whoever cleans up aborts what gives no sign of life."""
    try:
        yield
    except BaseException as error:
        try:
            started.abort()
        except Exception as another:  # noqa: BLE001 - the first error is the one to be told
            error.add_note(f"and transaction {started.id()} could not be aborted: {another}")
        raise


def _hadoop(spark: "SparkSession") -> Any:
    return spark._jsparkSession.sessionState().newHadoopConf()


def _java(spark: "SparkSession") -> Any:
    assert spark._jvm is not None, "a classic session has a virtual machine"
    return spark._jvm.io.esker.spark.Transaction
