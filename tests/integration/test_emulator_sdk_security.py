"""Rights, credentials and TLS of a local namespace, with the sync and the async SDK."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.namespace import LocalNamespace
from pairbus.servicebus.tokens import sign_token
from tests.integration.sdk_flavours import SDK_MARKS, Flavour, take_one
from tests.interop.tls import TlsFiles

pytestmark = SDK_MARKS


def rule(name: str, *rights: Right) -> SharedAccessRule:
    return SharedAccessRule(name=name, primary_key=f"key-of-{name}", rights=frozenset(rights))


LISTENS, BOTH = rule("listens", Right.LISTEN), rule("both", Right.SEND, Right.LISTEN)
SENDS = rule("sends", Right.SEND)


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace("secure", rules=[LISTENS, BOTH]) as namespace:
        yield namespace


async def test_rules_grant_their_rights_and_errors_are_those_of_service_bus(sdk: Flavour) -> None:
    queue, other = sdk.queue(authorization_rules=(SENDS,)), sdk.queue()

    def client_with(rule: SharedAccessRule, key: str | None = None) -> Any:
        text = sdk.namespace.connection_string_of(rule.name, key or rule.primary_key)
        return sdk.connect(text)

    listens, sends, wrong = client_with(LISTENS), client_with(SENDS), client_with(SENDS, "another")
    message = ServiceBusMessage("x")
    expected = {
        ServiceBusAuthorizationError: (
            sdk.sender(queue, client=listens).send_messages(message),
            sdk.receiver(queue, client=sends).receive_messages(1, 5),
        ),
        ServiceBusAuthenticationError: (
            sdk.sender(other, client=sends).send_messages(message),
            sdk.sender(queue, client=wrong).send_messages(message),
        ),
    }
    try:
        refused = [asyncio.ensure_future(call) for calls in expected.values() for call in calls]
        await sdk.sender(queue, client=sends).send_messages(message)
        assert str(await take_one(sdk.receiver(queue, client=listens))) == "x"
        results = await asyncio.gather(*refused, return_exceptions=True)
        assert [type(result) for result in results] == [kind for kind in expected for _ in range(2)]
        assert (sdk.stored_count(queue), sdk.stored_count(other)) == (1, 0)
    finally:
        for client in (listens, sends, wrong):
            await sdk.awaitable(client).close()


@pytest.mark.parametrize("key", [BOTH.primary_key, "another key"])
@pytest.mark.parametrize("kind", ["signature", "named key"])
async def test_credentials_of_azure_core_are_checked(sdk: Flavour, kind: str, key: str) -> None:
    queue = sdk.queue()
    host = f"localhost:{sdk.namespace.port}"
    credential: Any = AzureNamedKeyCredential(BOTH.name, key)
    if kind == "signature":
        expiry = int(time.time()) + 600
        credential = AzureSasCredential(sign_token(f"sb://{host}/{queue}", BOTH.name, key, expiry))
    client = sdk.connect_with(host, credential, use_tls=False)
    async with sdk.awaitable(client):
        sender = sdk.sender(queue, client=client)
        if key == BOTH.primary_key:
            await sender.send_messages(ServiceBusMessage("x"))
            assert str(await take_one(sdk.receiver(queue, client=client))) == "x"
        else:
            with pytest.raises(ServiceBusError):
                await sender.send_messages(ServiceBusMessage("x"))
            assert sdk.stored_count(queue) == 0


def over_tls(sdk: Flavour, ca_file: str) -> Any:
    return sdk.connect(
        sdk.namespace.connection_string.replace("UseDevelopmentEmulator=true;", ""),
        custom_endpoint_address=f"sb://localhost:{sdk.namespace.port}",
        transport_type=TransportType.Amqp,
        connection_verify=ca_file,
    )


async def test_amqp_over_tls_is_served(sdk: Flavour) -> None:
    queue = sdk.queue()
    client = over_tls(sdk, sdk.namespace.ca_file)
    async with sdk.awaitable(client):
        sender, receiver = await sdk.open(
            sdk.sender(queue, client=client), sdk.receiver(queue, client=client)
        )
        await sender.send_messages(ServiceBusMessage("x" * 200_000))
        message = await take_one(receiver)
        await receiver.complete_message(message)
    assert str(message) == "x" * 200_000
    assert sdk.stored_count(queue) == 0


async def test_client_with_another_ca_cannot_connect(sdk: Flavour, tls_files: TlsFiles) -> None:
    queue = sdk.queue()
    client = over_tls(sdk, str(tls_files.ca))
    async with sdk.awaitable(client):
        with pytest.raises(ServiceBusConnectionError):
            await sdk.sender(queue, client=client).send_messages(ServiceBusMessage("x"))
    assert sdk.stored_count(queue) == 0
