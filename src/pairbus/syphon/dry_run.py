"""The dry run: a summary of the messages that a syphon would move. Only a condition in SQL needs
Spark."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pairbus.amqp.client import Client
from pairbus.backlog.destinations import DestinationSummaries, DestinationSummary
from pairbus.backlog.message import BacklogMessage
from pairbus.backlog.peek import peek
from pairbus.errors import EntityNotFound
from pairbus.servicebus.application_properties import TTL_EXPIRED
from pairbus.spark.messages import ReceivedMessage
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.restore import restore

if TYPE_CHECKING:
    from pairbus.syphon.selection import Selection

CHUNK_MESSAGES, CHUNK_BYTES = 10_000, 16 * 1024 * 1024
"""Messages to which a condition is applied at once."""


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """The messages that would be moved or dead-lettered."""

    summaries: list[DestinationSummary]
    """By destination, the largest number first."""
    peeked: int
    """All messages in the backlog."""

    @property
    def selected(self) -> int:
        """Messages that would be moved or dead-lettered."""
        return sum(summary.messages for summary in self.summaries)


def dry_run(options: SyphonOptions, selection: "Selection | None" = None) -> DryRunResult:
    """Peek at the whole backlog. `selection` applies the condition of the options. Raises AmqpError
    if the backlog cannot be read."""
    summaries, peeked = DestinationSummaries(), 0
    with Client(options.secondary) as client:
        for queue in options.backlog_queues:
            with contextlib.suppress(EntityNotFound):
                for messages in chunks(peek(client, queue)):
                    peeked += len(messages)
                    now_ms = time.time_ns() // 1_000_000
                    selected = list(would_move(messages, options, now_ms))
                    if selection is not None:
                        payloads = [message.payload for message in selected]
                        flags = selection.select(queue, payloads, now_ms)
                        pairs = zip(selected, flags, strict=True)
                        selected = [message for message, is_selected in pairs if is_selected]
                    summaries.add(selected)
    return DryRunResult(summaries.largest_first(), peeked)


def chunks(batches: Iterable[list[BacklogMessage]]) -> Iterator[list[BacklogMessage]]:
    """Join batches of messages to larger ones."""
    chunk: list[BacklogMessage] = []
    size = 0
    for messages in batches:
        chunk += messages
        size += sum(len(message.payload) for message in messages)
        if len(chunk) >= CHUNK_MESSAGES or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def would_move(
    messages: Iterable[BacklogMessage], options: SyphonOptions, now_ms: int
) -> Iterator[BacklogMessage]:
    """Yield the messages that a syphon would take out of the backlog, without the condition of the
    options. Those whose time-to-live has expired, if it is deducted, have a problem."""
    for message in messages:
        if message.problem is None and options.ttl == "deduct":
            restored = restore(ReceivedMessage(message.queue, message.payload), now_ms)
            if restored.problem == TTL_EXPIRED:
                message = replace(message, problem=TTL_EXPIRED)
        if not options.only or message.problem is not None or message.destination in options.only:
            yield message
