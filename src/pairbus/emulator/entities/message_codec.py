"""Messages between AMQP and the store: parsing of sent ones, encoding of delivered ones.

A message is stored in three parts: its header with its delivery annotations, the entries of its
message annotations, and the rest. The first two change from delivery to delivery; the rest is
delivered byte for byte as it was sent, except for decimals among the application properties.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any
from uuid import UUID, uuid4

from pairbus.amqp.encode import encode
from pairbus.amqp.lock_tokens import swap_byte_order
from pairbus.amqp.section_edit import (
    DELIVERY_ANNOTATIONS,
    MESSAGE_ANNOTATIONS,
    EncodedKeys,
    edit_map,
    encode_section,
    map_entries,
    read_fields,
)
from pairbus.amqp.sections import DELIVERY_COUNT, MESSAGE_ID, Message
from pairbus.amqp.types import Int32, Symbol, Timestamp, UInt
from pairbus.emulator.entities import decimals
from pairbus.emulator.storage.stored_message import StoredMessage
from pairbus.errors import DecodeError, Refused
from pairbus.servicebus import annotations
from pairbus.servicebus.application_properties import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from pairbus.servicebus.limits import MAX_HEADER_SIZE, MAX_ID_LENGTH
from pairbus.servicebus.message_states import SCHEDULED
from pairbus.servicebus.ping import PING_CONTENT_TYPE

_SET_BY_SERVICE = EncodedKeys(annotations.SET_BY_SERVICE)
_PARTITION_KEY = Symbol(annotations.PARTITION_KEY)
_SCHEDULED_TIME_BYTES = annotations.SCHEDULED_ENQUEUE_TIME.encode()
_ENQUEUED_KEY = encode(Symbol(annotations.ENQUEUED_TIME))
_SEQUENCE_KEY = encode(Symbol(annotations.SEQUENCE_NUMBER))
_LOCKED_UNTIL_KEY = encode(Symbol(annotations.LOCKED_UNTIL))
_LOCK_TOKEN_KEY = encode(Symbol(annotations.LOCK_TOKEN))
_LOCK_TOKEN_KEYS = EncodedKeys((annotations.LOCK_TOKEN,))
_STATE_KEY = encode(Symbol(annotations.MESSAGE_STATE))
_DEAD_LETTER_SOURCE = Symbol(annotations.DEAD_LETTER_SOURCE)
_DEAD_LETTER_SOURCE_BYTES = annotations.DEAD_LETTER_SOURCE.encode()
_DEAD_LETTER_SOURCE_KEYS = EncodedKeys((annotations.DEAD_LETTER_SOURCE,))
_pack_64_bits = Struct(">Bq").pack
"""Encodes a format code (0x83: timestamp, 0x81: long) and its value."""
_LOCK_TOKEN_SIZE = 16
_BEFORE_SEQUENCE_NUMBER = _SEQUENCE_KEY + b"\x81"
_BEFORE_ENQUEUED_TIME = (
    encode_section(
        MESSAGE_ANNOTATIONS,
        0xC1,
        6,
        _ENQUEUED_KEY + bytes(9) + _SEQUENCE_KEY + bytes(9) + _LOCKED_UNTIL_KEY + bytes(9),
    ).partition(_ENQUEUED_KEY)[0]
    + _ENQUEUED_KEY
    + b"\x83"
)
"""Message annotations of a locked message, if there are only those of the service."""
_pack_locked_annotations = Struct(
    f">{len(_BEFORE_ENQUEUED_TIME)}sq{len(_BEFORE_SEQUENCE_NUMBER)}sq"
).pack
_LOCK_TOKEN_SECTION = encode_section(
    DELIVERY_ANNOTATIONS, 0xC1, 2, _LOCK_TOKEN_KEY + b"\x98" + bytes(_LOCK_TOKEN_SIZE)
)[:-_LOCK_TOKEN_SIZE]
"""Delivery annotations with a lock token only, up to the token."""


@dataclass(slots=True)
class IncomingMessage:
    """A sent message, with the fields that the emulator uses. Treat it as immutable: it is not
    frozen only for speed."""

    sections: Message
    size: int
    message_id: Any
    session: str | None
    ttl_ms: int | None
    scheduled_ms: int | None
    is_ping: bool


def parse_message(payload: bytes) -> IncomingMessage:
    """Parse a sent message, and remove the annotations that only the service may set.

    Raises DecodeError if the bytes are not a message, and Refused if Service Bus would refuse it.
    """
    message = Message.parse(payload)
    message_id, content_type, session = read_fields(message.properties, (0, 6, 10))
    (ttl,) = read_fields(message.header, (2,))
    scheduled = None
    if message.message_annotations:
        message.edit_message_annotations({}, _SET_BY_SERVICE)
        section = message.message_annotations
        if _SCHEDULED_TIME_BYTES in section or _DEAD_LETTER_SOURCE_BYTES in section:
            scheduled = message.read_message_annotations().get(annotations.SCHEDULED_ENQUEUE_TIME)
    if message.delivery_annotations:
        # A delivery adds entries to them, so they must be valid from the start.
        message.delivery_annotations, _ = edit_map(
            message.delivery_annotations, DELIVERY_ANNOTATIONS, {}, _LOCK_TOKEN_KEYS
        )
    if message.application_properties:
        # Rules read them and settlements change them, so they must be valid from the start.
        properties = message.read_application_properties()
        if decimals.CODE in message.application_properties:
            message.application_properties = decimals.with_decimals_of_service(
                message.application_properties, properties
            )
    if session is not None and not isinstance(session, str):
        raise DecodeError("The session id is not a string.")
    if ttl is not None and not isinstance(ttl, UInt):
        raise DecodeError("The time-to-live is not a uint.")
    if session is not None and len(session) > MAX_ID_LENGTH:
        raise Refused(
            f"The session id has {len(session)} characters; the maximum is {MAX_ID_LENGTH}."
        )
    if isinstance(message_id, str) and len(message_id) > MAX_ID_LENGTH:
        raise Refused(
            f"The message id has {len(message_id)} characters; the maximum is {MAX_ID_LENGTH}."
        )
    if scheduled is not None and not isinstance(scheduled, Timestamp):
        raise DecodeError(
            f"The annotation {annotations.SCHEDULED_ENQUEUE_TIME} is not a timestamp."
        )
    if len(payload) - len(message.body) > MAX_HEADER_SIZE:
        raise Refused(f"Header, annotations and properties have more than {MAX_HEADER_SIZE} bytes.")
    return IncomingMessage(
        message,
        len(payload),
        message_id,
        session,
        None if ttl is None else int(ttl),
        None if scheduled is None else int(scheduled),
        content_type == PING_CONTENT_TYPE,
    )


def partition_key(message: Message, session: Any) -> Any:
    """Return the key that selects the partition of a message: its session id, else its partition
    key, else None."""
    if session is not None or not message.message_annotations:
        return session
    return message.read_message_annotations().get(_PARTITION_KEY)


def with_message_id(
    message: IncomingMessage, new_id: Callable[[], UUID] = uuid4
) -> IncomingMessage:
    """Return a message that was sent without a message id with one, as the service does."""
    message_id = new_id().hex
    sections = Message.parse(message.sections.encode())
    sections.edit_properties({MESSAGE_ID: message_id})
    return replace(message, sections=sections, message_id=message_id)


def to_stored(
    message: IncomingMessage,
    sequence: int,
    state: int,
    now_ms: int,
    expires_ms: int | None,
) -> StoredMessage:
    """Return a message as it is stored under a sequence number."""
    sections = message.sections
    count, entries = map_entries(sections.message_annotations)
    return StoredMessage(
        sequence,
        state,
        now_ms,
        expires_ms,
        message.scheduled_ms if state == SCHEDULED else None,
        0,
        message.session,
        message.size,
        sections.header + sections.delivery_annotations,
        count,
        entries,
        sections.properties + sections.application_properties + sections.body + sections.footer,
    )


_HEADER_CACHE: dict[tuple[bytes, int], tuple[bytes, int, bytes]] = {}
"""Headers by their original form and delivery count: there are few different ones."""


def _header(original: bytes, deliveries: int) -> tuple[bytes, int, bytes]:
    """Return the header with the delivery count set, and the number and the bytes of the keys and
    values of the sender's delivery annotations."""
    key = original, deliveries
    parts = _HEADER_CACHE.get(key)
    if parts is None:
        message = Message.parse(original)
        message.edit_header({DELIVERY_COUNT: UInt(deliveries)})
        parts = message.header, *map_entries(message.delivery_annotations)
        if len(_HEADER_CACHE) > 4096:
            _HEADER_CACHE.clear()
        if len(original) <= 64:  # longer ones have delivery annotations, which do not repeat
            _HEADER_CACHE[key] = parts
    return parts


