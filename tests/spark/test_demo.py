"""What `make demo` tells happens, on the session of the tests."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import esker
from demo.run import Day
from tests.server.live import Live


def test_the_day_of_the_demo_is_as_it_says(
    spark: SparkSession, server: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with esker.open_lake(server.lake.as_uri()) as lake:
        Day(spark, lake, tmp_path).run()
    said = capsys.readouterr().out
    assert "40,000 orders" in said
    assert "saw 2 states of it" in said
    assert "50 of them: the branch is deleted" in said
    assert "45,000 orders became 55,000, in two commits" in said
    assert "lakefs://shop/yesterday/orders has its 40,000 orders" in said
