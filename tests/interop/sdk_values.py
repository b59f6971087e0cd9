"""Translation of messages, values and errors between our types and those of the SDK."""

from decimal import Decimal
from typing import Any

from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)
from azure.servicebus.exceptions import ServiceBusError

from pairbus.amqp.performatives import Error
from pairbus.amqp.sections import DATA, SEQUENCE, VALUE, Header, Properties
from pairbus.amqp.types import (
    Array,
    Byte,
    Decimal128,
    Described,
    Float32,
    Int32,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from tests.interop.messages import PeerMessage

BODY_TYPES = {
    AmqpMessageBodyType.DATA: DATA,
    AmqpMessageBodyType.SEQUENCE: SEQUENCE,
    AmqpMessageBodyType.VALUE: VALUE,
}
TYPE_NAMES = {
    UByte: "UBYTE",
    UShort: "USHORT",
    UInt: "UINT",
    ULong: "ULONG",
    Byte: "BYTE",
    Short: "SHORT",
    Int32: "INT",
    int: "LONG",
    Float32: "FLOAT",
    Timestamp: "TIMESTAMP",
    Symbol: "SYMBOL",
    bytes: "BINARY",
}


def to_sdk(value: Any) -> Any:
    """Return a value that the SDK encodes with the type of ours."""
    match value:
        case bool() | None:
            return value
        case Described(descriptor, inner):
            return to_sdk(descriptor), to_sdk(inner)
        case Array(_, elements):
            return {"TYPE": "ARRAY", "VALUE": [to_sdk(element) for element in elements]}
        case dict():
            # The SDK encodes integers as the keys of maps as int.
            return {
                int(key) if isinstance(key, Int32) else key: to_sdk(item)
                for key, item in value.items()
            }
        case list():
            return [to_sdk(item) for item in value]
        case Decimal128():
            return Decimal("1.5")
    name = TYPE_NAMES.get(type(value))
    return value if name is None else {"TYPE": name, "VALUE": value}


def as_read_by_sdk(value: Any) -> Any:
    """Return the value as the SDK decodes it: it has few types, and returns text as bytes."""
    match value:
        case bool() | None:
            return value
        case Described(_, inner):
            return as_read_by_sdk(inner)
        case Array(_, elements):
            return [as_read_by_sdk(element) for element in elements]
        case dict():
            return {as_read_by_sdk(key): as_read_by_sdk(item) for key, item in value.items()}
        case list():
            return [as_read_by_sdk(item) for item in value]
        case str():
            return value.encode()
        case int():
            return int(value)
        case float():
            return float(value)
    return value


def message_to_sdk(message: PeerMessage) -> AmqpAnnotatedMessage:
    kind, values = message.body
    if kind == DATA:
        body: dict[str, Any] = {"data_body": values}
    elif kind == SEQUENCE:
        body = {"sequence_body": [to_sdk(value) for value in values]}
    else:
        body = {"value_body": to_sdk(values[0])}
    header, properties = message.header, message.properties
    sections: dict[str, Any] = {}
    if header != Header():
        sections["header"] = AmqpMessageHeader(
            durable=header.durable,
            priority=header.priority,
            time_to_live=header.ttl,
            first_acquirer=header.first_acquirer,
            delivery_count=header.delivery_count,
        )
    if properties != Properties():
        fields = {name: getattr(properties, name) for name in Properties.__slots__}
        sections["properties"] = AmqpMessageProperties(**fields)
    for name, sdk_name in (
        ("delivery_annotations", "delivery_annotations"),
        ("message_annotations", "annotations"),
        ("application_properties", "application_properties"),
        ("footer", "footer"),
    ):
        values_ = getattr(message, name)
        if values_:
            sections[sdk_name] = {str(key): to_sdk(value) for key, value in values_.items()}
    return AmqpAnnotatedMessage(**body, **sections)


def message_from_sdk(received: Any) -> PeerMessage:
    raw = received.raw_amqp_message
    kind = BODY_TYPES[raw.body_type]
    body = [raw.body] if kind == VALUE else list(raw.body)
    fields: dict[str, Any] = {}
    header = raw.header
    if header is not None:
        fields["header"] = Header(
            bool(header.durable),
            4 if header.priority is None else header.priority,
            header.time_to_live,
            bool(header.first_acquirer),
            header.delivery_count or 0,
        )
    if raw.properties is not None:
        fields["properties"] = Properties(
            **{
                name: _text(value) if name != "user_id" else value
                for name in Properties.__slots__
                if (value := getattr(raw.properties, name)) is not None
            }
        )
    return PeerMessage(
        **fields,
        delivery_annotations=_symbols(raw.delivery_annotations),
        message_annotations=_symbols(raw.annotations),
        application_properties={
            key.decode(): value for key, value in (raw.application_properties or {}).items()
        },
        footer=_symbols(raw.footer),
        body=(kind, body),
        settled=received._settled,
        handle=received,
    )


def _symbols(annotations: dict[bytes, Any] | None) -> dict[Symbol, Any]:
    return {Symbol(key.decode()): value for key, value in (annotations or {}).items()}


def _text(value: Any) -> Any:
    """Return the text of a value. The SDK returns strings as bytes, and cannot tell them apart."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def error_from_sdk(exc: ServiceBusError) -> Error | None:
    """Return the AMQP error that an exception of the SDK carries."""
    inner = exc.inner_exception
    condition = getattr(inner, "condition", None)
    if condition is None:
        return None
    condition = getattr(condition, "value", condition)
    description = _text(getattr(inner, "description", None))
    info = getattr(inner, "info", None)
    return Error(_text(condition), description, info and {_text(k): v for k, v in info.items()})
