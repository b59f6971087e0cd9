"""Paired clients of both flavours with short timeouts."""

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import azure.servicebus
import azure.servicebus.aio
from azure.servicebus import TransportType

import pairbus
import pairbus.aio
from pairbus import SendAvailabilityOptions
from tests.faults.bounded_calls import come_back
from tests.faults.dead_ports import Elsewhere
from tests.faults.namespace_process import Namespace
from tests.faults.silent_relays import Relay

Host = Namespace | Relay | Elsewhere
QUICK: dict[str, Any] = {"retry_total": 0, "retry_backoff_factor": 0.02, "retry_backoff_max": 1}
"""Options of an SDK client with few retries."""
FLAVOURS = ("sync", "aio")
_CLIENTS = {"sync": azure.servicebus.ServiceBusClient, "aio": azure.servicebus.aio.ServiceBusClient}
_PAIRING = {"sync": pairbus.pair_namespace, "aio": pairbus.aio.pair_namespace}


def connect(flavour: str, to: Host, *, tls: bool = False, **options: Any) -> Any:
    """Return a client of the SDK."""
    given = QUICK | options
    text = to.connection_string
    if tls:
        text = text.replace(";UseDevelopmentEmulator=true", "")
        given |= {
            "transport_type": TransportType.Amqp,
            "custom_endpoint_address": f"sb://localhost:{to.port}",
            "connection_verify": to.ca_file,
        }
    return _CLIENTS[flavour].from_connection_string(text, **given)


def options_of(secondary: Any, name: str, **options: Any) -> SendAvailabilityOptions:
    """Return options of a pairing with immediate failover, short timeouts and no pings."""
    given: dict[str, Any] = {
        "primary_name": name,
        "backlog_queue_count": 2,
        "failover_interval": timedelta(),
        "ping_primary_interval": timedelta(minutes=30),
        "operation_timeout": timedelta(seconds=6),
        "check_duplicate_detection": False,
    }
    return SendAvailabilityOptions(secondary=secondary, **(given | options))


async def pair(flavour: str, primary: Any, options: SendAvailabilityOptions) -> Any:
    return await come_back(_PAIRING[flavour], primary, options)


async def close_all(*clients: Any) -> None:
    for client in clients:
        await come_back(client.close)


async def enter(sender: Any) -> None:
    await come_back(sender.__aenter__ if hasattr(sender, "__aenter__") else sender.__enter__)


@contextlib.asynccontextmanager
async def paired(
    flavour: str,
    primary: Host,
    secondary: Host,
    name: str,
    *,
    tls: bool = False,
    sdk: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[Any]:
    """Yield a paired client, whose `close` must return too."""
    given = {} if sdk is None else sdk
    client = connect(flavour, primary, tls=tls, **given)
    other = connect(flavour, secondary, tls=tls, **given)
    bus = await pair(flavour, client, options_of(other, name, **options))
    try:
        yield bus
    finally:
        await come_back(bus.close)
        await close_all(client, other)
