"""Checks of what the closing of a paired client promises."""

from typing import TYPE_CHECKING

from pairbus.errors import StateError
from pairbus.pairing.client import PairedClient
from pairbus.pairing.effects import CLOSE_TIMEOUT_S
from tests.simulation.aio_client import BlockingClient

if TYPE_CHECKING:
    from tests.simulation.applications import Application

TOLERANCE_S = 1.0


def check_close(application: "Application", paired: PairedClient | BlockingClient) -> None:
    """Close a client, and check that this ends in time, closes all connections, refuses new senders
    and can be repeated. Calls may be in progress, and end first."""
    process, violate = application.process, application.journal.violate
    began, frozen_s = process.monotonic(), application.frozen_s
    paired.close()
    took_s = application.active_s(began, frozen_s)
    application.world.trace(process.name, f"closed in {took_s:.3f} s")
    plan = application.plan
    timeouts = [send.timeout_s for send in plan.sends if send.timeout_s is not None]
    # Calls in progress, then connections, then background work (docs/explanation/guarantees.md).
    limit_s = max([plan.operation_timeout_s, *timeouts]) + 2 * CLOSE_TIMEOUT_S + TOLERANCE_S
    if took_s > limit_s:
        violate("S14", f"{process.name} took {took_s:.2f} s to close, not {limit_s:.2f} s")
    if names := application.world.network.open_connections(process):
        violate("S14", f"{process.name} was closed and keeps {', '.join(names)}")
    paired.close()
    try:
        paired.get_queue_sender("queue0")
    except StateError:
        return
    violate("S14", f"{process.name} was closed and opens a sender")
