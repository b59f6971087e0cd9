"""Messages on their way in and out: what the emulator reads of them, and what it writes onto them.

A message is stored in three pieces: its header with its delivery annotations, the entries of its
message annotations, and the rest. The first two change from delivery to delivery; the rest goes out
byte for byte as it came in.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Any

from pairbus.amqp.encode import encode
from pairbus.amqp.section_edit import (
    MESSAGE_ANNOTATIONS,
    EncodedKeys,
    encode_section,
    map_entries,
    read_fields,
)
from pairbus.amqp.sections import DELIVERY_COUNT, Message
from pairbus.amqp.types import Int32, Symbol, Timestamp, UInt
from pairbus.emulator.storage.store import StoredMessage
from pairbus.errors import DecodeError, Refused
from pairbus.servicebus import annotations
from pairbus.servicebus.limits import MAX_HEADER_SIZE, MAX_ID_LENGTH
from pairbus.servicebus.message_states import SCHEDULED
from pairbus.servicebus.ping import PING_CONTENT_TYPE

_SET_BY_SERVICE = EncodedKeys(annotations.SET_BY_SERVICE)
_ENQUEUED_KEY = encode(Symbol(annotations.ENQUEUED_TIME))
_SEQUENCE_KEY = encode(Symbol(annotations.SEQUENCE_NUMBER))
_LOCKED_UNTIL_KEY = encode(Symbol(annotations.LOCKED_UNTIL))
_STATE_KEY = encode(Symbol(annotations.MESSAGE_STATE))
_SOURCE = Symbol(annotations.DEAD_LETTER_SOURCE)
_SOURCE_KEYS = EncodedKeys((annotations.DEAD_LETTER_SOURCE,))
_timestamp = Struct(">Bq").pack


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message that was sent, as far as the emulator must know it."""

    message: Message
    size: int
    message_id: Any
    session: str | None
    ttl_ms: int | None
    scheduled_ms: int | None
    is_ping: bool


def read(payload: bytes) -> Incoming:
    """Take in a message. Raises DecodeError for bytes that are not one, Refused for one that no
    Service Bus would take."""
    message = Message.parse(payload)
    message_id, content_type, session = read_fields(message.properties, (0, 6, 10))
    (ttl,) = read_fields(message.header, (2,))
    scheduled = None
    if message.message_annotations:
        message.edit_message_annotations({}, _SET_BY_SERVICE)
        for key in (annotations.SCHEDULED_ENQUEUE_TIME, _SOURCE):
            if key.encode() in message.message_annotations:
                scheduled = message.read_message_annotations().get(
                    annotations.SCHEDULED_ENQUEUE_TIME
                )
                break
    if message.application_properties:
        # They are read by rules and changed by settlements, which must not fail then.
        message.read_application_properties()
    if session is not None and not isinstance(session, str):
        raise DecodeError("the session id is not a string")
    if ttl is not None and not isinstance(ttl, UInt):
        raise DecodeError("the time-to-live is not a uint")
    if session is not None and len(session) > MAX_ID_LENGTH:
        raise Refused(f"a session id has at most {MAX_ID_LENGTH} characters")
    if isinstance(message_id, str) and len(message_id) > MAX_ID_LENGTH:
        raise Refused(f"a message id has at most {MAX_ID_LENGTH} characters")
    if scheduled is not None and not isinstance(scheduled, Timestamp):
        raise DecodeError(f"{annotations.SCHEDULED_ENQUEUE_TIME} is not a timestamp")
    if len(payload) - len(message.body) > MAX_HEADER_SIZE:
        raise Refused(f"everything but the body may take {MAX_HEADER_SIZE} bytes")
    return Incoming(
        message,
        len(payload),
        message_id,
        session,
        None if ttl is None else int(ttl),
        None if scheduled is None else int(scheduled),
        content_type == PING_CONTENT_TYPE,
    )


def store(
    incoming: Incoming,
    sequence: int,
    state: int,
    now_ms: int,
    expires_ms: int | None,
) -> StoredMessage:
    """What is stored of a message under a sequence number."""
    message = incoming.message
    count, entries = map_entries(message.message_annotations)
    return StoredMessage(
        sequence,
        state,
        now_ms,
        expires_ms,
        incoming.scheduled_ms if state == SCHEDULED else None,
        0,
        incoming.session,
        incoming.size,
        message.header + message.delivery_annotations,
        count,
        entries,
        message.properties + message.application_properties + message.body + message.footer,
    )


# Headers are few and repeat; with the delivery count in them they still do.
_HEADERS: dict[tuple[bytes, int], bytes] = {}


def _header(header: bytes, deliveries: int) -> bytes:
    key = header, deliveries
    result = _HEADERS.get(key)
    if result is None:
        message = Message.parse(header)
        message.edit_header({DELIVERY_COUNT: UInt(deliveries)})
        result = message.encode()
        if len(_HEADERS) > 4096:
            _HEADERS.clear()
        if len(header) <= 64:  # delivery annotations do not repeat
            _HEADERS[key] = result
    return result


def deliver(stored: StoredMessage, deliveries: int, locked_until_ms: int | None) -> bytes:
    """The bytes of a delivery."""
    entries = (
        stored.annotations
        + _ENQUEUED_KEY
        + _timestamp(0x83, stored.enqueued_ms)
        + _SEQUENCE_KEY
        + _timestamp(0x81, stored.sequence)
    )
    count = stored.annotation_count + 4
    if locked_until_ms is not None:
        entries += _LOCKED_UNTIL_KEY + _timestamp(0x83, locked_until_ms)
        count += 2
    return (
        _header(stored.header, deliveries)
        + encode_section(MESSAGE_ANNOTATIONS, 0xC1, count, entries)
        + stored.rest
    )


def peek(stored: StoredMessage) -> bytes:
    """The bytes of a message that is only looked at: with its state, and without a lock."""
    entries = (
        stored.annotations
        + _ENQUEUED_KEY
        + _timestamp(0x83, stored.enqueued_ms)
        + _SEQUENCE_KEY
        + _timestamp(0x81, stored.sequence)
        + _STATE_KEY
        + encode(Int32(stored.state))
    )
    return (
        _header(stored.header, stored.deliveries)
        + encode_section(MESSAGE_ANNOTATIONS, 0xC1, stored.annotation_count + 6, entries)
        + stored.rest
    )


def restore(stored: StoredMessage) -> bytes:
    """The bytes of a message as it was sent, but for the order of its sections."""
    annotations = b""
    if stored.annotation_count:
        annotations = encode_section(
            MESSAGE_ANNOTATIONS, 0xC1, stored.annotation_count, stored.annotations
        )
    return stored.header + annotations + stored.rest


def modify(stored: StoredMessage, properties: dict[str, Any]) -> None:
    """Set application properties of a stored message (abandon, defer, dead-letter with changes)."""
    if not properties:
        return
    message = Message.parse(stored.rest)
    message.edit_application_properties(properties)
    stored.rest = message.encode()


def set_dead_letter_source(stored: StoredMessage, path: str) -> None:
    """Say which entity a message was dead-lettered on."""
    message = Message()
    if stored.annotation_count:
        message.message_annotations = encode_section(
            MESSAGE_ANNOTATIONS, 0xC1, stored.annotation_count, stored.annotations
        )
    # Removed by its text, so that a string of a sender goes like a symbol of ours.
    message.edit_message_annotations({_SOURCE: path}, _SOURCE_KEYS)
    stored.annotation_count, stored.annotations = map_entries(message.message_annotations)