def encode_deliveries(
    messages: Sequence[StoredMessage], lock_tokens: Sequence[bytes], locked_until_ms: int
) -> list[bytes]:
    """Return the bytes of messages for delivery with locks that expire at the same time."""
    lock = _LOCKED_UNTIL_KEY + _pack_64_bits(0x83, locked_until_ms)
    # A lock token is a GUID in the byte order of .NET; AMQP has it in that of the network.
    uuids = swap_byte_order(b"".join(lock_tokens))
    payloads = []
    position = 0
    for message in messages:
        header, count, entries = _header(message.header, message.deliveries)
        uuid = uuids[position : position + _LOCK_TOKEN_SIZE]
        position += _LOCK_TOKEN_SIZE
        if count:
            entries += _LOCK_TOKEN_KEY + b"\x98" + uuid
            header += encode_section(DELIVERY_ANNOTATIONS, 0xC1, count + 2, entries)
        else:
            header += _LOCK_TOKEN_SECTION + uuid
        if message.annotation_count:
            annotations_section = _annotations(message, lock, 2)
        else:
            annotations_section = (
                _pack_locked_annotations(
                    _BEFORE_ENQUEUED_TIME,
                    message.enqueued_ms,
                    _BEFORE_SEQUENCE_NUMBER,
                    message.sequence,
                )
                + lock
            )
        payloads.append(header + annotations_section + message.rest)
    return payloads


