"""The syphon compared with a loop of the plain SDK, and with RabbitMQ's Shovel.

Each namespace runs in a separate process, with durable queues. The syphon runs embedded in another
process. RabbitMQ's queues are durable, and its messages persistent. The syphon and the shovels are
timed from the first messages that are seen at the destinations to the last. The SDK loop is timed
from its first receive to its last completion. The start-up time is a separate figure. CPU time is
measured over the same interval. Unlike a rate, it hardly changes when other programs run.
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
from benchmarks.shovel import Channel, Shovels, fill_queues, start_shovels
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
"""One for each backlog queue, because a shovel has one source queue and one destination queue."""
BODIES = (200, 1024)
SCALE = float(os.environ.get("BENCH_SYPHON_SCALE", "1"))
"""A fraction of all messages, for a quick run. Published figures use 1."""
MESSAGES, SDK_MESSAGES = int(200_000 * SCALE), int(3_000 * SCALE)
SIZES = tuple(int(size * SCALE) for size in (10_000, 100_000, 1_000_000))
QUEUE_COUNTS, QUEUE_MESSAGES = (1, 2, 5, 10), int(100_000 * SCALE)
WARM_UP = int(20_000 * SCALE)
RECOVERED = int(20_000 * SCALE)
ROUNDS = 2
BATCH = 200
POLL_S, MAX_POLL_S = 0.02, 0.5
STATUS_S = 2.0
"""The interval between two checks that the syphon runs."""
DEADLINE_S = 300.0
PARTS = os.environ.get("BENCH_SYPHON", "rates sizes queues recovery").split()
"""Some of the parts, for a quick run."""

CPU = Unit("CPU µs per message", digits=1)
SPREAD = Unit("ratio of largest to smallest")
SOURCE, TARGET = "emulator, secondary", "emulator, primary"


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two namespaces, and the number of backlog queues."""

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
        """Return the number of messages at the destinations."""
        return backlog_size(options_for(self.primary), DESTINATIONS) or 0


def options_for(emulator: EmulatorProcess) -> ClientOptions:
    return ClientOptions.from_connection_string(emulator.connection_string)


@contextmanager
def pairing(queues: int = QUEUES) -> Iterator[Pairing]:
    """Start two namespaces."""
    with (
        EmulatorProcess(NAME, queues=DESTINATIONS) as primary,
        EmulatorProcess(NAME, queues=backlog_paths(NAME, queues)) as secondary,
    ):
        yield Pairing(primary, secondary, queues)


