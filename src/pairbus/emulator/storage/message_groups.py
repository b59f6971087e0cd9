"""Rows with several messages.

A row costs SQLite more time than its bytes. Messages that were sent together and wait to be
received mostly differ in their sequence numbers, sizes and bytes only, so up to 32 of them are one
row, a group. A message that is received and settled is removed from its group, which is a bit in
another table. A message that is changed is removed, too, and gets a row of its own.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from struct import pack, unpack
from typing import Any

from pairbus.emulator.storage.database import Row
from pairbus.emulator.storage.stored_message import (
    MAX_SEQUENCE,
    GroupKey,
    StoredMessage,
    message_key,
)
from pairbus.servicebus.message_states import ACTIVE

MIN_MESSAGES, MAX_MESSAGES = 4, 32
MAX_BYTES = 128 * 1024
"""Larger messages have separate rows, whose cost does not matter."""

_common_fields = attrgetter("enqueued_ms", "header", "annotation_count", "annotations")


def divide(messages: Sequence[StoredMessage]) -> Iterator[Sequence[StoredMessage]]:
    """Divide new messages, in the order of their sequence numbers, into parts that can be groups,
    and parts that cannot."""
    for (can_be_grouped, _), run in groupby(messages, _similarity):
        part = list(run)
        if not can_be_grouped:
            yield part
            continue
        for start in range(0, len(part), MAX_MESSAGES):
            yield part[start : start + MAX_MESSAGES]


def _similarity(message: StoredMessage) -> tuple[bool, Any]:
    can_be_grouped = (
        message.state == ACTIVE
        and message.session is None
        and message.expires_ms is None
        and message.deliveries == 0
    )
    return can_be_grouped, _common_fields(message) if can_be_grouped else None


def encode_group(queue: int, messages: Sequence[StoredMessage]) -> Row | None:
    """Return the columns of a row with all of the messages, which are a part by `divide`. None:
    they should have separate rows. The messages take note of the row."""
    first, count = messages[0], len(messages)
    rest = b"".join([message.rest for message in messages])
    if (
        not MIN_MESSAGES <= count <= MAX_MESSAGES
        or not _similarity(first)[0]
        or len(rest) > MAX_BYTES
        or messages[-1].sequence - first.sequence != count - 1
    ):
        return None
    group = GroupKey(message_key(queue, messages[-1].sequence), count)
    sizes, lengths = [], []
    for message in messages:
        message.group = group
        sizes.append(message.size)
        lengths.append(len(message.rest))
    return (
        *group,
        first.enqueued_ms,
        first.header,
        first.annotation_count,
        first.annotations,
        sum(sizes),
        pack(f">{2 * count}I", *sizes, *lengths),
        rest,
    )


def removed_bit(group: GroupKey, sequence: int) -> int:
    """Return the bit that says that a message is removed from a group."""
    return 1 << (group.key & MAX_SEQUENCE) - sequence


def decode_group(row: Sequence[Any], removed: int) -> list[StoredMessage]:
    """Return the messages of a row, except for those whose bits are set in `removed`."""
    key, count, enqueued_ms, header, annotation_count, annotations, _, numbers, rest = row
    group = GroupKey(key, count)
    values = unpack(f">{2 * count}I", numbers)
    sequence = (key & MAX_SEQUENCE) - count
    position = 0
    messages = []
    for size, length in zip(values[:count], values[count:], strict=True):
        sequence += 1
        end = position + length
        if removed and removed & removed_bit(group, sequence):
            position = end
            continue
        messages.append(
            StoredMessage(
                sequence,
                ACTIVE,
                enqueued_ms,
                None,
                None,
                0,
                None,
                size,
                header,
                annotation_count,
                annotations,
                rest[position:end],
                group,
            )
        )
        position = end
    return messages
