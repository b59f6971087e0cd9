"""The syphon: a streaming query that drains the backlog, from start to stop."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pairbus.amqp.client import HeldCredential
from pairbus.backlog.syphon_control import Control, ControlFile
from pairbus.errors import ConfigurationError, StateError
from pairbus.servicebus.addresses import canonical_address
from pairbus.spark.driver_tokens import TokenServer
from pairbus.spark.error_summary import error_summary
from pairbus.spark.executors import ExecutorWatch
from pairbus.spark.owned_folders import OwnedFolder, remove_abandoned_folders
from pairbus.spark.query_start import start_query
from pairbus.spark.registration import register_source
from pairbus.spark.sessions import (
    ROWS_PER_WRITE,
    ROWS_SETTING,
    SessionLease,
    is_local_master,
    is_remote,
    lease_session,
)
from pairbus.syphon.backlog_source import BacklogSourceFactory, ServerFolder, control_path
from pairbus.syphon.missing_destinations import describe_missing
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.query_status import FileReports, ProgressReports, query_state
from pairbus.syphon.selection import (
    Selection,
    SelectionClient,
    SelectionServer,
    UnknownSelection,
)
from pairbus.syphon.status import SyphonStatus, combine, find_problem
from pairbus.syphon.status_file import StatusFiles
from pairbus.syphon.task_slots import TaskSlots
from pairbus.syphon.telemetry import SyphonTelemetry
from pairbus.syphon.transformation import Transform, select_rows
from pairbus.telemetry.providers import find_telemetry
from pairbus.telemetry.senders import ServerAddress

TRIGGER = "200 milliseconds"
PROGRESS_SETTING = "spark.sql.streaming.noDataProgressEventInterval"
"""The setting of Spark for the interval between two updates of the progress of a query that has
nothing to do."""
SERVER_TMP = Path("/tmp")
"""The parent of temporary folders on a Spark Connect server."""
NO_EXECUTORS_S = 30.0
"""A micro-batch that waits for this long for an executor is a problem."""
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
        is none; `sc://…` is the address of a Spark Connect server. Without `checkpoint`, Spark
        keeps its progress in a temporary folder.

        `transform` gets the backlog as a streaming DataFrame and returns the rows to move. It may
        drop rows, which stay in the backlog, and change `destination`, `payload`, `problem` and
        `description`; the page Working with a syphon of the documentation has the details."""
        self.options = options
        self.format_name = f"pairbus-syphon-{uuid4().hex[:8]}"
        """The name of its data source in the session."""
        self._spark = spark
        self._master = master
        self._checkpoint = checkpoint
        self._transform = transform
        self._lease: SessionLease | None = None
        self._folder: OwnedFolder | None = None
        self._reports: FileReports | ProgressReports | None = None
        self._executors: ExecutorWatch | None = None
        self._tokens: TokenServer | None = None
        self._control: ControlFile | None = None
        self._selection: SelectionServer | None = None
        self._telemetry: SyphonTelemetry | None = None
        self._resources = contextlib.ExitStack()
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
            if self._telemetry is not None:
                self._telemetry.start()

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
            with contextlib.suppress(Exception):  # Spark may have ended already
                _wait_for_trigger(self._query)
                self._query.stop()
            self._final_status = self.status()
            self._release()

    def pause(self, destination: str | None = None) -> None:
        """Move no messages for a destination, or none at all, until `resume`. Raises StateError if
        the syphon does not run or is on Spark Connect, as the methods below do."""
        self._update_control(lambda control: control.pause(destination))

    def resume(self, destination: str | None = None) -> None:
        """End the pause of a destination, or of all."""
        self._update_control(lambda control: control.resume(destination))

    def set_max_rate(self, rate: float | None, destination: str | None = None) -> None:
        """Limit the messages a second for a destination, or for all together. None: the limit of
        the options. Raises ConfigurationError for a rate that is not above 0."""
        self._update_control(lambda control: control.set_max_rate(rate, destination))

    def _update_control(self, change: Callable[[Control], Control]) -> None:
        if self._query is None or self._final_status is not None:
            raise StateError("The syphon does not run. Call start first.")
        if self._control is None:
            raise StateError(
                "A syphon on Spark Connect is controlled on the machine of the server, by its "
                "control file."
            )
        self._control.update(change)

    def status(self) -> SyphonStatus:
        """Return the progress and health. Raises StateError if the syphon was not started."""
        if self._final_status is not None:
            return self._final_status
        query = self._started_query()
        assert self._reports is not None
        state, now = query_state(query), time.time()
        reader, writer = self._reports.read()
        grace = self.options.missing_destination_grace
        missing = {
            path: describe_missing(writer.missing_since[path], grace, now, running=state.running)
            for path in writer.errors.keys() & writer.missing_since.keys()
        }
        writer = replace(writer, errors=writer.errors | missing)
        if state.failure is not None:
            problem: str | None = f"the query failed: {error_summary(state.failure)}"
        else:
            problem = self._problem_of_spark() or find_problem(
                reader,
                writer,
                started_at=self._started_at,
                now=now,
                stuck_after_s=self.options.stuck_after.total_seconds(),
                missing=missing,
            )
        return combine(
            reader, writer, running=state.running, failure=state.failure, problem=problem
        )

    def seconds_without_executors(self) -> float:
        """Return for how long a micro-batch has waited while Spark had no executor to run it. It is
        0 where this cannot be known: in local mode, and on Spark Connect."""
        return 0.0 if self._executors is None else self._executors.seconds_without()

    def _problem_of_spark(self) -> str | None:
        seconds = self.seconds_without_executors()
        if seconds < NO_EXECUTORS_S:
            return None
        assert self._executors is not None
        return (
            f"Spark has had no executors for {seconds:.0f} s; check the master "
            f"{self._executors.master} and its workers"
        )

    def _started_query(self) -> StreamingQuery:
        if self._query is None:
            raise StateError("The syphon was not started. Call start first.")
        return self._query

    def _start_query(self, once: bool) -> StreamingQuery:
        spark = self._spark
        if spark is None:
            self._lease = lease_session(self._master)
            spark = self._lease.session
        remove_abandoned_folders()
        self._folder = OwnedFolder("syphon")
        self._started_at = time.time()
        remote = is_remote(spark)
        options = self._options_for_workers(self._folder.path, remote=remote)
        self._telemetry = self._make_telemetry(self._folder.path, remote=remote)
        has_telemetry = self._telemetry is not None and not remote
        options = replace(options, telemetry=has_telemetry)
        name = self.format_name
        select = partial(
            select_rows, only=options.only, where=options.where, transform=self._transform
        )
        selection: Selection | None = None
        is_transformed = options.where is not None or self._transform is not None
        if remote:
            server_folder = ServerFolder(SERVER_TMP / name)
            if is_transformed:
                selection = UnknownSelection()
            factory = BacklogSourceFactory(options, server_folder, selection=selection)
            checkpoint = server_folder.checkpoint
        else:
            self._control = ControlFile(control_path(options, self._folder.path))
            self._control.read()  # raises if it is not valid
            self._resources.enter_context(self._control.in_use())
            if is_transformed:
                self._selection = SelectionServer(self._folder.path, spark, select)
                selection = SelectionClient(self._selection.address, options.ttl == "deduct")
            context = spark.sparkContext
            slots = TaskSlots(context.defaultParallelism, is_local_master(context.master or ""))
            factory = BacklogSourceFactory(options, self._folder.path, slots, selection)
            StatusFiles(self._folder.path).progress.create()
            checkpoint = str(self._folder.path / "checkpoint")
        register_source(spark, name, factory.source_schema, factory)
        if not remote:
            # Spark looks up sinks in the active session of the thread, not in that of the query.
            java_class = SparkSession._get_j_spark_session_class(spark._jvm)
            java_class.setActiveSession(spark._jsparkSession)
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": TRIGGER}
        rows_per_write = ROWS_PER_WRITE if factory.has_filter else 1
        with (
            # The progress after the last micro-batch says if the backlog is drained.
            _setting(spark, PROGRESS_SETTING, "0" if once else "1000"),
            _setting(spark, ROWS_SETTING, str(rows_per_write)),
        ):
            rows = spark.readStream.format(name).load()
            writer = (
                (select(rows) if factory.has_filter else rows)
                .writeStream.format(name)
                .option("checkpointLocation", self._checkpoint or checkpoint)
                .trigger(**trigger)
            )
            query = start_query(writer.start)
        if remote:
            self._reports = ProgressReports(query)
        else:
            self._reports = FileReports(StatusFiles(self._folder.path))
            self._executors = ExecutorWatch.of(spark)
        return query

    def _options_for_workers(self, folder: Path, *, remote: bool) -> SyphonOptions:
        """Return the options, with a server of tokens instead of a credential."""
        namespaces = (self.options.primary, self.options.secondary)
        if not any(isinstance(each.tokens, HeldCredential) for each in namespaces):
            return self.options
        if remote:
            raise ConfigurationError(
                "A credential object stays in this process, where a Spark Connect server cannot "
                "get tokens. Use a function that creates the credential, or a connection string."
            )
        self._tokens = TokenServer(folder)
        primary, secondary = map(self._tokens.replace_credential, namespaces)
        return replace(self.options, primary=primary, secondary=secondary)

    def _make_telemetry(self, folder: Path, *, remote: bool) -> SyphonTelemetry | None:
        telemetry = find_telemetry(self.options.telemetry)
        if telemetry is None:
            return None
        primary = self.options.primary
        return SyphonTelemetry(
            telemetry,
            self.status,
            None if remote else StatusFiles(folder).drains,
            pairing=self.options.name or "",
            primary=ServerAddress(*canonical_address(primary.host, primary.port, None)),
        )

    def _release(self) -> None:
        """Release Spark, and delete the folder."""
        if self._telemetry is not None:
            self._telemetry.close()
        self._resources.close()
        if self._lease is not None:
            self._lease.release()
        if self._tokens is not None:
            self._tokens.close()
        if self._selection is not None:
            self._selection.close()
        if self._folder is not None:
            self._folder.remove()


@contextlib.contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Change a setting of a session, which may be the application's, for a query that starts."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def _wait_for_trigger(query: StreamingQuery) -> None:
    """Wait for the current micro-batch. Stopping Spark within one logs a stack trace."""
    pause, deadline = threading.Event(), time.monotonic() + STOP_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        pause.wait(0.01)
