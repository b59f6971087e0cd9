"""The syphon beside a loop of the plain SDK, and beside RabbitMQ's Shovel.

Every namespace is a process of its own, with durable queues; the syphon runs embedded in another.
RabbitMQ's queues are durable, its messages persistent. Both sides are timed in the same way: from
the first messages that are seen where they were going to the last. What it takes to start is a
figure of its own. CPU time is counted over the same span: unlike a rate it hardly changes when
something else runs on the machine.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from azure.servicebus import ServiceBusClient

from benchmarks.harness import MEGABYTES, MICROSECONDS, OURS, RATE, SECONDS, Figure, Unit
from benchmarks.rabbitmq import NotInstalled
from benchmarks.shovel import Channel, Shovels, fill_queues, shovels
from benchmarks.syphon_process import SyphonProcess
from benchmarks.syphon_tree import Usage, Watch
from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.amqp.sections import Message, Properties
from pairbus.emulator import EmulatorProcess
from pairbus.servicebus.backlog_paths import backlog_paths
from pairbus.syphon.counts import backlog_size
from pairbus.transfer import to_backlog

SDK_LOOP = "SDK loop"
SHOVEL, SHOVEL_ONE = "Shovel", "Shovel in one broker"
NAME = "bench"
QUEUES = 4
DESTINATIONS = ("orders", "invoices", "events", "mail")
"""As many as there are queues: a shovel has one queue at each end."""
BODIES = (200, 1024)
SCALE = float(os.environ.get("BENCH_SYPHON_SCALE", "1"))
"""For a quick look: a part of all messages. What is published is at 1."""
MESSAGES, BY_SDK = int(200_000 * SCALE), int(3_000 * SCALE)
SIZES = tuple(int(size * SCALE) for size in (10_000, 100_000, 1_000_000))
QUEUE_COUNTS, BY_QUEUES = (1, 2, 5, 10), int(100_000 * SCALE)
WARM = int(20_000 * SCALE)
RECOVERED = int(20_000 * SCALE)
ROUNDS = 2
BATCH = 200
LOOK_S, MOST_S = 0.02, 0.5
ALIVE_S = 2.0
PATIENCE_S = 300.0
PARTS = os.environ.get("BENCH_SYPHON", "rates sizes queues recovery").split()
"""For a quick look: some of the parts."""

CPU = Unit("CPU µs a message", digits=1)
SPREAD = Unit("largest to smallest")
SOURCE, TARGET = "emulator, secondary", "emulator, primary"


@dataclass(frozen=True, slots=True)
class World:
    """Two namespaces."""

    primary: EmulatorProcess
    secondary: EmulatorProcess
    queues: int = QUEUES

    def start(self, syphon: SyphonProcess) -> None:
        syphon.start(
            primary=self.primary.connection_string,
            secondary=self.secondary.connection_string,
            primary_name=NAME,
            backlog_queue_count=self.queues,
        )

    def arrived(self) -> int:
        return backlog_size(options_for(self.primary), DESTINATIONS) or 0


def options_for(emulator: EmulatorProcess) -> ClientOptions:
    return ClientOptions.from_connection_string(emulator.connection_string)


@contextmanager
def world(queues: int = QUEUES) -> Iterator[World]:
    with (
        EmulatorProcess(NAME, queues=DESTINATIONS) as primary,
        EmulatorProcess(NAME, queues=backlog_paths(NAME, queues)) as secondary,
    ):
        yield World(primary, secondary, queues)


def fill(here: World, count: int, body: int) -> None:
    """Put messages into the backlog: the same number into each queue, for all destinations."""
    payload = Message.build(
        properties=Properties(message_id="0f1e2d3c4b5a69788796a5b4c3d2e1f0"), data=b"x" * body
    ).encode()
    batch = [to_backlog(payload, path) for path in DESTINATIONS] * (BATCH // len(DESTINATIONS))
    with Client(options_for(here.secondary)) as client:
        for queue in backlog_paths(NAME, here.queues):
            with Sender(client, queue) as sender:
                left = count // here.queues
                while left > 0:
                    sender.send_batch(batch[:left])
                    left -= len(batch)


@dataclass(frozen=True, slots=True)
class Drain:
    """Messages that arrived, in how many seconds, and what that took."""

    messages: int
    seconds: float
    waited_s: float
    """Until the first were seen."""
    usage: Usage

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    def cpu_us(self, kind: str | None = None) -> float:
        cpu_s = self.usage.cpu_s
        return (cpu_s.total() if kind is None else cpu_s[kind]) / self.messages * 1e6


def drain(
    start: Callable[[], None], arrived: Callable[[], int], total: int, roots: dict[int, str | None]
) -> Drain:
    """Start, and wait until all have arrived. `roots`: processes to watch, and what they are; None:
    the syphon's, which are told apart."""
    begin = time.perf_counter()
    deadline = begin + PATIENCE_S
    start()
    while not (first := arrived()):
        assert time.perf_counter() < deadline, "nothing arrived"
        time.sleep(LOOK_S)
    with ExitStack() as stack:
        watches = [stack.enter_context(Watch(pid, kind)) for pid, kind in roots.items()]
        since = time.perf_counter()
        seen = first
        while seen < total:
            now = time.perf_counter()
            assert now < deadline, f"only {seen} of {total} arrived"
            # Looking costs an emulator something: seldom at first, often towards the end.
            left_s = (total - seen) * (now - since) / max(seen - first, 1)
            time.sleep(min(max(left_s / 4, LOOK_S), MOST_S))
            seen = arrived()
        seconds = time.perf_counter() - since
    usage = Usage()
    for watch in watches:
        usage.cpu_s.update(watch.usage().cpu_s)
        usage.peak_mb.update(watch.usage().peak_mb)
    return Drain(total - first, seconds, since - begin, usage)


