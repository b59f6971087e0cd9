"""Helpers of the pairing tests: two local namespaces and a paired client."""

import asyncio
import gc
import inspect
import threading
import time
import warnings
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import azure.servicebus.aio
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, _servicebus_sender
from azure.servicebus.aio import _servicebus_sender_async

import pairbus.aio
from pairbus import PairedClient, SendAvailabilityOptions, pair_namespace
from pairbus.amqp.sections import Message
from pairbus.emulator.connections.incoming_links import IncomingLink
from pairbus.emulator.connections.request_links import ManagementNode, RequestLink
from pairbus.emulator.namespace import LocalNamespace
from pairbus.events import Event, PathStatus, StateChanged
from tests.integration.emulator_clients import BRISK, client_of
from tests.integration.waiting import wait_until

QUICK: dict[str, Any] = {"retry_total": 0, "retry_backoff_factor": 0.02, "retry_backoff_max": 1}
"""Options of an SDK client with few retries."""
NAME = "primary"
SECOND = timedelta(seconds=1)
QUICKLY: dict[str, Any] = {
    "primary_name": NAME,
    "backlog_queue_count": 3,
    "failover_interval": timedelta(),
    "ping_primary_interval": SECOND,
    "operation_timeout": timedelta(seconds=20),
    "check_duplicate_detection": False,
}
"""Options of a pairing that fails over immediately."""


@contextmanager
def paired(
    primary: LocalNamespace, secondary: LocalNamespace, *, sdk: Any = QUICK, **options: Any
) -> Iterator[PairedClient]:
    """Yield a paired client; `events_of` returns its events."""
    events: list[Event] = []
    given = {**QUICKLY, "on_event": events.append, **options}
    with (
        ServiceBusClient.from_connection_string(primary.connection_string, **sdk) as client,
        ServiceBusClient.from_connection_string(secondary.connection_string, **sdk) as other,
        pair_namespace(client, SendAvailabilityOptions(secondary=other, **given)) as bus,
    ):
        bus.seen = events  # type: ignore[attr-defined]
        yield bus


def events_of(bus: PairedClient) -> list[Event]:
    return bus.seen  # type: ignore[attr-defined,no-any-return]


def changes(bus: PairedClient) -> list[tuple[PathStatus, PathStatus]]:
    """Return the state changes in order."""
    return [
        (one.from_state, one.to_state) for one in events_of(bus) if isinstance(one, StateChanged)
    ]


def state(bus: Any, path: str) -> PathStatus:
    return bus.status().paths[path].status


def wait_for_state(bus: Any, path: str, wanted: PathStatus) -> None:
    wait_until(lambda: state(bus, path) is wanted, f"{path} to be {wanted.value}")


def backlog_messages(secondary: LocalNamespace, count: int = 3) -> list[Message]:
    """Return the stored messages of all backlog queues."""
    return [
        Message.parse(payload)
        for index in range(count)
        for payload in stored_payloads(secondary, f"{NAME}/x-servicebus-transfer/{index}")
    ]


def stored_payloads(namespace: LocalNamespace, path: str) -> list[bytes]:
    """Return the encoded messages of a queue; the order of their sections may differ."""
    from pairbus.emulator.entities.message_codec import encode_original

    return namespace.call(
        lambda core: [
            encode_original(one) for one in core.entities.get(path).queue.peek(0, 100_000)
        ]
    )


def body_of(message: Message) -> bytes:
    return b"".join(message.read_body()[1])


# Plain and paired clients of one primary, with a common interface for both flavours.

BACKLOG = f"{NAME}/x-servicebus-transfer/0"
"""The path of the only backlog queue."""


class Loop:
    """An event loop in a background thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await work

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result()

    def close(self) -> None:
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Blocking:
    """A wrapper that makes the methods of an asynchronous object blocking. It can live longer than
    the event loop of one test."""

    def __init__(self, inner: Any, loop: Loop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            async def work() -> Any:
                result = found(*args, **options)
                return await result if inspect.isawaitable(result) else result

            result = self._loop.run(work())
            return Blocking(result, self._loop) if hasattr(result, "__aenter__") else result

        return call

    def __str__(self) -> str:
        return str(self._inner)

    def __enter__(self) -> Any:
        return self.__getattr__("__aenter__")()

    def __exit__(self, *exc: Any) -> None:
        self.__getattr__("__aexit__")(*exc)


class Arrived(NamedTuple):
    """A delivery or a management request that reached a namespace."""

    path: str
    message_format: int | None
    payload: bytes


class Hurried:
    """A module whose `sleep` is short. The SDK polls a new link nine times, every 50 ms."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def sleep(self, seconds: float) -> Any:
        return self._module.sleep(seconds / 25)


