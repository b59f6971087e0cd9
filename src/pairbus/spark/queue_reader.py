"""Reading of queues under locks, in a worker."""

import logging
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

import pyarrow as pa
from pyspark import TaskContext

from pairbus.amqp.client import ClientOptions, Receiver
from pairbus.amqp.events import Delivery
from pairbus.errors import AmqpError, EntityNotFound, LockLost
from pairbus.garbage import collect_rarely
from pairbus.spark.connections import client_for, management_for
from pairbus.spark.driver_tokens import Tokens, deliver_tokens, request_tokens
from pairbus.spark.locks import LockExpiry, is_short, wall_clock_ms
from pairbus.spark.messages import ReceivedMessage, sequence_number_of
from pairbus.spark.pace import Pace
from pairbus.spark.paced_receive import receive_paced
from pairbus.spark.plans import PartitionPlan

logger = logging.getLogger(__name__)

Row = TypeVar("Row")

MAX_ROWS = 500
"""Rows of one Arrow batch for Spark. With more, the first sends of a task start later. While a
limit is known, each slice is a batch."""


class RowConverter(Protocol[Row]):
    """Makes rows of the messages that a task receives."""

    def rows(
        self, queue: str, messages: Iterator[ReceivedMessage], plan: PartitionPlan
    ) -> Iterator[Row]:
        """Yield a row for each message of a queue that belongs to the micro-batch."""

    def wants_more(self) -> bool:
        """Return False to receive no more messages of the current queue."""

    def to_record_batch(self, rows: list[Row]) -> pa.RecordBatch:
        """Return rows in the form that Spark takes."""

    def queue_was_empty(self, queue: str, *, answered: bool = True) -> None:
        """Take note of a receive that ended without a message, or without an answer."""

    def lock_was_renewed(self, message: ReceivedMessage, *, answered: bool = True) -> None:
        """Take note of the renewal of a lock, or of an attempt without an answer."""


class QueueReader(Generic[Row]):
    """Receives the messages of one partition, and returns them as rows."""

    def __init__(self, options: ClientOptions, converter: RowConverter[Row]) -> None:
        self._options = options
        self._converter = converter

    def request_tokens(self) -> Tokens:
        """Return the tokens for tasks. In the driver."""
        return request_tokens([self._options])

    def read(self, plan: PartitionPlan) -> Iterator[pa.RecordBatch]:
        """Yield batches of rows until the queues are empty or `max_messages` is reached."""
        collect_rarely()
        deliver_tokens(plan.tokens)
        pace = plan.rate.start("receive")
        rows: list[Row] = []
        remaining = plan.max_messages
        first_messages = {message.queue: message for message in plan.first_messages}
        for queue in plan.queues:
            first = self._hold(first_messages.get(queue))
            count = remaining if first is None else remaining - 1
            messages = in_order(queue, first, self._receive(queue, count, pace))
            for row in self._converter.rows(queue, messages, plan):
                rows.append(row)
                remaining -= 1
                if len(rows) >= MAX_ROWS or len(rows) >= pace.slice_size:
                    yield self._converter.to_record_batch(rows)
                    rows = []
        if rows:
            yield self._converter.to_record_batch(rows)

    def _hold(self, first: ReceivedMessage | None) -> ReceivedMessage | None:
        """Return the message of a long poll with a lock that lasts, or None if it was lost.

        The task may start late, or again: an earlier attempt may have settled the message.
        """
        if first is None or first.lock_token is None:
            return first
        if not is_retry() and not is_short(first.locked_until, first.lock_ms, wall_clock_ms()):
            return first
        try:
            management = management_for(self._options, first.queue)
            management.renew_locks([first.lock_token])
        except LockLost:
            return None
        except AmqpError as exc:
            logger.warning("A lock of %s could not be renewed: %s", first.queue, exc)
            self._converter.lock_was_renewed(first, answered=False)
            return None
        self._converter.lock_was_renewed(first)
        return first._replace(locked_until=wall_clock_ms() + first.lock_ms)

    def _receive(self, queue: str, count: int, pace: Pace) -> Iterator[list[Delivery]]:
        if count <= 0:
            return
        # A new link for each micro-batch: settlement by lock token does not settle deliveries on
        # the link, so a permanent one would track them for ever.
        receiver = Receiver(client_for(self._options), queue, confirm=False)
        try:
            with receiver:
                yield from receive_paced(
                    receiver, count, pace, stop=lambda: not self._converter.wants_more()
                )
        except EntityNotFound:
            pass
        except AmqpError as exc:
            # The messages received so far are processed. A failed task would end the query, or be
            # retried while its messages are locked. The next micro-batch reads the rest.
            logger.warning("The rest of %s could not be read: %s", queue, exc)
        for _ in range(receiver.empty_receives):
            self._converter.queue_was_empty(queue)
        for _ in range(receiver.failed_receives):
            self._converter.queue_was_empty(queue, answered=False)


def is_retry() -> bool:
    """Return True in a task of Spark that is not the first attempt."""
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def in_order(
    queue: str, first: ReceivedMessage | None, deliveries: Iterable[list[Delivery]]
) -> Iterator[ReceivedMessage]:
    """Yield the deliveries of a queue, with the message of its long poll in its position.

    The poll's message usually is older than all others, unless one of them was abandoned. If its
    lock has expired it is delivered again, and then only the new delivery is used.
    """
    position = 0 if first is None else sequence_number_of(first.payload)
    expiry = LockExpiry()
    for batch in deliveries:
        # A link delivers in the order in which it locks, so the first lock expires first.
        locked_until = expiry.of(batch[0].payload) if batch else 0
        for delivery in batch:
            if first is not None:
                number = sequence_number_of(delivery.payload)
                if number >= position:
                    if number > position:
                        yield first
                    first = None
            yield ReceivedMessage(queue, delivery.payload, delivery.tag, locked_until)
    if first is not None:
        yield first
