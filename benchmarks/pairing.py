"""Paired senders beside those of the plain SDK, and how long a failover takes.

Two namespaces in processes of their own. Both contenders send to the same queue, in turns; in
failover the paired one sends to the backlog, and the plain one to an ordinary queue.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

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


@dataclass(frozen=True, slots=True)
class Place:
    """Where a namespace is."""

    connection_string: str

    def client(self, **options: Any) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.connection_string, **options)


@dataclass(frozen=True, slots=True)
class Namespace(Place):
    """A namespace in an emulator process."""

    emulator: EmulatorProcess


@contextmanager
def namespace() -> Iterator[Namespace]:
    """Serve a namespace with the queue `orders` in a process of its own."""
    with EmulatorProcess("bench", queues=["orders"]) as emulator:
        yield Namespace(emulator.connection_string, emulator)


@contextmanager
def paired(
    primary: Place,
    secondary: Place,
    more: dict[str, Any] | None = None,
    **retries: Any,
) -> Iterator[Any]:
    options = SendAvailabilityOptions(
        secondary=secondary.connection_string,
        primary_name="bench",
        failover_interval=timedelta(),
        check_duplicate_detection=False,
        **(more or {}),
    )
    with primary.client(**retries) as client, pair_namespace(client, options) as bus:
        yield bus


def figures(rounds: int) -> list[Figure]:
    rounds = min(rounds, ROUNDS)
    result = []
    with ExitStack() as stack:
        primary, secondary = (stack.enter_context(namespace()) for _ in range(2))
        bus = stack.enter_context(paired(primary, secondary, **FAST))
        ordinary = stack.enter_context(primary.client(**FAST))
        for threads in THREADS:
            clients = {OURS: bus, PLAIN: ordinary}
            result += compare(f"single sends, {threads} threads", clients, threads, rounds, single)
            result += compare(
                f"batched sends, {threads} threads", clients, threads, rounds, batches
            )
        primary.emulator.kill()
        elsewhere = stack.enter_context(secondary.client(**FAST))
        with bus.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(BODY))  # from here on, failover
        clients = {OURS: bus, PLAIN: elsewhere}
        for threads in THREADS:
            name = f"in failover, single, {threads} threads"
            result += compare(name, clients, threads, rounds, single, aim=None)
            name = f"in failover, batched, {threads} threads"
            result += compare(name, clients, threads, rounds, batches, aim=None)
    return [*result, first_stored("SDK's default retries", {}), first_stored("fast retries", FAST)]


Work = Callable[[Any, list[float]], int]


def single(sender: Any, took: list[float]) -> int:
    for _ in range(SENDS):
        message = ServiceBusMessage(BODY)
        start = perf_counter()
        sender.send_messages(message)
        took.append(perf_counter() - start)
    return SENDS


def batches(sender: Any, took: list[float]) -> int:
    for _ in range(BATCHES):
        batch = sender.create_message_batch()
        for _ in range(BATCH):
            batch.add_message(ServiceBusMessage(BODY))
        start = perf_counter()
        sender.send_messages(batch)
        took.append(perf_counter() - start)
    return BATCHES * BATCH


def compare(
    name: str,
    clients: dict[str, Any],
    threads: int,
    rounds: int,
    work: Work,
    aim: float | None = AIM,
) -> list[Figure]:
    """Throughput and the 99th percentile of one call, the best round of each."""
    rate: dict[str, float] = {}
    late: dict[str, float] = {}
    for number in range(rounds):
        turns = list(clients.items())
        for contender, client in turns if number % 2 else reversed(turns):
            messages, seconds, took = run(client, threads, work)
            rate[contender] = max(rate.get(contender, 0), messages / seconds)
            percentile = sorted(took)[int(len(took) * 0.99)] * 1000
            late[contender] = min(late.get(contender, percentile), percentile)
    return [Figure(name, rate, RATE, aim), Figure(name, late, MILLISECONDS_99, aim)]


def run(client: Any, threads: int, work: Work) -> tuple[int, float, list[float]]:
    """Messages, seconds and the time of each call, over threads with a sender each."""
    took: list[float] = []
    counts: list[int] = []
    ends: list[float] = []
    ready = threading.Barrier(threads + 1)

    def one() -> None:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(BODY))
            ready.wait()
            counts.append(work(sender, took))
            ends.append(perf_counter())  # closing takes the SDK up to a second

    workers = [threading.Thread(target=one) for _ in range(threads)]
    for worker in workers:
        worker.start()
    ready.wait()
    start = perf_counter()
    for worker in workers:
        worker.join()
    seconds = max(ends) - start
    assert len(counts) == threads, "a sender failed"
    return sum(counts), seconds, took


def first_stored(name: str, retries: dict[str, Any]) -> Figure:
    """From the send that fails because the primary was killed to the message in the backlog; beside
    it, how long the plain SDK takes to say that it failed."""
    with ExitStack() as stack:
        primary, secondary = (stack.enter_context(namespace()) for _ in range(2))
        bus = stack.enter_context(paired(primary, secondary, **retries))
        plain = stack.enter_context(primary.client(**retries))
        sender = stack.enter_context(bus.get_queue_sender("orders"))
        other = stack.enter_context(plain.get_queue_sender("orders"))
        for one in (sender, other):
            one.send_messages(ServiceBusMessage(BODY))
        primary.emulator.kill()
        start = perf_counter()
        sender.send_messages(ServiceBusMessage(BODY))
        ours = perf_counter() - start
        start = perf_counter()
        try:
            other.send_messages(ServiceBusMessage(BODY))
        except ServiceBusError:
            theirs = perf_counter() - start
        else:
            raise AssertionError("the primary was killed, and takes messages")
    remark = "ours: until the message is stored; the plain SDK: until it gives up"
    return Figure(f"first failed send, {name}", {OURS: ours, PLAIN: theirs}, SECONDS, remark=remark)
