"""Rows for transformations: restored messages with more columns than the sink needs."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from pairbus.spark.messages import ReceivedMessage, RestoredMessage
from pairbus.spark.plans import PartitionPlan
from pairbus.spark.queue_reader import RowConverter
from pairbus.spark.rows import decode_or_null
from pairbus.syphon.restore import BACKLOG_SCHEMA, to_backlog_batch

_OF_BACKLOG = ("enqueued_time", "sequence_number")
"""Decoded from the message as the backlog delivered it. Also a message that cannot be restored has
an enqueued time, so the one of `BACKLOG_SCHEMA` is replaced."""
_OF_MESSAGE = ("message_id", "subject", "content_type", "application_properties")
"""Decoded from the restored message."""
DETAILED_SCHEMA = (
    f"{BACKLOG_SCHEMA}, sequence_number long, message_id string, "
    "subject string, content_type string, application_properties map<string,string>"
)
"""The columns that a transformation sees. The page Columns of the documentation describes
them."""


class DetailedMessage(NamedTuple):
    """A message before and after it was restored."""

    received: ReceivedMessage
    restored: RestoredMessage


class DetailedRows:
    """Adds columns to the rows of another converter."""

    def __init__(self, inner: RowConverter[RestoredMessage]) -> None:
        self._inner = inner

    def rows(
        self, queue: str, messages: Iterator[ReceivedMessage], plan: PartitionPlan
    ) -> Iterator[DetailedMessage]:
        """Yield the rows of the other converter, each with the message that it was made of."""
        received: dict[bytes | None, ReceivedMessage] = {}

        def remembered() -> Iterator[ReceivedMessage]:
            for message in messages:
                received[message.lock_token] = message
                yield message

        for restored in self._inner.rows(queue, remembered(), plan):
            yield DetailedMessage(received.pop(restored.lock_token), restored)

    def to_record_batch(self, rows: list[DetailedMessage]) -> pa.RecordBatch:
        """Return rows of `DETAILED_SCHEMA`."""
        return to_detailed_batch(rows)

    def wants_more(self) -> bool:
        """Ask the other converter."""
        return self._inner.wants_more()

    def queue_was_empty(self, queue: str, *, answered: bool = True) -> None:
        """Tell the other converter."""
        self._inner.queue_was_empty(queue, answered=answered)

    def lock_was_renewed(self, message: ReceivedMessage, *, answered: bool = True) -> None:
        """Tell the other converter."""
        self._inner.lock_was_renewed(message, answered=answered)


def to_detailed_batch(rows: Sequence[DetailedMessage]) -> pa.RecordBatch:
    """Return messages as rows of `DETAILED_SCHEMA`."""
    restored = to_backlog_batch([row.restored for row in rows], with_times=False)
    batches = (
        restored.drop_columns(["enqueued_time"]),
        decode_or_null([row.received for row in rows], _OF_BACKLOG),
        decode_or_null(
            [ReceivedMessage(row.restored.queue, row.restored.payload) for row in rows],
            _OF_MESSAGE,
        ),
    )
    return pa.RecordBatch.from_arrays(
        [column for batch in batches for column in batch.columns],
        names=[name for batch in batches for name in batch.schema.names],
    )
