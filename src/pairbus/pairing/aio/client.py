"""`pair_namespace` and the paired client, for the asynchronous SDK."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from time import monotonic
from types import TracebackType
from typing import Any, Self, Unpack

from azure.core.async_paging import AsyncItemPaged
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.aio.driver import LoopDriver
from pairbus.pairing.aio.sender import PairedSender
from pairbus.pairing.client_base import (
    NamespaceClient,
    PairedClientBase,
    ReceiverOptions,
    SenderOptions,
    SessionListOptions,
)
from pairbus.pairing.effects import CLOSE_TIMEOUT_S
from pairbus.pairing.embedded_syphon import EmbeddedSyphon
from pairbus.pairing.plan import PairingPlan, make_plan

__all__ = ["PairedClient", "pair_namespace"]


async def pair_namespace(
    primary: ServiceBusClient,
    options: SendAvailabilityOptions | None,
    *,
    now: Callable[[], float] = monotonic,
    random: Random | None = None,
) -> "PairedClient":
    """Pair the namespace of an asynchronous client with a secondary, as `pairbus.pair_namespace`
    does. The paired client belongs to the event loop in which it is created."""
    plan = make_plan(primary, options, ServiceBusClient, asyncio.get_running_loop())
    driver = LoopDriver()
    try:
        queues = await driver.run(plan.backlog_queues())
        return PairedClient(plan, queues, driver, now=now, random=random)
    except BaseException:
        await driver.run(plan.abandon())
        raise


class PairedClient(PairedClientBase[Awaitable[None]]):
    """An asynchronous `ServiceBusClient` whose senders continue to work while its namespace is
    down.

    Receivers are those of the primary. Many tasks of one event loop can use the client. Closing it
    ends the pairing; clients that were passed in stay open.
    """

    def __init__(
        self,
        plan: PairingPlan,
        queues: tuple[str, ...],
        driver: LoopDriver,
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
            interruptible=False,
            now=now,
            random=random,
        )
        self._driver = driver
        self._fault_tasks: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Lock()
        """A second call of `close` returns when the first has closed everything."""
        if plan.syphon is not None:
            self._embedded_syphon = EmbeddedSyphon(
                plan.syphon,
                self._pairing,
                fault_primary=self._fault_from_thread(self.primary),
                fault_secondary=self._fault_from_thread(self.secondary),
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def get_queue_sender(self, queue_name: str, **options: Unpack[SenderOptions]) -> PairedSender:
        """Return a protected sender of a queue."""
        return self._create_sender(queue_name, self._plan.primary.get_queue_sender, options)

    def get_topic_sender(self, topic_name: str, **options: Unpack[SenderOptions]) -> PairedSender:
        """Return a protected sender of a topic."""
        return self._create_sender(topic_name, self._plan.primary.get_topic_sender, options)

    def _create_sender(
        self, path: str, create: Callable[..., Any], options: SenderOptions
    ) -> PairedSender:
        links = self._create_links(path, lambda: create(path, **options), asyncio.Lock())
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
    ) -> AsyncItemPaged[str]:
        """Return the ids of the sessions of a queue of the primary, as the SDK does."""
        self._pairing.check_open()
        sessions: AsyncItemPaged[str] = self._plan.primary.list_queue_sessions(
            queue_name, **options
        )
        return sessions

    def list_subscription_sessions(
        self, topic_name: str, subscription_name: str, **options: Unpack[SessionListOptions]
    ) -> AsyncItemPaged[str]:
        """Return the ids of the sessions of a subscription of the primary, as the SDK does."""
        self._pairing.check_open()
        sessions: AsyncItemPaged[str] = self._plan.primary.list_subscription_sessions(
            topic_name, subscription_name, **options
        )
        return sessions

    async def close(self) -> None:
        """End the pairing: close the senders, stop the pings and the embedded syphon. Takes a
        bounded time, and can be called repeatedly."""
        if self._embedded_syphon is not None:
            self._embedded_syphon.stop()
        await self.primary.close()
        await self.secondary.close()
        if self._embedded_syphon is not None:
            await asyncio.to_thread(self._embedded_syphon.wait, CLOSE_TIMEOUT_S)

    async def fault(self, cause: BaseException) -> None:
        """Fault the pairing: every later call raises PairingFaulted with this cause."""
        await self.primary.fault(cause)
        await self.secondary.fault(cause)
        await self.close()

    async def _close_primary(self) -> None:
        async with self._closing:
            await self._driver.run(self._close_primary_operation())

    async def _close_secondary(self) -> None:
        async with self._closing:
            await self._driver.run(self._close_secondary_operation())

    def _fault_from_thread(
        self, client: NamespaceClient[Awaitable[None]]
    ) -> Callable[[BaseException], None]:
        """Return a function that faults a client from another thread. The fault is effective
        immediately; the client is closed in the event loop."""
        loop = asyncio.get_running_loop()

        def fault(cause: BaseException) -> None:
            closing = client.fault(cause)
            assert asyncio.iscoroutine(closing)
            try:
                loop.call_soon_threadsafe(start, closing)
            except RuntimeError:  # the loop is closed, and with it all connections of the SDK
                closing.close()

        def start(closing: Any) -> None:
            task = loop.create_task(closing)
            self._fault_tasks.add(task)
            task.add_done_callback(self._fault_tasks.discard)

        return fault
