"""Jobs over HTTP, as Spark's committer uses them."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.server.live import Answer, Live

DATA = b"rows"


def _start(server: Live, repo: str, branch: str = "main", **said: Any) -> Any:
    made = server.ask("POST", f"/repositories/{repo}/branches/{quote(branch)}/jobs", body=said)
    assert made.status == 201, made
    return made.json


def _upload(server: Live, job: Any, name: str, data: bytes = DATA) -> dict[str, Any]:
    """Through the server, with the job's URL and nothing else."""
    sent = server.ask("PUT", job["upload_prefix"].removeprefix(server.url) + name, body=data, login=False)
    assert sent.status == 200, sent
    return {"address": job["data"] + name, "size": len(data), "checksum": sent.headers["ETag"], "mtime_ms": 1234}


def _publish(server: Live, repo: str, job: Any, *entries: dict[str, Any], **said: Any) -> Answer:
    body = {"entries": list(entries), **said}
    return server.ask("POST", f"/repositories/{repo}/jobs/{job['id']}/publish", body=body)


def test_what_a_job_wrote_appears_in_one_commit(server: Live, repo: str) -> None:
    server.put(repo, "t/old", b"old")
    server.commit(repo)
    job = _start(server, repo)
    assert job["state"] == "running"
    entries = [{"path": f"t/{name}", **_upload(server, job, name)} for name in ("a", "b")]
    assert server.get(repo, "t/a").status == 404
    done = _publish(server, repo, job, *entries, deletes=["t/"], message="load", metadata={"spark.app": "x"})
    assert done.status == 200, done
    made = server.ask("GET", f"/repositories/{repo}/commits/{done.json['reference']}").json
    assert (made["message"], made["committer"]) == ("load", "admin")
    assert made["metadata"] == {"spark.app": "x", "esker.job": job["id"]}
    assert server.get(repo, "t/a").body == DATA
    assert server.get(repo, "t/old").status == 404
    told = server.ask("GET", f"/repositories/{repo}/jobs/{job['id']}").json
    assert (told["state"], told["reference"]) == ("published", made["id"])
    assert _publish(server, repo, job, *entries).json == done.json


def test_blobs_of_a_job_are_uploaded_by_urls_that_are_asked_for_together(server: Live, repo: str) -> None:
    job = _start(server, repo)
    uploads = f"/repositories/{repo}/jobs/{job['id']}/uploads"
    names = [f"task-{number}" for number in range(3)]
    urls = server.ask("POST", uploads, body={"names": names}).json["urls"]
    entries = []
    for name, url in zip(names, urls, strict=True):
        sent = server.ask("PUT", url.removeprefix(server.url), body=DATA, login=False)
        assert sent.status == 200, sent
        entries.append({"path": name, "address": job["data"] + name, "size": 4, "checksum": "c", "mtime_ms": 0})
    for bad in ([".hidden"], ["a/b"], ["x"] * 1001):
        assert server.ask("POST", uploads, body={"names": bad}).status == 400, bad
    assert _publish(server, repo, job, *entries).status == 200
    assert {server.get(repo, name).body for name in names} == {DATA}


def test_no_url_is_signed_for_what_is_published_or_ended(server: Live, repo: str) -> None:
    """The store's own would replace the bytes of an object that everybody sees."""
    job, other = _start(server, repo), _start(server, repo)
    entry = {"path": "a", **_upload(server, job, "a")}
    assert _publish(server, repo, job, entry).status == 200
    assert server.ask("POST", f"/repositories/{repo}/jobs/{other['id']}/abort").status == 200
    for ended, kind in ((job, "job-published"), (other, "job-aborted")):
        refused = server.ask("POST", f"/repositories/{repo}/jobs/{ended['id']}/uploads", body={"names": ["a"]})
        assert (refused.status, refused.json["kind"]) == (409, kind)


def test_bytes_written_to_the_physical_prefix_are_a_jobs_too(server: Live, repo: str) -> None:
    job = _start(server, repo)
    directory = Path(job["physical_prefix"].removeprefix("file://"))
    directory.mkdir(parents=True)
    (directory / "a").write_bytes(DATA)
    entry = {"path": "a", "address": job["data"] + "a", "size": len(DATA), "checksum": "c", "mtime_ms": 0}
    assert _publish(server, repo, job, entry).status == 200
    assert server.get(repo, "a").body == DATA


