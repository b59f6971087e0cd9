"""`pair_namespace` and the paired client, for the synchronous SDK."""

import threading
from collections.abc import Callable
from random import Random
from time import monotonic
from types import TracebackType
from typing import Any, Self, Unpack

from azure.core.paging import ItemPaged
from azure.servicebus import ServiceBusClient, ServiceBusReceiver

from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.client_base import (
    PairedClientBase,
    ReceiverOptions,
    SenderOptions,
    SessionListOptions,
)
from pairbus.pairing.driver import ThreadDriver
from pairbus.pairing.effects import CLOSE_TIMEOUT_S
from pairbus.pairing.embedded_syphon import EmbeddedSyphon
from pairbus.pairing.plan import PairingPlan, make_plan
from pairbus.pairing.sender import PairedSender

__all__ = ["PairedClient", "pair_namespace"]


def pair_namespace(
    primary: ServiceBusClient,
    options: SendAvailabilityOptions | None,
    *,
    now: Callable[[], float] = monotonic,
    random: Random | None = None,
) -> "PairedClient":
    """Pair the namespace of a client with a secondary, which stores messages while it is down.

    Returns when the backlog queues exist and senders are protected. Raises a subclass of
    ConfigurationError for each mistake, or BacklogUnavailable; then nothing is paired, and the call
    can be repeated. `now` and `random` replace clock and randomness in tests.
    """
    plan = make_plan(primary, options, ServiceBusClient)
    driver = ThreadDriver()
    try:
        queues = driver.run(plan.backlog_queues())
        return PairedClient(plan, queues, driver, now=now, random=random)
    except BaseException:
        driver.run(plan.abandon())
        raise


class PairedClient(PairedClientBase[None]):
    """A `ServiceBusClient` whose senders continue to work while its namespace is down.

    Receivers are those of the primary. Many threads can use the client, each with its own senders.
    Closing it ends the pairing; clients that were passed in stay open.
    """

    def __init__(
        self,
        plan: PairingPlan,
        queues: tuple[str, ...],
        driver: ThreadDriver,
        *,
        now: Callable[[], float],
        random: Random | None,
    ) -> None:
        super().__init__(
            plan,
            queues,
            close_primary=self._close_primary,
            close_secondary=self._close_secondary,
            on_change=driver.wake,
            start=driver.start,
            interruptible=True,
            now=now,
            random=random,
        )
        self._driver = driver
        if plan.syphon is not None:
            self._embedded_syphon = EmbeddedSyphon(
                plan.syphon,
                self._pairing,
                fault_primary=self.primary.fault,
                fault_secondary=self.secondary.fault,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def get_queue_sender(self, queue_name: str, **options: Unpack[SenderOptions]) -> PairedSender:
        """Return a protected sender of a queue."""
        return self._create_sender(queue_name, self._plan.primary.get_queue_sender, options)

    def get_topic_sender(self, topic_name: str, **options: Unpack[SenderOptions]) -> PairedSender:
        """Return a protected sender of a topic."""
        return self._create_sender(topic_name, self._plan.primary.get_topic_sender, options)

    def _create_sender(
        self, path: str, create: Callable[..., Any], options: SenderOptions
    ) -> PairedSender:
        links = self._create_links(path, lambda: create(path, **options), threading.Lock())
        self._check_duplicate_detection(path)
        return PairedSender(links, self._driver, options.get("client_identifier"))

    def get_queue_receiver(
        self, queue_name: str, **options: Unpack[ReceiverOptions]
    ) -> ServiceBusReceiver:
        """Return the SDK's receiver of a queue of the primary."""
        self._pairing.check_open()
        receiver: ServiceBusReceiver = self._plan.primary.get_queue_receiver(queue_name, **options)
        return receiver

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **options: Unpack[ReceiverOptions]
    ) -> ServiceBusReceiver:
        """Return the SDK's receiver of a subscription of the primary."""
        self._pairing.check_open()
        receiver: ServiceBusReceiver = self._plan.primary.get_subscription_receiver(
            topic_name, subscription_name, **options
        )
        return receiver

    def list_queue_sessions(
        self, queue_name: str, **options: Unpack[SessionListOptions]
    ) -> ItemPaged[str]:
        """Return the ids of the sessions of a queue of the primary, as the SDK does."""
        self._pairing.check_open()
        sessions: ItemPaged[str] = self._plan.primary.list_queue_sessions(queue_name, **options)
        return sessions

    def list_subscription_sessions(
        self, topic_name: str, subscription_name: str, **options: Unpack[SessionListOptions]
    ) -> ItemPaged[str]:
        """Return the ids of the sessions of a subscription of the primary, as the SDK does."""
        self._pairing.check_open()
        sessions: ItemPaged[str] = self._plan.primary.list_subscription_sessions(
            topic_name, subscription_name, **options
        )
        return sessions

    def close(self) -> None:
        """End the pairing: close the senders, stop the pings and the embedded syphon. Takes a
        bounded time, and can be called repeatedly."""
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
