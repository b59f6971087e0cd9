"""Pairings of two local namespaces behind one interface for both flavours.

A test is a coroutine. It awaits a method of the async client, or of the sync client in a thread.
The namespaces are shared by a module; each pairing has its own backlog queues. The SDK is slow, so
tests do many things concurrently.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from itertools import count
from random import Random
from typing import Any

import azure.servicebus
import azure.servicebus.aio
from azure.servicebus import ServiceBusMessage

import pairbus.aio
from pairbus import SendAvailabilityOptions
from pairbus.amqp.sections import Message
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.entities.message_codec import encode_original
from pairbus.emulator.faults import Fault
from pairbus.emulator.namespace import LocalNamespace
from pairbus.events import Event, PathStatus, StateChanged
from pairbus.pairing.aio import client as aio_client
from pairbus.pairing.client import start_pairing
from pairbus.pairing.plan import make_plan
from pairbus.transfer import TransferredMessage, from_backlog
from tests.integration.emulator_clients import QUICK_CLOSE
from tests.integration.raw_peer import DEADLINE_S
from tests.integration.sdk_flavours import FLAVOURS, Awaited

QUICK: dict[str, Any] = {"retry_total": 0, "retry_backoff_factor": 0.02, "retry_backoff_max": 1}
"""Options of an SDK client with few retries."""
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
OPTIONS: dict[str, Any] = {
    "backlog_queue_count": 3,
    "failover_interval": timedelta(),
    "ping_primary_interval": MINUTE,
    "operation_timeout": timedelta(seconds=20),
    "check_duplicate_detection": False,
}
"""Options of a pairing that fails over immediately."""
LISTENS = SharedAccessRule(name="listens", primary_key="lkey", rights=frozenset({Right.LISTEN}))
SENDS = SharedAccessRule(name="sends", primary_key="skey", rights=frozenset({Right.SEND}))

numbers = count(1)


class _QuickClose:
    """A client of the SDK whose links close quickly."""

    def get_queue_sender(self, name: str, **options: Any) -> Any:
        return super().get_queue_sender(name, **(QUICK_CLOSE | options))  # type: ignore[misc]

    def get_topic_sender(self, name: str, **options: Any) -> Any:
        return super().get_topic_sender(name, **(QUICK_CLOSE | options))  # type: ignore[misc]

    def get_queue_receiver(self, name: str, **options: Any) -> Any:
        return super().get_queue_receiver(name, **(QUICK_CLOSE | options))  # type: ignore[misc]


class QuickCloseClient(_QuickClose, azure.servicebus.ServiceBusClient): ...


class AsyncQuickCloseClient(_QuickClose, azure.servicebus.aio.ServiceBusClient): ...


class Clock:
    """A clock that is advanced by the test."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class Pair:
    """A pairing of two namespaces, its events, and entities with unique names."""

    def __init__(self, flavour: str, primary: LocalNamespace, secondary: LocalNamespace) -> None:
        self.flavour = flavour
        self.sync = flavour == "sync"
        self.primary = primary
        self.secondary = secondary
        self.name = f"pair-{next(numbers)}"
        self.clock = Clock()
        self.events: list[Event] = []
        self.bus: Any = None
        self.clients: list[Any] = []
        self._open: list[Any] = []
        self._seen: dict[tuple[str, str], int] = {}

    # Clients.

    def connect(self, connection_string: str | None = None, **options: Any) -> Any:
        """Return a client of the SDK, of the primary unless another namespace is given."""
        kind = QuickCloseClient if self.sync else AsyncQuickCloseClient
        text = self.primary.connection_string if connection_string is None else connection_string
        self.clients.append(kind.from_connection_string(text, **(QUICK | options)))
        return self.clients[-1]

    async def start(
        self,
        *,
        primary: Any = None,
        secondary: Any = None,
        sdk: Any = QUICK,
        fake_clock: bool = False,
        random: Random | None = None,
        **options: Any,
    ) -> "Pair":
        if primary is None:
            primary = self.connect(**sdk)
        if secondary is None:
            secondary = self.connect(self.secondary.connection_string, **sdk)
        defaults = {"primary_name": self.name, "on_event": self.events.append, **OPTIONS}
        given = SendAvailabilityOptions(secondary=secondary, **(defaults | options))
        if not fake_clock and random is None:
            pair = pairbus.pair_namespace if self.sync else pairbus.aio.pair_namespace
            self.bus = await self.do(pair, primary, given)
            return self
        loop = None if self.sync else asyncio.get_running_loop()
        plan = make_plan(primary, given, FLAVOURS[self.flavour][0], loop)
        replaced = {"now": self.clock} if fake_clock else {}
        plan = dataclasses.replace(plan, random=random, **replaced)
        start = start_pairing if self.sync else aio_client.start_pairing
        self.bus = await self.do(start, plan)
        return self

    async def do(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function of this flavour."""
        if self.sync:
            return await asyncio.to_thread(work, *args, **options)
        return await work(*args, **options)

    async def close(self) -> None:
        if self.bus is not None:
            await self.do(self.bus.close)

    async def clean_up(self) -> None:
        await gather_all(link.close() for link in self._open)
        await self.close()
        await gather_all(self.do(client.close) for client in self.clients)

    # Senders.

    def keep(self, link: Any) -> Any:
        """Return a sender or receiver whose methods are awaited. It is closed after the test."""
        self._open.append(Awaited(link) if self.sync else link)
        return self._open[-1]

    def sender(self, path: str, *, topic: bool = False, client: Any = None, **options: Any) -> Any:
        """Return a sender of the pairing, or of another client."""
        client = self.bus if client is None else client
        get = client.get_topic_sender if topic else client.get_queue_sender
        return self.keep(get(path, **options))

    def inner(self, link: Any) -> Any:
        """Return the object behind a sender or receiver of this flavour."""
        return link.inner if self.sync else link

    async def entered(self, *paths: str) -> list[Any]:
        """Return senders of these queues with open links."""
        senders = [self.sender(path) for path in paths]
        await gather_all(sender.__aenter__() for sender in senders)
        return senders

    async def fail_over(self, sender: Any) -> None:
        """Send a message that fails at the primary and goes to the backlog."""
        fault = self.fault("disable", sender.entity_name)
        await sender.send_messages(message("the first that failed"))
        assert fault.fired
        self.remove_faults(fault)

    # Entities.

    def queue(self, **settings: Any) -> str:
        name = f"Queue-{next(numbers)}"
        self.primary.create_queue(name, **settings)
        return name

    def queues(self, number: int) -> list[str]:
        return [self.queue() for _ in range(number)]

    def topic(self, **settings: Any) -> str:
        name = f"Topic-{next(numbers)}"
        self.primary.create_topic(name, **settings)
        self.primary.create_subscription(name, "all")
        return name

    def delete(self, path: str) -> None:
        self.primary.call(lambda core: core.entities.delete(path))

    def fault(self, kind: str, entity: str | None = None, **limits: Any) -> Fault:
        """Add a fault to the primary."""
        return self.primary.add_fault(kind, entity, **limits)

    def remove_faults(self, *faults: Fault) -> None:
        """Remove faults of the primary."""
        self.primary.call(lambda core: [core.faults.remove(fault) for fault in faults])

    # Stored messages.

    @property
    def backlog_queues(self) -> tuple[str, ...]:
        return tuple(self.bus.backlog_queues)

    def in_queue(self, queue: str) -> list[TransferredMessage]:
        """Return the restored messages of a backlog queue."""
        return [from_backlog(payload) for payload in stored_payloads(self.secondary, queue)]

    def backlog(self, path: str | None = None) -> list[TransferredMessage]:
        """Return the restored backlog messages of a path."""
        everything = [item for queue in self.backlog_queues for item in self.in_queue(queue)]
        return [item for item in everything if path is None or item.path == path]

    def arrived(self, path: str) -> list[bytes]:
        """Return the encoded messages of a queue of the primary."""
        return stored_payloads(self.primary, path)

    def new_in(self, namespace: LocalNamespace, path: str) -> list[bytes]:
        """Return the encoded messages that were stored in a queue since the last call."""
        seen = self._seen.get((namespace.name, path), 0)
        stored = namespace.call(lambda core: core.entities.get(path).queue.peek(seen, 100_000))
        if stored:
            self._seen[namespace.name, path] = stored[-1].sequence
        return [encode_original(item) for item in stored]

    def new_in_backlog(self) -> list[bytes]:
        """Return the encoded messages that were stored in the backlog since the last call."""
        return [
            item for queue in self.backlog_queues for item in self.new_in(self.secondary, queue)
        ]

    # States and events.

    def state(self, path: str) -> PathStatus:
        return self.bus.status().paths[path].status

    def changes(self, path: str) -> list[tuple[PathStatus, PathStatus]]:
        return [
            (event.from_state, event.to_state)
            for event in self.of(StateChanged)
            if event.path == path
        ]

    def of(self, kind: type[Event]) -> list[Any]:
        """Return the events of this class."""
        return [event for event in self.events if isinstance(event, kind)]

    async def until_state(self, path: str, wanted: PathStatus) -> None:
        """Wait until a path is in a state and the event about it was emitted."""

        def reported() -> PathStatus:
            return [PathStatus.HEALTHY, *(to for _, to in self.changes(path))][-1]

        await until(
            lambda: self.state(path) is wanted and reported() is wanted,
            f"{path} to be {wanted.value}",
        )

    def advance(self, seconds: float) -> None:
        """Advance the fake clock."""
        self.clock.time += seconds
        self.bus._pairing.notify()


Make = Callable[..., Awaitable[Pair]]
"""Returns a new pairing with these options; with `start=False` it is not paired yet."""


def stored_payloads(namespace: LocalNamespace, path: str) -> list[bytes]:
    """Return the encoded messages of a queue; the order of their sections may differ."""
    return namespace.call(
        lambda core: [
            encode_original(item) for item in core.entities.get(path).queue.peek(0, 100_000)
        ]
    )


def body_of(payload: bytes) -> bytes:
    return b"".join(Message.parse(payload).read_body()[1])


def id_of(payload: bytes) -> Any:
    return Message.parse(payload).read_properties().message_id


def message(body: str = "x", **fields: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, **fields)


async def gather_all(work: Iterable[Awaitable[Any]]) -> list[Any]:
    return list(await asyncio.gather(*work))


async def until(condition: Callable[[], Any], description: str) -> None:
    """Wait until a condition holds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE_S
    while not condition():
        assert loop.time() < deadline, f"timed out waiting for {description}"
        await asyncio.sleep(0.01)


async def error_of(work: Awaitable[Any]) -> BaseException | None:
    """Return the exception that an awaitable raises; None if it raises none."""
    try:
        await work
    except Exception as exc:  # noqa: BLE001  the test checks it
        return exc
    return None
