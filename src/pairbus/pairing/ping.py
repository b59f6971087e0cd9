"""Pings: empty messages that test whether an entity of the primary accepts messages."""

from collections.abc import Iterable
from datetime import timedelta
from typing import TypeVar
from uuid import uuid4

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiver

__all__ = ["PING_CONTENT_TYPE", "drop_pings", "is_ping", "make_ping"]

from pairbus.servicebus.ping import PING_CONTENT_TYPE

_TIME_TO_LIVE = timedelta(seconds=1)

M = TypeVar("M", bound=ServiceBusReceivedMessage)


def make_ping() -> ServiceBusMessage:
    """Return a new ping. It has a session id, because entities with sessions require one."""
    return ServiceBusMessage(
        b"",
        content_type=PING_CONTENT_TYPE,
        time_to_live=_TIME_TO_LIVE,
        session_id=str(uuid4()),
    )


def is_ping(message: ServiceBusMessage) -> bool:
    """Return whether a received message is a ping. Some namespaces do not deliver pings; receivers
    of the others must complete them."""
    content_type: str | bytes | None = message.content_type
    return content_type in (PING_CONTENT_TYPE, PING_CONTENT_TYPE.encode())


def drop_pings(receiver: ServiceBusReceiver, messages: Iterable[M]) -> list[M]:
    """Complete the pings among the received messages, and return the other messages in order."""
    others = []
    for message in messages:
        if is_ping(message):
            receiver.complete_message(message)
        else:
            others.append(message)
    return others
