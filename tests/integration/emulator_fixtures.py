"""Fixtures for tests of the emulator: a namespace per module, a client of the SDK, and waiting.

The SDK takes half a second to open a link, and as long to close some. So links are opened together,
and closed while the next test runs.
"""

import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any, TypeVar

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSubQueue,
)

from pairbus.amqp.client import Client, ClientOptions
from pairbus.emulator.entities.runtime_properties import RuntimeProperties
from pairbus.emulator.namespace import LocalNamespace
from tests.interop.sdk_cases import BRISK, IMPATIENT

T = TypeVar("T")
DEADLINE_S = 20.0


class Bench:
    """A namespace, and a client of the SDK."""

    def __init__(self, namespace: LocalNamespace) -> None:
        self.namespace = namespace
        self.client = ServiceBusClient.from_connection_string(
            namespace.connection_string, **IMPATIENT
        )
        self._numbers = count(1)
        self._pool = ThreadPoolExecutor(8)
        self._open: list[Any] = []
        self._closing: list[Future[None]] = []

    # Entities with unique names.

    def queue(self, **settings: Any) -> str:
        name = f"queue-{next(self._numbers)}"
        self.namespace.create_queue(name, **settings)
        return name

    def topic(self, **settings: Any) -> str:
        name = f"topic-{next(self._numbers)}"
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

    # Links.

    def sender(self, path: str) -> ServiceBusSender:
        return self._keep(self.client.get_queue_sender(path, **BRISK))

    def topic_sender(self, path: str) -> ServiceBusSender:
        return self._keep(self.client.get_topic_sender(path, **BRISK))

    def receiver(self, path: str, subscription: str | None = None, **options: Any) -> Any:
        if subscription is None:
            return self._keep(self.client.get_queue_receiver(path, **(BRISK | options)))
        return self._keep(
            self.client.get_subscription_receiver(path, subscription, **(BRISK | options))
        )

    def dead_letters(self, path: str, subscription: str | None = None) -> ServiceBusReceiver:
        return self.receiver(path, subscription, sub_queue=ServiceBusSubQueue.DEAD_LETTER)

    def open(self, *handlers: Any) -> list[Any]:
        """Open several links at once."""
        return list(self._pool.map(lambda handler: handler.__enter__(), handlers))

    def pair(self, path: str, **options: Any) -> Any:
        """Return a sender and a receiver of a queue."""
        return self.open(self.sender(path), self.receiver(path, **options))

    def raw(self) -> Client:
        """Return our own client."""
        return self._keep(
            Client(ClientOptions.from_connection_string(self.namespace.connection_string))
        )

    def beside(self, work: Callable[..., T], *args: Any, **options: Any) -> "Future[T]":
        """Run a call of the SDK in another thread."""
        return self._pool.submit(work, *args, **options)

    def _keep(self, handler: Any) -> Any:
        self._open.append(handler)
        return handler

    def close_links(self) -> None:
        self._closing += [self._pool.submit(handler.close) for handler in self._open]
        self._open.clear()

    def close(self) -> None:
        self.close_links()
        self._pool.shutdown()
        self.client.close()
        for closing in self._closing:
            closing.result()


@pytest.fixture(scope="module")
def module_bench() -> Iterator[Bench]:
    with LocalNamespace("tests") as namespace:
        bench = Bench(namespace)
        yield bench
        bench.close()
    gc.collect()  # sockets of the SDK, before a module that does not ignore their warnings


@pytest.fixture
def bench(module_bench: Bench) -> Iterator[Bench]:
    """The namespace of the module. Links are closed after the test."""
    yield module_bench
    module_bench.close_links()


def eventually(reached: Callable[[], T]) -> T:
    """Wait until a condition is true. Fails at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        result = reached()
        if result:
            return result
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def take(receiver: ServiceBusReceiver, number: int = 1) -> list[ServiceBusReceivedMessage]:
    """Receive this many messages, in as many calls as needed. They stay locked."""
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < number:
        some = receiver.receive_messages(number - len(messages), max_wait_time=DEADLINE_S)
        assert some, f"only {len(messages)} of {number} messages came"
        messages += some
    return messages


def take_one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    (message,) = take(receiver)
    return message


def is_empty(receiver: ServiceBusReceiver) -> bool:
    """Return True if no message can be received at the moment."""
    return receiver.receive_messages(1, max_wait_time=0.2) == []


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]
