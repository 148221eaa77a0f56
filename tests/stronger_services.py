"""The stores' tests against servers that are stricter than moto: `make test-services`.

Versity's S3 gateway, where there is Go, and Amazon's own DynamoDB Local, where there are Java and Maven. They are built
or fetched once, into build/services, and run on loopback with their data in temporary directories.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests import services

VERSITYGW: Final = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
DYNAMODB_LOCAL: Final = "com.amazonaws:DynamoDBLocal:2.6.1"

ROOT: Final = Path(__file__).parents[1]
BUILD: Final = ROOT / "build" / "services"

CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}
"""Those of the fixture `moto_url`, since one run uses both kinds of server."""

GATEWAY_CANNOT: Final = (
    "test_odd_names_are_names[name28]",  # a part of 255 bytes: it adds to it for a name of its own
    "test_odd_names_are_names[name29]",
    "test_puts_survive_deletes_beside_them",  # 409 when another client's delete takes the directory away
)
"""What Versity's gateway refuses, because it keeps objects as files in directories, and Amazon's S3 does not."""

POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>esker</groupId>
  <artifactId>test-services</artifactId>
  <version>0</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>
  </dependencies>
</project>
"""


@contextmanager
def versitygw() -> Iterator[str]:
    """An S3 gateway over a directory; its URL."""
    program = BUILD / VERSITYGW.partition("@")[2] / "versitygw"
    if not program.exists():
        print(f"building {VERSITYGW}", flush=True)
        subprocess.run(["go", "install", VERSITYGW], check=True, env={**os.environ, "GOBIN": str(program.parent)})
    with tempfile.TemporaryDirectory(prefix="esker-s3-") as temporary:
        directory = Path(temporary)
        objects, attributes = directory / "objects", directory / "attributes"
        objects.mkdir()
        attributes.mkdir()
        port = services.free_port()
        command: list[str | Path] = [program, "--quiet", "--port", f"127.0.0.1:{port}"]
        command += ["--access", CREDENTIALS["AWS_ACCESS_KEY_ID"], "--secret", CREDENTIALS["AWS_SECRET_ACCESS_KEY"]]
        # A sidecar, because not every file system that /tmp may be on has extended attributes.
        command += ["posix", "--sidecar", attributes, objects]
        with services.running(command, directory / "log") as died:
            services.wait(lambda: services.accepts(port), died)
            yield f"http://127.0.0.1:{port}"


@contextmanager
def dynamodb_local() -> Iterator[str]:
    """Amazon's emulator, in memory; its URL."""
    jars = BUILD / DYNAMODB_LOCAL.replace(":", "-")
    if not jars.exists():
        print(f"fetching {DYNAMODB_LOCAL}", flush=True)
        BUILD.mkdir(parents=True, exist_ok=True)
        pom, partial = BUILD / "pom.xml", jars.with_name(f"{jars.name}.partial")
        pom.write_text(POM.format(*DYNAMODB_LOCAL.split(":")))
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
        subprocess.run(["mvn", "--batch-mode", "--quiet", "--file", pom, *goal], check=True)
        partial.rename(jars)
    with tempfile.TemporaryDirectory(prefix="esker-dynamodb-") as temporary:
        port = services.free_port()
        command: list[str | Path] = ["java", f"-Djava.library.path={jars}", "-cp", f"{jars}/*"]
        command += ["com.amazonaws.services.dynamodbv2.local.main.ServerRunner"]
        command += ["-inMemory", "-disableTelemetry", "-port", str(port)]
        with services.running(command, Path(temporary) / "log") as died:
            services.wait(lambda: services.accepts(port), died)
            yield f"http://127.0.0.1:{port}"


def main(arguments: list[str]) -> int:
    """pytest's exit code, or 2 if no server could be had."""
    environment, suites = {**os.environ, **CREDENTIALS}, []
    with ExitStack() as started:
        if shutil.which("go"):
            environment["ESKER_TEST_S3_URL"] = started.enter_context(versitygw())
            suites.append("s3")
        if shutil.which("mvn") and shutil.which("java"):
            environment["ESKER_TEST_DYNAMODB_URL"] = started.enter_context(dynamodb_local())
            suites.append("dynamodb")
        if not suites:
            print("nothing to test against: S3 needs Go here, and DynamoDB needs Java and Maven", file=sys.stderr)
            return 2
        command = [sys.executable, "-m", "pytest", "tests/stores", "-k", " or ".join(suites)]
        for test in GATEWAY_CANNOT:
            command += ["--deselect", f"tests/stores/test_blob_s3.py::TestRealS3Blobs::{test}"]
        command += arguments
        return subprocess.run(command, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
