"""Pairings of both flavours with a common interface, so that one test covers both.

A test is a coroutine. It awaits the asynchronous method, or the synchronous one in a thread. The
namespaces are shared by a module; each pairing has its own backlog queues. The SDK is slow, so
tests do many things concurrently.
"""

import asyncio
import gc
import inspect
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch

import azure.servicebus
import azure.servicebus.aio
import pytest
from azure.servicebus import ServiceBusMessage, _servicebus_receiver, _servicebus_sender
from azure.servicebus._pyamqp import client
from azure.servicebus._pyamqp.aio import _client_async
from azure.servicebus.aio import _servicebus_receiver_async, _servicebus_sender_async

import pairbus.aio
from pairbus import SendAvailabilityOptions
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.faults import Fault
from pairbus.emulator.namespace import LocalNamespace
from pairbus.events import Event, PathStatus, StateChanged
from pairbus.transfer import TransferredMessage, from_backlog
from tests.integration.emulator_clients import BRISK
from tests.integration.pairing_kit import QUICK, QUICKLY, stored_payloads
from tests.integration.sdk_flavours import Awaited
from tests.integration.waiting import DEADLINE_S

FLAVOURS = ("sync", "aio")
FORGETFUL = [
    # The SDK does not close its sockets when a connection fails.
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:loop is closed:ResourceWarning"),
]
MINUTE = timedelta(minutes=1)
LISTENS = SharedAccessRule(name="listens", primary_key="lkey", rights=frozenset({Right.LISTEN}))
SENDS = SharedAccessRule(name="sends", primary_key="skey", rights=frozenset({Right.SEND}))

POLLING = (
    (_servicebus_sender, "time"),
    (_servicebus_receiver, "time"),
    (client, "time"),
    (_servicebus_sender_async, "asyncio"),
    (_servicebus_receiver_async, "asyncio"),
    (_client_async, "asyncio"),
)

numbers = count(1)


class _Brisk:
    """A client of the SDK whose links close quickly."""

    def get_queue_sender(self, name: str, **options: Any) -> Any:
        return super().get_queue_sender(name, **(BRISK | options))  # type: ignore[misc]

    def get_topic_sender(self, name: str, **options: Any) -> Any:
        return super().get_topic_sender(name, **(BRISK | options))  # type: ignore[misc]

    def get_queue_receiver(self, name: str, **options: Any) -> Any:
        return super().get_queue_receiver(name, **(BRISK | options))  # type: ignore[misc]


class Brisk(_Brisk, azure.servicebus.ServiceBusClient): ...


class AsyncBrisk(_Brisk, azure.servicebus.aio.ServiceBusClient): ...


class Hurried:
    """`time` or `asyncio` with a short `sleep` for the SDK, which polls each new link nine times,
    every 50 ms. These waits would be most of the duration of the tests."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def sleep(self, seconds: float) -> Any:
        return self._module.sleep(0.002 if seconds == 0.05 else seconds)


class Clock:
    """A clock that is advanced by the test."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class Pair:
    """A pairing of two namespaces, its events, and entities with unique names."""

    def __init__(self, flavour: str, primary: LocalNamespace, secondary: LocalNamespace) -> None:
        self.sync = flavour == "sync"
        self.primary = primary
        self.secondary = secondary
        self.name = f"pair-{next(numbers)}"
        self.clock = Clock()
        self.events: list[Event] = []
        self.bus: Any = None
        self.clients: list[Any] = []
        self._senders: list[Any] = []

    def connect(self, text: str, **options: Any) -> Any:
        """Return a client of the SDK."""
        kind = Brisk if self.sync else AsyncBrisk
        client = kind.from_connection_string(text, **(QUICK | options))
        self.clients.append(client)
        return client

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
            primary = self.connect(self.primary.connection_string, **sdk)
        if secondary is None:
            secondary = self.connect(self.secondary.connection_string, **sdk)
        given = {
            **QUICKLY,
            "primary_name": self.name,
            "ping_primary_interval": MINUTE,
            "secondary": secondary,
            "on_event": self.events.append,
            **options,
        }
        more: dict[str, Any] = {"random": random}
        if fake_clock:
            more["now"] = self.clock
        pair = pairbus.pair_namespace if self.sync else pairbus.aio.pair_namespace
        self.bus = await self.do(pair, primary, SendAvailabilityOptions(**given), **more)
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
        await together(sender.close() for sender in self._senders)
        await self.close()
        await together(self.do(client.close) for client in self.clients)

    # Senders.

    def sender(self, path: str, *, topic: bool = False) -> Any:
        get = self.bus.get_topic_sender if topic else self.bus.get_queue_sender
        made = get(path)
        self._senders.append(Awaited(made) if self.sync else made)
        return self._senders[-1]

    async def entered(self, *paths: str) -> list[Any]:
        """Return senders of these queues with open links."""
        senders = [self.sender(path) for path in paths]
        await together(one.__aenter__() for one in senders)
        return senders

    # Entities.

    def queue(self, **settings: Any) -> str:
        name = f"queue-{next(numbers)}"
        self.primary.create_queue(name, **settings)
        return name

    def queues(self, number: int) -> list[str]:
        return [self.queue() for _ in range(number)]

    def topic(self) -> str:
        name = f"topic-{next(numbers)}"
        self.primary.create_topic(name)
        self.primary.create_subscription(name, "all")
        return name

    def delete(self, path: str) -> None:
        self.primary.call(lambda core: core.entities.delete(path))

    def fault(self, kind: str, entity: str | None = None, **limits: Any) -> Fault:
        """Add a fault to the primary."""
        return self.primary.add_fault(kind, entity, **limits)

    def mend(self, *faults: Fault) -> None:
        """Remove faults of the primary."""
        self.primary.call(lambda core: [core.faults.remove(fault) for fault in faults])

    # Results.

    @property
    def backlog_queues(self) -> tuple[str, ...]:
        return tuple(self.bus.backlog_queues)

    def in_queue(self, queue: str) -> list[TransferredMessage]:
        """Return the restored messages of a backlog queue."""
        return [from_backlog(payload) for payload in stored_payloads(self.secondary, queue)]

    def backlog(self, path: str | None = None) -> list[TransferredMessage]:
        """Return the restored backlog messages of a path."""
        everything = [one for queue in self.backlog_queues for one in self.in_queue(queue)]
        return [one for one in everything if path is None or one.path == path]

    def arrived(self, path: str) -> list[bytes]:
        """Return the encoded messages of a queue of the primary."""
        return stored_payloads(self.primary, path)

    def state(self, path: str) -> PathStatus:
        return self.bus.status().paths[path].status

    def changes(self, path: str) -> list[tuple[PathStatus, PathStatus]]:
        return [
            (one.from_state, one.to_state)
            for one in self.events
            if isinstance(one, StateChanged) and one.path == path
        ]

    def of(self, kind: type[Event]) -> list[Any]:
        """Return the events of this class."""
        return [one for one in self.events if isinstance(one, kind)]

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


