"""The backlog as a Spark stream of messages that are turned back for the primary."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadLimit

from pairbus.amqp.client.management import ABANDONED
from pairbus.cost.operations import Kind
from pairbus.errors import AmqpError
from pairbus.syphon.columns import Received, TurnedBack, backlog_rows, destination_of, turn_back
from pairbus.syphon.connections import management_of
from pairbus.syphon.forward import SETTLED_AT_ONCE
from pairbus.syphon.health import SightFile, problem_of, sight_beside
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.pace import LookPast, Pace
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
        self._books = options.books
        self._record = RecordFile(record)
        self._pace = Pace(options.max_messages_per_trigger, options.max_rate)
        self._past = LookPast()
        self._sight = SightFile(sight_beside(record))
        self._began_at = 0.0
        self._reached = False
        self._saw = False

    def make_poll(self) -> Poll:
        return Poll(
            self._client_options,
            self._queues,
            poll_s=self._poll_s,
            books=self._books,
            may_be_absent=True,  # a pairing may have made fewer queues than it wanted
        )

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Running once, it ends when nothing is left, or when there is no progress any more."""
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
                return offset
            if self._saw:  # there is something, and its lock was lost: it comes again
                if self._once:
                    continue
                return start
            assert self._poll is not None
            error = self._poll.error
            self._reached = self._reached or error is None
            self._sight.note(seen=False, error=None if error is None else str(error))
            if not (self._once and self._more_may_come(error)):
                break
        return start

    def _more_may_come(self, error: AmqpError | None) -> bool:
        """What failed is locked, and comes again; so does a namespace that was there before."""
        return bool(self._record.read().errors) or (error is not None and self._reached)

    def _stuck(self) -> bool:
        problem = problem_of(
            self._record.read(),
            self._sight.read(),
            started_at=self._began_at,
            now=time.time(),
            stuck_after_s=self._options.stuck_after.total_seconds(),
        )
        return problem is not None

    def plan(self, poll: Poll) -> Plan:
        """Waits until something is there for somebody who may take it."""
        pause = threading.Event()
        only = self._options.only
        wanted = [destination_of(one.payload) for one in poll.found()]
        seen = not only or any(path is None or path in only for path in wanted)
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
                return Plan(size, blocked)
            pause.wait(LOOK_S)

    def rows(
        self, queue: str, messages: Iterator[tuple[Received, int]], partition: Share
    ) -> Iterator[TurnedBack]:
        now_ms = time.time_ns() // 1_000_000 if self._options.ttl == "deduct" else None
        held: list[TurnedBack] = []
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
            self._books.add(Kind.RECEIVE, path, some)
        self._books.flush()

    def nothing_came(self, queue: str) -> None:
        self._books.add(Kind.POLL, queue)

    def frame(self, rows: list[TurnedBack]) -> pa.RecordBatch:
        return backlog_rows(rows)

    def _give_back(self, queue: str, held: list[TurnedBack]) -> None:
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
            self._books.settled(Kind.ABANDON, paths, answered=answered)
