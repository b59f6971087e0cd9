"""`drop_pings` for receivers of `azure.servicebus.aio`."""

from collections.abc import Iterable

from azure.servicebus.aio import ServiceBusReceiver

from pairbus.pairing.ping import M, is_ping

__all__ = ["drop_pings"]


async def drop_pings(receiver: ServiceBusReceiver, messages: Iterable[M]) -> list[M]:
    """Complete the pings among the received messages, and return the other messages in order."""
    others = []
    for message in messages:
        if is_ping(message):
            await receiver.complete_message(message)
        else:
            others.append(message)
    return others
