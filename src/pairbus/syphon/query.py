"""The syphon: a streaming query that drains the backlog, from start to stop."""

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from pairbus.amqp.client import HeldCredential
from pairbus.backlog.syphon_control import Control, ControlFile
from pairbus.errors import StateError
from pairbus.spark.driver_tokens import TokenServer
from pairbus.spark.sessions import SessionLease, lease_session
from pairbus.syphon.detailed_rows import DETAILED_SCHEMA
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.restore import BACKLOG_SCHEMA
from pairbus.syphon.selection import SelectionClient, SelectionServer
from pairbus.syphon.sink import BacklogSink
from pairbus.syphon.source import backlog_stream_reader
from pairbus.syphon.status import SyphonStatus, combine, find_problem
from pairbus.syphon.status_file import StatusFiles
from pairbus.syphon.transformation import Transform, select_rows

TRIGGER = "200 milliseconds"
STOP_S = 10.0
"""The longest wait for the current micro-batch when the syphon is stopped."""


class Syphon:
    """Drains the backlog: moves its messages to their destinations, until it is stopped.

    Delivery is at least once: a message is completed in the backlog after the primary has accepted
    it. If the completion fails, the message is sent again with the same message id, and an entity
    with duplicate detection keeps one.
    """

    def __init__(
        self,
        options: SyphonOptions,
        *,
        spark: SparkSession | None = None,
        master: str | None = None,
        checkpoint: str | None = None,
        transform: Transform | None = None,
    ) -> None:
        """Without `spark`, the session of this process is used, and started with `master` if there
        is none. Without `checkpoint`, Spark keeps its progress in a temporary folder.

        `transform` gets the backlog as a streaming DataFrame and returns the rows to move. It may
        drop rows, which stay in the backlog, and change `destination`, `payload`, `problem` and
        `description`; docs/syphon.md has the details."""
        self.options = options
        self._spark = spark
        self._master = master
        self._checkpoint = checkpoint
        self._transform = transform
        self._lease: SessionLease | None = None
        self._folder: Path | None = None
        self._files: StatusFiles | None = None
        self._control: ControlFile | None = None
        self._resources = contextlib.ExitStack()
        self._tokens: TokenServer | None = None
        self._selection: SelectionServer | None = None
        self._query: StreamingQuery | None = None
        self._final_status: SyphonStatus | None = None
        self._started_at = 0.0
        self._lock = threading.Lock()

    def __enter__(self) -> "Syphon":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self, *, once: bool = False) -> None:
        """Start the query. With `once`, it ends when the backlog queues are empty, or when there is
        no progress. Raises StateError if it was started before, and ConfigurationError if the
        filter or the transformation is not valid."""
        with self._lock:
            if self._query is not None:
                raise StateError("The syphon was started before. Create a new one.")
            try:
                self._query = self._start_query(once)
            except BaseException:
                self._release()
                raise

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the query ends by itself. False: timed out."""
        query = self._started_query()
        with contextlib.suppress(Exception):  # `status` has the failure
            ended = query.awaitTermination(timeout_s)  # type: ignore[arg-type]  # takes floats
            return True if timeout_s is None else bool(ended)
        return True

    def stop(self) -> None:
        """Stop the query. Messages that were not moved stay in the backlog. Idempotent."""
        with self._lock:
            if self._query is None or self._final_status is not None:
                return
            _wait_for_trigger(self._query)
            with contextlib.suppress(Exception):  # Spark may have ended already
                self._query.stop()
            self._final_status = self.status()
            self._release()

    def pause(self, destination: str | None = None) -> None:
        """Move no messages for a destination, or none at all, until `resume`. Raises StateError if
        the syphon does not run, as the methods below do."""
        self._update_control(lambda control: control.pause(destination))

    def resume(self, destination: str | None = None) -> None:
        """End the pause of a destination, or of all."""
        self._update_control(lambda control: control.resume(destination))

    def set_max_rate(self, rate: float | None, destination: str | None = None) -> None:
        """Limit the messages a second for a destination, or for all together. None: the limit of
        the options. Raises ConfigurationError for a rate that is not above 0."""
        self._update_control(lambda control: control.set_max_rate(rate, destination))

    def _update_control(self, change: Callable[[Control], Control]) -> None:
        if self._control is None or self._final_status is not None:
            raise StateError("The syphon does not run. Call start first.")
        self._control.update(change)

    def status(self) -> SyphonStatus:
        """Return the progress and health. Raises StateError if the syphon was not started."""
        if self._final_status is not None:
            return self._final_status
        query = self._started_query()
        assert self._files is not None
        reader, writer = self._files.reader.read(), self._files.writer.read()
        exception = query.exception()
        failure = None if exception is None else str(exception)
        if failure is not None:
            problem: str | None = f"the query failed: {failure.splitlines()[0]}"
        else:
            problem = find_problem(
                reader,
                writer,
                started_at=self._started_at,
                now=time.time(),
                stuck_after_s=self.options.stuck_after.total_seconds(),
            )
        return combine(reader, writer, running=query.isActive, failure=failure, problem=problem)

    def _started_query(self) -> StreamingQuery:
        if self._query is None:
            raise StateError("The syphon was not started. Call start first.")
        return self._query

    def _start_query(self, once: bool) -> StreamingQuery:
        spark = self._spark
        if spark is None:
            self._lease = lease_session(self._master)
            spark = self._lease.session
        self._folder = Path(tempfile.mkdtemp(prefix="pairbus-syphon-"))
        self._files = StatusFiles(self._folder)
        self._control = ControlFile(
            self._folder / "control.json"
            if self.options.control_file is None
            else Path(self.options.control_file)
        )
        self._control.read()
        self._resources.enter_context(self._control.in_use())
        self._started_at = time.time()
        cores = spark.sparkContext.defaultParallelism
        options = self.options
        namespaces = (options.primary, options.secondary)
        if any(isinstance(each.tokens, HeldCredential) for each in namespaces):
            self._tokens = TokenServer(self._folder)
            primary, secondary = map(self._tokens.replace_credential, namespaces)
            options = replace(options, primary=primary, secondary=secondary)
        select = partial(
            select_rows, only=options.only, where=options.where, transform=self._transform
        )
        selection = None
        if options.where is not None or self._transform is not None:
            self._selection = SelectionServer(self._folder, spark, select)
            selection = SelectionClient(self._selection.address, deduct=options.ttl == "deduct")
        format_name = _register(spark, options, self._files, cores, self._control, selection)
        checkpoint = self._checkpoint or str(self._folder / "checkpoint")
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": TRIGGER}
        return (
            select(spark.readStream.format(format_name).load())
            .writeStream.format(format_name)
            .option("checkpointLocation", checkpoint)
            .trigger(**trigger)
            .start()
        )

    def _release(self) -> None:
        """Release Spark, and delete the folder."""
        self._resources.close()
        if self._lease is not None:
            self._lease.release()
        if self._tokens is not None:
            self._tokens.close()
        if self._selection is not None:
            self._selection.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _register(
    spark: SparkSession,
    options: SyphonOptions,
    files: StatusFiles,
    partitions: int,
    control: ControlFile,
    selection: SelectionClient | None,
) -> str:
    """Register a source and sink for these options, and return the name of their format.

    The class holds the options. As options of Spark, their secrets would appear in plans and logs.
    """
    format_name = f"pairbus-syphon-{uuid4().hex[:8]}"

    class Backlog(DataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> str:
            return BACKLOG_SCHEMA if selection is None else DETAILED_SCHEMA

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return backlog_stream_reader(options, files, partitions, control, selection)

        def streamWriter(  # noqa: N802
            self, schema: StructType, overwrite: bool
        ) -> DataSourceStreamWriter:
            return BacklogSink(options, files.writer)

    spark.dataSource.register(Backlog)
    # Spark looks up sinks in the active session of the thread, not in the session of the query.
    java_class = SparkSession._get_j_spark_session_class(spark._jvm)
    java_class.setActiveSession(spark._jsparkSession)
    return format_name


def _wait_for_trigger(query: StreamingQuery) -> None:
    """Wait for the current micro-batch. Stopping Spark within one logs a stack trace."""
    pause, deadline = threading.Event(), time.monotonic() + STOP_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        pause.wait(0.01)
