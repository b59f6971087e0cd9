"""The backlog as a Spark stream of messages that are turned back for the primary."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pyarrow as pa

from pairbus.amqp.client.management import ABANDONED
from pairbus.errors import AmqpError
from pairbus.syphon.columns import Received, TurnedBack, backlog_rows, destination_of, turn_back
from pairbus.syphon.connections import management_of
from pairbus.syphon.forward import SETTLED_AT_ONCE
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.pace import Pace
from pairbus.syphon.poll import LOOK_S, Poll
from pairbus.syphon.reader import Plan, QueueReader, Share
from pairbus.syphon.record import MAX_PAUSE_S, RecordFile


class BacklogReader(QueueReader):
    """Reads the backlog queues. It leaves destinations alone that failed a moment ago."""

    def __init__(self, options: SyphonOptions, record: Path, partitions: int) -> None:
        super().__init__(
            options.secondary,
            options.backlog_queues,
            partitions=partitions,
            max_messages=options.max_messages_per_trigger,
            poll_s=options.poll.total_seconds(),
        )
        self._options = options
        self._record = RecordFile(record)
        self._pace = Pace(options.max_messages_per_trigger, options.max_rate)

    def plan(self, poll: Poll) -> Plan:
        """Waits until the rate allows more, and something is there for somebody who may take it."""
        pause = threading.Event()
        pause.wait(self._pace.wait_s(time.monotonic()))
        deadline = time.monotonic() + MAX_PAUSE_S
        while True:
            record = self._record.read()
            blocked = record.blocked(time.time())
            free = any(destination_of(one.payload) not in blocked for one in poll.found())
            if not blocked or free or time.monotonic() >= deadline:
                return Plan(self._pace.size(time.monotonic(), record.rate), blocked)
            pause.wait(LOOK_S)

    def rows(
        self, queue: str, messages: Iterator[tuple[Received, int]], partition: Share
    ) -> Iterator[TurnedBack]:
        now_ms = time.time_ns() // 1_000_000 if self._options.ttl == "deduct" else None
        held: list[TurnedBack] = []
        for received, locked_until in messages:
            row = turn_back(received, locked_until, now_ms)
            if row.destination in partition.blocked:
                held.append(row)
            else:
                yield row
        self._give_back(queue, held)

    def frame(self, rows: list[TurnedBack]) -> pa.RecordBatch:
        return backlog_rows(rows)

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
