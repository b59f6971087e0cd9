"""The SDK over WebSockets through an HTTP proxy."""

from collections.abc import Callable
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.integration.sdk_flavours import SDK_MARKS, WEBSOCKET_TIMEOUTS, Flavour, take_one
from tests.proxies import PASSWORD, USERNAME, ProxyProcess

pytestmark = [
    *SDK_MARKS,
    # The async SDK calls aiohttp so.
    pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The 'proxy_auth' parameter is:DeprecationWarning"),
]

StartProxy = Callable[..., ProxyProcess]


def connect(sdk: Flavour, process: ProxyProcess, **credentials: str) -> Any:
    # The async SDK passes the host name to aiohttp as a URL.
    scheme = "http://" if sdk.name == "aio" else ""
    return sdk.connect(
        sdk.namespace.connection_string.replace("UseDevelopmentEmulator=true;", ""),
        custom_endpoint_address=f"sb://localhost:{sdk.namespace.port}",
        connection_verify=sdk.namespace.ca_file,
        http_proxy={
            "proxy_hostname": f"{scheme}127.0.0.1",
            "proxy_port": process.port,
            **credentials,
        },
    )


def sender_of(sdk: Flavour, client: Any, queue: str) -> Any:
    return sdk.keep(client.get_queue_sender(queue, **WEBSOCKET_TIMEOUTS))


def receiver_of(sdk: Flavour, client: Any, queue: str) -> Any:
    return sdk.keep(client.get_queue_receiver(queue, **WEBSOCKET_TIMEOUTS))


@pytest.mark.rule("A3")
@pytest.mark.parametrize("protected", [False, True], ids=["open", "protected"])
async def test_sdk_sends_and_receives_through_a_proxy(
    sdk: Flavour, start_proxy: StartProxy, protected: bool
) -> None:
    queue = sdk.queue()
    process = start_proxy(protected=protected)
    credentials = {"username": USERNAME, "password": PASSWORD} if protected else {}
    client = connect(sdk, process, **credentials)
    async with sdk.awaitable(client):
        sender, receiver = await sdk.open(
            sender_of(sdk, client, queue), receiver_of(sdk, client, queue)
        )
        await sender.send_messages(ServiceBusMessage("x"))
        message = await take_one(receiver)
        await receiver.complete_message(message)
    assert str(message) == "x"
    assert set(process.targets) == {f"localhost:{sdk.namespace.port}"}


async def test_sdk_without_credentials_cannot_use_a_protected_proxy(
    sdk: Flavour, start_proxy: StartProxy
) -> None:
    queue = sdk.queue()
    process = start_proxy(protected=True)
    client = connect(sdk, process)
    async with sdk.awaitable(client):
        with pytest.raises(ServiceBusError):
            await sender_of(sdk, client, queue).send_messages(ServiceBusMessage("x"))
    assert process.targets
    assert sdk.stored_count(queue) == 0
