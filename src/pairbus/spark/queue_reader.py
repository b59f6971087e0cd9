"""Reading of queues under locks, in a worker."""

import logging
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from pairbus.amqp.client import ClientOptions, Receiver
from pairbus.amqp.events import Delivery
from pairbus.errors import AmqpError, EntityNotFound
from pairbus.spark.connections import client_for
from pairbus.spark.driver_tokens import Tokens, deliver_tokens, request_tokens
from pairbus.spark.messages import ReceivedMessage, lock_expiry_ms, sequence_number_of
from pairbus.spark.pace import Pace
from pairbus.spark.paced_receive import receive_paced
from pairbus.spark.plans import PartitionPlan
from pairbus.spark.rows import ROWS_PER_BATCH

logger = logging.getLogger(__name__)

Row = TypeVar("Row")


class RowConverter(Protocol[Row]):
    """Makes rows of the messages that a task receives."""

    def rows(
        self, queue: str, messages: Iterator[ReceivedMessage], plan: PartitionPlan
    ) -> Iterator[Row]:
        """Yield a row for each message of a queue that belongs to the micro-batch."""

    def to_record_batch(self, rows: list[Row]) -> pa.RecordBatch:
        """Return rows in the form that Spark takes."""

    def queue_was_empty(self, queue: str) -> None:
        """Take note of a receive that ended without a message."""


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
        deliver_tokens(plan.tokens)
        pace = plan.rate.start()
        rows: list[Row] = []
        remaining = plan.max_messages
        first_messages = {message.queue: message for message in plan.first_messages}
        for queue in plan.queues:
            deliveries = self._receive(queue, remaining, pace)
            messages = in_order(queue, first_messages.get(queue), deliveries)
            for row in self._converter.rows(queue, messages, plan):
                rows.append(row)
                remaining -= 1
                if len(rows) >= min(ROWS_PER_BATCH, pace.slice_size):
                    yield self._converter.to_record_batch(rows)
                    rows = []
        if rows:
            yield self._converter.to_record_batch(rows)

    def _receive(self, queue: str, count: int, pace: Pace) -> Iterator[list[Delivery]]:
        if count <= 0:
            return
        # A new link for each micro-batch: settlement by lock token does not settle deliveries on
        # the link, so a permanent one would track them for ever.
        client = client_for(self._options)
        try:
            with Receiver(client, queue, confirm=False) as receiver:
                for deliveries in receive_paced(receiver, count, pace):
                    if not deliveries:
                        self._converter.queue_was_empty(queue)
                    yield deliveries
        except EntityNotFound:
            pass
        except AmqpError as exc:
            # The messages received so far are processed. A failed task would end the query, or be
            # retried while its messages are locked. The next micro-batch reads the rest.
            logger.warning("The rest of %s could not be read: %s", queue, exc)


def in_order(
    queue: str, first: ReceivedMessage | None, deliveries: Iterable[list[Delivery]]
) -> Iterator[ReceivedMessage]:
    """Yield the deliveries of a queue, with the message of its long poll in its position.

    The poll's message usually is older than all others, unless one of them was abandoned. If its
    lock has expired it is delivered again, and then only the new delivery is used.
    """
    position = 0 if first is None else sequence_number_of(first.payload)
    for batch in deliveries:
        locked_until = lock_expiry_ms()
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
