"""AMQP over WebSockets with the sync and the async SDK."""

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusConnectionError

from tests.integration.sdk_flavours import SDK_MARKS, WEBSOCKET_TIMEOUTS, Flavour, take, take_one
from tests.interop.tls import TlsFiles

pytestmark = [
    *SDK_MARKS,
    # The async SDK calls aiohttp so.
    pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning"),
]

schemes = pytest.mark.parametrize("scheme", ["ws", "wss"])


def sdk_over(sdk: Flavour, scheme: str, ca_file: str | None = None) -> Any:
    text = sdk.namespace.connection_string
    return sdk.connect(
        text if scheme == "ws" else text.replace("UseDevelopmentEmulator=true;", ""),
        custom_endpoint_address=f"sb://localhost:{sdk.namespace.port}",
        transport_type=TransportType.AmqpOverWebsocket,
        connection_verify=ca_file or sdk.namespace.ca_file,
    )


def sender_of(sdk: Flavour, client: Any, queue: str) -> Any:
    return sdk.keep(client.get_queue_sender(queue, **WEBSOCKET_TIMEOUTS))


def receiver_of(sdk: Flavour, client: Any, queue: str) -> Any:
    return sdk.keep(client.get_queue_receiver(queue, **WEBSOCKET_TIMEOUTS))


@pytest.mark.rule("N2")
@schemes
async def test_sdk_sends_and_receives(sdk: Flavour, scheme: str) -> None:
    queue = sdk.queue()
    client = sdk_over(sdk, scheme)
    bodies = ["small", "x" * 200_000]
    async with sdk.awaitable(client):
        sender, receiver = await sdk.open(
            sender_of(sdk, client, queue), receiver_of(sdk, client, queue)
        )
        for body in bodies:
            await sender.send_messages(ServiceBusMessage(body))
        messages = await take(receiver, 2)
        for message in messages:
            await receiver.complete_message(message)
    assert [str(message) for message in messages] == bodies
    assert sdk.stored_count(queue) == 0


async def test_sdk_uses_the_management_link(sdk: Flavour) -> None:
    queue = sdk.queue()
    client = sdk_over(sdk, "ws")
    async with sdk.awaitable(client):
        sender, receiver = await sdk.open(
            sender_of(sdk, client, queue), receiver_of(sdk, client, queue)
        )
        await sender.send_messages(ServiceBusMessage("x"))
        (peeked,) = await receiver.peek_messages(1)
        message = await take_one(receiver)
        await receiver.renew_message_lock(message)
        await receiver.complete_message(message)
    assert str(peeked) == str(message) == "x"


async def test_sdk_with_another_ca_cannot_connect(sdk: Flavour, tls_files: TlsFiles) -> None:
    queue = sdk.queue()
    client = sdk_over(sdk, "wss", str(tls_files.ca))
    async with sdk.awaitable(client):
        with pytest.raises(ServiceBusConnectionError):
            await sender_of(sdk, client, queue).send_messages(ServiceBusMessage("x"))
    assert sdk.stored_count(queue) == 0
