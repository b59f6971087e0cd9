"""Paired senders whose SDK clients use AMQP over WebSockets, directly and through a proxy."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import azure.servicebus
import azure.servicebus.aio
import pytest
import pytest_asyncio
from azure.servicebus import TransportType

from pairbus.emulator.namespace import LocalNamespace
from pairbus.events import PathStatus
from tests.integration.pairs import QUICK, Make, Pair, message
from tests.integration.sdk_flavours import SDK_MARKS
from tests.proxies import PASSWORD, USERNAME, ProxyProcess

pytestmark = [
    *SDK_MARKS,
    # The async SDK calls aiohttp so.
    pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The 'proxy_auth' parameter is:DeprecationWarning"),
]

StartProxy = Callable[..., ProxyProcess]


@pytest_asyncio.fixture(loop_scope="module")
async def pair(make: Make) -> AsyncIterator[Pair]:
    pair = await make(start=False)
    yield pair
    pair.primary.start()


def client_of(pair: Pair, namespace: LocalNamespace, **options: Any) -> Any:
    """Return a client of the SDK with TLS, of the flavour of the pairing."""
    sdk = azure.servicebus if pair.sync else azure.servicebus.aio
    client = sdk.ServiceBusClient.from_connection_string(
        namespace.connection_string.replace("UseDevelopmentEmulator=true;", ""),
        custom_endpoint_address=f"sb://localhost:{namespace.port}",
        connection_verify=namespace.ca_file,
        **(QUICK | options),
    )
    pair.clients.append(client)
    return client


async def send_in_both_states(pair: Pair, **options: Any) -> None:
    """Send one message to the primary and, after it has stopped, one to the backlog."""
    queue = pair.queue()
    await pair.start(
        primary=client_of(pair, pair.primary, **options),
        secondary=client_of(pair, pair.secondary, **options),
    )
    sender = pair.sender(queue)
    await sender.send_messages(message("healthy"))
    assert len(pair.arrived(queue)) == 1
    assert pair.state(queue) is PathStatus.HEALTHY

    pair.primary.stop()
    await sender.send_messages(message("failover"))

    assert pair.state(queue) is PathStatus.FAILOVER
    assert len(pair.backlog(queue)) == 1


@pytest.mark.rule("A2")
async def test_paired_senders_use_websockets(pair: Pair) -> None:
    await send_in_both_states(pair, transport_type=TransportType.AmqpOverWebsocket)


@pytest.mark.rule("A3")
async def test_paired_senders_use_a_proxy(pair: Pair, start_proxy: StartProxy) -> None:
    process = start_proxy(protected=True)

    await send_in_both_states(
        pair,
        http_proxy={
            # The async SDK passes the host name to aiohttp as a URL.
            "proxy_hostname": "127.0.0.1" if pair.sync else "http://127.0.0.1",
            "proxy_port": process.port,
            "username": USERNAME,
            "password": PASSWORD,
        },
    )

    assert {f"localhost:{pair.primary.port}", f"localhost:{pair.secondary.port}"} == set(
        process.targets
    )
