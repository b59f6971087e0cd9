"""The interfaces through which a connection passes the events of a link to its handler."""

from collections.abc import Sequence
from typing import Any, Protocol

from pairbus.amqp.events import Delivery, OutgoingDelivery


class LinkHandler(Protocol):
    """Handles one link, from its attach to its end."""

    def accept(self) -> None:
        """Reply to the attach, now or later. Raises AmqpError to refuse it."""

    def on_end(self) -> None:
        """The link has ended."""


class ReceivingHandler(LinkHandler, Protocol):
    """Handles a link on which the client sends."""

    def on_delivery(self, delivery: Delivery) -> None:
        """The client sent a message."""


class SendingHandler(LinkHandler, Protocol):
    """Handles a link on which the client receives."""

    def on_flow(self) -> None:
        """The client granted credit, or asks to drain it."""

    def on_outcome(
        self, deliveries: Sequence[OutgoingDelivery], outcome: Any, settled: bool
    ) -> None:
        """The client reports the outcome of deliveries. `settled`: it expects no reply."""
