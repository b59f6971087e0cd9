"""The source of the syphon: backlog queues as a stream of restored messages."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pyarrow as pa

from pairbus.amqp.client import ClientOptions
from pairbus.backlog.syphon_control import ControlFile
from pairbus.errors import AmqpError
from pairbus.servicebus.management import ABANDONED
from pairbus.spark.connections import management_for
from pairbus.spark.long_polls import LongPolls
from pairbus.spark.messages import ReceivedMessage, RestoredMessage, destination_of
from pairbus.spark.plans import PartitionPlan
from pairbus.spark.queue_reader import QueueReader
from pairbus.spark.settler import MAX_TOKENS
from pairbus.spark.stream_reader import QueueStreamReader
from pairbus.spark.usage import UsageRecorder
from pairbus.syphon.detailed_rows import DetailedRows
from pairbus.syphon.emptiness import EmptinessCheck
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.planner import BacklogPlanner
from pairbus.syphon.reader_status import ReaderReporter
from pairbus.syphon.restore import restore, to_backlog_batch
from pairbus.syphon.selection import SelectionClient
from pairbus.syphon.status_file import StatusFiles
from pairbus.usage.operations import OperationKind


def backlog_stream_reader(
    options: SyphonOptions,
    files: StatusFiles,
    partitions: int,
    control: ControlFile,
    selection: SelectionClient | None = None,
) -> QueueStreamReader:
    """Return the reader of the backlog queues. With `selection`, its rows have the columns that a
    transformation sees."""
    usage = options.usage

    def select(queue: str, payloads: list[bytes]) -> list[bool]:
        return _select(queue, payloads, options.only, selection)

    def select_movable(queue: str, payloads: list[bytes]) -> list[bool]:
        paused = control.read_or_keep().paused_destinations
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
            on_peek=lambda queue, messages: _record_peek(usage, queue, messages),
        )

    planner = BacklogPlanner(
        options,
        polls=LongPolls(
            options.secondary,
            options.backlog_queues,
            poll_s=options.poll.total_seconds(),
            usage=usage,
            allow_missing=True,  # a pairing may have created fewer queues than it should
        ),
        emptiness=emptiness_check(select),
        movable=emptiness_check(select_movable),
        reporter=ReaderReporter(files.reader.write, time.time),
        writer_status=files.writer,
        control=control,
        is_filtered=bool(options.only) or selection is not None,
    )
    return QueueStreamReader(
        options.backlog_queues,
        partitions=partitions,
        max_messages=options.max_messages_per_trigger,
        planner=planner,
        reader=backlog_reader(options, detailed=selection is not None),
    )


def backlog_reader(options: SyphonOptions, *, detailed: bool = False) -> QueueReader[Any]:
    """Return the part of the source that works in tasks. With `detailed`, its rows have the columns
    that a transformation sees."""
    rows = BacklogRows(options.secondary, deduct=options.ttl == "deduct", usage=options.usage)
    return QueueReader[Any](options.secondary, DetailedRows(rows) if detailed else rows)


def _select(
    queue: str, payloads: list[bytes], only: tuple[str, ...], selection: SelectionClient | None
) -> list[bool]:
    """Return True for each message that should leave the backlog."""
    if selection is not None:
        return selection.select(queue, payloads, time.time_ns() // 1_000_000)
    return [_is_wanted(payload, only) for payload in payloads]


def _is_wanted(payload: bytes, only: tuple[str, ...]) -> bool:
    """Return True if a message should leave the backlog: it is for one of the selected
    destinations, or has to be dead-lettered."""
    if not only:
        return True
    message = restore(ReceivedMessage("", payload), None)
    return message.problem is not None or message.destination in only


def _record_peek(usage: UsageRecorder, queue: str, messages: list[bytes] | None) -> None:
    for payload in messages or ():
        usage.add(OperationKind.PEEK, destination_of(payload), [len(payload)])
    if not messages:
        usage.add(OperationKind.PEEK, queue, answered=messages is not None)
    usage.flush()


class BacklogRows:
    """Restores the messages of backlog queues, and leaves out blocked destinations."""

    def __init__(self, secondary: ClientOptions, *, deduct: bool, usage: UsageRecorder) -> None:
        """With `deduct`, the time in the backlog is deducted from the time-to-live."""
        self._secondary = secondary
        self._deduct = deduct
        self._usage = usage

    def rows(
        self, queue: str, messages: Iterator[ReceivedMessage], plan: PartitionPlan
    ) -> Iterator[RestoredMessage]:
        """Yield the messages for destinations that are not blocked, up to their limits."""
        now_ms = time.time_ns() // 1_000_000 if self._deduct else None
        blocked: list[RestoredMessage] = []
        yielded: Counter[str] = Counter()
        all_blocked = True
        recorded = {message.lock_token for message in plan.first_messages}  # by the long polls
        sizes: dict[str, list[int]] = {}
        for received in messages:
            message = restore(received, now_ms)
            if self._usage.enabled and received.lock_token not in recorded:
                sizes.setdefault(message.destination or "", []).append(len(received.payload))
            destination = message.destination or ""
            yielded[destination] += 1
            if destination in plan.blocked or (
                destination in plan.limits and yielded[destination] > plan.limits[destination]
            ):
                blocked.append(message)
            else:
                all_blocked = False
                yield message
        # Messages of sessions are abandoned, so that they keep their positions. Others stay locked
        # if there are messages behind them that can be moved, and are abandoned otherwise.
        self._abandon(
            queue,
            [message for message in blocked if message.session_id is not None or all_blocked],
        )
        for destination, message_sizes in sizes.items():
            self._usage.add(OperationKind.RECEIVE, destination, message_sizes)
        self._usage.flush()

    def to_record_batch(self, rows: list[RestoredMessage]) -> pa.RecordBatch:
        """Return rows of `BACKLOG_SCHEMA`."""
        return to_backlog_batch(rows)

    def queue_was_empty(self, queue: str) -> None:
        """Record the receive, which is billed."""
        self._usage.add(OperationKind.POLL, queue)

    def _abandon(self, queue: str, messages: list[RestoredMessage]) -> None:
        management = management_for(self._secondary, queue)
        for start in range(0, len(messages), MAX_TOKENS):
            part = messages[start : start + MAX_TOKENS]
            tokens = [
                UUID(bytes_le=message.lock_token)
                for message in part
                if message.lock_token is not None
            ]
            try:
                management.settle(tokens, ABANDONED)
            except AmqpError:  # they are delivered again when their locks expire
                answered = False
            else:
                answered = True
            destinations = [message.destination or "" for message in part]
            self._usage.add_settlements(OperationKind.ABANDON, destinations, answered=answered)
