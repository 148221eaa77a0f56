"""Layers, compaction and stashes over HTTP."""

import io
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from esker.model import Entry
from esker.streams.entries import table_of
from tests.server.live import Live


def _on(repo: str, what: str) -> str:
    return f"/repositories/{repo}/branches/main/{what}"


def _parquet(*paths: str) -> bytes:
    table = table_of(Entry(path=path, address=f"data/x/{path}", size=3, checksum="c", mtime_ms=0) for path in paths)
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _listed(server: Live, repo: str, ref: str = "main") -> list[str]:
    answer = server.ask("GET", f"/repositories/{repo}/refs/{quote(ref)}/objects/ls")
    return [one["path"] for one in answer.json["results"]]


def test_a_prepared_layer_is_laid_whole_or_refused_whole(server: Live, repo: str) -> None:
    server.put(repo, "t/old", b"old")
    server.commit(repo)
    made = server.ask("POST", _on(repo, "layers?deletes=t/&expect_absent=u/"), body=_parquet("t/a", "t/b", "u/c"))
    assert (made.status, made.json) == (201, {"rows": 3})
    assert _listed(server, repo) == ["t/a", "t/b", "u/c"]
    assert _listed(server, repo, "main@") == ["t/old"]
    again = server.ask("POST", _on(repo, "layers?expect_absent=u/"), body=_parquet("v"))
    assert again.status == 412
    assert server.ask("POST", _on(repo, "layers?expect_head=" + "0" * 64), body=_parquet("v")).status == 412
    unsorted = pa.concat_tables(pq.read_table(io.BytesIO(_parquet(path))) for path in ("z", "a"))
    sink = io.BytesIO()
    pq.write_table(unsorted, sink)
    for bad in (sink.getvalue(), b"no parquet"):
        refused = server.ask("POST", _on(repo, "layers"), body=bad)
        assert refused.status == 400, refused
        assert refused.json["message"]
    assert _listed(server, repo) == ["t/a", "t/b", "u/c"]


def test_layers_are_shown_and_compacted(server: Live, repo: str) -> None:
    assert server.ask("GET", _on(repo, "layers")).json == {"results": []}
    server.put(repo, "a", b"1")
    server.ask("POST", _on(repo, "layers?deletes=b/"), body=_parquet("b/1"))
    shown = server.ask("GET", _on(repo, "layers")).json["results"]
    assert [(layer["level"], layer["rows"], layer["prefix_deletes"]) for layer in shown] == [
        ("L1", 1, 1),
        ("sealed", 1, 0),
    ]
    assert server.ask("POST", _on(repo, "compact?kind=minor")).json == {"compacted": True}
    assert [layer["level"] for layer in server.ask("GET", _on(repo, "layers")).json["results"]] == ["L2"]
    assert server.ask("POST", _on(repo, "compact")).json == {"compacted": True}
    assert [layer["level"] for layer in server.ask("GET", _on(repo, "layers")).json["results"]] == ["compacted"]
    assert server.ask("POST", _on(repo, "compact")).json == {"compacted": False}
    assert _listed(server, repo) == ["a", "b/1"]
    assert server.ask("POST", _on(repo, "compact?kind=all")).status == 400
    assert server.ask("POST", f"/repositories/{repo}/branches/nope/compact").status == 404


def test_stashes_are_set_aside_and_popped(server: Live, repo: str) -> None:
    assert server.ask("POST", _on(repo, "stashes/s")).status == 400, "there is nothing to stash"
    server.put(repo, "a", b"1")
    assert server.ask("POST", _on(repo, "stashes/s")).status == 204
    assert _listed(server, repo) == []
    shown = server.ask("GET", _on(repo, "stashes")).json["results"]
    assert [(stash["id"], stash["layers"]) for stash in shown] == [("s", 1)]
    server.put(repo, "a", b"2")
    assert server.ask("POST", _on(repo, "stashes/s")).status == 409, "the name is taken"
    server.commit(repo)
    assert server.ask("POST", _on(repo, "stashes/s/pop")).status == 409, "both sides made it"
    assert server.ask("POST", _on(repo, "stashes/s/pop?strategy=source-wins")).status == 204
    assert server.get(repo, "a").body == b"1"
    assert server.ask("POST", _on(repo, "stashes/s/pop")).status == 404
    assert server.ask("POST", _on(repo, "stashes/t")).status == 204
    assert server.ask("DELETE", _on(repo, "stashes/t")).status == 204
    assert server.ask("DELETE", _on(repo, "stashes/t")).status == 404
    assert server.get(repo, "a").body == b"2"
