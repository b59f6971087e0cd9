"""Which Spark session a syphon uses that is given none, and who stops it."""

import threading
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from pairbus.syphon.spark_session import own_session, set_for_streams

_lock = threading.Lock()
_leases = 0
_ours: SparkSession | None = None


def take(master: str | None, log: Path | None = None) -> SparkSession:
    """A session. A process has one Spark: where the application or another syphon runs it already,
    it is shared, with settings apart. `log` is where one that is started here writes its
    errors. `give_back` must follow."""
    global _leases, _ours  # noqa: PLW0603  as there is one Spark in a process
    with _lock:
        _leases += 1
        try:
            # The active session is a thread's, this is the process's.
            if SparkContext._active_spark_context is None:
                _ours = own_session(master, log=log)
                return _ours
            shared = SparkSession.builder.getOrCreate().newSession()
            set_for_streams(shared)
        except BaseException:
            _leases -= 1
            raise
        return shared


def give_back() -> None:
    """The last one stops Spark, if it was started here."""
    global _leases, _ours  # noqa: PLW0603
    with _lock:
        _leases -= 1
        if _leases == 0 and _ours is not None:
            _ours.stop()
            _ours = None
