"""How an async receiver gets rid of pings."""

from collections.abc import Iterable
from typing import Any

from pairbus.pairing.ping import M, is_ping


async def drop_pings(receiver: Any, messages: Iterable[M]) -> list[M]:
    """The same as `pairbus.drop_pings`, for a receiver of `azure.servicebus.aio`."""
    kept = []
    for message in messages:
        if is_ping(message):
            await receiver.complete_message(message)
        else:
            kept.append(message)
    return kept
