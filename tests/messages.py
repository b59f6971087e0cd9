"""Encoded messages: their creation, and their content."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from pairbus.amqp.client import Client, ClientOptions, Management
from pairbus.amqp.section_edit import read_fields
from pairbus.amqp.sections import MESSAGE_ID, Header, Message, Properties
from pairbus.amqp.types import UInt
from pairbus.spark.messages import sequence_number_of
from tests.tiers import when_admitted


def message(
    id: str, *, session: str | None = None, ttl_ms: int | None = None, body: bytes = b"body"
) -> bytes:
    """Return an encoded message with the parts that the SDK sends."""
    return Message.build(
        header=None if ttl_ms is None else Header(ttl=UInt(ttl_ms)),
        properties=Properties(message_id=id, group_id=session, subject="s"),
        application_properties={"n": 1, "text": "é"},
        data=body,
    ).encode()


def numbered(count: int, prefix: str = "m", session: str | None = None) -> list[bytes]:
    """Return messages with the ids `m-0`, `m-1` and so on."""
    return [message(f"{prefix}-{n}", session=session) for n in range(count)]


def id_of(payload: bytes) -> str:
    return str(read_fields(Message.parse(payload).properties, (MESSAGE_ID,))[0])


def content_of(payload: bytes) -> tuple[Any, ...]:
    """Return the content of a message, its id first. Encodings of the same content may differ:
    trailing nulls of a header can be left out."""
    parsed = Message.parse(payload)
    return (
        parsed.read_properties().message_id,
        parsed.read_header(),
        parsed.read_properties(),
        parsed.read_message_annotations(),
        parsed.read_application_properties(),
        parsed.read_body(),
    )


def peek_all(connection_string: str, path: str) -> Iterator[bytes]:
    """Peek at all messages of a queue, locked ones included."""
    options = ClientOptions.from_connection_string(connection_string)
    with Client(options) as client, Management(client, path) as management:
        number = 1
        while page := when_admitted(partial(management.peek, number, 250)):
            yield from page
            number = sequence_number_of(page[-1]) + 1
