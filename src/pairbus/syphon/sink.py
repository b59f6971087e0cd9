"""The sink of the syphon: forwards messages to the primary, and settles them in the backlog."""

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pairbus.spark.driver_tokens import deliver_tokens, request_tokens
from pairbus.spark.forwarder import Forwarder
from pairbus.spark.messages import RestoredMessage
from pairbus.spark.outcome import OutcomeRecorder
from pairbus.spark.task_commit import TaskCommit
from pairbus.syphon.archive import ArchivingSettler
from pairbus.syphon.missing_destinations import expired_destinations
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.status_file import StatusFile
from pairbus.syphon.writer_status import WriterStatus


class BacklogSink(DataSourceStreamArrowWriter):
    """Sends rows of `BACKLOG_SCHEMA` to their destinations, and reports the outcome."""

    def __init__(self, options: SyphonOptions, status_file: StatusFile[WriterStatus]) -> None:
        self._primary = options.primary
        self._secondary = options.secondary
        self._usage = options.usage
        self._archive = options.archive
        self._status_file = status_file
        self._grace = options.missing_destination_grace
        self._started_at = time.time()
        self._expired = expired_destinations(
            status_file.read().missing_since, self._grace, self._started_at
        )
        # Spark creates the sink in the driver, for each micro-batch.
        self._tokens = request_tokens([options.primary, options.secondary])

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        deliver_tokens(self._tokens)
        recorder = None
        if self._archive is not None:
            settler = ArchivingSettler(self._secondary, self._usage, self._archive)
            recorder = OutcomeRecorder(settler, self._usage)
        forwarder = Forwarder(
            self._primary,
            self._secondary,
            usage=self._usage,
            expired=self._expired,
            recorder=recorder,
        )
        for batch in iterator:
            columns = [column.to_pylist() for column in batch.columns]
            forwarder.forward(RestoredMessage(*row) for row in zip(*columns, strict=True))
        outcome = forwarder.finish()
        self._usage.flush()
        return TaskCommit(outcome)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        outcomes = [message.outcome for message in messages if isinstance(message, TaskCommit)]
        status = self._status_file.read()
        status.add(outcomes, time.time(), started_at=self._started_at, grace=self._grace)
        self._status_file.write(status)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        # What the successful tasks have sent is sent, although the micro-batch failed.
        self.commit(messages, batchId)
