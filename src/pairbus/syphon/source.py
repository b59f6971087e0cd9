"""The source of the syphon: backlog queues as a stream of restored messages."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from pairbus.amqp.client import ClientOptions
from pairbus.backlog.syphon_control import ControlFile
from pairbus.errors import AmqpError
from pairbus.servicebus.management import ABANDONED
from pairbus.spark.connections import management_for
from pairbus.spark.emptiness import EmptinessCheck
from pairbus.spark.long_polls import LongPolls
from pairbus.spark.messages import (
    ReceivedMessage,
    RestoredMessage,
    destination_of,
    sequence_number_of,
)
from pairbus.spark.plans import PartitionPlan
from pairbus.spark.queue_reader import QueueReader
from pairbus.spark.settler import MAX_TOKENS
from pairbus.spark.stream_reader import QueueStreamReader
from pairbus.spark.usage import UsageRecorder
from pairbus.syphon.batch_builder import BatchBuilder
from pairbus.syphon.credit_limit import CreditLimit
from pairbus.syphon.detailed_rows import DetailedRows
from pairbus.syphon.drain_rate import DrainRate
from pairbus.syphon.live_control import LiveControl
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.packed_rows import pack
from pairbus.syphon.planner import BacklogPlanner
from pairbus.syphon.primary_probe import PrimaryProbe, try_connecting
from pairbus.syphon.reader_status import ReaderReporter
from pairbus.syphon.restore import restore, to_backlog_batch
from pairbus.syphon.selection import Selection
from pairbus.syphon.sequence_ranges import SequenceRanges
from pairbus.syphon.session_order import SessionOrder
from pairbus.syphon.session_peeks import DriverPeeks, SessionPeeks, record_peek, session_of
from pairbus.syphon.status_file import StatusFiles
from pairbus.syphon.task_slots import TaskSlots
from pairbus.usage.operations import OperationKind

MAX_HELD = 500
"""No more messages of a queue are received when so many wait for others of their sessions: each is
received again."""

NO_SLOTS = TaskSlots()

_unordered: defaultdict[tuple[ClientOptions, str, tuple[str, ...]], SequenceRanges] = defaultdict(
    SequenceRanges
)
"""Sequence numbers without sessions, by queue. Spark reuses its workers, so it serves many
micro-batches."""


def backlog_stream_reader(
    options: SyphonOptions,
    files: StatusFiles,
    *,
    on_start: Callable[[], None] | None = None,
    on_stop: Callable[[], None] | None = None,
    slots: TaskSlots = NO_SLOTS,
    control: ControlFile | None = None,
    selection: Selection | None = None,
) -> QueueStreamReader:
    """Return the reader of the backlog queues. Each queue is one task, so that a slow one holds up
    no other, and executors that come late take their part. With `selection`, its rows
    have the columns that a transformation sees."""
    usage = options.usage

    def select(queue: str, payloads: list[bytes]) -> list[bool]:
        if selection is not None:
            return selection.select(queue, payloads, time.time_ns() // 1_000_000)
        return [_is_wanted(payload, options.only) for payload in payloads]

    def select_movable(queue: str, payloads: list[bytes]) -> list[bool]:
        paused = () if control is None else control.read_or_keep().paused_destinations
        selected = select(queue, payloads)
        return [
            is_selected and destination_of(payload) not in paused
            for payload, is_selected in zip(payloads, selected, strict=True)
        ]

    def emptiness_check(select: Callable[[str, list[bytes]], list[bool]]) -> EmptinessCheck:
        return EmptinessCheck(
            options.secondary,
            options.backlog_queues,
            select=select,
            on_peek=lambda queue, messages: record_peek(usage, queue, messages),
        )

    polls = LongPolls(
        options.secondary,
        options.backlog_queues,
        poll_s=options.poll.total_seconds(),
        usage=usage,
        allow_missing=True,  # a pairing may have created fewer queues than it should
    )
    rate = DrainRate(files.rate, options.max_rate)
    reporter = ReaderReporter(files.reader.write, time.time, rate.throttled_receives)
    live_control = LiveControl(options, control)
    builder = BatchBuilder(
        options,
        polls=polls,
        peeks=DriverPeeks(options.secondary, usage, options.only),
        probe=PrimaryProbe(lambda: try_connecting(options.primary)),
        reporter=reporter,
        writer_status=files.writer,
        rate=rate,
        has_credits=CreditLimit(options.secondary, usage).applies,
        slots=slots,
        control=live_control,
    )
    planner = BacklogPlanner(
        options,
        builder=builder,
        polls=polls,
        emptiness=emptiness_check(select),
        movable=emptiness_check(select_movable),
        reporter=reporter,
        writer_status=files.writer,
        rate=rate,
        control=live_control,
        is_filtered=bool(options.only) or selection is not None,
    )
    return QueueStreamReader(
        options.backlog_queues,
        partitions=len(options.backlog_queues),
        on_start=on_start,
        on_stop=on_stop,
        max_messages=options.max_messages_per_trigger,
        planner=planner,
        reader=backlog_reader(options, detailed=selection is not None),
    )


def backlog_reader(options: SyphonOptions, *, detailed: bool = False) -> QueueReader[Any]:
    """Return the part of the source that works in tasks. With `detailed`, its rows have the columns
    that a transformation sees."""
    rows = BacklogRows(
        options.secondary,
        deduct=options.ttl == "deduct",
        usage=options.usage,
        only=options.only,
        with_times=options.telemetry is True,
    )
    return QueueReader[Any](options.secondary, DetailedRows(rows) if detailed else rows)


def _is_wanted(payload: bytes, only: tuple[str, ...]) -> bool:
    """Return True if a message should leave the backlog: it is for one of the selected
    destinations, or has to be dead-lettered."""
    if not only:
        return True
    message = restore(ReceivedMessage("", payload), None)
    return message.problem is not None or message.destination in only


class BacklogRows:
    """Restores the messages of backlog queues, and leaves out blocked destinations."""

    def __init__(
        self,
        secondary: ClientOptions,
        *,
        deduct: bool,
        usage: UsageRecorder,
        only: tuple[str, ...] = (),
        with_times: bool = False,
    ) -> None:
        """With `deduct`, the time in the backlog is deducted from the time-to-live. `only` are the
        destinations that are moved; empty: all. `with_times` gives the rows their enqueued times,
        which only telemetry needs."""
        self._secondary = secondary
        self._deduct = deduct
        self._usage = usage
        self._only = only
        self._with_times = with_times
        self._held = 0
        """Messages of the current queue that must not pass others of their sessions."""

    def rows(
        self, queue: str, messages: Iterator[ReceivedMessage], plan: PartitionPlan
    ) -> Iterator[RestoredMessage]:
        """Yield the messages for destinations that are not blocked, up to their limits. Messages
        that would pass others of their sessions stay in the queue."""
        order = self._session_order(queue)
        now_ms = time.time_ns() // 1_000_000 if self._deduct else None
        blocked: list[RestoredMessage] = []
        held: list[RestoredMessage] = []
        read: Counter[str] = Counter()
        all_blocked = True
        self._held = 0
        recorded = {message.lock_token for message in plan.first_messages}  # by the long polls
        sizes: dict[str, list[int]] = {}
        for received in messages:
            message = restore(received, now_ms)
            if self._usage.enabled and received.lock_token not in recorded:
                sizes.setdefault(message.destination or "", []).append(len(received.payload))
            number = sequence_number_of(received.payload)
            if plan.blocked or plan.limits:
                destination = message.destination or ""
                read[destination] += 1
                if destination in plan.blocked or (
                    destination in plan.limits and read[destination] > plan.limits[destination]
                ):
                    blocked.append(message)
                    order.leave_out(number)
                    continue
            if order.admits(number, session_of(message, self._only)):
                all_blocked = False
                yield message
            else:
                held.append(message)
                self._held += 1
        order.finish()
        # Messages of sessions are abandoned, so that they keep their positions. Others stay locked
        # if there are messages behind them that can be moved, and are abandoned otherwise.
        self._abandon(
            queue,
            [message for message in blocked if message.session_id is not None or all_blocked],
        )
        self._abandon(queue, held)
        for destination, message_sizes in sizes.items():
            self._usage.add(OperationKind.RECEIVE, destination, message_sizes)
        self._usage.flush()

    def wants_more(self) -> bool:
        """Return False if many messages of the queue wait for others."""
        return self._held < MAX_HELD

    def to_record_batch(self, rows: list[RestoredMessage]) -> pa.RecordBatch:
        """Return rows of `PACKED_SCHEMA`, or of `BACKLOG_SCHEMA` if a filter reads them."""
        return to_backlog_batch(rows, with_times=self._with_times) if self._only else pack(rows)

    def queue_was_empty(self, queue: str, *, answered: bool = True) -> None:
        """Record the receive, which is billed."""
        self._usage.add(OperationKind.POLL, queue, answered=answered)

    def lock_was_renewed(self, message: ReceivedMessage, *, answered: bool = True) -> None:
        """Record the renewal, which is billed."""
        destination = destination_of(message.payload) or ""
        self._usage.add_settlements(OperationKind.RENEW, [destination], answered=answered)

    def _session_order(self, queue: str) -> SessionOrder:
        peeks = SessionPeeks(
            lambda queue: management_for(self._secondary, queue), self._usage, self._only
        )
        unordered = _unordered[self._secondary, queue, self._only]
        return SessionOrder(partial(peeks.peek, queue), unordered)

    def _abandon(self, queue: str, messages: list[RestoredMessage]) -> None:
        management = management_for(self._secondary, queue)
        for start in range(0, len(messages), MAX_TOKENS):
            part = messages[start : start + MAX_TOKENS]
            tokens = [message.lock_token for message in part if message.lock_token is not None]
            try:
                management.settle(tokens, ABANDONED)
            except AmqpError:  # they are delivered again when their locks expire
                answered = False
            else:
                answered = True
            destinations = [message.destination or "" for message in part]
            self._usage.add_settlements(OperationKind.ABANDON, destinations, answered=answered)
