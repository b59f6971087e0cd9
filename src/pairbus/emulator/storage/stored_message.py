"""A message as it is stored, and its key.

The key of a message is one integer, made of the id of its queue and its sequence number, so that a
queue is one range of one B-tree.
"""

from dataclasses import dataclass
from typing import NamedTuple

from pairbus.emulator.storage.database import Row

SEQUENCE_BITS = 40
MAX_SEQUENCE = (1 << SEQUENCE_BITS) - 1


def message_key(queue: int, sequence: int) -> int:
    """Return the key of a message."""
    return queue << SEQUENCE_BITS | sequence


def key_range(queue: int) -> tuple[int, int]:
    """Return the lowest and the highest key of a queue's messages."""
    return message_key(queue, 0), message_key(queue, MAX_SEQUENCE)


class GroupKey(NamedTuple):
    """A row with several messages."""

    key: int
    """The key of its last message."""
    message_count: int


@dataclass(slots=True, eq=False)
class StoredMessage:
    """A stored message: the sections that the emulator changes, and the rest in one piece."""

    sequence: int
    state: int
    enqueued_ms: int
    expires_ms: int | None
    due_ms: int | None
    deliveries: int
    session: str | None
    size: int
    header: bytes
    """The header and the delivery annotations."""
    annotation_count: int
    annotations: bytes
    rest: bytes
    group: GroupKey | None = None
    """The row that it shared with other messages when it was read or written. They may have got
    separate rows since."""

    def row(self, queue: int) -> Row:
        """Return the columns of the message in the queue with this id."""
        return (
            message_key(queue, self.sequence),
            self.state,
            self.enqueued_ms,
            self.expires_ms,
            self.due_ms,
            self.deliveries,
            self.session,
            self.size,
            self.header,
            self.annotation_count,
            self.annotations,
            self.rest,
        )