@pytest.mark.parametrize(
    "address", ["data/ab/cd", "../x", "{data}../../x", "{data}a/b", "{data}", "file:///etc/passwd", "{data}.hidden"]
)
def test_a_job_links_nothing_but_its_own(server: Live, repo: str, address: str) -> None:
    job = _start(server, repo)
    entry = {"path": "a", "address": address.format(**job), "size": 1, "checksum": "c", "mtime_ms": 0}
    refused = _publish(server, repo, job, entry)
    assert refused.status == 400
    assert refused.json["kind"] == "invalid-address"


def test_a_blob_that_is_not_there_is_told(server: Live, repo: str) -> None:
    job = _start(server, repo)
    entry = {"path": "a", **_upload(server, job, "a"), "size": 3}
    refused = _publish(server, repo, job, entry)
    assert refused.json["kind"] == "blob-not-found"
    assert server.get(repo, "a").status == 404


def test_an_upload_does_not_replace_another(server: Live, repo: str) -> None:
    job = _start(server, repo)
    _upload(server, job, "a")
    target = job["upload_prefix"].removeprefix(server.url)
    assert server.ask("PUT", target + "a", body=b"other", login=False).status == 409
    for name in ("..", "a%2Fb", "%2e%2e", "a%00", ".esker-tmp", "x" * 201):
        assert server.ask_raw("PUT", target + name, body=b"other").status in (400, 404), name
    forged = target[:-3] + ("AA/" if not target.endswith("AA/") else "BB/")
    assert server.ask("PUT", forged + "b", body=b"other", login=False).status == 403


def test_the_url_of_a_job_writes_nothing_by_itself(server: Live, repo: str) -> None:
    job = _start(server, repo)
    target = job["upload_prefix"].removeprefix(server.url).rstrip("/")
    assert server.ask("PUT", target, body=b"x", login=False).status == 400
    assert server.ask("GET", target, login=False).status == 403


def test_an_overlap_is_answered_with_the_paths_and_can_be_forced(server: Live, repo: str) -> None:
    job = _start(server, repo)
    entry = {"path": "t/a", **_upload(server, job, "a")}
    for number in range(5):
        server.put(repo, f"t/{number}", b"others")
    server.commit(repo)
    refused = _publish(server, repo, job, entry, deletes=["t/"])
    assert refused.status == 409
    assert (refused.json["kind"], refused.json["conflicts"]) == ("job-overlap", [f"t/{n}" for n in range(5)])
    assert _publish(server, repo, job, entry, deletes=["t/"], force=True).status == 200
    assert server.get(repo, "t/0").status == 404


def test_what_must_be_empty_and_is_not_is_a_conflict(server: Live, repo: str) -> None:
    server.put(repo, "t/a", b"old")
    server.commit(repo)
    job = _start(server, repo)
    refused = _publish(server, repo, job, expect_empty=["t/"])
    assert (refused.status, refused.json["kind"]) == (409, "object-exists")


def test_single_paths_can_be_removed(server: Live, repo: str) -> None:
    server.put(repo, "t", b"old")
    server.put(repo, "t2", b"old")
    server.commit(repo)
    assert _publish(server, repo, _start(server, repo), removes=["t"]).status == 200
    assert [server.get(repo, path).status for path in ("t", "t2")] == [404, 200]
    assert _publish(server, repo, _start(server, repo), removes=[""]).status == 400


def test_a_job_beats_is_listed_and_aborted(server: Live, repo: str) -> None:
    job = _start(server, repo, id="nightly")
    assert _start(server, repo, id="nightly")["base"] == job["base"]
    beaten = server.ask("POST", f"/repositories/{repo}/jobs/nightly/beat")
    assert beaten.json["seen_ms"] >= job["seen_ms"]
    _start(server, repo, id="other")
    page = server.ask("GET", f"/repositories/{repo}/jobs", query={"amount": 1}).json
    assert [one["id"] for one in page["results"]] == ["nightly"]
    rest = server.ask("GET", f"/repositories/{repo}/jobs", query={"after": page["pagination"]["next_offset"]}).json
    assert [one["id"] for one in rest["results"]] == ["other"]
    assert "upload_prefix" not in rest["results"][0], "who may read may not write"
    assert server.ask("POST", f"/repositories/{repo}/jobs/nightly/abort").json["state"] == "aborted"
    assert server.ask("POST", f"/repositories/{repo}/jobs/nightly/beat").json["kind"] == "job-aborted"
    assert _publish(server, repo, job).json["kind"] == "job-aborted"


