"""A Spark session that knows `lakefs://`, in one line; and the same for whoever builds their own.

What a user set stays as it is: only what is missing is added.
"""

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Final

from esker.errors import ConflictError, InvalidError, Kind
from esker.settings import prefer_environment
from esker.spark import config, lakes
from esker.spark.local_server import LocalServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PYTHON: Final = "PYSPARK_PYTHON"
"""Else workers take the first Python on the path, which may lack what this one has installed."""

_NOTHING: Final[Mapping[str, str]] = {}


def session(
    lake_url: str | None = None,
    *,
    endpoint: str | None = None,
    access_key: str = "",
    secret_key: str = "",
    master: str | None = None,
    app_name: str = "esker",
    settings: Mapping[str, str] = _NOTHING,
) -> "SparkSession":
    """A session on the lake that the server at `endpoint` serves; or, with none, on the lake at `lake_url` (by default
    the one that the environment names), by a server of its own that is stopped with the session.

    `settings` are Spark's own, and go before all others. ConflictError if there is a session already.
    """
    pyspark = _pyspark()
    from esker.spark import source

    if pyspark.SparkContext._active_spark_context is not None:
        raise ConflictError(
            Kind.SESSION_RUNS, "Spark runs already, and takes no more jars: stop its session first, or go on with it"
        )
    if pyspark.SparkContext._gateway is not None:
        # Spark's process is still there, and what it has open knows the server and the user of the session before.
        pyspark.SparkContext._gateway.jvm.org.apache.hadoop.fs.FileSystem.closeAll()
    if endpoint is not None and lake_url is not None:
        raise InvalidError(Kind.INVALID_ARGUMENT, "name a lake, or the server that serves it: not both")
    if endpoint is not None and not (access_key and secret_key):
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{endpoint} takes an access key and its secret: pass both")
    server = None
    if endpoint is None:
        server = LocalServer(lake_url)
        endpoint, access_key, secret_key = server.endpoint, server.access_key, server.secret_key
    try:
        builder = pyspark.sql.SparkSession.Builder().appName(app_name)
        if master:
            builder = builder.master(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = configure(builder, endpoint=endpoint, access_key=access_key).getOrCreate()
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # pyspark has no public name for it
        if hadoop.getClassByNameOrNull(config.FILE_SYSTEM) is None:
            spark.stop()
            raise ConflictError(
                Kind.SESSION_RUNS,
                "Spark's process was started by an earlier session, without esker's jar, and takes no more jars: start "
                "Python again, and with this session",
            )
    except BaseException:
        if server:
            server.stop()
        raise
    for name, value in ((config.ENDPOINT, endpoint), (config.ACCESS_KEY, access_key), (config.SECRET_KEY, secret_key)):
        if name not in settings:
            # The secret only here: the builder's settings are on the command line of Spark's process, for all to see.
            hadoop.set(name.removeprefix("spark.hadoop."), value)
    if "yarn" not in str(spark.conf.get("spark.master")):
        spark._jvm.io.esker.spark.TaskLuggage.lighten(hadoop)  # type: ignore[union-attr] # a classic session has one
    if server:
        spark.conf.set(lakes.LAKE, server.lake)
        source.register(spark)
        _stop_together(spark, server)
    return spark


def configure(
    builder: "SparkSession.Builder", *, endpoint: str, access_key: str, secret_key: str = ""
) -> "SparkSession.Builder":
    """The builder, with what is needed added to what was set. The secret, if it is passed, can be read by everybody on
    the machine where the driver runs: settings of Hadoop or a credential provider keep it better."""
    known: dict[str, str] = builder._options  # there is no other way to look
    added = config.settings(endpoint, access_key, secret_key)
    jars = [*filter(None, known.get(config.JARS, "").split(","))]
    if added[config.JARS] not in jars:
        builder = builder.config(config.JARS, ",".join([*jars, added[config.JARS]]))
    for name, value in added.items():
        if name not in known:
            builder = builder.config(name, value)
    prefer_environment(_PYTHON, sys.executable)
    return builder


def plain(app_name: str = "esker") -> "SparkSession":
    """The session that runs, or one as Spark's own configuration says: for work that opens the lake by itself, and
    needs no `lakefs://`."""
    pyspark = _pyspark()
    prefer_environment(_PYTHON, sys.executable)
    found: SparkSession = pyspark.sql.SparkSession.Builder().appName(app_name).getOrCreate()
    return found


def _stop_together(spark: "SparkSession", server: LocalServer) -> None:
    """Have the server stop with the session, also where the session is left as a context."""
    stop = spark.stop

    def stop_both() -> None:
        try:
            stop()
        finally:
            server.stop()

    spark.stop = stop_both  # type: ignore[method-assign] # Spark tells nobody in Python that a session stops


def _pyspark() -> ModuleType:
    try:
        import pyspark.sql
    except ImportError:
        message = "Spark sessions take pyspark: pip install 'esker[spark]'"
        raise InvalidError(Kind.MISSING_EXTRA, message) from None
    return pyspark
