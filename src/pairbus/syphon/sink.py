"""The sink of the syphon: forwards messages to the primary, and settles them in the backlog."""

import time
from collections.abc import Iterator
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pairbus.spark.driver_tokens import deliver_tokens, request_tokens
from pairbus.spark.forwarder import Forwarder
from pairbus.spark.messages import RestoredMessage
from pairbus.spark.outcome import OutcomeRecorder
from pairbus.spark.task_commit import TaskCommit
from pairbus.syphon.archive import ArchivingSettler
from pairbus.syphon.drain_rate import DrainRate
from pairbus.syphon.missing_destinations import expired_destinations
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.status_file import StatusFiles


class BacklogSink(DataSourceStreamArrowWriter):
    """Sends rows of `BACKLOG_SCHEMA` to their destinations, and reports the outcome."""

    def __init__(self, options: SyphonOptions, files: StatusFiles) -> None:
        self._primary = options.primary
        self._secondary = options.secondary
        self._usage = options.usage
        self._archive = options.archive
        self._status_file = files.writer
        self._rate = DrainRate(files.rate, options.max_rate)
        self._progress = files.progress
        self._batch = uuid4().hex
        self._grace = options.missing_destination_grace
        self._started_at = time.time()
        self._expired = expired_destinations(
            files.writer.read().missing_since, self._grace, self._started_at
        )
        # Spark creates the sink in the driver, for each micro-batch.
        self._tokens = request_tokens([options.primary, options.secondary])
        self._rate_plan = self._rate.planned()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        deliver_tokens(self._tokens)
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        recorder = None
        if self._archive is not None:
            settler = ArchivingSettler(self._secondary, self._usage, self._archive)
            recorder = OutcomeRecorder(settler, self._usage)
        forwarder = Forwarder(
            self._primary,
            self._secondary,
            usage=self._usage,
            expired=self._expired,
            pace=self._rate_plan.start("send"),
            recorder=recorder,
        )
        for batch in iterator:
            columns = [column.to_pylist() for column in batch.columns]
            forwarder.forward(RestoredMessage(*row) for row in zip(*columns, strict=True))
            self._progress.report(self._batch, task, forwarder.moved)
        outcome = forwarder.finish()
        self._progress.report(self._batch, task, outcome.moved, is_last=True)
        self._usage.flush()
        return TaskCommit(outcome, self._batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        commits = [message for message in messages if isinstance(message, TaskCommit)]
        outcomes = [commit.outcome for commit in commits]
        # Not that of this object: Spark creates another one for the commit.
        batches = {commit.batch for commit in commits}
        status = self._status_file.read()
        status.add(outcomes, time.time(), started_at=self._started_at, grace=self._grace)
        for batch in batches:
            status.end_batch(batch)
        self._status_file.write(status)
        for batch in batches:
            self._progress.remove(batch)
        self._rate.learn(outcome.limit for outcome in outcomes)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        # What the successful tasks have sent is sent, although the micro-batch failed.
        self.commit(messages, batchId)
