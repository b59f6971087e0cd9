"""Translation of messages, values, errors and states between our types and proton's."""

from types import NoneType
from typing import Any
from uuid import UUID

import proton
from proton import UNDESCRIBED, Condition, Data, Delivery, Message

from pairbus.amqp.performatives import Accepted, Error, Modified, Rejected, Released
from pairbus.amqp.sections import DATA, SEQUENCE, VALUE, Header, Properties
from pairbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float32,
    Int32,
    Pairs,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from tests.interop.messages import PeerMessage

TYPES: list[tuple[type, type, int]] = [
    # Our type, proton's type, proton's code for the elements of arrays.
    (NoneType, NoneType, Data.NULL),
    (bool, bool, Data.BOOL),
    (UByte, proton.ubyte, Data.UBYTE),
    (UShort, proton.ushort, Data.USHORT),
    (UInt, proton.uint, Data.UINT),
    (ULong, proton.ulong, Data.ULONG),
    (Byte, proton.byte, Data.BYTE),
    (Short, proton.short, Data.SHORT),
    (Int32, proton.int32, Data.INT),
    (int, int, Data.LONG),
    (Float32, proton.float32, Data.FLOAT),
    (float, float, Data.DOUBLE),
    (Decimal32, proton.decimal32, Data.DECIMAL32),
    (Decimal64, proton.decimal64, Data.DECIMAL64),
    (Decimal128, proton.decimal128, Data.DECIMAL128),
    (Char, proton.char, Data.CHAR),
    (Timestamp, proton.timestamp, Data.TIMESTAMP),
    (UUID, UUID, Data.UUID),
    (bytes, bytes, Data.BINARY),
    (str, str, Data.STRING),
    (Symbol, proton.symbol, Data.SYMBOL),
    (list, list, Data.LIST),
    (dict, dict, Data.MAP),
    (Array, proton.Array, Data.ARRAY),
]
PROTON_TYPES = {ours: theirs for ours, theirs, _ in TYPES}
OUR_TYPES = {theirs: ours for ours, theirs, _ in TYPES}
ELEMENT_CODES = {ours: code for ours, _, code in TYPES}
ELEMENT_TYPES = {code: ours for ours, _, code in TYPES}


def to_proton(value: Any) -> Any:
    match value:
        case Described(descriptor, inner):
            return proton.Described(to_proton(descriptor), to_proton(inner))
        case Array(element_type, elements, descriptor):
            described = UNDESCRIBED if descriptor is None else to_proton(descriptor)
            return proton.Array(described, ELEMENT_CODES[element_type], *map(to_proton, elements))
        case dict():
            return {to_proton(key): to_proton(item) for key, item in value.items()}
        case Pairs():
            raise TypeError("proton holds maps in dicts")
        case list():
            return [to_proton(item) for item in value]
        case Decimal32() | Decimal64():
            return PROTON_TYPES[type(value)](int.from_bytes(value, "big"))
    if value is None or isinstance(value, UUID):
        return value
    return PROTON_TYPES[type(value)](value)


def from_proton(value: Any) -> Any:
    match value:
        case proton.Described():
            return Described(from_proton(value.descriptor), from_proton(value.value))
        case proton.Array():
            descriptor = value.descriptor
            return Array(
                ELEMENT_TYPES[value.type],
                tuple(map(from_proton, value.elements)),
                None if descriptor is UNDESCRIBED else from_proton(descriptor),
            )
        case dict():
            return {from_proton(key): from_proton(item) for key, item in value.items()}
        case list():
            return [from_proton(item) for item in value]
        case memoryview():
            return bytes(value)
        case proton.decimal32():
            return Decimal32(int(value).to_bytes(4, "big"))
        case proton.decimal64():
            return Decimal64(int(value).to_bytes(8, "big"))
    return value if value is None or isinstance(value, UUID) else OUR_TYPES[type(value)](value)