def by_syphon(syphon: SyphonProcess, here: World, count: int, body: int) -> Drain:
    """A backlog that is there when the syphon starts."""
    fill(here, count, body)
    return moved(syphon, here, count)


def moved(syphon: SyphonProcess, here: World, count: int) -> Drain:
    roots = {
        syphon.pid: None,
        here.secondary.pid: SOURCE,
        here.primary.pid: TARGET,
    }
    next_look = time.monotonic() + ALIVE_S

    def arrived() -> int:
        nonlocal next_look
        if time.monotonic() >= next_look:
            status = syphon.status()
            assert status["running"], status["failure"]
            next_look = time.monotonic() + ALIVE_S
        return here.arrived()

    try:
        return drain(lambda: here.start(syphon), arrived, count, roots)
    finally:
        syphon.stop()


def by_shovel(diggers: Shovels, name: str, body: int, two_nodes: bool) -> Drain:
    sources, destinations = (
        [f"{end} {name} {number}" for number in range(QUEUES)] for end in ("from", "to")
    )
    diggers.make(sources, destinations)
    fill_queues(diggers.source, sources, body, MESSAGES)
    channel = Channel(diggers.node_of(two_nodes).port)
    roots: dict[int, str | None] = {diggers.source.pid: SOURCE, diggers.target.pid: TARGET}
    try:
        return drain(
            lambda: diggers.dig(list(zip(sources, destinations, strict=True)), two_nodes),
            lambda: sum(channel.count(queue) for queue in destinations),
            MESSAGES,
            roots,
        )
    finally:
        channel.close()
        diggers.empty(sources, destinations)


def by_sdk(here: World, count: int) -> float:
    """Messages a second of a loop of the SDK, from one queue to one other."""
    done = 0
    with (
        ServiceBusClient.from_connection_string(here.secondary.connection_string) as source,
        ServiceBusClient.from_connection_string(here.primary.connection_string) as target,
        source.get_queue_receiver(backlog_paths(NAME, 1)[0]) as receiver,
        target.get_queue_sender(DESTINATIONS[0]) as sender,
    ):
        start = time.perf_counter()
        while done < count:
            messages: list[Any] = receiver.receive_messages(BATCH, max_wait_time=5)
            assert messages, f"only {done} of {count} came"
            sender.send_messages(messages)
            for message in messages:
                receiver.complete_message(message)
            done += len(messages)
        return done / (time.perf_counter() - start)


def rates(rounds: int) -> list[Figure]:
    """The syphon, the loop and the shovels in turns."""
    notes: dict[str, str] = {}
    rate: dict[tuple[int, str], float] = {}
    best: dict[tuple[int, str], Drain] = {}
    with ExitStack() as stack:
        syphon = stack.enter_context(SyphonProcess())
        starting = warm(syphon)
        try:
            diggers = stack.enter_context(shovels())
        except NotInstalled as exc:
            print(exc)
            diggers = None
            notes[SHOVEL] = "not installed"
        for number in range(rounds):
            for body in BODIES:
                with world() as here:
                    found = {OURS: by_syphon(syphon, here, MESSAGES, body)}
                with world(1) as here:
                    fill(here, BY_SDK, body)
                    loop = by_sdk(here, BY_SDK)
                rate[body, SDK_LOOP] = max(loop, rate.get((body, SDK_LOOP), 0))
                if diggers is not None:
                    name = f"{body} {number}"
                    found[SHOVEL] = by_shovel(diggers, f"{name} a", body, True)
                    found[SHOVEL_ONE] = by_shovel(diggers, f"{name} b", body, False)
                for who, one in found.items():
                    if one.rate > rate.get((body, who), 0):
                        rate[body, who], best[body, who] = one.rate, one
    result = []
    for body in BODIES:
        loop_too = {who: rate[body, who] for who in (OURS, SDK_LOOP)}
        result.append(Figure(f"moved, {body} bytes", loop_too, RATE, aim=15))
        beside = {who: rate[body, who] for who in (OURS, SHOVEL, SHOVEL_ONE) if (body, who) in rate}
        result.append(Figure(f"moved by shovel, {body} bytes", beside, RATE, aim=2, notes=notes))
        result += cpu(body, {who: one for (b, who), one in best.items() if b == body}, notes)
    name = "start of the embedded syphon to first messages home"
    return [*result, Figure(name, {OURS: starting}, SECONDS)]


