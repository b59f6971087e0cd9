"""A syphon: a Spark query that moves the backlog, from start to stop."""

import contextlib
import shutil
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession

from pairbus.errors import StateError
from pairbus.spark.sessions import give_back, take
from pairbus.syphon.health import ReaderStatusFile, problem_of, sight_beside
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.progress import WriterStatusFile
from pairbus.syphon.spark_session import backlog, register

TRIGGER = "200 milliseconds"
STOP_S = 10.0
"""How long a micro-batch may take to end when the syphon is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonStatus:
    """How a syphon is doing."""

    running: bool
    batches: int
    """Micro-batches that had something in them."""
    moved: Counter[str]
    """Messages that arrived, by destination."""
    dead_lettered: Counter[str]
    left: Counter[str]
    """Messages of the last micro-batch that stayed in the backlog, by destination."""
    errors: dict[str, str]
    """Destinations that do not take messages now, and why."""
    bytes: int
    unsettled: int
    """Messages that arrived, and come a second time: their locks were gone."""
    rate: float
    """Messages a second, of the last micro-batch."""
    healthy: bool
    """There is progress, or nothing to do."""
    problem: str | None
    """Why it is not healthy."""
    unreadable: str | None
    """Why the backlog cannot be read now."""
    failure: str | None
    """Why the query ended, if it failed."""
    drained: bool
    """A run with `once` has ended, and a peek of every backlog queue showed that no message is left
    that was to be moved."""


class Syphon:
    """Moves the backlog to where it was going, until it is stopped.

    At least once: a message is completed in the backlog after the primary has accepted it. One
    whose completion is lost arrives twice, with one message id, and an entity with duplicate
    detection keeps one.
    """

    def __init__(
        self,
        options: SyphonOptions,
        *,
        spark: SparkSession | None = None,
        master: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        self.options = options
        self._given = spark
        self._master = master
        self._checkpoint = checkpoint
        self._folder: Path | None = None
        self._record: WriterStatusFile | None = None
        self._query: Any = None
        self._spark: SparkSession | None = None
        self._started_at = 0.0
        self._lock = threading.Lock()

    def __enter__(self) -> "Syphon":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, *, once: bool = False) -> None:
        """Start moving. `once`: stop when the backlog queues are empty, or when it is stuck."""
        with self._lock:
            if self._query is not None:
                raise StateError("the syphon was started before")
            try:
                self._query = self._start(once)
            except BaseException:
                self._let_go()
                raise

    def _start(self, once: bool) -> Any:
        self._spark = take(self._master) if self._given is None else self._given
        self._folder = Path(tempfile.mkdtemp(prefix="pairbus-syphon-"))
        record = self._folder / "record.json"
        self._record = WriterStatusFile(record)
        self._started_at = time.time()
        cores = self._spark.sparkContext.defaultParallelism
        format_name = register(self._spark, self.options, record, cores)
        writer = (
            backlog(self._spark, format_name, self.options.only)
            .writeStream.format(format_name)
            .option("checkpointLocation", self._checkpoint or str(self._folder / "checkpoint"))
        )
        trigger = {"availableNow": True} if once else {"processingTime": TRIGGER}
        return writer.trigger(**trigger).start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it ends by itself. False: it has not."""
        if self._query is None:
            raise StateError("the syphon was not started")
        with contextlib.suppress(Exception):  # `status` says how it ended
            ended = self._query.awaitTermination(timeout_s)
            return True if timeout_s is None else bool(ended)
        return True

    def stop(self) -> None:
        """Stop. What was not moved stays in the backlog. Can be called again."""
        with self._lock:
            if self._query is None or self._folder is None:
                return
            self._let_finish(self._query)
            with contextlib.suppress(Exception):
                self._query.stop()
            self._last = self.status()
            self._let_go()

    def _let_go(self) -> None:
        """Spark and the folder are needed no more."""
        if self._given is None and self._spark is not None:
            give_back()
        self._spark = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def _let_finish(self, query: Any) -> None:
        """A query that is stopped within a micro-batch leaves a stack in the log."""
        pause, deadline = threading.Event(), time.monotonic() + STOP_S
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            pause.wait(0.01)

    def status(self) -> SyphonStatus:
        """What was done so far, and whether there is progress."""
        if self._record is None:
            raise StateError("the syphon was not started")
        if self._folder is None:
            return self._last
        record = self._record.read()
        sight = ReaderStatusFile(sight_beside(self._record.path)).read()
        failure = self._query.exception()
        problem: str | None
        if failure is not None:
            problem = f"the query failed: {str(failure).splitlines()[0]}"
        else:
            problem = problem_of(
                record,
                sight,
                started_at=self._started_at,
                now=time.time(),
                stuck_after_s=self.options.stuck_after.total_seconds(),
            )
        return SyphonStatus(
            running=self._query.isActive,
            batches=record.batches,
            moved=record.moved,
            dead_lettered=record.dead_lettered,
            left=record.left,
            errors=record.errors,
            bytes=record.bytes,
            unsettled=record.unsettled,
            rate=record.rate,
            healthy=problem is None,
            problem=problem,
            unreadable=sight.error,
            failure=None if failure is None else str(failure),
            drained=failure is None and sight.drained,
        )
