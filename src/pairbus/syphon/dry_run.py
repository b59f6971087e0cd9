"""What a syphon would move, by destination, without moving it."""

from datetime import datetime

from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from pairbus.syphon.columns import SCHEMA
from pairbus.syphon.connector import PeekReader, columns_of
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.spark import own_session

FORMAT = "pairbus-dry-run"


def destinations(
    options: SyphonOptions, master: str | None
) -> list[tuple[str | None, int, datetime]]:
    """Destination, messages, and when the oldest came; None: they say none."""

    class Backlog(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return SCHEMA

        def reader(self, schema: StructType) -> DataSourceReader:
            return PeekReader(
                options.secondary,
                options.backlog_queues,
                None,
                columns_of(schema),
                may_be_absent=True,
            )

    spark = own_session(master)
    try:
        spark.dataSource.register(Backlog)
        rows = spark.read.format(FORMAT).load()
        if options.only:
            rows = rows.where(rows["destination"].isin(list(options.only)))
        counted = rows.groupBy("destination").agg(
            F.count("*").alias("messages"), F.min("enqueued_time").alias("oldest")
        )
        found = counted.orderBy(F.desc("messages")).collect()
        return [(row["destination"], row["messages"], row["oldest"]) for row in found]
    finally:
        spark.stop()
