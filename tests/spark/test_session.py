"""Sessions in one line, the settings they add, and the server that they start where none is named."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import urllib3
from pyspark.sql import SparkSession

import esker
import esker.spark
from esker.errors import ConflictError, EskerError, InvalidError, Kind
from esker.spark import config
from esker.spark.local_server import LocalServer
from tests.server.live import Live
from tests.services import wait
from tests.spark.files import Files

ENDPOINT: Final = "http://127.0.0.1:1"


def options(builder: SparkSession.Builder) -> dict[str, str]:
    found: dict[str, str] = builder._options
    return found


def answers(endpoint: str) -> bool:
    try:
        return urllib3.request("GET", f"{endpoint}/_ready", retries=False, timeout=5).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def test_what_is_missing_is_added_to_a_builder() -> None:
    made = options(esker.spark.configure(SparkSession.Builder(), endpoint=ENDPOINT, access_key="key"))
    assert made["spark.jars"] == str(config.jar())
    assert made["spark.hadoop.fs.lakefs.endpoint"] == ENDPOINT
    assert made["spark.sql.sources.commitProtocolClass"] == "io.esker.spark.LakeCommitProtocol"
    assert not any("secret" in name for name in made)


def test_what_was_set_stays() -> None:
    builder = SparkSession.Builder()
    own = {
        "spark.jars": "/some/other.jar",
        "spark.sql.sources.commitProtocolClass": "my.Protocol",
        "spark.hadoop.fs.lakefs.access.key": "mine",
    }
    for name, value in own.items():
        builder = builder.config(name, value)
    for _ in range(2):
        builder = esker.spark.configure(builder, endpoint=ENDPOINT, access_key="key", secret_key="secret")
    made = options(builder)
    assert made["spark.jars"] == f"/some/other.jar,{config.jar()}"
    assert made["spark.sql.sources.commitProtocolClass"] == "my.Protocol"
    assert made["spark.hadoop.fs.lakefs.access.key"] == "mine"
    assert made["spark.hadoop.fs.lakefs.secret.key"] == "secret"


def test_the_settings_are_written_for_spark_defaults() -> None:
    lines = esker.spark.spark_config(ENDPOINT, "key", "secret").splitlines()
    found = dict(line.split(None, 1) for line in lines)
    assert found["spark.hadoop.fs.lakefs.endpoint"] == ENDPOINT
    assert found["spark.hadoop.fs.lakefs.secret.key"] == "secret"
    assert found["spark.hadoop.fs.lakefs.impl"] == "io.esker.hadoop.LakeFileSystem"
    assert found["spark.jars"] == str(config.jar())


def test_a_session_that_runs_is_returned_for_the_same_server_and_refused_for_another(
    spark: SparkSession, server: Live
) -> None:
    def again(url: str = server.url, key: str = server.key_id) -> SparkSession:
        return esker.spark.session(endpoint=url, access_key=key, secret_key=server.secret)

    assert again() is spark
    others = (partial(esker.spark.session, "memory://"), partial(again, url=ENDPOINT), partial(again, key="another"))
    for other in others:
        with pytest.raises(ConflictError, match="stop its session first") as raised:
            other()
        assert raised.value.kind is Kind.SESSION_RUNS


def test_the_secret_is_not_on_the_command_line(spark: SparkSession, server: Live) -> None:
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    shown = Path(f"/proc/{jvm}/cmdline").read_bytes().decode()
    assert server.key_id in shown
    assert server.secret not in shown


def test_spark_without_a_setting_finds_the_protocol_by_itself(spark: SparkSession) -> None:
    """What the jar's extension sets in a session that nobody configured, and leaves alone where somebody did."""
    name = "spark.sql.sources.commitProtocolClass"
    extensions = spark._jvm.io.esker.spark.LakeExtensions  # type: ignore[union-attr]
    default = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    for own, expected in ((None, "io.esker.spark.LakeCommitProtocol"), (default, default)):
        session = spark.newSession()
        session.conf.unset(name)
        if own:
            session.conf.set(name, own)
        extensions.prepare(session._jsparkSession)
        assert session.conf.get(name) == expected


def test_a_local_server_lets_sessions_in_each_time_and_leaves_no_key_behind(tmp_path: Path) -> None:
    lake = (tmp_path / "lake").as_uri()
    first = LocalServer(lake)
    second = LocalServer(lake)
    try:
        assert first.endpoint != second.endpoint
        assert (first.access_key, first.secret_key) == (second.access_key, second.secret_key)
        for one in (first, second):
            login = urllib3.make_headers(basic_auth=f"{one.access_key}:{one.secret_key}")
            answer = urllib3.request("GET", f"{one.endpoint}/api/v1/repositories", headers=login)
            assert answer.status == 200, answer.data
    finally:
        first.stop()
        second.stop()
    first.stop()
    assert not answers(first.endpoint)
    assert not first.is_running


