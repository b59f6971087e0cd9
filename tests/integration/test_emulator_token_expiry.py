"""An expired token detaches its links, also those of the SDK. A test moves the clock."""

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.integration.clocks import Clock
from tests.integration.sdk_flavours import SDK_MARKS, Flavour, eventually

pytestmark = SDK_MARKS

MINUTE_S = 60


async def test_link_is_detached_five_minutes_after_its_token_expired(
    own_sdk: Flavour, clock: Clock
) -> None:
    def links() -> int:
        return own_sdk.namespace.call(lambda core: len(core.incoming_links))

    own_sdk.namespace.create_queue("q")
    (sender,) = await own_sdk.open(own_sdk.sender("q"))
    await sender.send_messages(ServiceBusMessage("within its hour"))
    clock.ahead = 64 * MINUTE_S  # tokens of the SDK are valid for one hour
    await sender.send_messages(ServiceBusMessage("within the grace"))
    assert links() == 1

    clock.ahead = 66 * MINUTE_S
    await eventually(lambda: links() == 0)
    with pytest.raises(ServiceBusError):
        await sender.send_messages(ServiceBusMessage("too late"))

    clock.ahead = 0
    await sender.send_messages(ServiceBusMessage("with a new token"))
    assert own_sdk.stored_count("q") == 3
