"""Queues as a Spark stream: peek-lock, shared out over partitions.

Offsets are pacing tokens: a queue cannot replay a range. `{"batch": n}` says that there have been n
micro-batches with something in them. `partitions` may be asked more than once for a micro-batch, so
it receives nothing: the polls have brought a first message of some queues, and tasks read the rest.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pairbus.amqp.client import ClientOptions, Receiver
from pairbus.amqp.events import Delivery
from pairbus.errors import AmqpError, EntityNotFound, Refused
from pairbus.spark.columns import ReceivedMessage, as_rows, sequence_of
from pairbus.spark.connections import client_of
from pairbus.spark.polls import RENEW_S, Poll

logger = logging.getLogger(__name__)

KNOWN_S = 5.0
REACH_S = 10.0
"""How long a stream that is to end tries to reach its namespace."""
ROWS = 2000
"""Rows in one Arrow batch: few enough for reading and sending to go on side by side."""
LOCK_MS = 60_000
UNKNOWN_PLAN = 500
"""Messages of a micro-batch that was planned before a restart."""


@dataclass(frozen=True)
class PartitionPlan(InputPartition):
    """What one task reads."""

    queues: tuple[str, ...]
    first: tuple[ReceivedMessage, ...]
    """The messages that the polls brought, locked since then."""
    count: int
    """How many messages at most."""
    blocked: frozenset[str]
    """Destinations to leave alone."""
    first_until: int = 0
    """Until when the polls' messages are locked at least, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A micro-batch."""

    size: int
    blocked: frozenset[str] = frozenset()


class QueueReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads messages of queues under locks. Whoever gets the rows settles them."""

    def __init__(
        self,
        options: ClientOptions,
        queues: tuple[str, ...],
        *,
        partitions: int,
        max_messages: int,
        poll_s: float,
        columns: tuple[str, ...] = (),
    ) -> None:
        self._client_options = options
        self._queues = queues
        self._partitions = max(1, min(partitions, len(queues)))
        self._max_messages = max_messages
        self._poll_s = poll_s
        self._columns = columns
        self._once = False
        self._poll: Poll | None = None
        self._planned: dict[int, tuple[BatchPlan, dict[str, ReceivedMessage], int]] = {}

    # In the driver.

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there when a micro-batch is planned is read; it ends when nothing is."""
        self._once = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        deadline = time.monotonic() + REACH_S
        while (end := self.look(start)) == start:
            assert self._poll is not None
            error = self._poll.error
            if isinstance(error, Refused):  # it will not pass
                raise error
            if error is None or not self._once:
                break
            if time.monotonic() >= deadline:  # the stream would end as if nothing were there
                raise error
        return end

    def look(self, start: dict[str, int]) -> dict[str, int]:
        """The end of the next micro-batch: `start` again, if nothing is there now. A stream that is
        to end then does not take silence for it."""
        if self._poll is None:
            self._poll = self.make_poll()
        poll = self._poll
        poll.resume()
        while not poll.wait_until_known(KNOWN_S) and self._once and poll.error is None:
            pass
        if not poll.found():
            return start
        plan, first = self.plan(poll), poll.take()
        if not first:  # the locks were lost while it was planned
            return start
        number = start["batch"] + 1
        # They may have waited for as long as the polls let them without renewing their locks.
        self._planned = {number: (plan, first, _lock_end() - int(RENEW_S * 1000))}
        return {"batch": number}

    def make_poll(self) -> Poll:
        return Poll(self._client_options, self._queues, poll_s=self._poll_s)

    def plan(self, poll: Poll) -> BatchPlan:
        """How the next micro-batch is to be."""
        return BatchPlan(self._max_messages)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[PartitionPlan]:
        # Only queues that have shown a message are read: on the others a poll waits, and a message
        # that came there meanwhile would be passed by those behind it. After a restart nothing is
        # known of the plan, and nobody polls: then all are read.
        plan, first, until = self._planned.get(end["batch"], (BatchPlan(UNKNOWN_PLAN), {}, 0))
        queues = [queue for queue in self._queues if not first or queue in first]
        parts = min(self._partitions, len(queues))
        each = max(1, plan.size // parts)
        shares = []
        for index in range(parts):
            mine = queues[index::parts]
            # Whoever was first this time is last the next.
            turn = end["batch"] % len(mine)
            mine = mine[turn:] + mine[:turn]
            brought = tuple(first[queue] for queue in mine if queue in first)
            shares.append(PartitionPlan(tuple(mine), brought, each, plan.blocked, until))
        return shares

    def stop(self) -> None:
        if self._poll is not None:
            self._poll.stop()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_poll": None, "_planned": {}}

    # In a worker.

    def read(self, partition: PartitionPlan) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        rows: list[Any] = []
        left = partition.count
        brought = {one.queue: one for one in partition.first}
        for queue in partition.queues:
            first = brought.get(queue)
            messages = self.messages(queue, first, partition.first_until, left)
            for row in self.rows(queue, messages, partition):
                rows.append(row)
                left -= 1
                if len(rows) >= ROWS:
                    yield self.frame(rows)
                    rows = []
        if rows:
            yield self.frame(rows)

    def rows(
        self, queue: str, messages: Iterator[tuple[ReceivedMessage, int]], partition: PartitionPlan
    ) -> Iterator[Any]:
        """What is made of the messages of a queue, for `frame`."""
        for received, _ in messages:
            yield received

    def frame(self, rows: list[Any]) -> pa.RecordBatch:
        """Rows as Spark takes them."""
        return as_rows(rows, self._columns)

    def messages(
        self, queue: str, brought: ReceivedMessage | None, brought_until: int, count: int
    ) -> Iterator[tuple[ReceivedMessage, int]]:
        """The messages of a queue in their order, each with the time until which it is locked."""
        # The poll's message is older than what is there now, unless that was given back.
        place = 0 if brought is None else sequence_of(brought.payload)
        for deliveries in self._pulled(queue, count):
            until = _lock_end()
            for delivery in deliveries:
                if brought is not None and (number := sequence_of(delivery.payload)) >= place:
                    if number > place:
                        yield brought, brought_until
                    brought = None  # or its lock was gone, and it comes again: it is sent once
                yield ReceivedMessage(queue, delivery.payload, delivery.tag), until
        if brought is not None:
            yield brought, brought_until

    def nothing_came(self, queue: str) -> None:
        """A queue was read, and there was nothing."""

    def _pulled(self, queue: str, count: int) -> Iterator[list[Delivery]]:
        if count <= 0:
            return
        # A link for each micro-batch: settled by their tokens, deliveries would never be forgotten
        # on one that stays.
        client = client_of(self._client_options)
        try:
            with Receiver(client, queue, confirm=False) as receiver:
                came = False
                for deliveries in receiver.receive_available(count):
                    came = came or bool(deliveries)
                    yield deliveries
                if not came:
                    self.nothing_came(queue)
        except EntityNotFound:
            pass
        except AmqpError as exc:
            # What has come is passed on. A task that failed would end the query, or be tried again
            # while what it had read is locked; the rest is for the next micro-batch.
            logger.warning("%s cannot be read to its end: %s", queue, exc)


def _lock_end() -> int:
    return time.time_ns() // 1_000_000 + LOCK_MS
