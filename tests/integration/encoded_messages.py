"""Encoded AMQP messages, as our own client sends them."""

from typing import Any

from pairbus.amqp.sections import Message, Properties


def payload(body: str = "x", **properties: Any) -> bytes:
    return Message.build(properties=Properties(**properties), data=body.encode()).encode()


def sized(size: int) -> bytes:
    """Return an encoded message of exactly this size."""
    properties = Properties(message_id="m")
    body = size - len(Message.build(properties=properties, data=b"x" * 1000).encode()) + 1000
    message = Message.build(properties=properties, data=b"x" * body).encode()
    assert len(message) == size
    return message
