"""Paired namespaces for Azure Service Bus: sending goes on while a namespace is down.

    with pair_namespace(primary, SendAvailabilityOptions(secondary=SECONDARY)) as bus:
        with bus.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(b"..."))

`pairbus.aio` is the same for `azure.servicebus.aio`. All errors are in `pairbus.errors`, all events
in `pairbus.events`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

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
    from pairbus.options import SendAvailabilityOptions
    from pairbus.pairing.client import PairedClient, pair_namespace
    from pairbus.pairing.failures import FailureKind
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

_PLACES = {
    "FailureKind": "pairing.failures",
    "PairedClient": "pairing.client",
    "PairedSender": "pairing.sender",
    "PathStatus": "events",
    "SendAvailabilityOptions": "options",
    "StateChanged": "events",
    "drop_pings": "pairing.ping",
    "pair_namespace": "pairing.client",
}


def __getattr__(name: str) -> Any:
    # When they are asked for: a Spark worker that reads AMQP needs no Azure SDK.
    if name not in __all__:
        raise AttributeError(f"module 'pairbus' has no attribute {name!r}")
    return getattr(import_module(f"pairbus.{_PLACES.get(name, 'errors')}"), name)
