"""The sink of the syphon: forwards messages to the primary, and settles them in the backlog."""

import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pairbus.garbage import collect_rarely
from pairbus.spark.drain_recorder import DrainRecorder
from pairbus.spark.driver_tokens import deliver_tokens, request_tokens
from pairbus.spark.forwarder import Forwarder
from pairbus.spark.outcome import OutcomeRecorder
from pairbus.spark.settler import Settler
from pairbus.spark.task_commit import TaskCommit
from pairbus.syphon.archive import ArchivingSettler
from pairbus.syphon.drain_rate import DrainRate
from pairbus.syphon.missing_destinations import expired_destinations
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.packed_rows import messages_of
from pairbus.syphon.status_file import StatusFiles


class BacklogSink(DataSourceStreamArrowWriter):
    """Sends rows of `PACKED_SCHEMA` or `BACKLOG_SCHEMA` to their destinations, and reports the
    outcome."""

    def __init__(self, options: SyphonOptions, files: StatusFiles) -> None:
        self._primary = options.primary
        self._secondary = options.secondary
        self._usage = options.usage
        self._archive = options.archive
        self._archive_format = options.archive_format
        self._status_file = files.writer
        self._rate = DrainRate(files.rate, options.max_rate)
        self._progress = files.progress
        self._drains = files.drains
        self._records_drains = options.telemetry is True
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
        collect_rarely()
        deliver_tokens(self._tokens)
        attempt = uuid4().hex

        def report(*, at_once: bool = True) -> None:
            outcome = recorder.current_outcome()
            self._progress.report(self._batch, attempt, outcome, at_once=at_once)

        drains = DrainRecorder() if self._records_drains else None
        recorder = OutcomeRecorder(self._settler(report), self._usage, drains)
        forwarder = Forwarder(
            self._primary,
            self._secondary,
            usage=self._usage,
            expired=self._expired,
            pace=self._rate_plan.start("send"),
            recorder=recorder,
        )
        for batch in iterator:
            forwarder.forward(messages_of(batch))
            report(at_once=False)
        outcome = forwarder.finish()
        report()
        self._usage.flush()
        records = [] if drains is None else drains.records()
        return TaskCommit(outcome, self._batch, attempt, records)

    def _settler(self, on_dead_lettered: Callable[[], None]) -> Settler:
        if self._archive is None:
            return Settler(self._secondary, self._usage, on_dead_lettered)
        return ArchivingSettler(
            self._secondary,
            self._usage,
            self._archive,
            self._archive_format,
            on_dead_lettered=on_dead_lettered,
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        commits = [message for message in messages if isinstance(message, TaskCommit)]
        outcomes = [commit.outcome for commit in commits]
        # Not that of this object: Spark creates another one for the commit.
        batches = {commit.batch for commit in commits}
        committed = {commit.attempt for commit in commits}
        reports = self._progress.read()
        status = self._status_file.read()
        status.add(outcomes, time.time(), started_at=self._started_at, grace=self._grace)
        for batch in batches:
            for attempt, outcome in reports.get(batch, {}).items():
                if attempt not in committed:  # it was killed, and another one replaced it
                    status.add_report(outcome)
            status.end_batch(batch)
        self._status_file.write(status)
        for batch in batches:
            self._progress.remove(batch)
        self._rate.learn(outcome.limit for outcome in outcomes)
        self._drains.write([record for commit in commits for record in commit.drains])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        # What the successful tasks have sent is sent, although the micro-batch failed.
        self.commit(messages, batchId)
