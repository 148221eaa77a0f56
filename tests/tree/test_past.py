"""What was found is found again, and nobody else's."""

import pytest

from esker.model import Entry, FileName
from esker.streams.entries import table_of
from esker.tree.cutting import Cutting
from esker.tree.past import StoredPast
from tests.tree.lakes import open_trees


@pytest.mark.parametrize("metadata", [{}, {"owner": "me"}])
def test_who_changes_what_was_found_changes_it_for_nobody_else(metadata: dict[str, str]) -> None:
    remembered: dict[tuple[FileName, str], Entry] = {}
    past = StoredPast(open_trees(Cutting()), remembered)
    put = Entry(path="a", address="data/a", size=1, checksum="c", mtime_ms=0, metadata=metadata)
    tree = past.build([table_of([put])])
    for _ in range(3):
        found = past.get(tree, "a")
        assert found == put
        found.metadata["owner"] = "other"
    assert len(remembered) == (not metadata), "metadata may be of any size"
