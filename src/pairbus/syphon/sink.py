"""Where messages go: a Spark sink that sends them on and settles them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pairbus.spark.columns import RestoredMessage
from pairbus.spark.forwarder import Forwarder, Outcome
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.progress import WriterStatusFile


@dataclass
class Done(WriterCommitMessage):
    """What came of one task."""

    outcome: Outcome


class Sink(DataSourceStreamArrowWriter):
    """Sends rows of `BACKLOG_SCHEMA` to where they are going, and settles them."""

    def __init__(self, options: SyphonOptions, record: Path) -> None:
        self._primary = options.primary
        self._secondary = options.secondary
        self._books = options.books
        self._record = WriterStatusFile(record)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Done:
        forwarder = Forwarder(self._primary, self._secondary, books=self._books)
        for batch in iterator:
            columns = [column.to_pylist() for column in batch.columns]
            forwarder.take(RestoredMessage(*row) for row in zip(*columns, strict=True))
        outcome = forwarder.finish()
        self._books.flush()
        return Done(outcome)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._record.note(one.outcome for one in messages if isinstance(one, Done))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self.commit(messages, batchId)
