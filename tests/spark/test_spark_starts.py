"""Java and PySpark are set up. Never skipped: without them the syphon cannot be tested."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    # Spark asks for the host's own address otherwise, which may have none.
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pairbus-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(tmp_path))
        .getOrCreate()
    )
    yield session
    session.stop()


def doubled(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield pd.DataFrame({"twice": frame["id"] * 2, "worker": os.getpid()})


def test_spark_runs_python_in_worker_processes(spark: SparkSession):
    numbers = spark.range(1000, numPartitions=2)

    rows = numbers.mapInPandas(doubled, "twice long, worker long").collect()

    assert sum(row.twice for row in rows) == 999 * 1000
    assert os.getpid() not in {row.worker for row in rows}
