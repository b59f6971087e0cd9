"""The cost of `restore` as a DataFrame step: `python -m benchmarks.restore_step [ROUNDS]`.

Two queries over the same backlog messages, in turns: one restores them in its source, as the syphon
does, the other in a step after it (`mapInArrow`). Both end in a sink that takes the rows and sends
nothing. The figure is the CPU time of Spark and its Python workers for each message.
"""

import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pairbus.amqp.sections import Message, Properties
from pairbus.spark.messages import ReceivedMessage
from pairbus.spark.rows import ROWS_PER_BATCH
from pairbus.spark.sessions import create_session
from pairbus.syphon.restore import BACKLOG_SCHEMA, restore, to_backlog_batch
from pairbus.transfer import to_backlog

MESSAGES, BODY_BYTES, PARTITIONS = 40_000, 300, 2


def received(index: int) -> ReceivedMessage:
    message = Message.build(
        properties=Properties(message_id=f"m-{index}"), data=bytes(BODY_BYTES)
    ).encode()
    return ReceivedMessage("queue", to_backlog(message, "orders"), index.to_bytes(16, "big"), 0)


def restored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Restore rows that a source has left as they were."""
    for batch in batches:
        rows = batch.to_pylist()
        yield to_backlog_batch(
            [
                restore(
                    ReceivedMessage(
                        row["queue"], row["payload"], row["lock_token"], row["locked_until"]
                    ),
                    None,
                )
                for row in rows
            ]
        )


class Reader(DataSourceReader):
    def __init__(self, restores: bool) -> None:
        self._restores = restores

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(index) for index in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        messages = [received(index) for index in range(ROWS_PER_BATCH)]
        for _ in range(MESSAGES // PARTITIONS // ROWS_PER_BATCH):
            if self._restores:
                yield to_backlog_batch([restore(message, None) for message in messages])
            else:
                yield pa.RecordBatch.from_pylist(
                    [message._asdict() for message in messages],
                    schema=pa.schema(
                        [
                            ("queue", pa.string()),
                            ("payload", pa.binary()),
                            ("lock_token", pa.binary()),
                            ("locked_until", pa.int64()),
                        ]
                    ),
                )


class Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for batch in iterator:
            for column in batch.columns:
                is_time = pa.types.is_timestamp(column.type)
                (column.cast(pa.int64()) if is_time else column).to_pylist()
        return WriterCommitMessage()


class RestoringSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "restoring"

    def schema(self) -> str:
        return BACKLOG_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader(restores=True)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return Writer()


class PlainSource(RestoringSource):
    @classmethod
    def name(cls) -> str:
        return "plain"

    def schema(self) -> str:
        return "queue string, payload binary, lock_token binary, locked_until long"

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader(restores=False)


def cpu_seconds() -> float:
    """Return the CPU time of all processes below this one, those that have ended included."""
    parents, times = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            parents[int(folder.name)] = int(fields[1])
            times[int(folder.name)] = sum(map(int, fields[11:15]))
    total = 0
    for process, ticks in times.items():
        ancestor = parents.get(process)
        while ancestor is not None and ancestor != os.getpid():
            ancestor = parents.get(ancestor)
        total += ticks if ancestor is not None else 0
    return total / os.sysconf("SC_CLK_TCK")


def microseconds(spark: SparkSession, source: str) -> float:
    """Return the CPU time for each message."""
    before = cpu_seconds()
    rows = spark.read.format(source).load()
    if source == "plain":
        rows = rows.mapInArrow(restored, BACKLOG_SCHEMA)
    rows.write.format("restoring").mode("append").save()
    return (cpu_seconds() - before) / MESSAGES * 1e6


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    spark = create_session(f"local[{PARTITIONS}]")
    spark.dataSource.register(RestoringSource)
    spark.dataSource.register(PlainSource)
    results: dict[str, list[float]] = {"restoring": [], "plain": []}
    for number in range(rounds + 1):
        for source, values in results.items():
            value = microseconds(spark, source)
            if number > 0:  # the first round starts the workers
                values.append(value)
    spark.stop()
    inside, step = (statistics.median(results[source]) for source in ("restoring", "plain"))
    print(f"in the source: {inside:.1f} µs of CPU a message")
    print(f"as a step:     {step:.1f} µs of CPU a message ({step / inside - 1:+.0%})")


if __name__ == "__main__":
    main()
