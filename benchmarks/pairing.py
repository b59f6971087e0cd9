"""Paired senders compared with those of the plain SDK, and the duration of a failover.

Two namespaces run in separate processes. Both contenders send to the same queue, in turns. In
failover, the paired sender sends to the backlog, and the plain one sends to an ordinary queue.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from time import perf_counter
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

import pairbus.aio
from benchmarks.harness import MILLISECONDS_99, OURS, RATE, SECONDS, Figure
from pairbus import SendAvailabilityOptions, pair_namespace
from pairbus.emulator import EmulatorProcess

PLAIN = "plain SDK"
BODY = b"x" * 200
SENDS, BATCHES, BATCH = 600, 20, 100
THREADS = (1, 8)
ROUNDS = 6
FAST: dict[str, Any] = {"retry_total": 1, "retry_backoff_factor": 0.1}
AIM = 0.98
PROPERTIES: Any = {"tenant": "contoso", "priority": 3, "express": True}


@dataclass(frozen=True, slots=True)
class NamespaceAddress:
    """The address of a namespace."""

    connection_string: str

    def client(self, **options: Any) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.connection_string, **options)


@dataclass(frozen=True, slots=True)
class Namespace(NamespaceAddress):
    """A namespace in an emulator process."""

    emulator: EmulatorProcess


@contextmanager
def namespace() -> Iterator[Namespace]:
    """Start a namespace with the queue `orders` in a separate process."""
    with EmulatorProcess("bench", queues=["orders"]) as emulator:
        yield Namespace(emulator.connection_string, emulator)


@contextmanager
def paired(
    primary: NamespaceAddress,
    secondary: NamespaceAddress,
    options: dict[str, Any] | None = None,
    **retries: Any,
) -> Iterator[Any]:
    with (
        primary.client(**retries) as client,
        pair_namespace(client, options_of(secondary, **(options or {}))) as paired_client,
    ):
        yield paired_client


def options_of(secondary: NamespaceAddress, **options: Any) -> SendAvailabilityOptions:
    return SendAvailabilityOptions(
        secondary=secondary.connection_string,
        primary_name="bench",
        failover_interval=timedelta(),
        check_duplicate_detection=False,
        **options,
    )


def figures(rounds: int) -> list[Figure]:
    rounds = min(rounds, ROUNDS)
    result = []
    with ExitStack() as stack:
        primary, secondary = (stack.enter_context(namespace()) for _ in range(2))
        paired_client = stack.enter_context(paired(primary, secondary, **FAST))
        plain_client = stack.enter_context(primary.client(**FAST))
        for threads in THREADS:
            clients = {OURS: paired_client, PLAIN: plain_client}
            for name, work in (
                ("single sends", send_singles),
                ("single sends with application properties", send_with_properties),
                ("batched sends", send_batches),
            ):
                result += compare(
                    f"{name}, {counted(threads, 'thread')}", clients, threads, rounds, work
                )
        result += compare_async(primary, secondary, rounds)
        primary.emulator.kill()
        secondary_client = stack.enter_context(secondary.client(**FAST))
        with paired_client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(BODY))  # starts the failover
        clients = {OURS: paired_client, PLAIN: secondary_client}
        for threads in THREADS:
            name = f"in failover, single, {counted(threads, 'thread')}"
            result += compare(name, clients, threads, rounds, send_singles, aim=None)
            name = f"in failover, batched, {counted(threads, 'thread')}"
            result += compare(name, clients, threads, rounds, send_batches, aim=None)
    return [*result, first_stored("SDK's default retries", {}), first_stored("fast retries", FAST)]


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


Work = Callable[[Any, list[float]], int]


def send_singles(sender: Any, call_times: list[float]) -> int:
    return send_each(sender, call_times, None)


def send_with_properties(sender: Any, call_times: list[float]) -> int:
    return send_each(sender, call_times, PROPERTIES)


def send_each(sender: Any, call_times: list[float], properties: Any) -> int:
    for _ in range(SENDS):
        message = ServiceBusMessage(BODY, application_properties=properties)
        start = perf_counter()
        sender.send_messages(message)
        call_times.append(perf_counter() - start)
    return SENDS


def send_batches(sender: Any, call_times: list[float]) -> int:
    for _ in range(BATCHES):
        batch = sender.create_message_batch()
        for _ in range(BATCH):
            batch.add_message(ServiceBusMessage(BODY))
        start = perf_counter()
        sender.send_messages(batch)
        call_times.append(perf_counter() - start)
    return BATCHES * BATCH


def compare_async(
    primary: NamespaceAddress, secondary: NamespaceAddress, rounds: int
) -> list[Figure]:
    """Compare the asynchronous senders, with one task and with several."""
    result = []
    for tasks in THREADS:
        for name, properties in (
            ("async single sends", None),
            ("async single sends with application properties", PROPERTIES),
        ):
            best = Best()
            for number in range(rounds):
                contenders = [OURS, PLAIN] if number % 2 else [PLAIN, OURS]
                for contender in contenders:
                    secondary_address = secondary if contender == OURS else None
                    work = send_async(primary, secondary_address, tasks, properties)
                    best.add(contender, *asyncio.run(work))
            result += best.figures(f"{name}, {counted(tasks, 'task')}", AIM)
    return result


async def send_async(
    primary: NamespaceAddress, secondary: NamespaceAddress | None, tasks: int, properties: Any
) -> tuple[int, float, list[float]]:
    """Send in tasks with a sender each, and return messages, seconds and the time of each call.
    Without a secondary, the senders are those of the SDK."""
    call_times: list[float] = []
    async with AsyncExitStack() as stack:
        client: Any = AsyncServiceBusClient.from_connection_string(
            primary.connection_string, **FAST
        )
        await stack.enter_async_context(client)
        if secondary is not None:
            paired_client = await pairbus.aio.pair_namespace(client, options_of(secondary))
            client = await stack.enter_async_context(paired_client)
        senders = [
            await stack.enter_async_context(client.get_queue_sender("orders")) for _ in range(tasks)
        ]
        for sender in senders:
            await sender.send_messages(ServiceBusMessage(BODY))

        async def send(sender: Any) -> None:
            for _ in range(SENDS):
                message = ServiceBusMessage(BODY, application_properties=properties)
                start = perf_counter()
                await sender.send_messages(message)
                call_times.append(perf_counter() - start)

        start = perf_counter()
        await asyncio.gather(*(send(sender) for sender in senders))
        seconds = perf_counter() - start
    return tasks * SENDS, seconds, call_times


class Best:
    """The best throughput and the best 99th percentile of one call, for each contender."""

    def __init__(self) -> None:
        self._rates: dict[str, float] = {}
        self._percentiles: dict[str, float] = {}

    def add(self, contender: str, messages: int, seconds: float, call_times: list[float]) -> None:
        rate = messages / seconds
        self._rates[contender] = max(self._rates.get(contender, 0), rate)
        percentile = sorted(call_times)[int(len(call_times) * 0.99)] * 1000
        self._percentiles[contender] = min(self._percentiles.get(contender, inf), percentile)

    def figures(self, name: str, aim: float | None) -> list[Figure]:
        return [
            Figure(name, self._rates, RATE, aim),
            Figure(name, self._percentiles, MILLISECONDS_99, aim),
        ]


def compare(
    name: str,
    clients: dict[str, Any],
    threads: int,
    rounds: int,
    work: Work,
    aim: float | None = AIM,
) -> list[Figure]:
    """Compare throughput and the 99th percentile of one call, of the best round of each."""
    best = Best()
    for number in range(rounds):
        contenders = list(clients.items())
        for contender, client in contenders if number % 2 else reversed(contenders):
            best.add(contender, *run(client, threads, work))
    return best.figures(name, aim)


def run(client: Any, threads: int, work: Work) -> tuple[int, float, list[float]]:
    """Send in threads with a sender each. Return messages, seconds and the time of each call."""
    call_times: list[float] = []
    counts: list[int] = []
    ends: list[float] = []
    ready = threading.Barrier(threads + 1)

    def send() -> None:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(BODY))
            ready.wait()
            counts.append(work(sender, call_times))
            ends.append(perf_counter())  # the SDK takes up to a second to close

    workers = [threading.Thread(target=send) for _ in range(threads)]
    for worker in workers:
        worker.start()
    ready.wait()
    start = perf_counter()
    for worker in workers:
        worker.join()
    seconds = max(ends) - start
    assert len(counts) == threads, "a sender failed"
    return sum(counts), seconds, call_times


def first_stored(name: str, retries: dict[str, Any]) -> Figure:
    """Measure the first send after the primary was killed until its message is stored, and the time
    after which the plain SDK raises its error."""
    with ExitStack() as stack:
        primary, secondary = (stack.enter_context(namespace()) for _ in range(2))
        paired_client = stack.enter_context(paired(primary, secondary, **retries))
        plain_client = stack.enter_context(primary.client(**retries))
        sender = stack.enter_context(paired_client.get_queue_sender("orders"))
        plain_sender = stack.enter_context(plain_client.get_queue_sender("orders"))
        for any_sender in (sender, plain_sender):
            any_sender.send_messages(ServiceBusMessage(BODY))
        primary.emulator.kill()
        start = perf_counter()
        sender.send_messages(ServiceBusMessage(BODY))
        ours = perf_counter() - start
        start = perf_counter()
        try:
            plain_sender.send_messages(ServiceBusMessage(BODY))
        except ServiceBusError:
            plain = perf_counter() - start
        else:
            raise AssertionError("the primary was killed, but accepted a message")
    remark = "pairbus: until the message is stored; plain SDK: until it raises an error"
    return Figure(f"first failed send, {name}", {OURS: ours, PLAIN: plain}, SECONDS, remark=remark)
