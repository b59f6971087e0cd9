"""What a ping is, and how a receiver knows one."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

from azure.servicebus import ServiceBusMessage

from pairbus.servicebus.ping import PING_CONTENT_TYPE

_TIME_TO_LIVE = timedelta(seconds=1)

M = TypeVar("M", bound=ServiceBusMessage)


def make_ping() -> ServiceBusMessage:
    """An empty message that asks whether an entity takes messages. It has a session id, because
    entities with sessions take nothing without one."""
    return ServiceBusMessage(
        b"",
        content_type=PING_CONTENT_TYPE,
        time_to_live=_TIME_TO_LIVE,
        session_id=str(uuid4()),
    )


def is_ping(message: Any) -> bool:
    """Whether a received message is a ping. A namespace that knows pings delivers none; for one
    that does not, a receiver completes them and goes on."""
    kind = message.content_type
    return bool(kind == PING_CONTENT_TYPE or kind == PING_CONTENT_TYPE.encode())


def drop_pings(receiver: Any, messages: Iterable[M]) -> list[M]:
    """The messages that are none, in their order; pings are completed on their receiver."""
    kept = []
    for message in messages:
        if is_ping(message):
            receiver.complete_message(message)
        else:
            kept.append(message)
    return kept
