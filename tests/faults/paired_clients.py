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
from tests.faults.bounded_calls import bounded
from tests.faults.dead_ports import UnservedPort
from tests.faults.namespace_process import Namespace
from tests.faults.silent_relays import Relay

Host = Namespace | Relay | UnservedPort
QUICK: dict[str, Any] = {"retry_total": 0, "retry_backoff_factor": 0.02, "retry_backoff_max": 1}
"""Options of an SDK client with few retries."""
FLAVOURS = ("sync", "aio")
_CLIENTS = {"sync": azure.servicebus.ServiceBusClient, "aio": azure.servicebus.aio.ServiceBusClient}
_PAIRING = {"sync": pairbus.pair_namespace, "aio": pairbus.aio.pair_namespace}


def connect(flavour: str, to: Host, *, tls: bool = False, **options: Any) -> Any:
    """Return a client of the SDK."""
    arguments = QUICK | options
    text = to.connection_string
    if tls:
        text = text.replace(";UseDevelopmentEmulator=true", "")
        arguments |= {
            "transport_type": TransportType.Amqp,
            "custom_endpoint_address": f"sb://localhost:{to.port}",
            "connection_verify": to.ca_file,
        }
    return _CLIENTS[flavour].from_connection_string(text, **arguments)


def options_of(secondary: Any, name: str, **options: Any) -> SendAvailabilityOptions:
    """Return options of a pairing with immediate failover, short timeouts and no pings."""
    defaults: dict[str, Any] = {
        "primary_name": name,
        "backlog_queue_count": 2,
        "failover_interval": timedelta(),
        "ping_primary_interval": timedelta(minutes=30),
        "operation_timeout": timedelta(seconds=6),
        "check_duplicate_detection": False,
    }
    return SendAvailabilityOptions(secondary=secondary, **(defaults | options))


async def pair(flavour: str, primary: Any, options: SendAvailabilityOptions) -> Any:
    return await bounded(_PAIRING[flavour], primary, options)


async def close_all(*clients: Any) -> None:
    for client in clients:
        await bounded(client.close)


async def enter(sender: Any) -> None:
    await bounded(sender.__aenter__ if hasattr(sender, "__aenter__") else sender.__enter__)


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
    """Yield a paired client, and close it with a deadline."""
    sdk_options = {} if sdk is None else sdk
    client = connect(flavour, primary, tls=tls, **sdk_options)
    other = connect(flavour, secondary, tls=tls, **sdk_options)
    bus = await pair(flavour, client, options_of(other, name, **options))
    try:
        yield bus
    finally:
        await bounded(bus.close)
        await close_all(client, other)
