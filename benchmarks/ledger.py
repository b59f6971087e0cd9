"""What a ledger costs a healthy paired sender, in CPU time of its process.

Two senders that do the same differ by some hundredths here, and a ledger costs less than that. So
what it costs is measured by itself: all that is called for it in a send is timed there, the clock's
own cost included, and stands beside the CPU time of the same sends without a ledger. Below that,
both contenders in turns: the median of many short rounds, each with the CPU time of the whole
process, the ledger's thread among it; new senders are made several times.
"""

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Any

from azure.servicebus import ServiceBusMessage

from benchmarks.harness import OURS, Figure, Unit
from benchmarks.pairing import BODY, FAST, namespace, paired
from pairbus.pairing import sdk
from pairbus.pairing.books import Books

WITHOUT = "without a ledger"
AIM = 0.99
PAIRS, ROUNDS, SENDS, BATCH = 3, 24, 150, 100
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
    """The CPU time that is spent in some functions, which are called in one thread."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            start = time.thread_time()
            try:
                return function(*args, **options)
            finally:
                self.seconds += time.thread_time() - start

        return timed


def _own_parts(primary: Any, secondary: Any, folder: str) -> tuple[float, float]:
    """What is called for the ledger in a single and in a batched send, in µs a message."""
    parts = [(sdk, "_sizes"), (sdk, "_keep"), (Books, "sent")]
    kept = [getattr(place, name) for place, name in parts]
    watch = Stopwatch()
    try:
        for (place, name), function in zip(parts, kept, strict=True):
            setattr(place, name, watch.around(function))
        with (
            paired(primary, secondary, {"ledger": folder}, **FAST) as bus,
            bus.get_queue_sender("orders") as sender,
        ):
            return _own_part(sender, watch, _single), _own_part(sender, watch, _batched)
    finally:
        for (place, name), function in zip(parts, kept, strict=True):
            setattr(place, name, function)


def _own_part(sender: Any, watch: Stopwatch, work: Any) -> float:
    work(sender)
    watch.seconds = 0.0
    messages = sum(work(sender) for _ in range(ROUNDS))
    assert watch.seconds > 0, "nothing was called for the ledger"
    return watch.seconds / messages * 1e6


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
