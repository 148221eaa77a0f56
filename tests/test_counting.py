"""Metrics of processes that share them: nothing that was counted is lost, and nobody waits for a lock to count."""

import os
import subprocess
import sys
from pathlib import Path

from prometheus_client import values

from esker import counting

SHARED = """
import os
import threading
from pathlib import Path
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
from esker.counting import Counter, Gauge, Histogram, gather, settle, settled

gather(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
theirs = Counter("theirs", "Of a program that esker is a part of.")
theirs.inc(5)
assert theirs._value.get() == 5
calls = Counter("esker_calls", "Calls.", ["kind"])
took = Histogram("esker_took", "Seconds.", buckets=(1, 2))
running = Gauge("esker_running", "Now.", multiprocess_mode="livesum")
depth = Gauge("esker_depth", "Last told.", multiprocess_mode="mostrecent")

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
settled(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
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
    assert (found["esker_calls_total even"], found["esker_calls_total odd"]) == ("8000.0", "8000.0")
    assert (found["esker_took_count"], found["esker_took_sum"]) == ("16000.0", "24000.0")
    assert (found["esker_took_bucket 1.0"], found["esker_took_bucket 2.0"]) == ("0.0", "16000.0")
    assert found["theirs_total"] == "5.0"
    assert found["esker_depth"] == "1999.0"
    assert [value for name, value in found.items() if name.startswith("esker_running")] == ["3.0"]


def test_in_a_process_of_its_own_the_library_is_as_it_was() -> None:
    assert not isinstance(values.ValueClass, counting._Values)
    counting.settle()
