"""The backlog as a Spark source: peek-lock, queues shared out over partitions.

Offsets are pacing tokens: a queue cannot replay a range. `{"batch": n}` says that there have been n
micro-batches with something in them.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pairbus.amqp.client import ClientOptions, Receiver
from pairbus.syphon.columns import Received, TurnedBack, backlog_rows, sequence_of, turn_back
from pairbus.syphon.connections import client_of
from pairbus.syphon.poll import Poll

KNOWN_S = 5.0
ROWS = 2000
"""Rows in one Arrow batch: few enough for reading and sending to go on side by side."""
LOCK_MS = 60_000


@dataclass(frozen=True)
class Share(InputPartition):
    """What one task reads."""

    queues: tuple[str, ...]
    first: tuple[Received, ...]
    """The messages that the polls brought, locked since then."""
    count: int
    """How many messages at most."""


class BacklogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads messages of some queues, turned back for the primary."""

    def __init__(
        self,
        options: ClientOptions,
        queues: Sequence[str],
        *,
        partitions: int,
        max_messages: int,
        poll_s: float,
        deduct: bool,
    ) -> None:
        self._options = options
        self._queues = tuple(queues)
        self._partitions = max(1, min(partitions, len(self._queues)))
        self._max_messages = max_messages
        self._poll_s = poll_s
        self._deduct = deduct
        self._poll: Poll | None = None
        self._planned: dict[int, dict[str, Received]] = {}

    # In the driver.

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there when a batch is planned is read; it ends when nothing is."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        if self._poll is None:
            self._poll = Poll(self._options, self._queues, poll_s=self._poll_s)
        self._poll.wait_until_known(KNOWN_S)
        if not self._poll.found():
            return start
        number = start["batch"] + 1
        self._planned = {number: self._poll.take()}
        if isinstance(limit, ReadMaxRows):
            self._max_messages = limit.max_rows
        assert isinstance(limit, ReadMaxRows | ReadAllAvailable) or True
        return {"batch": number}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Share]:
        first = self._planned.get(end["batch"], {})
        each = max(1, self._max_messages // self._partitions)
        shares = []
        for index in range(self._partitions):
            # Whoever was first this time is last the next.
            queues = self._queues[index :: self._partitions]
            turn = end["batch"] % len(queues)
            queues = queues[turn:] + queues[:turn]
            brought = tuple(first[queue] for queue in queues if queue in first)
            shares.append(Share(queues, brought, each))
        return shares

    def stop(self) -> None:
        if self._poll is not None:
            self._poll.stop()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_poll": None, "_planned": {}}

    # In a worker.

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        now_ms = time.time_ns() // 1_000_000 if self._deduct else None
        left = partition.count
        rows: list[TurnedBack] = []
        brought = {one.queue: one for one in partition.first}
        for queue in partition.queues:
            for received, locked_until in self._of_queue(queue, brought.get(queue), left):
                rows.append(turn_back(received, locked_until, now_ms))
                left -= 1
                if len(rows) >= ROWS:
                    yield backlog_rows(rows)
                    rows = []
        if rows:
            yield backlog_rows(rows)

    def _of_queue(
        self, queue: str, brought: Received | None, count: int
    ) -> Iterator[tuple[Received, int]]:
        """The messages of a queue in their order, each with the time until which it is locked."""
        # The poll's message is older than what is there now, unless that was given back.
        place = None if brought is None else sequence_of(brought.payload)
        if count > 0:
            with Receiver(client_of(self._options), queue, confirm=False) as receiver:
                for deliveries in receiver.pull(count):
                    until = time.time_ns() // 1_000_000 + LOCK_MS
                    for delivery in deliveries:
                        if (
                            brought is not None
                            and place is not None
                            and sequence_of(delivery.payload) > place
                        ):
                            yield brought, until
                            brought = None
                        yield Received(queue, delivery.payload, delivery.tag), until
        if brought is not None:
            yield brought, time.time_ns() // 1_000_000 + LOCK_MS
