"""The backlog as a Spark source: peek-lock, queues shared out over partitions.

Offsets are pacing tokens: a queue cannot replay a range. `{"batch": n}` says that there have been n
micro-batches with something in them.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pairbus.amqp.client import Receiver
from pairbus.amqp.client.management import ABANDONED
from pairbus.amqp.events import Delivery
from pairbus.errors import AmqpError, EntityNotFound
from pairbus.syphon.columns import (
    Received,
    TurnedBack,
    backlog_rows,
    destination_of,
    sequence_of,
    turn_back,
)
from pairbus.syphon.connections import client_of, management_of
from pairbus.syphon.forward import SETTLED_AT_ONCE
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.pace import LEAST, Pace
from pairbus.syphon.poll import LOOK_S, Poll
from pairbus.syphon.record import MAX_PAUSE_S, RecordFile

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
    blocked: frozenset[str]
    """Destinations to leave alone."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """A micro-batch."""

    first: dict[str, Received]
    size: int
    blocked: frozenset[str]


class BacklogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads messages of the backlog queues, turned back for the primary."""

    def __init__(self, options: SyphonOptions, record: Path, partitions: int) -> None:
        self._options = options
        self._queues = options.backlog_queues
        self._partitions = max(1, min(partitions, len(self._queues)))
        self._record = RecordFile(record)
        self._pace = Pace(options.max_messages_per_trigger, options.max_rate)
        self._poll: Poll | None = None
        self._planned: dict[int, _Plan] = {}

    # In the driver.

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there when a micro-batch is planned is read; it ends when nothing is."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        if self._poll is None:
            self._poll = Poll(
                self._options.secondary, self._queues, poll_s=self._options.poll.total_seconds()
            )
        self._poll.wait_until_known(KNOWN_S)
        if not self._poll.found():
            return start
        self._wait()
        record, now = self._record.read(), time.time()
        size = self._pace.size(time.monotonic(), record.rate)
        number = start["batch"] + 1
        self._planned = {number: _Plan(self._poll.take(), size, record.blocked(now))}
        return {"batch": number}

    def _wait(self) -> None:
        """Until the rate allows more, and something is there for a destination that may take it."""
        assert self._poll is not None
        pause = threading.Event()
        pause.wait(self._pace.wait_s(time.monotonic()))
        deadline = time.monotonic() + MAX_PAUSE_S
        while time.monotonic() < deadline:
            blocked = self._record.read().blocked(time.time())
            found = self._poll.found()
            if not blocked or any(destination_of(one.payload) not in blocked for one in found):
                return
            pause.wait(LOOK_S)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Share]:
        # After a restart nothing is known of the plan: then what is there is read.
        plan = self._planned.get(end["batch"], _Plan({}, LEAST, frozenset()))
        each = max(1, plan.size // self._partitions)
        shares = []
        for index in range(self._partitions):
            queues = self._queues[index :: self._partitions]
            # Whoever was first this time is last the next.
            turn = end["batch"] % len(queues)
            queues = queues[turn:] + queues[:turn]
            first = tuple(plan.first[queue] for queue in queues if queue in plan.first)
            shares.append(Share(queues, first, each, plan.blocked))
        return shares

    def stop(self) -> None:
        if self._poll is not None:
            self._poll.stop()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_poll": None, "_planned": {}}

    # In a worker.

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        now_ms = time.time_ns() // 1_000_000 if self._options.ttl == "deduct" else None
        left = partition.count
        rows: list[TurnedBack] = []
        brought = {one.queue: one for one in partition.first}
        for queue in partition.queues:
            held: list[TurnedBack] = []
            for received, locked_until in self._of_queue(queue, brought.get(queue), left):
                row = turn_back(received, locked_until, now_ms)
                if row.destination in partition.blocked:
                    held.append(row)
                    continue
                rows.append(row)
                left -= 1
                if len(rows) >= ROWS:
                    yield backlog_rows(rows)
                    rows = []
            self._give_back(queue, held)
        if rows:
            yield backlog_rows(rows)

    def _give_back(self, queue: str, held: list[TurnedBack]) -> None:
        """Messages of sessions whose destination is to be left alone go back to their places. The
        others stay locked, and come again when that is over."""
        tokens = [
            UUID(bytes_le=one.lock_token)
            for one in held
            if one.session_id is not None and one.lock_token is not None
        ]
        management = management_of(self._options.secondary, queue)
        for start in range(0, len(tokens), SETTLED_AT_ONCE):
            with contextlib.suppress(AmqpError):  # then they come when their locks expire
                management.settle(tokens[start : start + SETTLED_AT_ONCE], ABANDONED)

    def _of_queue(
        self, queue: str, brought: Received | None, count: int
    ) -> Iterator[tuple[Received, int]]:
        """The messages of a queue in their order, each with the time until which it is locked."""
        # The poll's message is older than what is there now, unless that was given back.
        place = 0 if brought is None else sequence_of(brought.payload)
        for deliveries in self._pulled(queue, count):
            until = _lock_end()
            for delivery in deliveries:
                if brought is not None and sequence_of(delivery.payload) > place:
                    yield brought, until
                    brought = None
                yield Received(queue, delivery.payload, delivery.tag), until
        if brought is not None:
            yield brought, _lock_end()

    def _pulled(self, queue: str, count: int) -> Iterator[list[Delivery]]:
        if count > 0:
            # A link for each micro-batch: settled by their tokens, deliveries would never be
            # forgotten on one that stays.
            with (
                contextlib.suppress(EntityNotFound),
                Receiver(client_of(self._options.secondary), queue, confirm=False) as receiver,
            ):
                yield from receiver.pull(count)


def _lock_end() -> int:
    return time.time_ns() // 1_000_000 + LOCK_MS
