"""Java and PySpark work. The tests of the syphon need them."""

import os
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import SparkSession


def double(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield pd.DataFrame({"twice": frame["id"] * 2, "worker": os.getpid()})


def test_spark_runs_python_in_worker_processes(session: SparkSession):
    numbers = session.range(1000, numPartitions=2)

    rows = numbers.mapInPandas(double, "twice long, worker long").collect()

    assert sum(row.twice for row in rows) == 999 * 1000
    assert os.getpid() not in {row.worker for row in rows}
