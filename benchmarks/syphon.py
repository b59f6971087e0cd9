"""The syphon compared with a loop of the plain SDK, and with RabbitMQ's Shovel.

Each namespace runs in a separate process, with durable queues. The syphon runs embedded in another
process. RabbitMQ's queues are durable, and its messages persistent. The syphon and the shovels are
timed from the first messages that are seen at the destinations to the last. The SDK loop is timed
from its first receive to its last completion. The start-up time is a separate figure. CPU time is
measured over the same interval. Unlike a rate, it hardly changes when other programs run. The
syphon and the shovels run in turns, for several rounds: their figures are medians, and the remarks
have the lowest and the highest value of each.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any
from uuid import uuid4

from azure.servicebus import ServiceBusClient

from benchmarks.harness import MEGABYTES, MICROSECONDS, OURS, RATE, SECONDS, Figure, Unit
from benchmarks.rabbitmq import NotInstalled
from benchmarks.shovel import Channel, Shovels, fill_queues, start_shovels
from benchmarks.syphon_process import SyphonProcess
from benchmarks.syphon_tree import Usage, Watch
from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.amqp.sections import Message, Properties
from pairbus.emulator import EmulatorProcess
from pairbus.servicebus.administration import AdministrationClient
from pairbus.servicebus.backlog_paths import backlog_paths
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
VARIANT_MESSAGES = int(100_000 * SCALE)
SESSIONS = 1000
"""The sessions of the messages of each destination, in the line with sessions."""
TEN_DESTINATIONS = tuple(f"destination-{number}" for number in range(10))
WARM_UP = int(20_000 * SCALE)
RECOVERED = int(20_000 * SCALE)
ROUNDS = 5
BATCH = 200
POLL_S, MAX_POLL_S = 0.02, 0.5
STATUS_S = 2.0
"""The interval between two checks that the syphon runs."""
DEADLINE_S = 300.0
PARTS = os.environ.get("BENCH_SYPHON", "rates sizes queues variants recovery").split()
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
    destinations: tuple[str, ...] = DESTINATIONS
    tls: bool = False
    _clients: list[AdministrationClient] = field(default_factory=list)
    """The client that counts messages. A new connection for each count would take the emulator
    longer than some thousand messages."""

    def start(self, syphon: SyphonProcess) -> None:
        syphon.start(
            primary=self._access(self.primary),
            secondary=self._access(self.secondary),
            primary_name=NAME,
            backlog_queue_count=self.queues,
        )

    def _access(self, emulator: EmulatorProcess) -> dict[str, Any]:
        tls = {"tls": True, "ca_file": emulator.ca_file} if self.tls else {}
        return {"text": emulator.connection_string, **tls}

    def arrived(self) -> int:
        """Return the number of messages at the destinations."""
        if not self._clients:
            options = options_for(self.primary).administration()
            self._clients.append(AdministrationClient(options))
        client = self._clients[0]
        return sum(client.get_queue(path).active_message_count for path in self.destinations)

    def disconnect(self) -> None:
        """Close the connection of the client that counts messages."""
        for client in self._clients:
            client.close()
        self._clients.clear()


def options_for(emulator: EmulatorProcess) -> ClientOptions:
    return ClientOptions.from_connection_string(emulator.connection_string)


@contextmanager
def pairing(
    queues: int = QUEUES, destinations: tuple[str, ...] = DESTINATIONS, *, tls: bool = False
) -> Iterator[Pairing]:
    """Start two namespaces."""
    with (
        EmulatorProcess(NAME, queues=destinations) as primary,
        EmulatorProcess(NAME, queues=backlog_paths(NAME, queues)) as secondary,
    ):
        pair = Pairing(primary, secondary, queues, destinations, tls)
        try:
            yield pair
        finally:
            pair.disconnect()


def backlog_message(body: int, path: str, session: str | None) -> bytes:
    """Return a message in the format of the backlog, with a message id of its own."""
    properties = Properties(message_id=uuid4().hex, group_id=session)
    return to_backlog(Message.build(properties=properties, data=b"x" * body).encode(), path)


def fill(pair: Pairing, count: int, body: int, *, sessions: int = 0) -> None:
    """Send messages to the backlog: the same number to each queue, for all destinations."""
    paths = pair.destinations
    batch = [
        backlog_message(
            body,
            paths[number % len(paths)],
            f"session-{number // len(paths) % sessions}" if sessions else None,
        )
        for number in range(max(BATCH, len(paths) * sessions))
    ]
    start = 0
    with Client(options_for(pair.secondary)) as client:
        for queue in backlog_paths(NAME, pair.queues):
            with Sender(client, queue) as sender:
                remaining = count // pair.queues
                while remaining > 0:
                    part = batch[start : start + min(BATCH, remaining)]
                    sender.send_batch(part)
                    start = (start + len(part)) % len(batch)
                    remaining -= len(part)


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


def drain_by_syphon(
    syphon: SyphonProcess, pair: Pairing, count: int, body: int, *, sessions: int = 0
) -> Drain:
    """Fill the backlog, start the syphon, and measure the drain."""
    fill(pair, count, body, sessions=sessions)
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
    loop_rates: dict[int, list[float]] = {body: [] for body in BODIES}
    drains: dict[tuple[int, str], list[Drain]] = {}
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
                    measured = drain_by_syphon(syphon, pair, MESSAGES, body)
                drains.setdefault((body, OURS), []).append(measured)
                with pairing(1) as pair:
                    fill(pair, SDK_MESSAGES, body)
                    loop_rates[body].append(sdk_loop_rate(pair, SDK_MESSAGES))
                if shovels is not None:
                    for contender, two_nodes in ((SHOVEL, True), (SHOVEL_ONE, False)):
                        name = f"{body} {number} {contender}"
                        measured = drain_by_shovel(shovels, name, body, two_nodes)
                        drains.setdefault((body, contender), []).append(measured)
    result = []
    for body in BODIES:
        by_contender = {
            name: drains[body, name]
            for name in (OURS, SHOVEL, SHOVEL_ONE)
            if (body, name) in drains
        }
        rate_values = {name: [drain.rate for drain in each] for name, each in by_contender.items()}
        with_loop = {OURS: rate_values[OURS], SDK_LOOP: loop_rates[body]}
        result.append(medians(f"moved, {body} bytes", with_loop, RATE, aim=15))
        result.append(
            medians(
                f"moved, compared with Shovel, {body} bytes",
                rate_values,
                RATE,
                aim=2,
                notes=notes,
            )
        )
        result += cpu(body, by_contender, notes)
    name = "start of the embedded syphon to first messages delivered"
    return [*result, Figure(name, {OURS: startup_s}, SECONDS)]


def cpu(body: int, drains: dict[str, list[Drain]], notes: dict[str, str]) -> list[Figure]:
    """Return the CPU time per message, of all processes and of each kind of process."""
    kinds = dict.fromkeys(
        kind for each in drains.values() for drain in each for kind in drain.usage.cpu_s
    )
    result = []
    for kind in (None, *kinds):
        values = {
            name: [drain.cpu_us(kind) for drain in each]
            for name, each in drains.items()
            if kind is None or kind in each[0].usage.cpu_s
        }
        aim = 2 if kind is None else None
        name = f"{kind or 'all processes'}, {body} bytes"
        result.append(medians(name, values, CPU, aim=aim, notes=notes))
    return result


def medians(
    name: str,
    values: dict[str, Sequence[float]],
    unit: Unit,
    *,
    aim: float | None = None,
    notes: dict[str, str] | None = None,
) -> Figure:
    """Return the median of the rounds of each contender, with their range as the remark."""
    ranges = [
        f"{contender} {unit.format(min(each))} to {unit.format(max(each))}"
        for contender, each in values.items()
    ]
    rounds = len(next(iter(values.values())))
    remark = f"medians of {rounds} rounds; {', '.join(ranges)}" if rounds > 1 else ""
    middle = {contender: median(each) for contender, each in values.items()}
    return Figure(name, middle, unit, aim=aim, notes=notes or {}, remark=remark)


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


def variants() -> list[Figure]:
    """Measure drains that differ in one respect from a plain one in the same run: over TLS, with
    sessions, and to ten destinations."""
    drains: dict[str, Drain] = {}
    with SyphonProcess() as syphon:
        warm_up(syphon)
        for name, tls, sessions, destinations in (
            ("plain", False, 0, DESTINATIONS),
            ("over TLS", True, 0, DESTINATIONS),
            (f"sessions: {SESSIONS:,} for each destination", False, SESSIONS, DESTINATIONS),
            ("destinations: 10", False, 0, TEN_DESTINATIONS),
        ):
            with pairing(destinations=destinations, tls=tls) as pair:
                drains[name] = drain_by_syphon(
                    syphon, pair, VARIANT_MESSAGES, BODIES[0], sessions=sessions
                )
    result = [Figure(f"moved, {name}", {OURS: drain.rate}, RATE) for name, drain in drains.items()]
    return result + [
        Figure(f"all processes, {name}", {OURS: drain.cpu_us()}, CPU)
        for name, drain in drains.items()
    ]


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
        "variants": variants,
        "recovery": recovery,
    }
    return [figure for name in PARTS for figure in parts[name]()]
