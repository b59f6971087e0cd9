"""The backlog as a Spark stream of messages that are turned back for the primary."""

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadLimit

from pairbus.errors import AmqpError
from pairbus.servicebus.management import ABANDONED
from pairbus.spark.columns import (
    ReceivedMessage,
    RestoredMessage,
    backlog_rows,
    destination_of,
    turn_back,
)
from pairbus.spark.connections import management_of
from pairbus.spark.forwarder import SETTLED_AT_ONCE
from pairbus.spark.polls import LOOK_S, Poll
from pairbus.spark.reader import BatchPlan, PartitionPlan, QueueReader
from pairbus.syphon.emptiness import EmptinessCheck
from pairbus.syphon.health import ReaderStatusFile, problem_of, sight_beside
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.pacing import LookPast, Pace
from pairbus.syphon.progress import MAX_PAUSE_S, WriterStatusFile
from pairbus.usage.operations import OperationKind

logger = logging.getLogger(__name__)

PEEK_S, MAX_PEEK_S = 1.0, 5.0
"""The interval between two checks whether the queues are empty. It doubles up to the maximum. A
message whose lock ends arrives through the long poll, whatever the interval."""
REMAINING = (
    "messages are left in the backlog that cannot be received: another receiver has locked them, "
    "or they are deferred or scheduled"
)


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
        self._books = options.books
        self._record = WriterStatusFile(record)
        self._pace = Pace(options.max_messages_per_trigger, options.max_rate)
        self._past = LookPast()
        self._sight = ReaderStatusFile(sight_beside(record))
        self._began_at = 0.0
        self._reached = False
        self._saw = False
        self._check: EmptinessCheck | None = None
        self._remains = False
        """The last check found a message that could not be received."""
        self._peek_s = PEEK_S

    def make_poll(self) -> Poll:
        return Poll(
            self._client_options,
            self._queues,
            poll_s=self._poll_s,
            books=self._books,
            may_be_absent=True,  # a pairing may have made fewer queues than it wanted
        )

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Running once, it ends when every queue is known to be empty, or when it is stuck."""
        self._began_at = self._began_at or time.time()
        while not (self._once and self._stuck()):
            pause_s = self._pace.wait_s(time.monotonic())
            if pause_s > 0:
                # Not for long: nobody can stop the query meanwhile.
                threading.Event().wait(min(pause_s, LOOK_S))
                if self._once:
                    continue
                return start
            self._saw = False
            offset = self.look(start)
            if offset != start:
                self._peek_s = PEEK_S
                return offset
            if self._saw:  # there is something, and its lock was lost: it comes again
                if self._once:
                    continue
                return start
            assert self._poll is not None
            error = self._poll.error
            self._reached = self._reached or error is None
            if error is not None or not self._once:
                self._sight.note(seen=self._remains, error=None if error is None else str(error))
                if self._once and self._reached:  # a namespace that answered before comes back
                    continue
                return start
            if self._is_drained():
                return start
            self._poll.wait_until_found(self._peek_s)
            self._peek_s = min(2 * self._peek_s, MAX_PEEK_S)
        if self._remains and not self._record.read().errors:  # else they are this run's own locks
            self._note_remaining()
        return start

    def _is_drained(self) -> bool:
        """Peek at the queues: messages that cannot be received may be locked, by another receiver
        or since their destination failed."""
        try:
            self._remains = not self._emptiness_check().are_empty()
        except AmqpError as exc:
            self._sight.note(seen=self._remains, error=str(exc))
            return False
        self._sight.note(
            seen=self._remains,
            remaining=REMAINING if self._remains else None,
            drained=not self._remains,
        )
        return not self._remains

    def _note_remaining(self) -> None:
        """Count the messages that are left, for whoever asks why the run is stuck."""
        try:
            remaining = self._emptiness_check().remaining()
        except AmqpError as exc:
            logger.warning("The messages that are left cannot be counted: %s", exc)
        else:
            self._sight.note(seen=True, remaining=str(remaining))

    def _emptiness_check(self) -> EmptinessCheck:
        if self._check is None:
            self._check = EmptinessCheck(
                self._client_options,
                self._queues,
                is_wanted=self._is_wanted,
                on_peek=self._note_peek,
            )
        return self._check

    def _is_wanted(self, payload: bytes) -> bool:
        """Return whether a message is to leave the backlog. With `only`, these are the messages for
        some destinations, and those that cannot be sent to any."""
        if not self._options.only:
            return True
        row = turn_back(ReceivedMessage("", payload, None), 0, None)
        return row.problem is not None or row.destination in self._options.only

    def _note_peek(self, queue: str, messages: list[bytes] | None) -> None:
        for payload in messages or ():
            self._books.add(OperationKind.PEEK, destination_of(payload) or "", [len(payload)])
        if not messages:
            self._books.add(OperationKind.PEEK, queue, answered=messages is not None)
        self._books.flush()

    def stop(self) -> None:
        super().stop()
        if self._check is not None:
            self._check.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_check": None}

    def _stuck(self) -> bool:
        problem = problem_of(
            self._record.read(),
            self._sight.read(),
            started_at=self._began_at,
            now=time.time(),
            stuck_after_s=self._options.stuck_after.total_seconds(),
        )
        return problem is not None

    def plan(self, poll: Poll) -> BatchPlan:
        """Waits until something is there for somebody who may take it."""
        pause = threading.Event()
        only = self._options.only
        wanted = [destination_of(one.payload) for one in poll.found()]
        seen = self._remains or not only or any(p is None or p in only for p in wanted)
        self._sight.note(seen=seen)
        self._saw = True
        deadline = time.monotonic() + MAX_PAUSE_S
        while True:
            record = self._record.read()
            blocked = record.blocked(time.time())
            free = any(destination_of(one.payload) not in blocked for one in poll.found())
            now = time.monotonic()
            if not blocked or free or now >= deadline or self._past.due(now, record.moved.total()):
                size = self._pace.size(now, record.rate, record.halvings(time.time()))
                self._sight.note(seen=seen, pause_s=self._pace.wait_s(now))
                return BatchPlan(size, blocked)
            pause.wait(LOOK_S)

    def rows(
        self, queue: str, messages: Iterator[tuple[ReceivedMessage, int]], partition: PartitionPlan
    ) -> Iterator[RestoredMessage]:
        now_ms = time.time_ns() // 1_000_000 if self._options.ttl == "deduct" else None
        held: list[RestoredMessage] = []
        others = False
        counted = {one.token for one in partition.first}  # by the polls
        sizes: dict[str, list[int]] = {}
        for received, locked_until in messages:
            row = turn_back(received, locked_until, now_ms)
            if self._books and received.token not in counted:
                sizes.setdefault(row.destination or "", []).append(len(received.payload))
            if row.destination in partition.blocked:
                held.append(row)
            else:
                others = True
                yield row
        # Messages of sessions go back to their places. The rest stays locked and so out of the way,
        # if it is in anybody's.
        self._give_back(queue, [one for one in held if one.session_id is not None or not others])
        for path, some in sizes.items():
            self._books.add(OperationKind.RECEIVE, path, some)
        self._books.flush()

    def nothing_came(self, queue: str) -> None:
        self._books.add(OperationKind.POLL, queue)

    def frame(self, rows: list[RestoredMessage]) -> pa.RecordBatch:
        return backlog_rows(rows)

    def _give_back(self, queue: str, held: list[RestoredMessage]) -> None:
        management = management_of(self._options.secondary, queue)
        for start in range(0, len(held), SETTLED_AT_ONCE):
            some = held[start : start + SETTLED_AT_ONCE]
            tokens = [UUID(bytes_le=one.lock_token) for one in some if one.lock_token is not None]
            try:
                management.settle(tokens, ABANDONED)
            except AmqpError:  # then they come when their locks expire
                answered = False
            else:
                answered = True
            paths = [one.destination or "" for one in some]
            self._books.settled(OperationKind.ABANDON, paths, answered=answered)
