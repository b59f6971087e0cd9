"""Paired namespaces for Azure Service Bus: sends continue while a namespace is down.

    with pair_namespace(primary, SendAvailabilityOptions(secondary=SECONDARY)) as bus:
        with bus.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(b"..."))

`pairbus.aio` has the same names for `azure.servicebus.aio`. All errors are in `pairbus.errors`, all
events in `pairbus.events`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from pairbus.errors import (
        BacklogUnavailable,
        MessageTooLargeForBacklog,
        PairbusError,
        PairingFaulted,
        PartlyStored,
        SendUnavailable,
    )
    from pairbus.events import PathStatus, StateChanged
    from pairbus.options import FailureKind, SendAvailabilityOptions
    from pairbus.pairing.client import PairedClient, pair_namespace
    from pairbus.pairing.ping import drop_pings
    from pairbus.pairing.sender import PairedSender

__all__ = [
    "BacklogUnavailable",
    "FailureKind",
    "MessageTooLargeForBacklog",
    "PairbusError",
    "PairedClient",
    "PairedSender",
    "PairingFaulted",
    "PartlyStored",
    "PathStatus",
    "SendAvailabilityOptions",
    "SendUnavailable",
    "StateChanged",
    "__version__",
    "drop_pings",
    "pair_namespace",
]

_MODULES = {
    "FailureKind": "options",
    "PairedClient": "pairing.client",
    "PairedSender": "pairing.sender",
    "PathStatus": "events",
    "SendAvailabilityOptions": "options",
    "StateChanged": "events",
    "drop_pings": "pairing.ping",
    "pair_namespace": "pairing.client",
}


def __getattr__(name: str) -> object:
    # Imported on first use: a Spark worker that reads AMQP needs no Azure SDK.
    if name not in __all__:
        raise AttributeError(f"module 'pairbus' has no attribute {name!r}")
    value: object = getattr(import_module(f"pairbus.{_MODULES.get(name, 'errors')}"), name)
    return value
