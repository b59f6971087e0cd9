"""Queues as a Spark stream: messages are received under locks, by several tasks at once.

A queue cannot replay a range of messages, so offsets only count: `{"batch": n}` means that n
micro-batches were planned. Spark may call `partitions` more than once for a micro-batch, so it does
not receive anything.
"""

import logging
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pairbus.errors import Refused
from pairbus.servicebus.limits import MAX_LOCK_S
from pairbus.spark.locked_messages import LockedMessages
from pairbus.spark.long_polls import LongPolls
from pairbus.spark.messages import ReceivedMessage, sequence_number_of
from pairbus.spark.plans import BatchPlan, PartitionPlan
from pairbus.spark.queue_reader import QueueReader

logger = logging.getLogger(__name__)

WAIT_S = 5.0
"""The longest wait for the long polls, within one call by Spark."""
CONNECT_S = 10.0
"""The time that a stream with an AvailableNow trigger has to reach its namespace."""
CHECK_S, MAX_CHECK_S = 1.0, 5.0
"""The interval between two checks for locked messages. It doubles up to the maximum."""
MAX_LOCK_WAIT_S = MAX_LOCK_S + 30
"""Longer than any lock that is not renewed."""


class BatchPlanner(Protocol):
    """Plans micro-batches, in the driver."""

    def next_batch(self, *, available_now: bool) -> BatchPlan | None:
        """Return the next micro-batch, or None if there is nothing to read at the moment. With
        `available_now`, None ends the stream."""

    def status(self) -> dict[str, Any] | None:
        """Return what the progress of the query should show, as JSON values, or None."""

    def stop(self) -> None:
        """Release all resources."""


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads messages of queues under locks. The sink settles them.

    The planner works in the driver, and is not sent to workers. The reader works there.
    """

    def __init__(
        self,
        queues: tuple[str, ...],
        *,
        partitions: int,
        max_messages: int,
        planner: BatchPlanner,
        reader: QueueReader[Any],
        on_start: Callable[[], None] | None = None,
        on_stop: Callable[[], None] | None = None,
    ) -> None:
        """`on_start` is called before the first micro-batch, and `on_stop` when the query ends, in
        the process that plans micro-batches."""
        self._on_start = on_start
        self._on_stop = on_stop
        self._started = False
        self._queues = queues
        self._partitions = max(1, min(partitions, len(queues)))
        self._max_messages = max_messages
        self._planner = planner
        self._reader = reader
        self._available_now = False
        self._plans: dict[int, BatchPlan] = {}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available_now = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        self._start()
        plan = self._planner.next_batch(available_now=self._available_now)
        if plan is None:
            return start
        number = start["batch"] + 1
        self._plans = {number: plan}
        return {"batch": number}

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        # Spark only shows it, in the progress of the query.
        return self._planner.status()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[PartitionPlan]:
        number = end["batch"]
        plan = self._plans.get(number)
        if plan is None or number == start["batch"]:
            # Spark starts a new query with a micro-batch, also if there is nothing to read. After a
            # restart, that is one which did not end: its messages are those of the next one, which
            # is planned by what applies now.
            return [PartitionPlan((), (), 0, frozenset())]
        tokens = self._reader.request_tokens()
        return plan.split(self._queues, self._partitions, number, tokens)

    def read(self, partition: PartitionPlan) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        return self._reader.read(partition)

    def stop(self) -> None:
        self._planner.stop()
        if self._on_stop is not None:
            self._on_stop()

    def _start(self) -> None:
        """Call `on_start`, once, and let SIGTERM call `on_stop`: with that signal, Spark ends the
        process that plans micro-batches."""
        if self._started:
            return
        self._started = True
        if self._on_start is not None:
            self._on_start()
        on_stop = self._on_stop
        if on_stop is None:
            return

        def handle(number: int, _: object) -> None:
            on_stop()
            os._exit(128 + number)

        signal.signal(signal.SIGTERM, handle)

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_planner": None,
            "_plans": {},
            "_on_start": None,
            "_on_stop": None,
        }


class QueuePlanner:
    """Plans a micro-batch as soon as a long poll has received a message.

    With `available_now` it ends the stream when no queue has a message that the stream has not
    read. It waits for messages that other receivers have locked, for at most `MAX_LOCK_WAIT_S`.
    """

    def __init__(self, polls: LongPolls, max_messages: int, locked: LockedMessages) -> None:
        self._polls = polls
        self._max_messages = max_messages
        self._locked = locked
        self._read: defaultdict[str, set[int]] = defaultdict(set)
        """The sequence numbers of the first messages of micro-batches, by queue."""

    def next_batch(self, *, available_now: bool) -> BatchPlan | None:
        """Return the next micro-batch, or None. Raises Refused, which a retry does not solve, and
        with `available_now` any error: the stream would end as if the queues were empty."""
        started = time.monotonic()
        check_s = CHECK_S
        while True:
            wait_for_messages(self._polls, until_known=available_now)
            if first_messages := self._polls.take():
                for queue, message in first_messages.items():
                    self._read[queue].add(sequence_number_of(message.payload))
                return BatchPlan(self._max_messages, first_messages)
            error = self._polls.error
            if isinstance(error, Refused):
                raise error
            if not available_now:
                return None
            waited = time.monotonic() - started
            if error is not None:
                if waited >= CONNECT_S:
                    raise error
                continue
            if not self._locked.exist(self._read):
                return None
            if waited >= MAX_LOCK_WAIT_S:
                logger.warning("The stream ends. Other receivers still have messages locked.")
                return None
            self._polls.wait_for_message(check_s)
            check_s = min(2 * check_s, MAX_CHECK_S)

    def status(self) -> None:
        """Return nothing: the connector has no status of its own."""

    def stop(self) -> None:
        self._polls.stop()
        self._locked.close()


def wait_for_messages(polls: LongPolls, *, until_known: bool) -> list[ReceivedMessage]:
    """Poll all queues, and return the messages that arrived.

    With `until_known`, wait until each queue has a message or is known to be empty: a stream with
    an AvailableNow trigger ends when there is nothing left.
    """
    polls.resume()
    while not polls.wait_until_known(WAIT_S) and until_known and polls.error is None:
        pass
    return polls.messages()
