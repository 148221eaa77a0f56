"""Back-pressure: whoever lays layers on a branch faster than they are compacted has to compact them first.

So however fast writers are, and whether or not anybody compacts in the background, a read goes through a bounded number
of layers, and the record of the branch never fills up.
"""

import logging
from typing import Final

from esker.engine import compaction
from esker.engine.lake import Lake
from esker.engine.policy import Compaction
from esker.errors import EskerError
from esker.model import Repository
from esker.refs.records import LAYERS_MAX

COMPACT_AT: Final = 128
"""Sealed layers. Compaction in the background begins far earlier, so mostly this is never reached."""

WAIT_AT: Final = LAYERS_MAX // 2
"""If others compact, go on laying, up to here."""

_WAIT_S: Final = 10.0
"""For others' compaction. After that they are taken for dead: they lose their work, if they are not."""

_PAUSE_S: Final = 0.05

_LOG: Final = logging.getLogger("esker.pressure")


def make_room(lake: Lake, repo: Repository, branch: str) -> None:
    """Return when the branch has room for another layer, or nothing more can be done about it. NotFoundError if there
    is no such branch."""
    if _sealed(lake, repo, branch) < COMPACT_AT:
        return
    try:
        if compaction.compact(lake, repo, branch, Compaction.MINOR):
            return
        start_s = lake.world.monotonic_s()
        while _sealed(lake, repo, branch) >= WAIT_AT:
            if lake.world.monotonic_s() - start_s >= _WAIT_S:
                compaction.compact(lake, repo, branch, Compaction.MINOR, force=True)
                return
            lake.world.sleep(_PAUSE_S)
    except EskerError as error:  # laying a layer may succeed all the same
        _LOG.warning("compacting %r of %r: %s", branch, repo.name, error)


def _sealed(lake: Lake, repo: Repository, branch: str) -> int:
    return len(lake.branches(repo).get(branch).sealed)
