"""`pair_namespace` and the paired client, for the synchronous SDK."""

import threading
from collections.abc import Callable
from typing import Any, Self

from azure.core.paging import ItemPaged
from azure.servicebus import ServiceBusClient, ServiceBusReceiver

from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.client_base import NamespaceClient, PairedClientBase
from pairbus.pairing.driver import ThreadDriver
from pairbus.pairing.effects import CLOSE_TIMEOUT_S
from pairbus.pairing.embedded_syphon import Fault
from pairbus.pairing.plan import PairingPlan, make_plan
from pairbus.pairing.sender import PairedSender

__all__ = ["PairedClient", "pair_namespace"]


def pair_namespace(
    primary: ServiceBusClient, options: SendAvailabilityOptions | None
) -> "PairedClient":
    """Pair the namespace of a client with a secondary, which stores messages while it is down.

    Returns when the backlog queues exist and senders are protected. Raises a subclass of
    ConfigurationError for each mistake, or BacklogUnavailable; then nothing is paired, and the call
    can be repeated.
    """
    return start_pairing(make_plan(primary, options, ServiceBusClient))


def start_pairing(plan: PairingPlan) -> "PairedClient":
    """Start a pairing that passed the checks. If that fails, the plan is abandoned."""
    driver = ThreadDriver()
    try:
        queues = driver.run(plan.backlog_queues())
        return PairedClient(plan, queues, driver)
    except BaseException:
        driver.run(plan.abandon())
        raise


class PairedClient(PairedClientBase[None, PairedSender, ServiceBusReceiver, ItemPaged[str]]):
    """A `ServiceBusClient` whose senders continue to work while its namespace is down.

    Receivers are those of the primary. Many threads can use the client, each with its own senders.
    Closing it ends the pairing; clients that were passed in stay open.
    """

    _driver: ThreadDriver

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the pairing: close the senders, stop the pings and the embedded syphon. Takes a
        bounded time, and can be called repeatedly. In a forked child it does nothing."""
        if self._is_forked:
            return
        if self._embedded_syphon is not None:
            self._embedded_syphon.stop()
        self.primary.close()
        self.secondary.close()
        if self._embedded_syphon is not None:
            self._embedded_syphon.wait(CLOSE_TIMEOUT_S)

    def fault(self, cause: BaseException) -> None:
        """Fault the pairing: every later call raises PairingFaulted with this cause."""
        self.primary.fault(cause)
        self.secondary.fault(cause)
        self.close()

    def _close_primary(self) -> None:
        self._driver.run(self._close_primary_operation())

    def _close_secondary(self) -> None:
        self._driver.run(self._close_secondary_operation())

    def _fault_from_thread(self, client: NamespaceClient[None]) -> Fault:
        return client.fault

    def _create_sender(
        self, path: str, create: Callable[[], Any], identifier: str | None
    ) -> PairedSender:
        links = self._create_links(path, create, threading.Lock())
        return PairedSender(links, self._driver, identifier)