def test_what_died_is_cleaned(server: Live, repo: str) -> None:
    _start(server, repo, id="dead")
    clean = f"/repositories/{repo}/jobs/clean"
    assert server.ask("POST", clean, query={"older_than_s": 3600}).json == {"aborted": []}
    assert [one["id"] for one in server.ask("POST", clean, query={"older_than_s": 0}).json["aborted"]] == ["dead"]
    assert server.ask("POST", clean).status == 400
    assert server.ask("POST", clean, query={"older_than_s": -1}).status == 400


def test_a_transaction_publishes_what_its_jobs_wrote(server: Live, repo: str) -> None:
    outer = _start(server, repo, transaction=True)
    for table in ("t", "u"):
        inner = _start(server, repo, outer["own_branch"])
        assert _publish(server, repo, inner, {"path": f"{table}/a", **_upload(server, inner, "a")}).status == 200
    assert server.get(repo, "t/a", ref=outer["own_branch"]).body == DATA
    assert server.get(repo, "t/a").status == 404
    assert _publish(server, repo, outer, deletes=["t/"]).status == 400
    assert _publish(server, repo, outer, message="both").status == 200
    assert [server.get(repo, path).body for path in ("t/a", "u/a")] == [DATA, DATA]
    assert server.ask("GET", f"/repositories/{repo}/branches/{outer['own_branch']}").status == 404


def test_a_publication_may_be_larger_than_other_requests(server: Live, repo: str) -> None:
    """Past ten megabytes, which nothing else may have."""
    job = _start(server, repo)
    made = _upload(server, job, "a")
    folder = "x" * 900
    entries = [{"path": f"{folder}/{number:06}", **made} for number in range(12_000)]
    assert _publish(server, repo, job, *entries).status == 200
    assert server.get(repo, f"{folder}/011999").body == DATA


def test_a_bad_body_is_refused(server: Live, repo: str) -> None:
    job = _start(server, repo)
    good = {"path": "a", **_upload(server, job, "a")}
    for bad in ({"size": -1}, {"mtime_ms": 1 << 60}, {"path": ""}, {"path": "x" * 1025}, {"checksum": None}):
        assert _publish(server, repo, job, {**good, **bad}).status == 400, bad
    assert server.ask("POST", f"/repositories/{repo}/branches/nowhere/jobs", body={}).status == 404
    assert server.ask("POST", f"/repositories/{repo}/branches/main/jobs", body={"id": "a/b"}).status == 400


def test_what_tasks_wrote_is_kept_until_the_job_is_published_with_them(server: Live, repo: str) -> None:
    job = _start(server, repo)
    tasks = f"/repositories/{repo}/jobs/{job['id']}/tasks"
    for task, name in (("task_0", "first"), ("task_0", "again"), ("task_1", "other")):
        body = {"entries": [{"path": f"t/{name}", **_upload(server, job, name)}]}
        assert server.ask("PUT", f"{tasks}/{task}", body=body).status == 204
    assert _publish(server, repo, job, tasks=True).status == 200
    assert [server.get(repo, f"t/{name}").status for name in ("first", "again", "other")] == [404, 200, 200]


def test_a_task_says_nothing_that_its_job_could_not(server: Live, repo: str) -> None:
    job = _start(server, repo)
    tasks = f"/repositories/{repo}/jobs/{job['id']}/tasks"
    foreign = {"entries": [{"path": "a", "address": "data/ab/cd", "size": 1, "checksum": "c", "mtime_ms": 0}]}
    assert server.ask("PUT", f"{tasks}/task_0", body=foreign).json["kind"] == "invalid-address"
    assert server.ask("PUT", f"{tasks}/..%2Ftask", body={"entries": []}).status in (400, 404)
    server.ask("POST", f"/repositories/{repo}/jobs/{job['id']}/abort")
    assert server.ask("PUT", f"{tasks}/task_0", body={"entries": []}).json["kind"] == "job-aborted"
