"""What is released: built the same wherever that is done, and complete where nothing else of the project is."""

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
JAR: Final = "esker/spark/esker-hadoop.jar"

PROGRAM: Final = """
import sys
from pathlib import Path

import esker
import esker.spark

assert Path(esker.__file__).is_relative_to(sys.prefix), esker.__file__
lake = Path("lake").absolute().as_uri()
with esker.open_lake(lake) as opened:
    repo = opened.create_repository("sales")
    repo.branch("main").put("orders/1.csv", b"id,total")
    repo.branch("main").commit("first orders")
with esker.spark.session(lake, master="local[1]", settings={"spark.ui.enabled": "false"}) as spark:
    spark.range(10).write.parquet("lakefs://sales/main/numbers")
    assert spark.read.parquet("lakefs://sales/main/numbers").count() == 10
with esker.open_lake(lake) as opened:
    names = [entry.path for entry in opened.repository("sales").ref("main@").list("numbers/")]
    assert any(name.endswith(".parquet") for name in names), names
print("all of it works")
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    build(out)
    return out


def build(out: Path, umask: int = 0o022) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "dist.sh", out], capture_output=True, text=True, umask=umask, cwd=out, check=False
    )
    assert done.returncode == 0, done.stderr


def digests(out: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir()}


def elsewhere(directory: Path) -> dict[str, str]:
    """The environment of somebody who has nothing of ours."""
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG") if name in os.environ}
    return {**kept, "HOME": str(directory), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONNOUSERSITE": "1"}


def test_the_same_sources_make_the_same_files(dist: Path, tmp_path: Path) -> None:
    build(tmp_path, umask=0o077)
    assert digests(tmp_path) == digests(dist)
    assert sorted(Path(name).suffix for name in digests(dist)) == [".gz", ".whl"]


def test_both_have_the_jar_and_the_sdist_what_it_is_made_from(dist: Path) -> None:
    jar = (ROOT / "src" / JAR).read_bytes()
    [wheel], [sdist] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as files:
        assert files.read(JAR) == jar
        assert not [name for name in files.namelist() if name.startswith(("tests", "bench", "demo"))]
    with tarfile.open(sdist) as files:
        top = sdist.name.removesuffix(".tar.gz")
        held = files.extractfile(f"{top}/src/{JAR}")
        assert held
        assert held.read() == jar
        names = set(files.getnames())
    sources = {f"{top}/{path.relative_to(ROOT)}" for path in (ROOT / "java").rglob("*.java")}
    assert sources <= names
    assert {f"{top}/{name}" for name in ("Makefile", "scripts/java.sh", "requirements.lock", "LICENSE")} <= names


@pytest.mark.timeout(600)
def test_the_wheel_works_with_spark_in_an_environment_that_has_nothing_else(dist: Path, tmp_path: Path) -> None:
    """Installed by pip as users do, from the index, or from pip's cache of it. At the locked versions, so that they are
    in that cache."""
    [wheel] = dist.glob("*.whl")
    locked = re.findall(
        r"^[\w.\[\]-]+==[^ \\]+(?: ; [^\\\n]+)?", (ROOT / "requirements.lock").read_text(), re.MULTILINE
    )
    (tmp_path / "constraints.txt").write_text("\n".join(line.rstrip() for line in locked))
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--constraint",
        tmp_path / "constraints.txt",
    ]
    subprocess.run([*install, f"{wheel}[spark]"], check=True, cwd=tmp_path)
    environment = elsewhere(tmp_path)
    told = subprocess.run(
        [python.with_name("esker"), "--version"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=True,
    )
    assert told.stdout == f"esker {wheel.name.split('-')[1]}\n"
    done = subprocess.run(
        [python, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("all of it works\n")
    shutil.rmtree(tmp_path / "venv")  # half a gigabyte