def cpu(body: int, drains: dict[str, Drain], notes: dict[str, str]) -> list[Figure]:
    """CPU time a message, of each kind of process and of all."""
    kinds = dict.fromkeys(kind for one in drains.values() for kind in one.usage.cpu_s)
    result = []
    for kind in (None, *kinds):
        values = {
            who: one.cpu_us(kind)
            for who, one in drains.items()
            if kind is None or kind in one.usage.cpu_s
        }
        result.append(Figure(f"{kind or 'all processes'}, {body} bytes", values, CPU, notes=notes))
    return result


def warm(syphon: SyphonProcess) -> float:
    """Have Java compile what runs often. Seconds from the start to the first messages home."""
    with world() as here:
        return by_syphon(syphon, here, WARM, BODIES[0]).waited_s


def sizes() -> list[Figure]:
    """Backlogs of several sizes, each in processes of its own: what one leaves behind would be
    counted with the next."""
    drains: dict[int, Drain] = {}
    for count in SIZES:
        with SyphonProcess() as syphon:
            warm(syphon)
            with world() as here:
                drains[count] = by_syphon(syphon, here, count, BODIES[0])
    each = {count: one.seconds / one.messages * 1e6 for count, one in drains.items()}
    result = [
        Figure(f"{count:,} messages", {OURS: value}, MICROSECONDS) for count, value in each.items()
    ]
    result.append(spread("time a message", each, SIZES[1:]))
    each = {count: one.cpu_us() for count, one in drains.items()}
    result += [Figure(f"{count:,} messages", {OURS: value}, CPU) for count, value in each.items()]
    result.append(spread("CPU a message", each, SIZES[1:]))
    for kind in drains[SIZES[0]].usage.peak_mb:
        peaks = {count: one.usage.peak_mb[kind] for count, one in drains.items()}
        result += [
            Figure(f"peak, {kind}, {count:,} messages", {OURS: value}, MEGABYTES)
            for count, value in peaks.items()
        ]
        result.append(spread(f"peak, {kind}", peaks, SIZES))
    return result


def spread(name: str, values: dict[int, float], of: tuple[int, ...]) -> Figure:
    """The smallest backlog is one micro-batch, which is read before its first message arrives: what
    a message takes there is not to be compared."""
    some = [values[count] for count in of]
    remark = f"of {', '.join(f'{count:,}' for count in of)} messages"
    return Figure(name, {OURS: max(some) / min(some)}, SPREAD, remark=remark)


def queue_counts() -> list[Figure]:
    result = []
    with SyphonProcess() as syphon:
        warm(syphon)
        for queues in QUEUE_COUNTS:
            with world(queues) as here:
                one = by_syphon(syphon, here, BY_QUEUES, BODIES[0])
            result.append(Figure(f"from backlog queues: {queues}", {OURS: one.rate}, RATE))
    return result


def recovery() -> list[Figure]:
    """The primary is killed; a backlog comes; the syphon tries in vain; the primary is back."""
    with SyphonProcess() as syphon:
        warm(syphon)
        with world() as here:
            calm = by_syphon(syphon, here, RECOVERED, BODIES[0])
        with world() as here:
            home = recovered(syphon, here)
    name = f"primary back to the last of {RECOVERED:,} messages home"
    remark = f"first to last of as many with a primary that was never down: {calm.seconds:.2f} s"
    return [Figure(name, {OURS: home}, SECONDS, remark=remark)]


def recovered(syphon: SyphonProcess, here: World) -> float:
    """Seconds from when the primary accepts connections again to the last message home."""
    try:
        here.start(syphon)
        here.primary.kill()
        fill(here, RECOVERED, BODIES[0])
        deadline = time.perf_counter() + PATIENCE_S
        while not syphon.status()["errors"]:
            assert time.perf_counter() < deadline, "the syphon did not notice"
            time.sleep(LOOK_S)
        here.primary.start()
        start = time.perf_counter()
        while here.arrived() < RECOVERED:
            assert time.perf_counter() < deadline, "not all came home"
            time.sleep(LOOK_S)
        return time.perf_counter() - start
    finally:
        syphon.stop()


def figures(rounds: int) -> list[Figure]:
    parts: dict[str, Callable[[], list[Figure]]] = {
        "rates": lambda: rates(min(rounds, ROUNDS)),
        "sizes": sizes,
        "queues": queue_counts,
        "recovery": recovery,
    }
    return [figure for name in PARTS for figure in parts[name]()]
