"""`pair_namespace` and the paired client, for the asynchronous SDK."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self

from azure.core.async_paging import AsyncItemPaged
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.aio.driver import LoopDriver
from pairbus.pairing.aio.sender import PairedSender
from pairbus.pairing.client_base import NamespaceClient, PairedClientBase
from pairbus.pairing.effects import CLOSE_TIMEOUT_S
from pairbus.pairing.embedded_syphon import Fault
from pairbus.pairing.plan import PairingPlan, make_plan

__all__ = ["PairedClient", "pair_namespace"]


async def pair_namespace(
    primary: ServiceBusClient, options: SendAvailabilityOptions | None
) -> "PairedClient":
    """Pair the namespace of an asynchronous client with a secondary, as `pairbus.pair_namespace`
    does. The paired client belongs to the event loop in which it is created."""
    loop = asyncio.get_running_loop()
    return await start_pairing(make_plan(primary, options, ServiceBusClient, loop))


async def start_pairing(plan: PairingPlan) -> "PairedClient":
    """Start a pairing that passed the checks. If that fails, the plan is abandoned."""
    driver = LoopDriver()
    try:
        queues = await driver.run(plan.backlog_queues())
        return PairedClient(plan, queues, driver)
    except BaseException:
        await driver.run(plan.abandon())
        raise


class PairedClient(
    PairedClientBase[Awaitable[None], PairedSender, ServiceBusReceiver, AsyncItemPaged[str]]
):
    """An asynchronous `ServiceBusClient` whose senders continue to work while its namespace is
    down.

    Receivers are those of the primary. Many tasks of one event loop can use the client. Closing it
    ends the pairing; clients that were passed in stay open.
    """

    _driver: LoopDriver

    def __init__(self, plan: PairingPlan, queues: tuple[str, ...], driver: LoopDriver) -> None:
        self._fault_tasks: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Lock()
        """A second call of `close` returns when the first has closed everything."""
        super().__init__(plan, queues, driver)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the pairing: close the senders, stop the pings and the embedded syphon. Takes a
        bounded time, and can be called repeatedly. In a forked child it does nothing."""
        if self._is_forked:
            return
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
        if self._is_forked:
            return
        async with self._closing:
            await self._driver.run(self._close_primary_operation())

    async def _close_secondary(self) -> None:
        if self._is_forked:
            return
        async with self._closing:
            await self._driver.run(self._close_secondary_operation())

    def _fault_from_thread(self, client: NamespaceClient[Awaitable[None]]) -> Fault:
        # The fault is effective immediately; the client is closed in the event loop.
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

    def _create_sender(
        self, path: str, create: Callable[[], Any], identifier: str | None
    ) -> PairedSender:
        links = self._create_links(path, create, asyncio.Lock())
        return PairedSender(links, self._driver, identifier)
