"""Metrics of processes that share them: nothing that was counted is lost, and nobody waits for a lock to count."""

import os
import subprocess
import sys
from pathlib import Path

from prometheus_client import values

from esker import counting

SHARED = """
import threading
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
from esker.counting import Counter, Gauge, Histogram, settle

calls = Counter("calls", "Calls.", ["kind"])
took = Histogram("took", "Seconds.", buckets=(1, 2))
running = Gauge("running", "Now.", multiprocess_mode="livesum")
depth = Gauge("depth", "Last told.", multiprocess_mode="mostrecent")

def count():
    for n in range(2000):
        calls.labels("even" if n % 2 == 0 else "odd").inc()
        took.observe(1.5)
        with running.track_inprogress():
            depth.set(n)

threads = [threading.Thread(target=count) for _ in range(8)]
for thread in threads:
    thread.start()
for _ in range(100):
    settle()
running.inc(3)
for thread in threads:
    thread.join()
settle()
registry = CollectorRegistry()
MultiProcessCollector(registry)
for metric in registry.collect():
    for sample in metric.samples:
        print(sample.name, *sample.labels.values(), sample.value)
"""


def test_nothing_that_threads_count_is_lost(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", SHARED], env=environment, capture_output=True, text=True, check=True)
    found = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert (found["calls_total even"], found["calls_total odd"]) == ("8000.0", "8000.0")
    assert (found["took_count"], found["took_sum"]) == ("16000.0", "24000.0")
    assert (found["took_bucket 1.0"], found["took_bucket 2.0"]) == ("0.0", "16000.0")
    assert found["depth"] == "1999.0"
    assert [value for name, value in found.items() if name.startswith("running")] == ["3.0"]


def test_in_a_process_of_its_own_the_library_is_as_it_was() -> None:
    assert values.ValueClass is not counting._Gathered
    counting.settle()
