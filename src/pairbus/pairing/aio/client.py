"""Pairing two namespaces in an event loop, and the client that comes of it."""

import asyncio
import contextlib
from collections.abc import Callable
from random import Random
from time import monotonic
from types import TracebackType
from typing import Any
from weakref import WeakSet

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.aio import ServiceBusClient

from pairbus.options import SendAvailabilityOptions
from pairbus.pairing import duplicates
from pairbus.pairing.aio.administration import administration_of
from pairbus.pairing.aio.backlog_queues import ensure_queues
from pairbus.pairing.aio.sender import PairedSender, bounded
from pairbus.pairing.backlog_queues import bounds_within
from pairbus.pairing.base import CLOSE_S, PING_S, NamespaceClient, PairedClientBase
from pairbus.pairing.health import SMALL, HealthTask, PeekResult
from pairbus.pairing.hosting import EmbeddedSyphon
from pairbus.pairing.ping import make_ping
from pairbus.pairing.plan import PairingPlan, make_plan
from pairbus.pairing.sdk import without_retries
from pairbus.pairing.state import PathState
from pairbus.usage.operations import Purpose


async def pair_namespace(
    primary: ServiceBusClient,
    options: SendAvailabilityOptions | None,
    *,
    now: Callable[[], float] = monotonic,
    random: Random | None = None,
) -> "PairedClient":
    """Pair the namespace of an async client with a secondary, which stores messages while it is
    down. As `pairbus.pair_namespace`; the client belongs to the event loop that it was made in."""
    plan = make_plan(primary, options, ServiceBusClient)
    assert options is not None
    try:
        queues = await _queues(plan, options)
        return PairedClient(plan, options, queues, now=now, random=random)
    except BaseException:
        plan.give_up()
        if plan.own_secondary:
            await plan.secondary.close()
        raise


async def _queues(plan: PairingPlan, options: SendAvailabilityOptions) -> tuple[str, ...]:
    if not options.create_backlog:
        return plan.paths
    given = options.secondary_administration
    bounds = bounds_within(options.operation_timeout.total_seconds())
    if given is not None:
        return tuple(await ensure_queues(given, plan.paths, bounds=bounds))
    tell = plan.managed(secondary=True)
    async with administration_of(plan.secondary, tell=tell) as administration:
        return tuple(await ensure_queues(administration, plan.paths, bounds=bounds))


