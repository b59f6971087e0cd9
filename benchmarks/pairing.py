"""Paired senders compared with those of the plain SDK, and the duration of a failover.

Two namespaces run in separate processes. Both contenders send to the same queue, in turns: a block
of 48 sends, or of 8 batches of 100 messages, then one of the other contender. In failover, the
paired sender sends to the backlog, and the plain one sends to an ordinary queue. Rates and CPU
times are medians of the blocks; a 99th percentile is that of the calls of all blocks. CPU time is
that of the process that sends. Unlike a rate, it hardly changes when other programs run. The time
of a call includes the creation of its message or batch: pairbus and the SDK encode messages at
different moments.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter, sleep
from typing import Any, Protocol

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

import pairbus.aio
from benchmarks.harness import (
    CPU_MICROSECONDS,
    MILLISECONDS_99,
    OURS,
    RATE,
    SECONDS,
    Figure,
)
from benchmarks.intervals import pooled
from benchmarks.send_blocks import (
    ALL_WORK,
    BODY,
    Block,
    Contender,
    Work,
    frozen_heap,
    gathered,
    median_cpu_us,
    median_rate,
    percentile_ms,
    tasks,
    threads,
)
from pairbus import SendAvailabilityOptions, pair_namespace
from pairbus.emulator import EmulatorProcess
from pairbus.events import PathStatus

PLAIN = "plain SDK"
SENDERS = (1, 8)
FAST: dict[str, Any] = {"retry_total": 1, "retry_backoff_factor": 0.1}
AIM, FAILOVER_AIM = 0.98, 0.95
FAILOVER_INTERVAL_S = 2
BLOCKS, WARM_UPS = 12, 2
"""The blocks of each contender in a round, and those before all rounds, which do not count."""


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
    defaults: dict[str, Any] = {
        "secondary": secondary.connection_string,
        "primary_name": "bench",
        "failover_interval": timedelta(),
        "check_duplicate_detection": False,
    }
    return SendAvailabilityOptions(**(defaults | options))


def figures(rounds: int) -> list[Figure]:
    result: list[Figure] = []
    with ExitStack() as stack:
        primary, secondary = (stack.enter_context(namespace()) for _ in range(2))
        flavours = [
            stack.enter_context(sync_pairing(primary, secondary)),
            stack.enter_context(async_pairing(primary, secondary)),
        ]
        for flavour in flavours:
            for senders in SENDERS:
                result += compare(flavour, "healthy", senders, primary, rounds)
        primary.emulator.kill()
        for flavour in flavours:
            flavour.fail_over()
            for senders in SENDERS:
                result += compare(flavour, "in failover", senders, secondary, rounds)
    return [
        *result,
        first_stored("SDK's default retries", {}),
        first_stored("fast retries", FAST),
        first_send_in_failover(sync_pairing),
        first_send_in_failover(async_pairing),
    ]


def compare(
    flavour: "Flavour", state: str, senders: int, plain: NamespaceAddress, rounds: int
) -> list[Figure]:
    """Compare some senders of each contender: throughput, the 99th percentile of a call, and CPU
    time."""
    result = []
    with flavour.contenders(senders, plain) as (ours, others):
        for work in ALL_WORK:
            run_blocks(work, ours, others, WARM_UPS)
            with frozen_heap():
                pairs = run_blocks(work, ours, others, rounds * BLOCKS)
            name = f"{state}, {flavour.name}, {work.name}, {counted(senders, flavour.noun)}"
            aim = AIM if state == "healthy" else FAILOVER_AIM
            for unit, statistic in (
                (RATE, median_rate),
                (MILLISECONDS_99, percentile_ms),
                (CPU_MICROSECONDS, median_cpu_us),
            ):
                result.append(pooled(name, unit, statistic, pairs, contender=PLAIN, aim=aim))
    return result


def run_blocks(
    work: Work, ours: Contender, others: Contender, blocks: int
) -> list[tuple[Block, Block]]:
    """Run blocks of both contenders in turns. Return pairs of blocks, that of pairbus first."""
    pairs = []
    for number in range(blocks):
        first, second = (ours, others) if number % 2 else (others, ours)
        pair = first(work), second(work)
        pairs.append(pair if number % 2 else (pair[1], pair[0]))
    return pairs


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Flavour(Protocol):
    """A pairing of one flavour of the SDK, and its senders."""

    name: str
    noun: str
    """A thread or a task: each sender has one."""

    def contenders(
        self, senders: int, plain: NamespaceAddress
    ) -> AbstractContextManager[tuple[Contender, Contender]]:
        """Open as many senders of the pairing, and of the plain SDK to a namespace."""

    def fail_over(self) -> None:
        """Send a message to a primary that is down, which starts the failover."""

    def first_send_in_failover(self, secondary: NamespaceAddress) -> tuple[float, float]:
        """Send to a primary that is down, until the path has failed over. Return the time of the
        first send in failover, and of the first send of an SDK sender to the secondary."""


class SyncFlavour:
    """The synchronous flavour."""

    name, noun = "sync", "thread"

    def __init__(self, client: Any) -> None:
        self._client = client

    @contextmanager
    def contenders(
        self, senders: int, plain: NamespaceAddress
    ) -> Iterator[tuple[Contender, Contender]]:
        with ExitStack() as stack:
            plain_client = stack.enter_context(plain.client(**FAST))
            both = [
                [client.get_queue_sender("orders") for _ in range(senders)]
                for client in (self._client, plain_client)
            ]
            for sender in (*both[0], *both[1]):
                stack.enter_context(closing(sender))
                sender.send_messages(ServiceBusMessage(BODY))
            ours, others = (stack.enter_context(threads(each)) for each in both)
            yield ours, others

    def fail_over(self) -> None:
        with self._client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(BODY))

    def first_send_in_failover(self, secondary: NamespaceAddress) -> tuple[float, float]:
        with ExitStack() as stack:
            sender = stack.enter_context(closing(self._client.get_queue_sender("orders")))
            plain_client = stack.enter_context(secondary.client(**FAST))
            plain = stack.enter_context(closing(plain_client.get_queue_sender("orders")))
            with suppress(ServiceBusError):
                sender.send_messages(ServiceBusMessage(BODY))
            sleep(FAILOVER_INTERVAL_S + 1)
            assert self._client.status().paths["orders"].status is PathStatus.FAILOVER
            times = []
            for each in (sender, plain):
                start = perf_counter()
                each.send_messages(ServiceBusMessage(BODY))
                times.append(perf_counter() - start)
        return times[0], times[1]


class AsyncFlavour:
    """The asynchronous flavour, in an event loop of its own."""

    name, noun = "async", "task"

    def __init__(self, client: Any, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    @contextmanager
    def contenders(
        self, senders: int, plain: NamespaceAddress
    ) -> Iterator[tuple[Contender, Contender]]:
        run = self._runner.run
        plain_client = async_client(plain, **FAST)
        both = [
            [client.get_queue_sender("orders") for _ in range(senders)]
            for client in (self._client, plain_client)
        ]
        everything = [*both[0], *both[1]]
        run(gathered([sender.send_messages(ServiceBusMessage(BODY)) for sender in everything]))
        try:
            yield tasks(both[0], self._runner), tasks(both[1], self._runner)
        finally:
            run(gathered([sender.close() for sender in everything]))
            run(gathered([plain_client.close()]))

    def fail_over(self) -> None:
        self._runner.run(self._send(self._client.get_queue_sender("orders")))

    async def _send(self, sender: Any) -> float:
        """Send a message with a sender that is not needed any more, and return its time."""
        try:
            start = perf_counter()
            await sender.send_messages(ServiceBusMessage(BODY))
            return perf_counter() - start
        finally:
            await sender.close()

    def first_send_in_failover(self, secondary: NamespaceAddress) -> tuple[float, float]:
        return self._runner.run(self._first_send_in_failover(secondary))

    async def _first_send_in_failover(self, secondary: NamespaceAddress) -> tuple[float, float]:
        sender = self._client.get_queue_sender("orders")
        with suppress(ServiceBusError):
            await sender.send_messages(ServiceBusMessage(BODY))
        await asyncio.sleep(FAILOVER_INTERVAL_S + 1)
        assert self._client.status().paths["orders"].status is PathStatus.FAILOVER
        ours = await self._send(sender)
        async with async_client(secondary, **FAST) as plain:
            return ours, await self._send(plain.get_queue_sender("orders"))


def async_client(address: NamespaceAddress, **options: Any) -> Any:
    return AsyncServiceBusClient.from_connection_string(address.connection_string, **options)


@contextmanager
def sync_pairing(
    primary: NamespaceAddress, secondary: NamespaceAddress, **options: Any
) -> Iterator[Flavour]:
    with paired(primary, secondary, options, **FAST) as client:
        yield SyncFlavour(client)


@contextmanager
def async_pairing(
    primary: NamespaceAddress, secondary: NamespaceAddress, **options: Any
) -> Iterator[Flavour]:
    with asyncio.Runner() as runner:
        primary_client = async_client(primary, **FAST)
        pairing = pairbus.aio.pair_namespace(primary_client, options_of(secondary, **options))
        client = runner.run(gathered([pairing]))[0]
        try:
            yield AsyncFlavour(client, runner)
        finally:
            runner.run(gathered([client.close()]))
            runner.run(gathered([primary_client.close()]))


def first_send_in_failover(pairing: Any) -> Figure:
    """Measure the first send after a path has failed over, beside the first send of an SDK sender,
    which opens its link."""
    with ExitStack() as stack:
        primary, secondary = (stack.enter_context(namespace()) for _ in range(2))
        interval = timedelta(seconds=FAILOVER_INTERVAL_S)
        flavour = stack.enter_context(pairing(primary, secondary, failover_interval=interval))
        primary.emulator.kill()
        ours, plain = flavour.first_send_in_failover(secondary)
    return Figure(
        f"first send in failover, {flavour.name}",
        {OURS: ours, PLAIN: plain},
        SECONDS,
        remark="pairbus opens a link when the path becomes suspect; plain SDK: with its first send",
    )


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