def test_a_local_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESKER_LOG_FORMAT", "none-such")
    with pytest.raises(InvalidError, match="log_format"):
        LocalServer(tmp_path.as_uri())
    monkeypatch.delenv("ESKER_LOG_FORMAT")
    with pytest.raises(InvalidError, match="ESKER_SECRET_KEY"):
        LocalServer("memory://")
    monkeypatch.setenv("ESKER_SECRET_KEY", "0" * 64)
    with pytest.raises(EskerError, match="cannot share memory"):
        LocalServer("memory://")


def test_a_local_server_ends_when_who_started_it_is_killed(tmp_path: Path) -> None:
    program = "import sys, time; from esker.spark.local_server import LocalServer\n"
    program += "print(LocalServer(sys.argv[1]).endpoint, flush=True); time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", program, (tmp_path / "lake").as_uri()], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        endpoint = process.stdout.readline().strip()
        assert answers(endpoint)
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait(lambda: not answers(endpoint), lambda: None)


PROGRAM: Final = """
import sys
import esker, esker.spark

for lake in sys.argv[1:]:
    with esker.open_lake(lake) as opened:
        opened.create_repository("sales")
    with esker.spark.session(lake, master="local[1]", settings={"spark.ui.enabled": "false"}) as spark:
        assert esker.spark.session(lake) is spark
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        path = spark._jvm.org.apache.hadoop.fs.Path("lakefs://sales/main/t")
        files = path.getFileSystem(hadoop)
        assert not files.exists(path)
        files.mkdirs(path)
        found = spark.sparkContext.parallelize([1], 1).map(lambda _: sys.executable).collect()
        assert found == [sys.executable], found
        print(hadoop.get("fs.lakefs.endpoint"))
"""


def test_one_line_makes_a_session_with_a_server_that_ends_with_it_and_then_another(tmp_path: Path) -> None:
    lakes = [(tmp_path / name).as_uri() for name in ("one", "two")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *lakes],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"},
    )
    assert done.returncode == 0, done.stderr
    endpoints = done.stdout.split()[-2:]
    assert not any(map(answers, endpoints))
    for lake in lakes:
        with esker.open_lake(lake) as opened:
            assert opened.repository("sales").ref("main").get("t/") == b""


PLAIN: Final = """
import sys
import esker.spark
from esker.errors import EskerError, Kind

def said():
    try:
        esker.spark.session(sys.argv[1])
    except EskerError as error:
        return error.kind, str(error)

assert said()[0] == Kind.REPOSITORY_NOT_FOUND, said()
with esker.open_lake(sys.argv[1]):
    pass
with esker.spark.plain():
    assert "start Python again" in said()[1], said()
assert "start Python again" in said()[1], said()
"""


def test_a_session_is_not_begun_on_no_lake_nor_in_a_process_without_the_jar(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, lake.as_uri()], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr


UNCONFIGURED: Final = """
import sys
import esker
from pyspark.sql import SparkSession
from esker.spark import config
from esker.spark.local_server import LocalServer

with esker.open_lake(sys.argv[1]) as opened:
    opened.create_repository("sales")
server = LocalServer(sys.argv[1])
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.extraClassPath", str(config.jar()))
builder = builder.config("spark.hadoop.fs.lakefs.endpoint", server.endpoint)
builder = builder.config("spark.hadoop.fs.lakefs.access.key", server.access_key)
builder = builder.config("spark.hadoop.fs.lakefs.secret.key", server.secret_key)
with builder.getOrCreate() as spark:
    assert spark.sql("select 1").count() == 1
    path = spark._jvm.org.apache.hadoop.fs.Path("lakefs://sales/main")
    assert path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).getFileStatus(path).isDirectory()
    print(spark.conf.get("spark.sql.sources.commitProtocolClass"))
server.stop()
"""


def test_with_the_jar_on_the_class_path_only_the_server_has_to_be_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNCONFIGURED, (tmp_path / "lake").as_uri()],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "io.esker.spark.LakeCommitProtocol"


def test_names_without_a_repository_are_refused_with_the_way_out(spark: SparkSession, repo: str) -> None:
    files = Files(spark, f"lakefs://{repo}/main/")
    with files.refused("IOException", "IllegalArgumentException"):
        files.path("lakefs:///main/f").getFileSystem(files.conf)
