"""What a ledger costs a healthy paired sender, in CPU time of its process.

A rate differs by a tenth from one run to the next here, and a ledger costs less than that. So both
contenders send in turns, in many short rounds, the CPU time of the process is counted, the ledger's
thread among it, and the median round of each is compared: the best ones of two senders that do the
same differ by a tenth, too. For the same reason new senders are made several times.
"""

import tempfile
import time
from contextlib import ExitStack
from statistics import median
from typing import Any

from azure.servicebus import ServiceBusMessage

from benchmarks.harness import OURS, Figure, Unit
from benchmarks.pairing import BODY, FAST, namespace, paired

WITHOUT = "without a ledger"
AIM = 0.99
PAIRS, ROUNDS, SENDS, BATCH = 6, 24, 150, 100
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
        return [
            Figure("single sends", _medians(single), CPU, AIM),
            Figure("batched sends", _medians(batched), CPU, AIM),
        ]


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
