"""What Spark has to be told so that `lakefs://` works: as settings, and as text for `spark-defaults.conf`."""

from importlib.resources import files
from pathlib import Path
from typing import Final

from esker.errors import InvalidError, Kind

JARS: Final = "spark.jars"
ENDPOINT: Final = "spark.hadoop.fs.lakefs.endpoint"
ACCESS_KEY: Final = "spark.hadoop.fs.lakefs.access.key"
SECRET_KEY: Final = "spark.hadoop.fs.lakefs.secret.key"  # noqa: S105 - the name of a setting

_JAR: Final = "esker-hadoop.jar"

FILE_SYSTEM: Final = "io.esker.hadoop.LakeFileSystem"

_FIXED: Final = {
    "spark.hadoop.fs.lakefs.impl": FILE_SYSTEM,
    "spark.hadoop.fs.AbstractFileSystem.lakefs.impl": "io.esker.hadoop.LakeFs",
    "spark.hadoop.mapreduce.outputcommitter.factory.scheme.lakefs": "io.esker.spark.LakeCommitterFactory",
    "spark.hadoop.mapred.output.committer.class": "io.esker.spark.LakeMapredCommitter",
    "spark.sql.sources.commitProtocolClass": "io.esker.spark.LakeCommitProtocol",
    # Else Spark lists each directory by itself: of four thousand partitions, that is twenty seconds.
    "spark.sql.sources.useListFilesFileSystemList": "s3a,lakefs",
    # So that `format("esker")` reads only what a filter on paths asks for.
    "spark.sql.python.filterPushdown.enabled": "true",
}


def jar() -> Path:
    """The jar that brings it. InvalidError if it was never built."""
    path = Path(str(files("esker.spark") / _JAR))
    if not path.exists():
        raise InvalidError(
            Kind.MISSING_EXTRA, f"{_JAR} is not built: `make install` does that, or install esker from a wheel"
        )
    return path


def settings(endpoint: str, access_key: str, secret_key: str = "") -> dict[str, str]:
    """By name; without a secret, all but that."""
    found = {JARS: str(jar()), **_FIXED, ENDPOINT: endpoint, ACCESS_KEY: access_key}
    return found | {SECRET_KEY: secret_key} if secret_key else found


def spark_config(endpoint: str, access_key: str, secret_key: str) -> str:
    """Lines for `spark-defaults.conf`. They hold the secret: whoever can read them can write to the lake."""
    every = settings(endpoint, access_key, secret_key)
    width = max(map(len, every))
    return "".join(f"{name:<{width}}  {value}\n" for name, value in every.items())