def message_to_proton(message: PeerMessage) -> Message:
    kind, values = message.body
    if len(values) != 1:
        raise TypeError("proton's Message has one body section")
    result = Message(body=to_proton(values[0]), inferred=kind != VALUE)
    header, properties = message.header, message.properties
    result.durable, result.priority = header.durable, header.priority
    result.first_acquirer, result.delivery_count = header.first_acquirer, header.delivery_count
    if header.ttl is not None:
        result.ttl = header.ttl / 1000
    for name, proton_name in PROPERTIES.items():
        value = getattr(properties, name)
        if value is not None:
            setattr(result, proton_name, value if isinstance(value, str) else to_proton(value))
    for name, proton_name in TIMES.items():
        value = getattr(properties, name)
        if value is not None:
            setattr(result, proton_name, value / 1000)
    result.instructions = to_proton(message.delivery_annotations) or None
    result.annotations = to_proton(message.message_annotations) or None
    result.properties = to_proton(message.application_properties) or None
    return result


PROPERTIES = {
    "message_id": "id",
    "user_id": "user_id",
    "to": "address",
    "subject": "subject",
    "reply_to": "reply_to",
    "correlation_id": "correlation_id",
    "content_type": "content_type",
    "content_encoding": "content_encoding",
    "group_id": "group_id",
    "group_sequence": "group_sequence",
    "reply_to_group_id": "reply_to_group_id",
}
"""Proton's names of properties."""
TIMES = {"absolute_expiry_time": "expiry_time", "creation_time": "creation_time"}


def message_from_proton(payload: bytes, settled: bool, handle: Any = None) -> PeerMessage:
    message = Message()
    message.decode(payload)
    body = from_proton(message.body)
    kind = VALUE
    if message.inferred:
        kind = DATA if isinstance(body, bytes) else SEQUENCE
    fields: dict[str, Any] = {}
    for name, proton_name in PROPERTIES.items():
        value = getattr(message, proton_name)
        if value not in (None, "", b"") and not (name == "group_sequence" and value == 0):
            fields[name] = from_proton(value)
    for name in ("content_type", "content_encoding"):
        if name in fields:
            fields[name] = Symbol(fields[name])
    for name, proton_name in TIMES.items():
        seconds = getattr(message, proton_name)
        if seconds:
            fields[name] = Timestamp(round(seconds * 1000))
    ttl = round(message.ttl * 1000)
    return PeerMessage(
        header=Header(
            message.durable,
            message.priority,
            ttl or None,
            message.first_acquirer,
            message.delivery_count,
        ),
        properties=Properties(**fields),
        delivery_annotations=from_proton(message.instructions or {}),
        message_annotations=from_proton(message.annotations or {}),
        application_properties=from_proton(message.properties or {}),
        body=(kind, [body]),
        payload=payload,
        settled=settled,
        handle=handle,
    )


def condition_to_proton(error: Error) -> Condition:
    return Condition(error.condition, error.description, to_proton(error.info or {}))


def error_from_proton(condition: Condition | None) -> Error | None:
    if condition is None:
        return None
    info = from_proton(condition.info) or None
    return Error(Symbol(condition.name), condition.description, info)


def settle(delivery: Delivery, state: Any, *, settled: bool = True) -> None:
    """Update a delivery with a state of ours."""
    match state:
        case Accepted():
            delivery.update(Delivery.ACCEPTED)
        case Rejected(error):
            if error is not None:
                delivery.local.condition = condition_to_proton(error)
            delivery.update(Delivery.REJECTED)
        case Released():
            delivery.update(Delivery.RELEASED)
        case Modified(failed, undeliverable, annotations):
            delivery.local.failed, delivery.local.undeliverable = failed, undeliverable
            if annotations is not None:
                delivery.local.annotations = to_proton(annotations)
            delivery.update(Delivery.MODIFIED)
    if settled:
        delivery.settle()


def state_from_proton(delivery: Delivery) -> Any:
    """Return the state of the other side."""
    remote = delivery.remote
    match remote.type:
        case Delivery.ACCEPTED:
            return Accepted()
        case Delivery.REJECTED:
            return Rejected(error_from_proton(remote.condition))
        case Delivery.RELEASED:
            return Released()
        case Delivery.MODIFIED:
            annotations = from_proton(remote.annotations) if remote.annotations else None
            return Modified(remote.failed, remote.undeliverable, annotations)
    return None