class World:
    """Two namespaces that record their deliveries, and clients of one flavour of the SDK."""

    def __init__(self, flavour: str, **settings: Any) -> None:
        self.flavour = flavour
        self.primary = LocalNamespace("primary", **settings)
        self.secondary = LocalNamespace("secondary")
        self._loop = Loop()
        self._open: list[Any] = []
        self._arrived: list[tuple[Any, Arrived]] = []
        self._asked: dict[tuple[str, str], int] = {}
        self._seen: dict[tuple[str, str], int] = {}
        self._numbers = 0

    def __enter__(self) -> "World":
        self.primary.start()
        self.secondary.start()
        self._patches = pytest.MonkeyPatch()
        self._patches.setattr(_servicebus_sender, "time", Hurried(time))
        self._patches.setattr(_servicebus_sender_async, "asyncio", Hurried(asyncio))
        self._listen()
        return self

    def __exit__(self, *exc: object) -> None:
        self._close()
        vars(self).clear()
        with warnings.catch_warnings():
            # The SDK does not close its sockets when a connection fails. They are collected here,
            # before a test module that does not ignore the warnings.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    def _close(self) -> None:
        links = [one for one in self._open if hasattr(one, "entity_name")]
        with ThreadPoolExecutor(16) as pool:  # the SDK takes half a second to close a link
            list(pool.map(lambda link: link.close(), links))
        for one in reversed(self._open):
            one.close()
        self._loop.close()
        self._patches.undo()
        self.primary.close()
        self.secondary.close()

    # Entities and clients.

    def queue(self, **settings: Any) -> str:
        self._numbers += 1
        name = f"Queue-{self._numbers}"
        self.primary.create_queue(name, **settings)
        return name

    def topic(self, **settings: Any) -> str:
        self._numbers += 1
        name = f"Topic-{self._numbers}"
        self.primary.create_topic(name, **settings)
        self.primary.create_subscription(name, "all")
        return name

    def client(self, connection_string: str | None = None, **sdk: Any) -> Any:
        """Return a plain client of the SDK."""
        text = self.primary.connection_string if connection_string is None else connection_string
        options = {**QUICK, **sdk}
        if self.flavour == "sync":
            return self.keep(ServiceBusClient.from_connection_string(text, **options))
        aio = azure.servicebus.aio.ServiceBusClient

        async def make() -> Any:
            return aio.from_connection_string(text, **options)

        return self.keep(Blocking(self._loop.run(make()), self._loop))

    def pair(self, client: Any = None, **options: Any) -> Any:
        """Return a paired client with one backlog queue whose paths stay in failover."""
        client = self.client() if client is None else client
        secondary = self.client(self.secondary.connection_string)
        given = {
            **QUICKLY,
            "backlog_queue_count": 1,
            "ping_primary_interval": timedelta(minutes=30),
            **options,
        }
        if self.flavour == "sync":
            return self.keep(
                pair_namespace(client, SendAvailabilityOptions(secondary=secondary, **given))
            )
        asked = SendAvailabilityOptions(secondary=secondary._inner, **given)
        bus = self._loop.run(pairbus.aio.pair_namespace(client._inner, asked))
        return self.keep(Blocking(bus, self._loop))

    def keep(self, one: Any) -> Any:
        """Close an object at the end."""
        self._open.append(one)
        return one

    def fail_over(self, sender: Any) -> None:
        """Send a message that fails at the primary and goes to the backlog."""
        fault = self.primary.add_fault("disable", sender.entity_name)
        sender.send_messages(ServiceBusMessage("the first that failed"))
        assert fault.fired
        self.primary.call(lambda core: core.faults.remove(fault))

    # Deliveries.

    def _listen(self) -> None:
        on_link, on_node = IncomingLink.on_delivery, RequestLink.on_delivery

        def link(inlet: IncomingLink, delivery: Any) -> None:
            arrived = Arrived(inlet.path, delivery.message_format, bytes(delivery.payload))
            self._arrived.append((inlet.runtime, arrived))
            on_link(inlet, delivery)

        def node(one: RequestLink, delivery: Any) -> None:
            if isinstance(one.node, ManagementNode):
                asked = Message.parse(bytes(delivery.payload))
                asked.edit_application_properties({}, ["associated-link-name"])  # it is random
                arrived = Arrived(
                    one.node.entity.path, None, asked.application_properties + asked.body
                )
                self._arrived.append((one.connection.runtime, arrived))
            on_node(one, delivery)

        self._patches.setattr(IncomingLink, "on_delivery", link)
        self._patches.setattr(RequestLink, "on_delivery", node)

    def arrived(self, namespace: LocalNamespace, path: str) -> list[Arrived]:
        """Return the deliveries to an entity since the last call, in order."""
        core = namespace.call(lambda core: core)
        found = [one for of, one in self._arrived if of is core and one.path == path]
        asked = self._asked.get((namespace.name, path), 0)
        self._asked[namespace.name, path] = len(found)
        return found[asked:]

    def in_backlog(self, queue: str = BACKLOG) -> list[bytes]:
        """Return the messages stored in a backlog queue since the last call."""
        return self.stored(self.secondary, queue)

    def stored(self, namespace: LocalNamespace, path: str) -> list[bytes]:
        """Return the messages stored in a queue since the last call."""
        from pairbus.emulator.entities.message_codec import encode_original

        seen = self._seen.get((namespace.name, path), 0)
        found = namespace.call(lambda core: core.entities.get(path).queue.peek(seen, 100_000))
        if found:
            self._seen[namespace.name, path] = found[-1].sequence
        return [encode_original(one) for one in found]

    def receiver(self, namespace: LocalNamespace, path: str) -> Any:
        """Return a receiver of our AMQP client, which returns encoded messages."""
        from pairbus.amqp.client import Receiver

        return Receiver(self.keep(client_of(namespace)), path)


def quick_sender(client: Any, path: str, *, topic: bool = False, **options: Any) -> Any:
    """Return a sender that closes quickly."""
    make = client.get_topic_sender if topic else client.get_queue_sender
    return make(path, **BRISK, **options)
