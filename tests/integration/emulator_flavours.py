"""The sync and the async SDK behind one interface, so that one test covers both.

The test is a coroutine. It awaits a method of the async SDK, or of the sync SDK in a thread. Links
are opened together, and closed while the next test runs, because the SDK is slow at both.
"""

import asyncio
import gc
import inspect
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import azure.servicebus
import azure.servicebus.aio
import azure.servicebus.aio.management
import azure.servicebus.management
import pytest
import pytest_asyncio
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue

from pairbus.emulator.entities.runtime_properties import RuntimeProperties
from pairbus.emulator.namespace import LocalNamespace
from tests.integration.emulator_bench import BRISK, DEADLINE_S, QUICK

__all__ = ["FLAVOURS", "Flavour", "aio", "benches", "both", "namespace"]

FLAVOURS = {
    "sync": (
        azure.servicebus.ServiceBusClient,
        azure.servicebus.management.ServiceBusAdministrationClient,
    ),
    "aio": (
        azure.servicebus.aio.ServiceBusClient,
        azure.servicebus.aio.management.ServiceBusAdministrationClient,
    ),
}
PREFETCHING = {"prefetch_count": 1}
"""A receiver without prefetch has a task that wakes up once a second, and closes after that."""

names = (f"entity-{number}" for number in count(1))


class Awaited:
    """An object of the sync SDK whose methods can be awaited."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.inner, name)
        if name == "session":
            return Awaited(attribute)
        if not callable(attribute):
            return attribute

        async def call(*args: Any, **options: Any) -> Any:
            return await asyncio.to_thread(attribute, *args, **options)

        return call

    async def __aenter__(self) -> "Awaited":
        await asyncio.to_thread(self.inner.__enter__)
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await asyncio.to_thread(self.inner.__exit__, *exc)


class Flavour:
    """A client of the sync or async SDK, and entities with unique names."""

    def __init__(self, flavour: str, namespace: LocalNamespace) -> None:
        self.name = flavour
        self.namespace = namespace
        self.client = self.connect(namespace.connection_string)
        self._open: list[Any] = []
        self._closing: list[asyncio.Task[None]] = []

    # Objects of the SDK.

    def connect(self, connection_string: str, **options: Any) -> Any:
        kind = FLAVOURS[self.name][0]
        return kind.from_connection_string(connection_string, **(QUICK | options))

    def administration(self, **options: Any) -> Any:
        made = FLAVOURS[self.name][1].from_connection_string(
            self.namespace.connection_string,
            connection_verify=self.namespace.ca_file,
            **({"retry_total": 0} | options),
        )
        return self.face(made)

    def face(self, made: Any) -> Any:
        return Awaited(made) if self.name == "sync" else made

    def keep(self, handler: Any) -> Any:
        """Return an object that is closed after the test."""
        self._open.append(self.face(handler))
        return self._open[-1]

    def sender(self, path: str, *, client: Any = None) -> Any:
        client = self.client if client is None else client
        return self.keep(client.get_queue_sender(path, **BRISK))

    def topic_sender(self, path: str) -> Any:
        return self.keep(self.client.get_topic_sender(path, **BRISK))

    def receiver(
        self, path: str, subscription: str | None = None, *, client: Any = None, **options: Any
    ) -> Any:
        client = self.client if client is None else client
        options = BRISK | PREFETCHING | options
        if subscription is None:
            return self.keep(client.get_queue_receiver(path, **options))
        return self.keep(client.get_subscription_receiver(path, subscription, **options))

    def dead_letters(self, path: str, subscription: str | None = None) -> Any:
        return self.receiver(path, subscription, sub_queue=ServiceBusSubQueue.DEAD_LETTER)

    async def open(self, *handlers: Any) -> Any:
        await asyncio.gather(*(handler.__aenter__() for handler in handlers))
        return handlers

    async def pair(self, path: str, **options: Any) -> Any:
        """Return a sender and a receiver of a queue."""
        return await self.open(self.sender(path), self.receiver(path, **options))

    def close_links(self) -> None:
        self._closing += [asyncio.ensure_future(item.close()) for item in self._open]
        self._open.clear()

    async def close(self) -> None:
        self.close_links()
        await asyncio.gather(*self._closing)
        await self.face(self.client).close()

    # Entities.

    def queue(self, **settings: Any) -> str:
        name = next(names)
        self.namespace.create_queue(name, **settings)
        return name

    def topic(self, **settings: Any) -> str:
        name = next(names)
        self.namespace.create_topic(name, **settings)
        return name

    def update(self, path: str, **settings: Any) -> None:
        self.namespace.call(lambda core: core.entities.update(path, settings, core.now_ms()))

    def runtime(self, path: str) -> RuntimeProperties:
        return self.namespace.call(
            lambda core: core.entities.runtime_properties(core.entities.get(path))
        )

    def held(self, path: str) -> int:
        """Return the number of stored messages of every state in the queue and its sub-queues."""
        return self.namespace.call(
            lambda core: sum(len(queue) for queue in core.entities.get(path).queues)
        )


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace("flavours") as namespace:
        yield namespace
    gc.collect()  # sockets of the SDK, before a module that does not ignore their warnings


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def benches(namespace: LocalNamespace) -> AsyncIterator[dict[str, Flavour]]:
    made = {name: Flavour(name, namespace) for name in FLAVOURS}
    yield made
    await asyncio.gather(*(item.close() for item in made.values()))


@pytest_asyncio.fixture(loop_scope="module", params=list(FLAVOURS))
async def both(
    benches: dict[str, Flavour], request: pytest.FixtureRequest
) -> AsyncIterator[Flavour]:
    """The sync and the async SDK in turn."""
    yield benches[request.param]
    benches[request.param].close_links()


@pytest_asyncio.fixture(loop_scope="module")
async def aio(benches: dict[str, Flavour]) -> AsyncIterator[Flavour]:
    """The async SDK, for cases that sync tests cover elsewhere."""
    yield benches["aio"]
    benches["aio"].close_links()


async def eventually(reached: Any) -> Any:
    """Wait until a condition is true. Fails at the deadline."""
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    while not (result := reached()):
        assert asyncio.get_running_loop().time() < deadline, "timed out"
        await asyncio.sleep(0.02)
    return result


async def take(receiver: Any, number: int = 1) -> list[ServiceBusReceivedMessage]:
    """Receive this many messages, in as many calls as needed. They stay locked."""
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < number:
        some = await receiver.receive_messages(number - len(messages), max_wait_time=DEADLINE_S)
        assert some, f"only {len(messages)} of {number} messages came"
        messages += some
    return messages


async def take_one(receiver: Any) -> ServiceBusReceivedMessage:
    (message,) = await take(receiver)
    return message


async def is_empty(receiver: Any) -> bool:
    """Return True if no message can be received at the moment."""
    return await receiver.receive_messages(1, max_wait_time=0.2) == []


async def listed(listing: Any) -> list[Any]:
    """Return all items of a sync or async listing."""
    if inspect.isawaitable(listing):
        return await asyncio.to_thread(list, await listing)
    return [item async for item in listing]


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]
