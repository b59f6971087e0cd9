"""Messages on disk.

The key of a message is one integer, made of the id of its queue and its sequence number, so that a
queue is one range of one B-tree.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pairbus.emulator.storage.database import Database, Row, fetch_all

UNLIMITED = 1 << 62
"""A number of bytes that no answer reaches."""
_SEQUENCE_BITS = 40
MAX_SEQUENCE = (1 << _SEQUENCE_BITS) - 1
_SIZE_COLUMN = 7


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

    def row(self, queue: int) -> Row:
        """Return the columns of the message in the queue with this id."""
        return (
            queue << _SEQUENCE_BITS | self.sequence,
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


class MessageTable:
    """The messages of all queues. A queue is given by its id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, queue: int, message: StoredMessage) -> None:
        """Insert a message, or replace the one with its sequence number."""
        self.put_all(queue, [message])

    def put_all(self, queue: int, messages: Iterable[StoredMessage]) -> None:
        """Insert messages, or replace those with their sequence numbers."""
        self._database.insert_messages([message.row(queue) for message in messages])

    def delete_all(self, queue: int, sequences: Iterable[int]) -> None:
        first = queue << _SEQUENCE_BITS
        self._database.delete_messages([(first | sequence,) for sequence in sequences])

    def get(self, queue: int, sequence: int) -> StoredMessage | None:
        # The number comes from a client: it must not reach into another queue.
        if not 0 < sequence <= MAX_SEQUENCE:
            return None
        messages = self._select("key = ?", (queue << _SEQUENCE_BITS | sequence,), 1)
        return messages[0] if messages else None

    def active_after(self, queue: int, sequence: int, limit: int) -> list[StoredMessage]:
        """Return active messages after a sequence number, in order."""
        return self._select("key > ? AND key <= ? AND state = 0", _after(queue, sequence), limit)

    def active_in_session(
        self, queue: int, session: str, sequence: int, limit: int
    ) -> list[StoredMessage]:
        """Return active messages of a session after a sequence number, in order."""
        return self._select(
            "key > ? AND key <= ? AND session = ? AND state = 0",
            (*_after(queue, sequence), session),
            limit,
        )

    def all_after(
        self,
        queue: int,
        sequence: int,
        limit: int,
        session: str | None = None,
        max_bytes: int = UNLIMITED,
    ) -> list[StoredMessage]:
        """Return messages of every state after a sequence number, in order, up to the one with
        which they reach `max_bytes`."""
        condition, values = "key > ? AND key <= ?", _after(queue, sequence)
        if session is None:
            return self._select(condition, values, limit, max_bytes)
        return self._select(f"{condition} AND session = ?", (*values, session), limit, max_bytes)

    def due(self, now_ms: int, limit: int) -> list[tuple[int, StoredMessage]]:
        """Return scheduled messages that are due, each with its queue."""
        return self._select_of_all_queues("due_ms <= ? ORDER BY due_ms", now_ms, limit)

    def expired(self, now_ms: int, limit: int) -> list[tuple[int, StoredMessage]]:
        """Return expired messages, each with its queue. Deferred messages do not expire, as in
        Service Bus."""
        return self._select_of_all_queues(
            "expires_ms <= ? AND state <> 1 ORDER BY expires_ms", now_ms, limit
        )

    def next_due_ms(self) -> int | None:
        """Return the earliest time for which a message is scheduled."""
        return self._database.read_integer(
            "SELECT min(due_ms) FROM message WHERE due_ms IS NOT NULL"
        )

    def next_expiry_ms(self) -> int | None:
        """Return the earliest time at which a message expires."""
        return self._database.read_integer(
            "SELECT min(expires_ms) FROM message WHERE expires_ms IS NOT NULL AND state <> 1"
        )

    def postpone_expiry(self, queue: int, sequence: int, until_ms: int) -> None:
        """Keep a message out of `expired` until this time."""
        self._database.write(
            "UPDATE message SET expires_ms = ? WHERE key = ?",
            (until_ms, queue << _SEQUENCE_BITS | sequence),
        )

    def totals(self, queue: int) -> dict[int, tuple[int, int]]:
        """Return the number of messages and their bytes by state."""
        rows = self._database.read(
            "SELECT state, count(*), sum(size) FROM message"
            " WHERE key BETWEEN ? AND ? GROUP BY state",
            key_range(queue),
        )
        return {int(state): (int(count), int(size)) for state, count, size in rows}

    def session_counts(self, queue: int) -> dict[str, int]:
        """Return the number of active messages by session, in the order of the first message."""
        rows = self._database.read(
            "SELECT session, count(*) FROM message WHERE session IS NOT NULL AND state = 0"
            " AND key BETWEEN ? AND ? GROUP BY session ORDER BY min(key)",
            key_range(queue),
        )
        return {str(session): int(count) for session, count in rows}

    def _select(
        self, condition: str, values: Row, limit: int, max_bytes: int = UNLIMITED
    ) -> list[StoredMessage]:
        rows = self._database.read(
            f"SELECT * FROM message WHERE {condition} ORDER BY key LIMIT ?",
            (*values, limit),
            fetch_all if max_bytes == UNLIMITED else partial(_fetch_up_to, max_bytes),
        )
        return [StoredMessage(row[0] & MAX_SEQUENCE, *row[1:]) for row in rows]

    def _select_of_all_queues(
        self, condition: str, value: int, limit: int
    ) -> list[tuple[int, StoredMessage]]:
        rows = self._database.read(
            f"SELECT * FROM message WHERE {condition} LIMIT ?", (value, limit)
        )
        return [
            (row[0] >> _SEQUENCE_BITS, StoredMessage(row[0] & MAX_SEQUENCE, *row[1:]))
            for row in rows
        ]


def key_range(queue: int) -> tuple[int, int]:
    """Return the lowest and the highest key of a queue's messages."""
    return queue << _SEQUENCE_BITS, queue << _SEQUENCE_BITS | MAX_SEQUENCE


def _after(queue: int, sequence: int) -> tuple[int, int]:
    start = min(max(sequence, 0), MAX_SEQUENCE)
    return queue << _SEQUENCE_BITS | start, queue << _SEQUENCE_BITS | MAX_SEQUENCE


def _fetch_up_to(max_bytes: int, cursor: sqlite3.Cursor) -> list[Any]:
    """Return rows up to the one with which the messages reach `max_bytes`."""
    rows = []
    for row in cursor:
        rows.append(row)
        max_bytes -= row[_SIZE_COLUMN]
        if max_bytes <= 0:
            break
    cursor.close()
    return rows
