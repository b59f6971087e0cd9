"""Translation of messages between our types and the JSON of the rhea scripts."""

from typing import Any

from pairbus.amqp.composite import decode_composite
from pairbus.amqp.section_edit import FOOTER
from pairbus.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Header,
    Properties,
)
from pairbus.amqp.types import Described, UInt, ULong
from tests.interop.messages import PeerMessage
from tests.interop.rhea_process import (
    RheaProcess,
    from_json,
    map_to_json,
    to_json,
)

OUTCOME_EVENTS = ("accepted", "rejected", "released", "modified")
HEADER_FIELDS = ("durable", "priority", "ttl", "first_acquirer", "delivery_count")


def message_to_json(message: PeerMessage) -> dict[str, Any]:
    result: dict[str, Any] = {}
    defaults = Header()
    for name in HEADER_FIELDS:
        value = getattr(message.header, name)
        if value != getattr(defaults, name):
            result[name] = to_json(value if isinstance(value, bool) else UInt(value))
    for name in Properties.__slots__:
        value = getattr(message.properties, name)
        if value is not None:
            result[name] = to_json(value)
    for name in ("delivery_annotations", "message_annotations", "application_properties", "footer"):
        if getattr(message, name):
            result[name] = map_to_json(getattr(message, name))
    kind, values = message.body
    if kind == DATA:
        result["data"] = [value.hex() for value in values]
    elif kind == SEQUENCE:
        [sequence] = values
        result["sequence"] = to_json(sequence)
    else:
        [value] = values
        result["body"] = to_json(value)
    return result


def message_from_json(event: dict[str, Any]) -> PeerMessage:
    fields: dict[str, Any] = {
        "payload": bytes.fromhex(event["payload"]),
        "message_format": event["format"],
        "settled": event["settled"],
        "handle": event,
    }
    sections = {
        int(code): [from_json(value) for value in values]
        for code, values in event.get("sections", {}).items()
    }
    if HEADER in sections:
        fields["header"] = decode_composite(Described(ULong(HEADER), sections[HEADER][0]))
    if PROPERTIES in sections:
        fields["properties"] = decode_composite(
            Described(ULong(PROPERTIES), sections[PROPERTIES][0])
        )
    for code, name in (
        (DELIVERY_ANNOTATIONS, "delivery_annotations"),
        (MESSAGE_ANNOTATIONS, "message_annotations"),
        (APPLICATION_PROPERTIES, "application_properties"),
        (FOOTER, "footer"),
    ):
        if code in sections:
            fields[name] = sections[code][0]
    for kind in (DATA, SEQUENCE, VALUE):
        if kind in sections:
            fields["body"] = kind, sections[kind]
    return PeerMessage(**fields)


def encode(process: RheaProcess, message: PeerMessage) -> bytes:
    """Return a message as rhea encodes it."""
    return bytes.fromhex(process.do("encode", message=message_to_json(message))["payload"])
