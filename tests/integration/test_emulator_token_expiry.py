"""An expired token detaches its links, also those of the SDK. A test moves the clock."""

import time
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus.emulator.namespace import LocalNamespace
from tests.integration.emulator_flavours import FLAVOURS, Awaited
from tests.integration.emulator_kit import BRISK, wait_until

MINUTE_MS = 60_000


class Clock:
    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def namespace(clock: Clock) -> Iterator[LocalNamespace]:
    with LocalNamespace("local", now_ms=clock) as namespace:
        namespace.create_queue("q")
        yield namespace


def links(namespace: LocalNamespace) -> int:
    return namespace.call(lambda core: len(core.incoming_links))


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_link_is_detached_five_minutes_after_its_token_expired(
    flavour: str, namespace: LocalNamespace, clock: Clock
) -> None:
    made = FLAVOURS[flavour][0].from_connection_string(
        namespace.connection_string, retry_total=0, retry_backoff_factor=0.02
    )
    client = made if flavour == "aio" else Awaited(made)
    sdk_sender = made.get_queue_sender("q", **BRISK)
    sender = sdk_sender if flavour == "aio" else Awaited(sdk_sender)
    async with sender:
        await sender.send_messages(ServiceBusMessage("within its hour"))
        clock.ahead_ms = 64 * MINUTE_MS  # tokens of the SDK are valid for one hour
        await sender.send_messages(ServiceBusMessage("within the grace"))
        assert links(namespace) == 1

        clock.ahead_ms = 66 * MINUTE_MS
        wait_until(lambda: links(namespace) == 0, "the link to be ended")
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("too late"))

        clock.ahead_ms = 0
        await sender.send_messages(ServiceBusMessage("with a new token"))
    await client.close()

    assert namespace.call(lambda core: len(core.entities.get("q").queue)) == 3
