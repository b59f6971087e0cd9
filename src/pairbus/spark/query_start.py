"""The start of a streaming query whose source is a Python process."""

import contextlib
import logging
import threading
from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

ATTEMPTS = 5
POLL_S = 0.05

_log = logging.getLogger(__name__)


def start_query(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query, and wait until its source runs or has failed.

    Spark gives the process of a source 10 seconds to start, which no setting changes. On a busy
    machine that is too little: the query has failed before it did anything, and is started again.
    """
    for _ in range(ATTEMPTS - 1):
        query = start()
        _wait_for_source(query)
        if not _was_too_slow(query):
            return query
        _log.warning("Spark gave up a Python process that took over 10 s to start. Trying again.")
    return start()


def _wait_for_source(query: StreamingQuery) -> None:
    pause = threading.Event()
    with contextlib.suppress(Exception):  # Spark ended, which the state of the query tells
        while query.isActive and query.status["message"].startswith("Initializing"):
            pause.wait(POLL_S)


def _was_too_slow(query: StreamingQuery) -> bool:
    with contextlib.suppress(Exception):
        return "Python worker failed to connect back" in str(query.exception())
    return False
