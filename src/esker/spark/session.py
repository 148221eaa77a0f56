"""A Spark session that knows `lakefs://`, in one line; and the same for whoever builds their own.

What a user set stays as it is: only what is missing is added.
"""

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Final

from esker.engine.opening import lacks_database
from esker.errors import ConflictError, InvalidError, Kind, NotFoundError
from esker.settings import prefer_environment, server_settings
from esker.spark import config, lakes
from esker.spark.local_server import LocalServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PYTHON: Final = "PYSPARK_PYTHON"
"""Else workers take the first Python on the path, which may lack what this one has installed."""

_HADOOP: Final = "spark.hadoop."
"""What names of Hadoop's settings begin with where Spark takes them."""

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

    `settings` are Spark's own, and go before all others. A session that runs on the same lake or server is returned as
    it is; ConflictError if it is on another. NotFoundError if there is no lake: Spark writes to repositories, and makes
    none.
    """
    pyspark = _pyspark()
    from esker.spark import source

    if endpoint is not None and lake_url is not None:
        raise InvalidError(Kind.INVALID_ARGUMENT, "name a lake, or the server that serves it: not both")
    if endpoint is not None and not (access_key and secret_key):
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{endpoint} takes an access key and its secret: pass both")
    local = server_settings(lake=lake_url) if endpoint is None else None
    if pyspark.SparkContext._active_spark_context is not None:
        running: SparkSession = pyspark.sql.SparkSession.Builder().getOrCreate()
        _check_on(
            running, {lakes.LAKE: local.lake} if local else {config.ENDPOINT: endpoint, config.ACCESS_KEY: access_key}
        )
        return running
    if local and not local.kv and lacks_database(local.lake):
        raise NotFoundError(
            Kind.REPOSITORY_NOT_FOUND,
            f"there is no lake at {local.lake}: `esker --lake {local.lake} repo create` makes one there, with a "
            "repository to write to, as esker.open_lake does; or name another",
        )
    if pyspark.SparkContext._gateway is not None:
        # Spark's process is still there, and what it has open knows the server and the user of the session before.
        pyspark.SparkContext._gateway.jvm.org.apache.hadoop.fs.FileSystem.closeAll()
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
            raise _without_jar()
    except BaseException:
        if server:
            server.stop()
        raise
    for name, value in ((config.ENDPOINT, endpoint), (config.ACCESS_KEY, access_key), (config.SECRET_KEY, secret_key)):
        if name not in settings:
            # The secret only here: the builder's settings are on the command line of Spark's process, for all to see.
            hadoop.set(name.removeprefix(_HADOOP), value)
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


def _check_on(spark: "SparkSession", wanted: Mapping[str, str | None]) -> None:
    """ConflictError, with the way out, unless these settings of the session that runs are so."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    if hadoop.getClassByNameOrNull(config.FILE_SYSTEM) is None:
        raise _without_jar()
    for name, value in wanted.items():
        known = hadoop.get(name.removeprefix(_HADOOP)) if name.startswith(_HADOOP) else spark.conf.get(name, None)
        if known != value:
            raise ConflictError(
                Kind.SESSION_RUNS,
                f"Spark runs already, and has {name} {known or 'not set'}, not {value}: stop its session first, or "
                "go on with it",
            )


def _without_jar() -> ConflictError:
    return ConflictError(
        Kind.SESSION_RUNS,
        "Spark's process was started by another session, without esker's jar, and takes no more jars even when that is "
        "stopped: start Python again, and begin with esker.spark.session",
    )


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
