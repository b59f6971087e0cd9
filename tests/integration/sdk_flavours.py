"""The sync and the async SDK behind one interface, so that one test covers both.

The test is a coroutine. It awaits a method of the async SDK, or of the sync SDK in a thread. Links
are opened together, and closed while the next test runs, because the SDK is slow at both.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import azure.servicebus
import azure.servicebus.aio
import azure.servicebus.aio.management
import azure.servicebus.management
import pytest
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue

from pairbus.amqp.client import Client, ClientOptions
from pairbus.emulator.entities.runtime_properties import RuntimeProperties
from pairbus.emulator.namespace import LocalNamespace
from tests.integration.emulator_clients import QUICK, QUICK_CLOSE
from tests.waiting import DEADLINE_S

FLAVOURS = {
    "sync": (
        azure.servicebus.ServiceBusClient,
        azure.servicebus.management.ServiceBusAdministrationClient,
        azure.servicebus.AutoLockRenewer,
    ),
    "aio": (
        azure.servicebus.aio.ServiceBusClient,
        azure.servicebus.aio.management.ServiceBusAdministrationClient,
        azure.servicebus.aio.AutoLockRenewer,
    ),
}
SDK_SOCKETS = [
    pytest.mark.usefixtures("collect_sockets"),
    # The SDK does not close its transport when a connection fails.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:loop is closed:ResourceWarning"),
]
"""The marks of a module that uses the SDK."""
SDK_MARKS = [pytest.mark.asyncio(loop_scope="module"), *SDK_SOCKETS]
"""The marks of a module whose tests use the fixture `sdk` or `own_sdk`."""

WEBSOCKET_TIMEOUTS = {"keep_alive": 0, "socket_timeout": 10}
"""Options of an SDK sender or receiver over WebSockets, where `socket_timeout` bounds the
handshake."""

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

    async def __aiter__(self) -> AsyncIterator[Any]:
        items, end = iter(self.inner), object()
        while (item := await asyncio.to_thread(next, items, end)) is not end:
            yield item


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

    def connect_with_defaults(self) -> Any:
        """Return a client with the retries of the SDK's default options."""
        return FLAVOURS[self.name][0].from_connection_string(self.namespace.connection_string)

    def connect_with(self, host: str, credential: Any, **options: Any) -> Any:
        return FLAVOURS[self.name][0](host, credential, **(QUICK | options))

    def administration(self, **options: Any) -> Any:
        made = FLAVOURS[self.name][1].from_connection_string(
            self.namespace.connection_string,
            connection_verify=self.namespace.ca_file,
            **({"retry_total": 0} | options),
        )
        return self.awaitable(made)

    def awaitable(self, made: Any) -> Any:
        return Awaited(made) if self.name == "sync" else made

    def lock_renewer(self, **options: Any) -> Any:
        return FLAVOURS[self.name][2](**options)

    def native(self, handler: Any) -> Any:
        """Return the object of the SDK itself, to pass it to another call of the SDK."""
        return handler.inner if self.name == "sync" else handler

    def keep(self, handler: Any) -> Any:
        """Return an object that is closed after the test."""
        self._open.append(self.awaitable(handler))
        return self._open[-1]

    def sender(self, path: str, *, client: Any = None) -> Any:
        client = self.client if client is None else client
        return self.keep(client.get_queue_sender(path, **QUICK_CLOSE))

    def topic_sender(self, path: str) -> Any:
        return self.keep(self.client.get_topic_sender(path, **QUICK_CLOSE))

    def receiver(
        self, path: str, subscription: str | None = None, *, client: Any = None, **options: Any
    ) -> Any:
        client = self.client if client is None else client
        options = QUICK_CLOSE | options
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

    def raw(self) -> Client:
        """Return our own client."""
        client = Client(ClientOptions.from_connection_string(self.namespace.connection_string))
        self._open.append(Awaited(client))
        return client

    def close_links(self) -> None:
        self._closing += [asyncio.ensure_future(item.close()) for item in self._open]
        self._open.clear()

    async def close(self) -> None:
        self.close_links()
        await asyncio.gather(*self._closing)
        await self.awaitable(self.client).close()

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

    def stored_count(self, path: str) -> int:
        """Return the number of stored messages of every state in the queue and its sub-queues."""
        return self.namespace.call(
            lambda core: sum(len(queue) for queue in core.entities.get(path).queues)
        )


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
        assert some, f"only {len(messages)} of {number} messages arrived"
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
        listing = await listing
    if hasattr(listing, "__aiter__"):
        return [item async for item in listing]
    return await asyncio.to_thread(list, listing)


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]