def fill(pair: Pairing, count: int, body: int) -> None:
    """Send messages to the backlog: the same number to each queue, for all destinations."""
    payload = Message.build(
        properties=Properties(message_id="0f1e2d3c4b5a69788796a5b4c3d2e1f0"), data=b"x" * body
    ).encode()
    batch = [to_backlog(payload, path) for path in DESTINATIONS] * (BATCH // len(DESTINATIONS))
    with Client(options_for(pair.secondary)) as client:
        for queue in backlog_paths(NAME, pair.queues):
            with Sender(client, queue) as sender:
                remaining = count // pair.queues
                while remaining > 0:
                    sender.send_batch(batch[:remaining])
                    remaining -= len(batch)


@dataclass(frozen=True, slots=True)
class Drain:
    """The result of a drain: messages, their time, and the resources used."""

    messages: int
    seconds: float
    startup_s: float
    """The time until the first messages arrived."""
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
    """Start a drain, and wait until all messages have arrived.

    `roots` are the processes whose resources are measured, by kind. The kind None is for the
    syphon, whose processes have several kinds.
    """
    begin = time.perf_counter()
    deadline = begin + DEADLINE_S
    start()
    while not (first := arrived()):
        assert time.perf_counter() < deadline, "nothing arrived"
        time.sleep(POLL_S)
    with ExitStack() as stack:
        watches = [stack.enter_context(Watch(pid, kind)) for pid, kind in roots.items()]
        since = time.perf_counter()
        seen = first
        while seen < total:
            now = time.perf_counter()
            assert now < deadline, f"only {seen} of {total} arrived"
            # Counting messages costs CPU time of the emulator, so it is done more often only
            # towards the end.
            remaining_s = (total - seen) * (now - since) / max(seen - first, 1)
            time.sleep(min(max(remaining_s / 4, POLL_S), MAX_POLL_S))
            seen = arrived()
        seconds = time.perf_counter() - since
    usage = Usage()
    for watch in watches:
        usage.cpu_s.update(watch.usage().cpu_s)
        usage.peak_mb.update(watch.usage().peak_mb)
    return Drain(total - first, seconds, since - begin, usage)


def drain_by_syphon(syphon: SyphonProcess, pair: Pairing, count: int, body: int) -> Drain:
    """Fill the backlog, start the syphon, and measure the drain."""
    fill(pair, count, body)
    roots = {
        syphon.pid: None,
        pair.secondary.pid: SOURCE,
        pair.primary.pid: TARGET,
    }
    next_check = time.monotonic() + STATUS_S

    def arrived() -> int:
        nonlocal next_check
        if time.monotonic() >= next_check:
            status = syphon.status()
            assert status["running"], status["failure"]
            next_check = time.monotonic() + STATUS_S
        return pair.arrived()

    try:
        return drain(lambda: pair.start(syphon), arrived, count, roots)
    finally:
        syphon.stop()


def drain_by_shovel(shovels: Shovels, name: str, body: int, two_nodes: bool) -> Drain:
    sources, destinations = (
        [f"{end} {name} {number}" for number in range(QUEUES)] for end in ("from", "to")
    )
    shovels.create_queues(sources, destinations)
    fill_queues(shovels.source, sources, body, MESSAGES)
    channel = Channel(shovels.destination_node(two_nodes).port)
    roots: dict[int, str | None] = {shovels.source.pid: SOURCE, shovels.target.pid: TARGET}
    try:
        return drain(
            lambda: shovels.start(list(zip(sources, destinations, strict=True)), two_nodes),
            lambda: sum(channel.count(queue) for queue in destinations),
            MESSAGES,
            roots,
        )
    finally:
        channel.close()
        shovels.purge_queues(sources, destinations)


def sdk_loop_rate(pair: Pairing, count: int) -> float:
    """Return the messages per second of a loop of the SDK, from one queue to another."""
    moved = 0
    with (
        ServiceBusClient.from_connection_string(pair.secondary.connection_string) as source,
        ServiceBusClient.from_connection_string(pair.primary.connection_string) as target,
        source.get_queue_receiver(backlog_paths(NAME, 1)[0]) as receiver,
        target.get_queue_sender(DESTINATIONS[0]) as sender,
    ):
        start = time.perf_counter()
        while moved < count:
            messages: list[Any] = receiver.receive_messages(BATCH, max_wait_time=5)
            assert messages, f"only {moved} of {count} were received"
            sender.send_messages(messages)
            for message in messages:
                receiver.complete_message(message)
            moved += len(messages)
        return moved / (time.perf_counter() - start)


def rates(rounds: int) -> list[Figure]:
    """Measure the syphon, the SDK loop and the shovels in turns."""
    notes: dict[str, str] = {}
    rate: dict[tuple[int, str], float] = {}
    best: dict[tuple[int, str], Drain] = {}
    with ExitStack() as stack:
        syphon = stack.enter_context(SyphonProcess())
        startup_s = warm_up(syphon)
        try:
            shovels = stack.enter_context(start_shovels())
        except NotInstalled as exc:
            print(exc)
            shovels = None
            notes[SHOVEL] = "not installed"
        for number in range(rounds):
            for body in BODIES:
                with pairing() as pair:
                    drains = {OURS: drain_by_syphon(syphon, pair, MESSAGES, body)}
                with pairing(1) as pair:
                    fill(pair, SDK_MESSAGES, body)
                    loop_rate = sdk_loop_rate(pair, SDK_MESSAGES)
                rate[body, SDK_LOOP] = max(loop_rate, rate.get((body, SDK_LOOP), 0))
                if shovels is not None:
                    name = f"{body} {number}"
                    drains[SHOVEL] = drain_by_shovel(shovels, f"{name} a", body, True)
                    drains[SHOVEL_ONE] = drain_by_shovel(shovels, f"{name} b", body, False)
                for contender, measured in drains.items():
                    if measured.rate > rate.get((body, contender), 0):
                        rate[body, contender], best[body, contender] = measured.rate, measured
    result = []
    for body in BODIES:
        with_loop = {name: rate[body, name] for name in (OURS, SDK_LOOP)}
        result.append(Figure(f"moved, {body} bytes", with_loop, RATE, aim=15))
        contenders = [name for name in (OURS, SHOVEL, SHOVEL_ONE) if (body, name) in rate]
        with_shovel = {name: rate[body, name] for name in contenders}
        result.append(
            Figure(
                f"moved, compared with Shovel, {body} bytes", with_shovel, RATE, aim=2, notes=notes
            )
        )
        result += cpu(body, {name: best[body, name] for name in contenders}, notes)
    name = "start of the embedded syphon to first messages delivered"
    return [*result, Figure(name, {OURS: startup_s}, SECONDS)]


def cpu(body: int, drains: dict[str, Drain], notes: dict[str, str]) -> list[Figure]:
    """Return the CPU time per message, of all processes and of each kind of process."""
    kinds = dict.fromkeys(kind for measured in drains.values() for kind in measured.usage.cpu_s)
    result = []
    for kind in (None, *kinds):
        values = {
            name: drain.cpu_us(kind)
            for name, drain in drains.items()
            if kind is None or kind in drain.usage.cpu_s
        }
        result.append(Figure(f"{kind or 'all processes'}, {body} bytes", values, CPU, notes=notes))
    return result


def warm_up(syphon: SyphonProcess) -> float:
    """Drain a backlog, so that the JVM compiles its code. Return the seconds from the start to the
    first messages delivered."""
    with pairing() as pair:
        return drain_by_syphon(syphon, pair, WARM_UP, BODIES[0]).startup_s


def sizes() -> list[Figure]:
    """Measure backlogs of several sizes, each in new processes, so that the memory of one does not
    count for the next."""
    drains: dict[int, Drain] = {}
    for count in SIZES:
        with SyphonProcess() as syphon:
            warm_up(syphon)
            with pairing() as pair:
                drains[count] = drain_by_syphon(syphon, pair, count, BODIES[0])
    times = {count: drain.seconds / drain.messages * 1e6 for count, drain in drains.items()}
    result = [
        Figure(f"{count:,} messages", {OURS: value}, MICROSECONDS) for count, value in times.items()
    ]
    result.append(spread("time per message", times, SIZES[1:]))
    cpu_times = {count: drain.cpu_us() for count, drain in drains.items()}
    result += [
        Figure(f"{count:,} messages", {OURS: value}, CPU) for count, value in cpu_times.items()
    ]
    result.append(spread("CPU time per message", cpu_times, SIZES[1:]))
    for kind in drains[SIZES[0]].usage.peak_mb:
        peaks = {count: drain.usage.peak_mb[kind] for count, drain in drains.items()}
        result += [
            Figure(f"peak, {kind}, {count:,} messages", {OURS: value}, MEGABYTES)
            for count, value in peaks.items()
        ]
        result.append(spread(f"peak, {kind}", peaks, SIZES))
    return result


def spread(name: str, values: dict[int, float], counts: tuple[int, ...]) -> Figure:
    """Return the ratio of the largest to the smallest value, for some backlog sizes.

    The smallest backlog is one micro-batch, which is read before its first message arrives, so its
    times cannot be compared with those of others.
    """
    compared = [values[count] for count in counts]
    remark = f"backlogs of {'; '.join(f'{count:,}' for count in counts)} messages"
    return Figure(name, {OURS: max(compared) / min(compared)}, SPREAD, remark=remark)


def queue_counts() -> list[Figure]:
    """Measure backlogs with several numbers of queues."""
    result = []
    with SyphonProcess() as syphon:
        warm_up(syphon)
        for queues in QUEUE_COUNTS:
            with pairing(queues) as pair:
                measured = drain_by_syphon(syphon, pair, QUEUE_MESSAGES, BODIES[0])
            result.append(Figure(f"moved, backlog queues: {queues}", {OURS: measured.rate}, RATE))
    return result


def recovery() -> list[Figure]:
    """Measure the time from the restart of a killed primary to the end of the drain."""
    with SyphonProcess() as syphon:
        warm_up(syphon)
        with pairing() as pair:
            undisturbed = drain_by_syphon(syphon, pair, RECOVERED, BODIES[0])
        with pairing() as pair:
            seconds = recovery_time(syphon, pair)
    name = f"restart of the primary to the last of {RECOVERED:,} messages delivered"
    remark = (
        f"first to last message with a primary that was never down: {undisturbed.seconds:.2f} s"
    )
    return [Figure(name, {OURS: seconds}, SECONDS, remark=remark)]


def recovery_time(syphon: SyphonProcess, pair: Pairing) -> float:
    """Return the seconds from the restart of the primary to the last message delivered."""
    try:
        pair.start(syphon)
        pair.primary.kill()
        fill(pair, RECOVERED, BODIES[0])
        deadline = time.perf_counter() + DEADLINE_S
        while not syphon.status()["errors"]:
            assert time.perf_counter() < deadline, "the syphon reported no error"
            time.sleep(POLL_S)
        pair.primary.start()
        start = time.perf_counter()
        while pair.arrived() < RECOVERED:
            assert time.perf_counter() < deadline, "not all messages arrived"
            time.sleep(POLL_S)
        return time.perf_counter() - start
    finally:
        syphon.stop()


def figures(rounds: int) -> list[Figure]:
    """Measure the selected parts."""
    parts: dict[str, Callable[[], list[Figure]]] = {
        "rates": lambda: rates(min(rounds, ROUNDS)),
        "sizes": sizes,
        "queues": queue_counts,
        "recovery": recovery,
    }
    return [figure for name in PARTS for figure in parts[name]()]
