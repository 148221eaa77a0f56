"""Spark on a lake: `spark.read.parquet("lakefs://repository/ref/path")`, and writes that are one commit each.

    spark = esker.spark.session("file:///data/lake")
    df.write.mode("overwrite").parquet("lakefs://sales/main/orders")

Nothing here is imported by the rest of the package, and pyspark only where a session is made.
"""

from esker.spark.config import spark_config
from esker.spark.exporting import export_objects
from esker.spark.frames import diff, entries, growths, layers, log, refs, register, sizes
from esker.spark.garbage import collect_garbage
from esker.spark.importing import import_objects
from esker.spark.session import configure, plain, session
from esker.spark.transaction import Transaction, once, transaction

__all__ = [
    "Transaction",
    "collect_garbage",
    "configure",
    "diff",
    "entries",
    "export_objects",
    "growths",
    "import_objects",
    "layers",
    "log",
    "once",
    "plain",
    "refs",
    "register",
    "session",
    "sizes",
    "spark_config",
    "transaction",
]