def encode_removed(message: StoredMessage) -> bytes:
    """Return the bytes of a message for delivery without a lock (receive and delete)."""
    header, count, entries = _header(message.header, message.deliveries)
    # As in the service, the section is there even if it is empty.
    delivery_annotations = encode_section(DELIVERY_ANNOTATIONS, 0xC1, count, entries)
    return header + delivery_annotations + _annotations(message, b"", 0) + message.rest


def encode_peeked(message: StoredMessage) -> bytes:
    """Return the bytes of a message for peeking: with its state.

    As in the service, a peek does not show if a message is locked.
    """
    return _encode_with_state(message, b"", 0)


def encode_deferred(message: StoredMessage, locked_until_ms: int | None) -> bytes:
    """Return the bytes of a deferred message for the response to a request: with its state, and
    with the end of its lock if it has one. The lock token is next to it in the response."""
    if locked_until_ms is None:
        return _encode_with_state(message, b"", 0)
    return _encode_with_state(message, _LOCKED_UNTIL_KEY + _pack_64_bits(0x83, locked_until_ms), 2)


def _encode_with_state(message: StoredMessage, further: bytes, further_count: int) -> bytes:
    header, count, entries = _header(message.header, message.deliveries)
    if count:
        header += encode_section(DELIVERY_ANNOTATIONS, 0xC1, count, entries)
    further += _STATE_KEY + encode(Int32(message.state))
    return header + _annotations(message, further, further_count + 2) + message.rest


def _annotations(message: StoredMessage, further: bytes, further_count: int) -> bytes:
    """Return the message annotations, with those of the service.

    `further` are encoded keys and values of annotations, and `further_count` is their number.
    """
    entries = (
        message.annotations
        + _ENQUEUED_KEY
        + _pack_64_bits(0x83, message.enqueued_ms)
        + _SEQUENCE_KEY
        + _pack_64_bits(0x81, message.sequence)
        + further
    )
    count = message.annotation_count + 4 + further_count
    return encode_section(MESSAGE_ANNOTATIONS, 0xC1, count, entries)


def encode_original(message: StoredMessage) -> bytes:
    """Return the bytes of a message as it was sent, except for the order of its sections."""
    if not message.annotation_count:
        return message.header + message.rest
    section = encode_section(
        MESSAGE_ANNOTATIONS, 0xC1, message.annotation_count, message.annotations
    )
    return message.header + section + message.rest


def set_application_properties(message: StoredMessage, properties: dict[str, Any]) -> None:
    """Set application properties of a stored message, as settlements may do."""
    if not properties:
        return
    sections = Message.parse(message.rest)
    sections.edit_application_properties(properties)
    message.rest = sections.encode()


def dead_letter_properties(reason: str | None, description: str | None) -> dict[str, Any]:
    """Return the application properties that say why a message was dead-lettered."""
    properties = {DEAD_LETTER_REASON: reason, DEAD_LETTER_DESCRIPTION: description}
    return {name: text for name, text in properties.items() if text is not None}


def set_dead_letter_source(message: StoredMessage, path: str) -> None:
    """Set the annotation that names the entity on which a message was dead-lettered."""
    sections = Message()
    if message.annotation_count:
        sections.message_annotations = encode_section(
            MESSAGE_ANNOTATIONS, 0xC1, message.annotation_count, message.annotations
        )
    # Removed by text, because a sender may have set it as a string instead of a symbol.
    sections.edit_message_annotations({_DEAD_LETTER_SOURCE: path}, _DEAD_LETTER_SOURCE_KEYS)
    message.annotation_count, message.annotations = map_entries(sections.message_annotations)
