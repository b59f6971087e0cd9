"""What a syphon would move, by destination, without moving it."""

import time
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from pairbus.spark.columns import ReceivedMessage, as_rows, turn_back
from pairbus.spark.connector import PeekReader
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.spark_session import own_session

FORMAT = "pairbus-dry-run"


@dataclass(frozen=True, slots=True)
class Heap:
    """Messages that would go one way."""

    destination: str | None
    """None: they say none."""
    problem: str | None
    """Why they would be dead-lettered; None: they would not, unless the destination is gone."""
    messages: int
    oldest: datetime


class _TurnedBackReader(PeekReader):
    """The backlog, as far as a dry run is interested in it."""

    def __init__(self, options: SyphonOptions) -> None:
        super().__init__(options.secondary, options.backlog_queues, None, (), may_be_absent=True)
        self._deduct = options.ttl == "deduct"

    def frame(self, found: list[ReceivedMessage]) -> pa.RecordBatch:
        now_ms = time.time_ns() // 1_000_000 if self._deduct else None
        turned = [turn_back(one, 0, now_ms) for one in found]
        columns = [
            pa.array([one.destination for one in turned], pa.string()),
            pa.array([one.problem for one in turned], pa.string()),
            as_rows(found, ("enqueued_time",)).column(0),
        ]
        return pa.RecordBatch.from_arrays(columns, names=["destination", "problem", "oldest"])


def destinations(options: SyphonOptions, master: str | None) -> list[Heap]:
    """What lies in the backlog, by where it would go, the largest heaps first."""

    class Backlog(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return "destination string, problem string, oldest timestamp"

        def reader(self, schema: StructType) -> DataSourceReader:
            return _TurnedBackReader(options)

    spark = own_session(master)
    try:
        spark.dataSource.register(Backlog)
        rows = spark.read.format(FORMAT).load()
        if options.only:
            rows = rows.where(
                rows["destination"].isin(list(options.only)) | rows["problem"].isNotNull()
            )
        counted = rows.groupBy("destination", "problem").agg(
            F.count("*").alias("messages"), F.min("oldest").alias("oldest")
        )
        found = counted.orderBy(F.desc("messages"), "destination").collect()
        return [Heap(row.destination, row.problem, row.messages, row.oldest) for row in found]
    finally:
        spark.stop()