@pytest.fixture(scope="module")
def namespaces() -> Iterator[dict[str, tuple[LocalNamespace, LocalNamespace]]]:
    """Yield a primary and a secondary for each flavour."""
    with ExitStack() as stack:
        for module, name in POLLING:
            stack.enter_context(patch.object(module, name, Hurried(getattr(module, name))))

        def started(name: str) -> LocalNamespace:
            made = LocalNamespace(name, rules=(LISTENS, SENDS), trust_bearer_tokens=True)
            return stack.enter_context(made)

        yield {flavour: (started("first"), started("second")) for flavour in FLAVOURS}
    gc.collect()  # sockets of the SDK, whose warnings other test modules do not ignore


def both(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Run a test with the argument `make` for both flavours at the same time, each in its own
    namespaces. Afterwards the namespaces are started and have no faults."""
    signature = inspect.signature(test)
    names = [name for name in signature.parameters if name != "make"]

    async def run(namespaces: Any, **fixtures: Any) -> None:
        pool = ThreadPoolExecutor(64)
        asyncio.get_running_loop().set_default_executor(pool)
        work = (_for_one(test, one, *namespaces[one], fixtures) for one in FLAVOURS)
        results = await asyncio.gather(*work, return_exceptions=True)
        gc.collect()
        for error in results:
            if error is not None:
                raise error

    empty = inspect.Parameter.POSITIONAL_OR_KEYWORD
    wanted = [inspect.Parameter(name, empty) for name in ("namespaces", *names)]
    run.__signature__ = signature.replace(parameters=wanted)  # type: ignore[attr-defined]
    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    run.__qualname__ = test.__qualname__
    return run


async def _for_one(
    test: Callable[..., Awaitable[None]],
    flavour: str,
    primary: LocalNamespace,
    secondary: LocalNamespace,
    fixtures: dict[str, Any],
) -> None:
    pairs: list[Pair] = []

    async def make(*, start: bool = True, **options: Any) -> Pair:
        pairs.append(Pair(flavour, primary, secondary))
        return await pairs[-1].start(**options) if start else pairs[-1]

    try:
        await test(make, **fixtures)
    except BaseException as exc:
        exc.add_note(f"flavour: {flavour}")
        raise
    finally:
        for namespace in (primary, secondary):
            namespace.start()
            namespace.clear_faults()
        await together(pair.clean_up() for pair in pairs)


async def together(work: Any) -> list[Any]:
    return list(await asyncio.gather(*work))


async def until(condition: Callable[[], Any], what: str) -> None:
    """Wait until a condition holds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE_S
    while not condition():
        assert loop.time() < deadline, f"timed out waiting for {what}"
        await asyncio.sleep(0.01)


async def caught(work: Awaitable[Any]) -> BaseException | None:
    """Return the exception that an awaitable raises; None if it raises none."""
    try:
        await work
    except Exception as exc:  # noqa: BLE001  the test judges it
        return exc
    return None


def message(body: str = "x", **fields: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, **fields)
