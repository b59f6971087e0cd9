"""Messages on disk, each in a row of its own or several in one."""

import sqlite3
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from pairbus.emulator.storage.database import Database, Row, fetch_all
from pairbus.emulator.storage.message_groups import (
    decode_group,
    divide,
    encode_group,
    removed_bit,
)
from pairbus.emulator.storage.stored_message import (
    MAX_SEQUENCE,
    SEQUENCE_BITS,
    GroupKey,
    StoredMessage,
    key_range,
    message_key,
)
from pairbus.servicebus.message_states import ACTIVE

UNLIMITED = 1 << 62
"""A number of bytes that no answer reaches."""
_SIZE_COLUMN = 7
_sequence = attrgetter("sequence")


class MessageTable:
    """The messages of all queues. A queue is given by its id."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._removed: dict[int, int] = {}
        """The messages that are removed from a group, as bits, by the key of the group."""
        self.reload_removed()

    def add_all(self, queue: int, messages: Sequence[StoredMessage]) -> None:
        """Insert new messages, with higher sequence numbers than all others of their queue."""
        for part in divide(messages):
            row = encode_group(queue, part)
            if row is None:
                self.put_all(queue, part)
            else:
                self._database.insert_group(row)

    def put(self, queue: int, message: StoredMessage) -> None:
        """Insert a message, or replace the one with its sequence number."""
        self.put_all(queue, [message])

    def put_all(self, queue: int, messages: Sequence[StoredMessage]) -> None:
        """Insert messages, or replace those with their sequence numbers."""
        self._take_from_groups(messages)
        self._database.insert_messages([message.row(queue) for message in messages])

    def delete_all(self, queue: int, messages: Sequence[StoredMessage]) -> None:
        """Delete messages."""
        keys = [(message_key(queue, m.sequence),) for m in self._take_from_groups(messages)]
        self._database.delete_messages(keys)

    def reload_removed(self) -> None:
        """Read which messages of groups are removed: at first, and after rows were deleted."""
        self._removed = dict(self._database.read("SELECT * FROM removed_from_group"))

    def _take_from_groups(self, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        """Remove messages from their groups. Return those that have rows of their own."""
        alone = []
        taken: dict[GroupKey, int] = {}
        for message in messages:
            group = message.group
            if group is None:
                alone.append(message)
            else:
                taken[group] = taken.get(group, 0) | removed_bit(group, message.sequence)
                message.group = None
        for group, bits in taken.items():
            bits |= self._removed.pop(group.key, 0)
            if bits.bit_count() == group.message_count:
                self._database.delete_group(group.key)
            else:
                self._removed[group.key] = bits
                self._database.set_removed(group.key, bits)
        return alone

    def get(self, queue: int, sequence: int) -> StoredMessage | None:
        # The number comes from a client: it must not reach into another queue.
        if not 0 < sequence <= MAX_SEQUENCE:
            return None
        key = message_key(queue, sequence)
        messages = self._select("key = ?", (key,), 1) or self._grouped(
            (key, key_range(queue)[1]), 1
        )
        return messages[0] if messages and messages[0].sequence == sequence else None

    def active_after(self, queue: int, sequence: int, limit: int) -> list[StoredMessage]:
        """Return active messages after a sequence number, in order."""
        keys = _after(queue, sequence)
        messages = self._select("key > ? AND key <= ? AND state = 0", keys, limit)
        return self._with_grouped(messages, keys, limit)

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
        condition, keys = "key > ? AND key <= ?", _after(queue, sequence)
        if session is None:
            messages = self._select(condition, keys, limit, max_bytes)
            return _up_to(max_bytes, self._with_grouped(messages, keys, limit))
        return self._select(f"{condition} AND session = ?", (*keys, session), limit, max_bytes)

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
            (until_ms, message_key(queue, sequence)),
        )

    def totals(self, queue: int) -> dict[int, tuple[int, int]]:
        """Return the number of messages and their bytes by state."""
        rows = self._database.read(
            "SELECT state, count(*), sum(size) FROM message"
            " WHERE key BETWEEN ? AND ? GROUP BY state",
            key_range(queue),
        )
        totals = {int(state): (int(count), int(size)) for state, count, size in rows}
        ((grouped, grouped_size),) = self._database.read(
            "SELECT total(count), total(size) FROM message_group WHERE key BETWEEN ? AND ?"
            " AND key NOT IN (SELECT key FROM removed_from_group)",
            key_range(queue),
        )
        rows = self._database.read(
            "SELECT message_group.* FROM removed_from_group JOIN message_group USING (key)"
            " WHERE key BETWEEN ? AND ?",
            key_range(queue),
        )
        sizes = [message.size for row in rows for message in self._decode(row)]
        count, size = totals.get(ACTIVE, (0, 0))
        count += int(grouped) + len(sizes)
        if count:
            totals[ACTIVE] = count, size + int(grouped_size) + sum(sizes)
        return totals

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

    def _with_grouped(
        self, messages: list[StoredMessage], after: tuple[int, int], limit: int
    ) -> list[StoredMessage]:
        """Return messages together with those of groups in a range by `_after`, in order, up to a
        limit."""
        grouped = self._grouped((after[0] + 1, after[1]), limit)
        if grouped and messages:
            return sorted(messages + grouped, key=_sequence)[:limit]
        return grouped[:limit] or messages

    def _grouped(self, keys: tuple[int, int], count: int) -> list[StoredMessage]:
        """Return messages of groups from the first to the last key, in order: at least `count` if
        there are so many."""
        first = keys[0] & MAX_SEQUENCE
        messages: list[StoredMessage] = []

        def fetch(cursor: sqlite3.Cursor) -> list[Any]:
            for row in cursor:
                group = self._decode(row)
                skipped = bisect_left(group, first, key=_sequence)
                messages.extend(group[skipped:])
                if len(messages) >= count:
                    break
            cursor.close()
            return messages

        return self._database.read(
            "SELECT * FROM message_group WHERE key BETWEEN ? AND ? ORDER BY key",
            keys,
            fetch,
        )

    def _decode(self, row: Sequence[Any]) -> list[StoredMessage]:
        """Return the messages of a group that are not removed."""
        return decode_group(row, self._removed.get(row[0], 0))

    def _select_of_all_queues(
        self, condition: str, value: int, limit: int
    ) -> list[tuple[int, StoredMessage]]:
        rows = self._database.read(
            f"SELECT * FROM message WHERE {condition} LIMIT ?", (value, limit)
        )
        return [
            (row[0] >> SEQUENCE_BITS, StoredMessage(row[0] & MAX_SEQUENCE, *row[1:]))
            for row in rows
        ]


def _after(queue: int, sequence: int) -> tuple[int, int]:
    start = min(max(sequence, 0), MAX_SEQUENCE)
    return message_key(queue, start), message_key(queue, MAX_SEQUENCE)


def _up_to(max_bytes: int, messages: list[StoredMessage]) -> list[StoredMessage]:
    """Return messages up to the one with which they reach `max_bytes`."""
    for index, message in enumerate(messages):
        max_bytes -= message.size
        if max_bytes <= 0:
            return messages[: index + 1]
    return messages


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
