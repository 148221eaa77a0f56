"""What holds of the package as a whole."""

import pkgutil
import subprocess
import sys

import esker

EXTRAS = ("boto3", "botocore", "hypothesis", "opentelemetry", "psycopg", "psycopg_pool", "pyspark", "pytest")

OPTIONAL = (
    "esker.server.otlp",
    "esker.spark",
    "esker.stores.kv_dynamodb",
    "esker.stores.kv_postgres",
    "esker.stores.s3_multipart",
    "esker.testing",
)


def test_the_core_imports_without_any_extra() -> None:
    modules = [module.name for module in pkgutil.walk_packages(esker.__path__, "esker.")]
    core = [name for name in modules if not name.startswith(OPTIONAL)]
    assert "esker.stores.kv" in core
    program = (
        "import importlib, sys\n"
        f"for extra in {EXTRAS}: sys.modules[extra] = None\n"
        f"for name in {core}: importlib.import_module(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
