"""Metrics, traces and the slow-operation log: of servers as people run them."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

import esker.server.serve  # noqa: F401  # with all that has metrics
from esker.engine import metrics, repositories
from esker.engine.opening import open_stores
from esker.model import Staging
from tests.server.collector import Collector, Span, collecting
from tests.server.running import API, Client, Server, serving
from tests.services import wait

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = DOCS / "observability.md"
DASHBOARD: Final = DOCS / "observability" / "grafana.json"
OURS: Final = ("esker_", "graveler_")

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
CALLER: Final = "b7ad6b7169203331"


class Watched(NamedTuple):
    """A server on which a little of everything was done; it has ended."""

    said: list[dict[str, Any]]
    collector: Collector
    metrics: dict[str, dict[tuple[tuple[str, str], ...], float]]
    """Samples by name and labels, while it ran."""
    told: dict[str, str]
    """What came back as `traceresponse`, by request id."""
    secret: str


def metrics_of(client: Client) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(client.ask("GET", "/metrics").data.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    directory = tmp_path_factory.mktemp("watched")
    with collecting() as collector:
        settings = {"workers": 2, "slow_s": 0.000001, "otlp_endpoint": collector.url}
        url = (directory / "lake").as_uri()
        lake, close = open_stores(url)
        repositories.create(lake, "lsm", f"{url}/lsm", staging=Staging.LSM)
        close()
        with serving(directory, **settings) as server:
            told = exercise(server)
            admin = Client(server.url, server.key)
            samples = metrics_of(admin)
            secret = server.key[1]
            assert server.stop() == 0
            yield Watched(server.log, collector, samples, told, secret)


def exercise(server: Server) -> dict[str, str]:
    admin = Client(server.url, server.key)
    told: dict[str, str] = {}

    def ask(
        method: str, path: str, body: object = None, *, status: int = 201, name: str = "", traceparent: str = ""
    ) -> None:
        headers = {"X-Request-ID": name, "traceparent": traceparent}
        answer = admin.ask(method, API + path, body, {key: value for key, value in headers.items() if value})
        assert answer.status == status, answer.data
        told[answer.headers["X-Request-ID"]] = answer.headers.get("traceresponse", "")

    admin.post("/repositories", {"name": "plain", "storage_namespace": ""})
    for name in ("plain", "lsm"):
        ask("POST", f"/repositories/{name}/branches/main/objects?path=private.csv", b"data")
    where = "/repositories/plain"
    main, dev = f"{where}/branches/main", f"{where}/branches/dev"
    ask("POST", f"{main}/commits", {"message": "m"}, name="commit", traceparent=f"00-{TRACE}-{CALLER}-01")
    ask("POST", f"{main}/commits", {"message": "m"}, status=400, name="nothing")
    unsampled = f"00-{TRACE}-{CALLER}-00"
    ask("POST", f"{where}/branches", {"name": "dev", "source": "main"}, name="unsampled", traceparent=unsampled)
    ask("POST", f"{dev}/objects?path=b.csv", b"more")
    ask("GET", f"{where}/refs/dev/objects?path=b.csv", status=200)
    ask("POST", f"{dev}/commits", {"message": "b"})
    ask("POST", f"{where}/refs/dev/merge/main", {}, status=200, name="merge")
    assert Client(server.url, (server.key[0], "wrong-wrong")).ask("GET", f"{API}/user").status == 401
    for number in range(17):  # as many tables as make reading slow, so that they are compacted
        ask("POST", f"/repositories/lsm/branches/main/objects?path={number}.csv", b"data")
    compactions = "esker_compaction_seconds_count"
    wait(lambda: bool(metrics_of(admin).get(compactions)), lambda: None)
    return told


def span_of(watched: Watched, request: str) -> Span:
    [found] = [span for span in watched.collector.spans if span.attributes.get("esker.request_id") == request]
    return found


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    """By metric, its type and labels, as the page has them."""
    rows = re.findall(r"^\| `((?:esker|graveler)_\w+)` \| (\w+) \| (.*?) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    return {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def test_every_metric_is_in_the_table_and_the_table_has_no_other() -> None:
    there = {}
    for collector in {*REGISTRY._collector_to_names}:
        for family in collector.collect():
            if family.name.startswith(OURS):
                name = family.name + ("_total" if family.type == "counter" else "")
                there[name] = (family.type, tuple(getattr(collector, "_labelnames", ())))
    assert documented() == there


def test_names_end_in_their_unit() -> None:
    for family in REGISTRY.collect():
        if family.name.startswith("esker_") and family.type == "histogram":
            assert family.name.endswith(("_seconds", "_bytes", "_entries")), family.name


def test_every_metric_that_a_server_exports_is_documented(watched: Watched) -> None:
    page = PAGE.read_text("utf-8")
    families = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in watched.metrics}
    assert {name for name in families if f"`{name}`" not in page} == set()


def test_the_dashboard_asks_for_metrics_and_labels_that_a_server_exports(watched: Watched) -> None:
    board = json.loads(DASHBOARD.read_text("utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    queries += [one["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    assert len(queries) > 15
    for query in queries:
        names = re.findall(r"\b(?:esker|graveler)_\w+", query)
        assert names, query
        for name in names:
            assert name in watched.metrics, (name, query)
        labels = {label for name in names for sample in watched.metrics[name] for label, _ in sample}
        asked = [*re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", query), *re.findall(r"by \(([^)]*)\)", query)]
        asked += re.findall(r"label_values\(\w+, (\w+)\)", query)
        for label in (word.strip() for some in asked for word in some.split(",")):
            assert label in labels, (label, query)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    shown = {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\b(?:esker|graveler)_\w+", str(queries))
    }
    assert shown == documented().keys(), "every metric is on it"


def test_branches_beyond_the_first_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "BRANCHES_MAX", 2)
    monkeypatch.setattr(metrics, "_told_apart", set())
    for branch in ("a", "b", "c", "d", "a"):
        metrics.branch_read("many", branch, dirty=False, staging=False, op="get")
        metrics.layers("many", branch, tokens=1, l1=0, l2=0, tombstones=0)
    found = {
        sample.labels["branch"]: sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == "graveler_branch_reads_total" and sample.labels["repo"] == "many"
    }
    assert found == {"a": 2, "b": 1, metrics.OTHERS: 2}


def test_what_was_done_is_counted_across_workers(watched: Watched) -> None:
    def total(name: str, **labels: str) -> float:
        asked = set(labels.items())
        return sum(value for said, value in watched.metrics[name].items() if asked <= set(said))

    assert total("esker_verb_seconds_count", verb="commit", repo="plain", outcome="done") == 2
    assert total("esker_verb_seconds_count", verb="commit", repo="plain", outcome="no-changes") == 1
    assert total("esker_verb_seconds_count", verb="merge", repo="plain", outcome="done") == 1
    assert total("esker_landings_total", repo="plain", outcome="landed") == 1
    assert total("esker_logins_refused_total") == 1
    assert total("esker_flush_entries_sum", repo="lsm") == 18
    assert total("esker_blob_written_bytes_total") > total("esker_blob_read_bytes_total") > 0
    for partition in ("branches", "staging", "commits"):
        assert total("esker_kv_reads_total", partition=partition) > 0
        assert total("esker_kv_writes_total", partition=partition) > 0
    assert total("esker_requests_running") == 0, "`/metrics` takes no place"
    assert total("esker_pool_busy") == 0


def test_a_request_is_a_span_of_its_callers_trace_with_the_steps_of_its_verbs_below(watched: Watched) -> None:
    commit = span_of(watched, "commit")
    assert (commit.trace, commit.parent, commit.kind, commit.service) == (TRACE, CALLER, 2, "esker")
    assert watched.told["commit"] == f"00-{TRACE}-{commit.id}-01"
    assert commit.name == f"POST {API}/repositories/{{repository}}/branches/{{branch}}/commits"
    assert commit.attributes["http.response.status_code"] == 201
    assert commit.attributes["esker.repo"] == "plain"
    assert commit.attributes["esker.kv_writes"] >= 3
    assert commit.attributes["esker.ranges_written"] == 1
    assert commit.attributes["esker.kv_seconds"] > 0
    assert watched.collector.children(commit) == ["commit"]
    [verb] = [span for span in watched.collector.spans if span.parent == commit.id]
    assert watched.collector.children(verb) == ["seal", "fold", "record", "advance"]
    for step in (one for one in watched.collector.spans if one.parent == verb.id):
        assert verb.start_ns <= step.start_ns <= step.end_ns <= verb.end_ns
    assert watched.collector.paths == {"/v1/traces"}


def test_a_request_without_a_trace_begins_one_and_failures_show(watched: Watched) -> None:
    merge = span_of(watched, "merge")
    assert merge.parent == ""
    assert merge.trace != TRACE
    told, _, flags = watched.told["merge"].rpartition("-")
    assert told == f"00-{merge.trace}-{merge.id}"
    assert int(flags, 16) & 1, "it is sampled"
    [verb] = [span for span in watched.collector.spans if span.parent == merge.id]
    assert watched.collector.children(verb)[-3:] == ["merge trees", "record", "advance"]
    nothing = span_of(watched, "nothing")
    assert not nothing.failed, "a caller's mistake is none of the server's"
    [verb] = [span for span in watched.collector.spans if span.parent == nothing.id]
    assert verb.failed


def test_a_caller_that_does_not_trace_is_not_traced(watched: Watched) -> None:
    assert watched.told["unsampled"] == ""
    assert not [span for span in watched.collector.spans if span.attributes.get("esker.request_id") == "unsampled"]


def test_work_in_the_background_is_traced_and_probes_are_not(watched: Watched) -> None:
    roots = {span.name for span in watched.collector.spans if not span.parent}
    assert "compaction" in roots
    assert not any(name.endswith(("/metrics", "/_ready", "/_health")) for name in roots)
    flushes = [span for span in watched.collector.spans if span.name == "flush"]
    assert len(flushes) == 18
    assert all(span.attributes["esker.writers"] == 1 for span in flushes)


def test_what_is_slow_is_logged_with_what_it_did(watched: Watched) -> None:
    slow = [line for line in watched.said if line["logger"] == "esker.slow"]
    [commit] = [line for line in slow if line["about"].get("request_id") == "commit"]
    assert commit["message"] == "slow: commit"
    assert commit["trace_id"] == TRACE
    assert commit["about"]["repo"] == "plain"
    assert commit["about"]["path"] == f"{API}/repositories/{{repository}}/branches/{{branch}}/commits"
    assert commit["calls"]["kv_writes"] >= 3
    assert commit["calls"]["ranges_written"] == 1
    assert commit["store_ms"]["blob"] > 0
    assert {"commit", "commit/seal", "commit/fold", "commit/record", "commit/advance"} <= set(commit["steps_ms"])
    assert commit["duration_ms"] >= commit["steps_ms"]["commit"] >= commit["steps_ms"]["commit/fold"] > 0
    assert any(line["message"] == "slow: compaction" for line in slow)
    text = json.dumps(slow)
    for hidden in (watched.secret, "private.csv", "wrong-wrong"):
        assert hidden not in text
        assert hidden not in json.dumps([span._asdict() for span in watched.collector.spans])


def test_nothing_of_opentelemetry_is_imported_unless_traces_are_sent() -> None:
    program = (
        "import sys\n"
        "import esker.server.serve\n"
        "from esker.server.watching import traces_to\n"
        "assert traces_to('', 1.0) is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "traces_to('http://localhost:1', 1.0).close()\n"
        "assert 'opentelemetry' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_receiver_that_is_not_there_is_no_harm(tmp_path: Path) -> None:
    with serving(tmp_path, otlp_endpoint="http://127.0.0.1:9", slow_s=0) as server:
        admin = Client(server.url, server.key)
        assert admin.get("/user")["user"]["id"] == "admin"
        assert server.stop() == 0
        assert not [line for line in server.log if line["logger"] == "esker.slow"]
