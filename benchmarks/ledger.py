"""What a ledger costs a healthy paired sender, in CPU time of its process.

Two senders that do the same differ by some hundredths here, and a ledger costs less than that. So
what it costs is measured by itself: all that is called for it in a send is timed there, less what a
call that does nothing shows at the same place; so is all that is done for it later. That stands
beside the CPU time of the same sends without a ledger. Below it, both contenders in turns, with the
CPU time of the whole process; new senders are made several times. Medians of many short rounds.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

from azure.servicebus import ServiceBusMessage

from benchmarks.harness import OURS, Figure, Unit
from benchmarks.pairing import BODY, FAST, namespace, paired
from pairbus.cost.ledger import Ledger
from pairbus.pairing import sdk
from pairbus.pairing.shell import ClientShell

WITHOUT = "without a ledger"
AIM = 0.99
PAIRS, ROUNDS, SENDS, BATCH = 4, 24, 150, 100
CPU = Unit("CPU µs a message, healthy")


def figures() -> list[Figure]:
    with ExitStack() as stack:
        primary, secondary = (stack.enter_context(namespace()) for _ in range(2))
        folder = stack.enter_context(tempfile.TemporaryDirectory("-ledger"))
        kinds: list[tuple[str, dict[str, Any]]] = [(OURS, {"ledger": folder}), (WITHOUT, {})]
        single: dict[str, list[float]] = {OURS: [], WITHOUT: []}
        batched: dict[str, list[float]] = {OURS: [], WITHOUT: []}
        for number in range(PAIRS):
            with ExitStack() as pairs:
                senders = {}
                for contender, options in kinds if number % 2 else reversed(kinds):
                    bus = pairs.enter_context(paired(primary, secondary, options, **FAST))
                    senders[contender] = pairs.enter_context(bus.get_queue_sender("orders"))
                _take_turns(senders, _single, single)
                _take_turns(senders, _batched, batched)
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


def _own_parts(primary: Any, secondary: Any, folder: str) -> list[float]:
    """What is done for a ledger in a single and in a batched send, in µs a message."""
    in_sends, later = Stopwatch(time.perf_counter_ns), Stopwatch(time.thread_time_ns)
    found = []
    with ExitStack() as stack:
        stack.enter_context(in_sends.around(ClientShell, "count"))
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


def _take_turns(senders: dict[str, Any], work: Any, spent: dict[str, list[float]]) -> None:
    """Let each work in turns, and note what it took."""
    for number in range(ROUNDS):
        turns = list(senders.items())
        for contender, sender in turns if number % 2 else reversed(turns):
            start = time.process_time()
            messages = work(sender)
            spent[contender].append((time.process_time() - start) / messages * 1e6)


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
