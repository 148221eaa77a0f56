"""How many calls a server got, by operation, as it counts them itself."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.server.live import Live

_LINE: Final = re.compile(r'^esker_request_seconds_count\{operation="(\w+)",status="\d+"\} (\d+)', re.MULTILINE)

_OWN: Final = "metrics"
"""What is asked to count is not counted."""


def _so_far(server: Live) -> Counter[str]:
    found: Counter[str] = Counter()
    for operation, count in _LINE.findall(server.ask("GET", "/metrics").body.decode()):
        found[operation] += int(count)
    return found


@contextmanager
def counted(server: Live) -> Iterator[Counter[str]]:
    """What was called in the block, known after it."""
    calls: Counter[str] = Counter()
    before = _so_far(server)
    yield calls
    calls.update(_so_far(server) - before)
    del calls[_OWN]
