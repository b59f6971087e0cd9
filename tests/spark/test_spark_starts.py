"""Java and PySpark work. The tests of the syphon need them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyspark
from pyspark.sql import SparkSession


def double(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        name = Path("/proc/self/comm").read_text().strip()
        values = {"worker": os.getpid(), "name": name, "pyspark": pyspark.__file__}
        yield pd.DataFrame({"twice": frame["id"] * 2, **values})


def test_spark_runs_python_in_worker_processes(session: SparkSession):
    numbers = session.range(1000, numPartitions=2)

    rows = numbers.mapInPandas(
        double, "twice long, worker long, name string, pyspark string"
    ).collect()

    assert sum(row.twice for row in rows) == 999 * 1000
    assert os.getpid() not in {row.worker for row in rows}
    # They are forked from a process that is ready.
    assert {row.name for row in rows} == {"pyspark.worker"}
    # Not from an archive, which Python would compile in each process.
    assert {row.pyspark for row in rows} == {pyspark.__file__}
