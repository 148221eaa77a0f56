"""What a server has done, as it counts itself."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.server.live import Live

_LINE: Final = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)

_LEFT_OUT: Final = ("metrics", "beatJob")
"""What is asked to count; and signs of life, which go by the clock: any job that the session ever left may give one."""


def totals(server: Live, metric: str, label: str) -> dict[str, float]:
    """A metric so far, by one of its labels."""
    found: dict[str, float] = {}
    for name, labels, value in _LINE.findall(server.ask("GET", "/metrics").body.decode()):
        if name == metric:
            kind = labels.partition(f'{label}="')[2].partition('"')[0]
            found[kind] = found.get(kind, 0) + float(value)
    return found


@contextmanager
def counted(
    server: Live, metric: str = "esker_request_seconds_count", label: str = "operation"
) -> Iterator[Counter[str]]:
    """How many calls it got in the block, by operation, known after it; or what another metric counts."""
    counts: Counter[str] = Counter()
    before = totals(server, metric, label)
    yield counts
    for kind, total in totals(server, metric, label).items():
        if kind not in _LEFT_OUT and total != before.get(kind, 0):
            counts[kind] = round(total - before.get(kind, 0))


@contextmanager
def written(server: Live) -> Iterator[Counter[str]]:
    """How many records it wrote in the block, by what they are of: of branches, each is a swap."""
    with counted(server, "esker_kv_writes_total", "partition") as counts:
        yield counts
