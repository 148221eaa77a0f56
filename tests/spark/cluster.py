"""Run as a program: Spark in a process of its own, to be killed, or with executors in theirs.

    python -m tests.spark.cluster <what> <endpoint> <key> <secret> <repository> <directory>

Says on standard output, in JSON, what it found.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

import esker.spark
from tests.spark.conftest import SMALL


def _executors() -> list[int]:
    """The processes of this one's executors."""
    shown = subprocess.run(["ps", "-eww", "-o", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 2) for line in shown.splitlines()[1:]]
    parents = {int(pid): int(parent) for pid, parent, _ in lines}

    def is_ours(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return [int(pid) for pid, _, args in lines if "CoarseGrainedExecutorBackend" in args and is_ours(int(pid))]


def two_executors(spark: SparkSession, url: str, directory: Path) -> Any:
    """All ways to write, from executors in processes of their own."""
    spark.range(0, 40, numPartitions=4).selectExpr("id", "id % 3 AS p").write.partitionBy("p").parquet(f"{url}/t")
    spark.range(0, 10, numPartitions=4).write.mode("overwrite").orc(f"{url}/t")
    spark.sparkContext.parallelize([*"abcd"], 4).saveAsTextFile(f"{url}/text")
    hosts = spark.sparkContext.parallelize(range(8), 8).map(lambda _: os.environ["SPARK_EXECUTOR_DIRS"]).collect()
    return {
        "ids": sorted(row["id"] for row in spark.read.orc(f"{url}/t").collect()),
        "lines": sorted(row.value for row in spark.read.text(f"{url}/text").collect()),
        "executors": len(set(hosts)),
    }


def flaky_tasks(spark: SparkSession, url: str, directory: Path) -> Any:
    """The first attempt of each task fails, after it has written some rows."""

    def flaky(number: int) -> int:
        from pyspark import TaskContext  # in the worker

        context = TaskContext.get()
        if number % 10 == 7 and context is not None and context.attemptNumber() == 0:
            raise ValueError("no such luck")
        return number

    frame = spark.range(0, 40, numPartitions=4)
    frame.select(udf(flaky, LongType(), useArrow=False)("id").alias("id")).write.parquet(f"{url}/t")
    return {"ids": sorted(row["id"] for row in spark.read.parquet(f"{url}/t").collect())}


def killed_executor(spark: SparkSession, url: str, directory: Path) -> Any:
    """One executor is killed while its task writes."""
    spark.range(4).write.parquet(f"{url}/t")

    def slow(number: int) -> int:
        (directory / f"at-{number}").touch()
        while not (directory / "go").exists():
            time.sleep(0.02)
        return number

    frame = spark.range(100, 140, numPartitions=4).select(udf(slow, LongType(), useArrow=False)("id").alias("id"))
    from threading import Thread

    def kill() -> None:
        while len([*directory.glob("at-*")]) < 2:
            time.sleep(0.02)
        os.kill(_executors()[0], signal.SIGKILL)
        (directory / "go").touch()

    killer = Thread(target=kill)
    killer.start()
    frame.write.mode("overwrite").parquet(f"{url}/t")
    killer.join()
    return {"ids": sorted(row["id"] for row in spark.read.parquet(f"{url}/t").collect())}


def held_driver(spark: SparkSession, url: str, directory: Path) -> Any:
    """Waits in its tasks, to be killed."""

    def held(number: int) -> int:
        (directory / "reached").touch()
        while True:
            time.sleep(0.1)

    frame = spark.range(100, 140, numPartitions=2).select(udf(held, LongType(), useArrow=False)("id").alias("id"))
    frame.write.mode("overwrite").parquet(f"{url}/t")
    return {}


WHAT = {function.__name__: function for function in (two_executors, flaky_tasks, killed_executor, held_driver)}


def main(arguments: list[str]) -> None:
    what, endpoint, key, secret, repo, directory = arguments
    with esker.spark.session(
        endpoint=endpoint,
        access_key=key,
        secret_key=secret,
        master="local[2]" if what == "held_driver" else "local-cluster[2,1,1024]",
        settings={**SMALL, "spark.executor.memory": "512m", "spark.executor.cores": "1"},
    ) as spark:
        said = {}
        for one in what.split(","):
            place = Path(directory) / one
            place.mkdir(parents=True, exist_ok=True)
            said[one] = WHAT[one](spark, f"lakefs://{repo}/main/{one}", place)
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
