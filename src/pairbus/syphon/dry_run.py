"""The dry run: a summary of the messages that a syphon would move. It needs no Spark."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from pairbus.amqp.client import Client
from pairbus.backlog.destinations import DestinationSummaries, DestinationSummary
from pairbus.backlog.message import BacklogMessage
from pairbus.backlog.peek import peek
from pairbus.errors import EntityNotFound
from pairbus.servicebus.application_properties import TTL_EXPIRED
from pairbus.spark.messages import ReceivedMessage
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.restore import restore


def dry_run(options: SyphonOptions) -> list[DestinationSummary]:
    """Peek at the whole backlog, and return what would be moved or dead-lettered, by destination,
    the largest number first. Raises AmqpError if the backlog cannot be read."""
    summaries = DestinationSummaries()
    with Client(options.secondary) as client:
        for queue in options.backlog_queues:
            with contextlib.suppress(EntityNotFound):
                for messages in peek(client, queue):
                    summaries.add(would_move(messages, options, time.time_ns() // 1_000_000))
    return summaries.largest_first()


def would_move(
    messages: Iterable[BacklogMessage], options: SyphonOptions, now_ms: int
) -> Iterator[BacklogMessage]:
    """Yield the messages that a syphon would take out of the backlog. Those whose time-to-live has
    expired, if it is deducted, have a problem."""
    for message in messages:
        if message.problem is None and options.ttl == "deduct":
            restored = restore(ReceivedMessage(message.queue, message.payload), now_ms)
            if restored.problem == TTL_EXPIRED:
                message = replace(message, problem=TTL_EXPIRED)
        if not options.only or message.problem is not None or message.destination in options.only:
            yield message
