"""What a ledger costs a healthy paired sender, in CPU time of its process.

Two processes that do the same differ by some hundredths here, and a ledger costs less than that. So
what it costs is measured by itself: all that is called for it in a send is timed there, less what a
call that does nothing shows at the same place; so is all that is done for it later. That stands
beside the CPU time of the same sends without a ledger. Below it, two processes of each contender in
turns, with their whole CPU time; new ones are started several times. All figures are medians of
many short rounds.
"""

import multiprocessing
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from statistics import median
from typing import Any

from azure.servicebus import ServiceBusMessage

from benchmarks.harness import OURS, Figure, Unit
from benchmarks.pairing import BODY, FAST, Place, namespace, paired
from pairbus.pairing import sdk
from pairbus.pairing.base import PairedClientBase
from pairbus.usage.ledger import Ledger

WITHOUT = "without a ledger"
AIM = 0.99
TIMES, ROUNDS, SENDS, BATCH = 4, 20, 150, 100
SPAWN = multiprocessing.get_context("spawn")
CPU = Unit("CPU µs a message, healthy")


def figures() -> list[Figure]:
    with ExitStack() as stack:
        primary, secondary = (stack.enter_context(namespace()) for _ in range(2))
        folder = stack.enter_context(tempfile.TemporaryDirectory("-ledger"))
        single: dict[str, list[float]] = {OURS: [], WITHOUT: []}
        batched: dict[str, list[float]] = {OURS: [], WITHOUT: []}
        for _ in range(TIMES):
            with ExitStack() as workers:
                some = [
                    (contender, workers.enter_context(_worker(primary, secondary, options)))
                    for contender, options in 2 * [(OURS, {"ledger": folder}), (WITHOUT, {})]
                ]
                _take_turns(some, _single, single)
                _take_turns(some, _batched, batched)
        plain_single, plain_batched = median(single[WITHOUT]), median(batched[WITHOUT])
        own_single, own_batched = _own_parts(primary, secondary, folder)
        return [
            Figure("single sends", _with(plain_single, own_single), CPU, AIM),
            Figure("batched sends", _with(plain_batched, own_batched), CPU, AIM),
            Figure("single sends, in turns", _medians(single), CPU),
            Figure("batched sends, in turns", _medians(batched), CPU),
        ]


def _with(plain: float, own: float) -> dict[str, float]:
    return {OURS: plain + own, WITHOUT: plain}


class Stopwatch:
    """The time that is spent in functions."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.calls = 0
        self.ns = 0

    @contextmanager
    def around(self, place: Any, name: str) -> Iterator[None]:
        function = getattr(place, name)

        def timed(*args: Any, **options: Any) -> Any:
            start = self._clock()
            try:
                return function(*args, **options)
            finally:
                self.ns += self._clock() - start
                self.calls += 1

        setattr(place, name, timed)
        try:
            yield
        finally:
            setattr(place, name, function)

    def rounds(self, sender: Any, work: Any) -> list[tuple[int, int, int]]:
        """Nanoseconds, calls and messages of each round."""
        work(sender)
        found = []
        for _ in range(ROUNDS):
            self.ns = self.calls = 0
            messages = work(sender)
            found.append((self.ns, self.calls, messages))
        return found


def _own_parts(primary: Place, secondary: Place, folder: str) -> list[float]:
    """What is done for a ledger in a single and in a batched send, in µs a message."""
    in_sends, later = Stopwatch(time.perf_counter_ns), Stopwatch(time.thread_time_ns)
    found = []
    with ExitStack() as stack:
        stack.enter_context(in_sends.around(PairedClientBase, "count"))
        plain = stack.enter_context(paired(primary, secondary, {}, **FAST))
        sender = stack.enter_context(plain.get_queue_sender("orders"))
        empty_ns = median(ns / calls for ns, calls, _ in in_sends.rounds(sender, _single))

        for place, name in ((sdk, "_sizes"), (sdk, "_keep")):
            stack.enter_context(in_sends.around(place, name))
        stack.enter_context(later.around(Ledger, "_sum_up"))
        bus = stack.enter_context(paired(primary, secondary, {"ledger": folder}, **FAST))
        sender = stack.enter_context(bus.get_queue_sender("orders"))
        for work in (_single, _batched):
            later.ns = 0
            rounds = in_sends.rounds(sender, work)
            own = median((ns - calls * empty_ns) / messages for ns, calls, messages in rounds)
            sums = later.ns / sum(messages for _, _, messages in rounds)
            assert min(own, sums) > 0, "nothing was done for the ledger"
            found.append((own + sums) / 1e3)
    return found


def _medians(spent: dict[str, list[float]]) -> dict[str, float]:
    return {contender: median(some) for contender, some in spent.items()}


@contextmanager
def _worker(primary: Place, secondary: Place, options: dict[str, Any]) -> Iterator[Any]:
    """A sender in a process of its own: sent some work, it says what CPU time a message took."""
    ours, its = SPAWN.Pipe()
    given = (its, primary.connection_string, secondary.connection_string, options)
    process = SPAWN.Process(target=_serve, args=given)
    process.start()
    its.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join()


def _serve(orders: Any, primary: str, secondary: str, options: dict[str, Any]) -> None:
    with (
        paired(Place(primary), Place(secondary), options, **FAST) as bus,
        bus.get_queue_sender("orders") as sender,
        suppress(EOFError),
    ):
        while True:
            work = orders.recv()
            start = time.process_time()
            messages = work(sender)
            orders.send((time.process_time() - start) / messages * 1e6)


def _take_turns(workers: list[tuple[str, Any]], work: Any, spent: dict[str, list[float]]) -> None:
    """Let each work in turns, and note what it took."""
    for number in range(ROUNDS + 1):
        for contender, worker in random.sample(workers, len(workers)):
            worker.send(work)
            took = worker.recv()
            if number > 0:  # the first opens links
                spent[contender].append(took)


def _single(sender: Any) -> int:
    for _ in range(SENDS):
        sender.send_messages(ServiceBusMessage(BODY))
    return SENDS


def _batched(sender: Any) -> int:
    for _ in range(10):
        batch = sender.create_message_batch()
        for _ in range(BATCH):
            batch.add_message(ServiceBusMessage(BODY))
        sender.send_messages(batch)
    return 10 * BATCH