class PairedClient(PairedClientBase):
    """An async `ServiceBusClient` whose senders go on when its namespace does not.

    Receivers are the primary's own. Many tasks of one event loop can use it. Closing it ends the
    pairing; clients that it was given stay open.
    """

    def __init__(
        self,
        plan: PairingPlan,
        options: SendAvailabilityOptions,
        queues: tuple[str, ...],
        *,
        now: Callable[[], float],
        random: Random | None,
    ) -> None:
        super().__init__(plan, options, queues, now=now, random=random)
        self._changed = asyncio.Event()
        self.pairing.on_change = self.wake
        self.pairing.attend = self._attend
        self._senders: WeakSet[PairedSender] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()
        self._faulting: set[asyncio.Task[None]] = set()
        """These wait for the others."""
        self._shutting = asyncio.Lock()
        """Who closes it second returns when it is closed, too."""
        if plan.syphon is not None:
            faults = self._from_thread(self.primary), self._from_thread(self.secondary)
            self._host = EmbeddedSyphon(plan.syphon, self.pairing, faults)

    async def __aenter__(self) -> "PairedClient":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # What a ServiceBusClient has.

    def get_queue_sender(self, queue_name: str, **kwargs: Any) -> PairedSender:
        """A sender of a queue, protected."""
        return self._sender(queue_name, self._primary.get_queue_sender, kwargs)

    def get_topic_sender(self, topic_name: str, **kwargs: Any) -> PairedSender:
        """A sender of a topic, protected."""
        return self._sender(topic_name, self._primary.get_topic_sender, kwargs)

    async def close(self) -> None:
        """End the pairing: close senders, stop pings and the syphon. Takes a bounded time. Can be
        called again."""
        if self._host is not None:
            self._host.end()
        await self.primary.close()
        await self.secondary.close()
        if self._host is not None:
            await asyncio.to_thread(self._host.wait, CLOSE_S)

    async def fault(self, cause: BaseException) -> None:
        """Give the pairing up: every later call raises PairingFaulted with this cause."""
        await self.primary.fault(cause)
        await self.secondary.fault(cause)
        await self.close()

    async def _shut_primary(self) -> None:
        async with self._shutting:
            if self.pairing.primary.closed:
                return
            self.pairing.primary.closed = True
            self.wake()
            try:
                for sender in list(self._senders):
                    await sender.close()
                if self._tasks:
                    _, late = await asyncio.wait(self._tasks, timeout=CLOSE_S)
                    for task in late:
                        task.cancel()
            finally:
                self._plan.give_up()

    async def _shut_secondary(self) -> None:
        async with self._shutting:
            if self.pairing.secondary.closed:
                return
            self.pairing.secondary.closed = True
            if self._plan.own_secondary:
                await self.discard(self._plan.secondary)

    def _from_thread(self, client: NamespaceClient) -> Callable[[BaseException], None]:
        """Fault a client from another thread. It counts at once; the rest is for the loop."""
        loop = asyncio.get_running_loop()

        def fault(cause: BaseException) -> None:
            shut = client.fault(cause)
            try:
                loop.call_soon_threadsafe(self._spawn, shut, self._faulting)
            except RuntimeError:  # the loop is closed, and with it everything that is the SDK's
                shut.close()

        return fault

    # What senders need.

    def _sender(self, path: str, make: Callable[..., Any], options: dict[str, Any]) -> PairedSender:
        self.pairing.check_open()
        sender = PairedSender(
            self,
            path,
            lambda: self.watched(make(path, **options)),
            options.get("client_identifier"),
        )
        self._senders.add(sender)
        if self._wants_a_look(path):
            self._spawn(self._detection(path), self._tasks)
        return sender

    def backlog_sender(self, queue: str) -> Any:
        return self.watched(self._plan.secondary.get_queue_sender(queue))

    def _spawn(self, work: Any, among: set[asyncio.Task[None]]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        among.add(task)
        task.add_done_callback(among.discard)

    def wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait(self, seconds: float) -> None:
        """Wait until something changes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def ping(self, path: PathState, budget_s: float = PING_S) -> BaseException | None:
        """Ping a path once; what it met."""
        budget_s = min(budget_s, self.ping_s)
        sender = self.watched(without_retries(self._primary).get_queue_sender(path.name))
        error: BaseException | None = None
        try:
            await bounded(sender, sender.send_messages(make_ping()), budget_s)
        except Exception as exc:  # noqa: BLE001  whatever it is: it is the answer
            error = exc
        finally:
            self.count(sender, path.name, Purpose.PINGS, answered=error is None)
            self.discard_later(sender)
        return error

    async def discard(self, one: Any) -> None:
        """Close something of the SDK, in bounded time."""
        with contextlib.suppress(Exception):
            await bounded(one, one.close(), CLOSE_S)

    def discard_later(self, one: Any) -> None:
        self._spawn(self.discard(one), self._tasks)

    async def _detection(self, path: str) -> None:
        try:
            tell = self._plan.managed(secondary=False)
            async with administration_of(self._primary, tell=tell) as administration:
                try:
                    properties: Any = await administration.get_queue(path)
                except (ResourceNotFoundError, AttributeError):  # so it says of a topic
                    properties = await administration.get_topic(path)
        except Exception as exc:  # noqa: BLE001  it is only a hint
            duplicates.could_not(path, exc)
        else:
            duplicates.tell(path, properties)

    # Paths that are not healthy.

    def _attend(self, path: PathState) -> None:
        self._spawn(self._do_steps(path), self._tasks)

    async def _do_steps(self, path: PathState) -> None:
        receivers: dict[str, Any] = {}
        try:
            while (task := await self._due(path)) is not None:
                if task is HealthTask.ENGAGE:
                    self.pairing.engage(path)
                elif task is HealthTask.LOOK:
                    cause = path.health.cause or TimeoutError()
                    self.pairing.looked(path, cause, await self.ping(path), waits=False)
                elif task is HealthTask.PING:
                    self.pairing.pinged(path, await self.ping(path))
                else:
                    await self._peek(path, receivers)
        finally:
            for receiver in receivers.values():
                await self.discard(receiver)

    async def _due(self, path: PathState) -> HealthTask | None:
        """Wait for the next thing to do. None: there is nothing more."""
        while (step := self.pairing.next_step(path)) is not None:
            wait_s = step.at - self.pairing.now()
            if wait_s <= 0:
                return step.task
            await self.wait(wait_s)
        return None

    async def _peek(self, path: PathState, receivers: dict[str, Any]) -> None:
        quiet = self.pairing.quiet(path)
        many = 1 if path.health.hold_until is not None else SMALL + 1
        looks: list[PeekResult] = []
        for queue in self.backlog_queues:
            if queue not in receivers:
                receivers[queue] = without_retries(self._plan.secondary).get_queue_receiver(queue)
            try:
                peek = receivers[queue].peek_messages(max_message_count=many, sequence_number=1)
                messages = await bounded(receivers[queue], peek, self.ping_s)
            except Exception as exc:  # noqa: BLE001  whatever it is: it is not known to be empty
                self.discard_later(receivers.pop(queue))
                self.pairing.peek_failed(path, exc)
                return
            looks.append(self.peeked(path.name, messages))
        self.pairing.peeked(path, looks, quiet=quiet)
