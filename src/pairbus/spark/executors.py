"""A watch on the executors of a Spark context: is there any to run the jobs that wait?"""

import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from pairbus.spark.sessions import is_local_master

CHECK_S = 2.0
"""The shortest interval between two questions to Spark."""


class ExecutorWatch:
    """Measures how long jobs have waited without any executor.

    An idle query may have no executors, for example with dynamic allocation. So only the time in
    which a job is active counts. Calls ask Spark at most once in `CHECK_S`.
    """

    def __init__(
        self,
        master: str,
        is_starved: Callable[[], bool],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_starved` returns True if a job is active, and no executor exists."""
        self.master = master
        self._is_starved = is_starved
        self._now = now
        self._checked_at: float | None = None
        self._since: float | None = None

    @classmethod
    def of(cls, session: SparkSession) -> "ExecutorWatch | None":
        """Return a watch for a session. None: its tasks run in the driver."""
        context = session.sparkContext
        master = context.master or ""
        if is_local_master(master):
            return None
        scala_context: Any = context._jsc.sc()
        tracker = context.statusTracker()

        def is_starved() -> bool:
            # The driver is one of those that have memory.
            return bool(tracker.getActiveJobsIds()) and (
                scala_context.getExecutorMemoryStatus().size() <= 1
            )

        return cls(master, is_starved)

    def seconds_without(self) -> float:
        """Return for how long jobs have waited without an executor."""
        now = self._now()
        if self._checked_at is None or now - self._checked_at >= CHECK_S:
            self._checked_at = now
            try:
                starved = self._is_starved()
            except Exception:  # noqa: BLE001  Spark has ended, which the state of the query says
                starved = False
            if not starved:
                self._since = None
            elif self._since is None:
                self._since = now
        return 0.0 if self._since is None else now - self._since
