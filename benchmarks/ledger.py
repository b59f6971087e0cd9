"""The CPU time that a ledger adds to a healthy paired sender.

Two identical processes differ by a few percent on this machine, and a ledger adds less than that.
So the code of the ledger is measured directly. All functions that a send calls for it are timed,
minus the time of an empty call, and so are the functions that run later. The sum is added to the
CPU time of the same sends without a ledger. The lines "in turns" show the total CPU time of two
processes with and two without a ledger, which run in turns and are restarted several times. All
figures are medians of many short rounds.
"""

import tempfile
import time
from contextlib import ExitStack
from statistics import median

from benchmarks.harness import OURS, Figure
from benchmarks.pairing import FAST, NamespaceAddress, namespace, paired
from benchmarks.sender_cost import (
    CPU_TIME,
    Stopwatch,
    measure_in_turns,
    medians,
    send_batches,
    send_singles,
    sender_process,
)
from pairbus.pairing import sdk_transfers
from pairbus.pairing.sender_links import SenderLinks
from pairbus.usage.ledger import Ledger

WITHOUT = "without a ledger"
AIM = 0.99
RESTARTS = 4


def figures() -> list[Figure]:
    with ExitStack() as stack:
        primary, secondary = (stack.enter_context(namespace()) for _ in range(2))
        folder = stack.enter_context(tempfile.TemporaryDirectory("-ledger"))
        single: dict[str, list[float]] = {OURS: [], WITHOUT: []}
        batched: dict[str, list[float]] = {OURS: [], WITHOUT: []}
        for _ in range(RESTARTS):
            with ExitStack() as worker_stack:
                workers = [
                    (
                        contender,
                        worker_stack.enter_context(sender_process(primary, secondary, options)),
                    )
                    for contender, options in 2 * [(OURS, {"ledger": folder}), (WITHOUT, {})]
                ]
                measure_in_turns(workers, send_singles, single)
                measure_in_turns(workers, send_batches, batched)
        plain_single, plain_batched = median(single[WITHOUT]), median(batched[WITHOUT])
        added_single, added_batched = _measure_ledger_code(primary, secondary, folder)
        return [
            Figure("single sends", _with_added(plain_single, added_single), CPU_TIME, AIM),
            Figure("batched sends", _with_added(plain_batched, added_batched), CPU_TIME, AIM),
            Figure("single sends, in turns", medians(single), CPU_TIME),
            Figure("batched sends, in turns", medians(batched), CPU_TIME),
        ]


def _with_added(plain: float, added: float) -> dict[str, float]:
    return {OURS: plain + added, WITHOUT: plain}


def _measure_ledger_code(
    primary: NamespaceAddress, secondary: NamespaceAddress, folder: str
) -> list[float]:
    """Return the time for the ledger in single and in batched sends, in µs per message."""
    in_sends, later = Stopwatch(time.perf_counter_ns), Stopwatch(time.thread_time_ns)
    results = []
    with ExitStack() as stack:
        stack.enter_context(in_sends.around(SenderLinks, "primary_call_ended"))
        plain = stack.enter_context(paired(primary, secondary, {}, **FAST))
        sender = stack.enter_context(plain.get_queue_sender("orders"))
        empty_ns = median(ns / calls for ns, calls, _ in in_sends.rounds(sender, send_singles))

        for owner, name in ((sdk_transfers, "_message_sizes"), (sdk_transfers, "_add_sizes")):
            stack.enter_context(in_sends.around(owner, name))
        stack.enter_context(later.around(Ledger, "_sum_up"))
        client = stack.enter_context(paired(primary, secondary, {"ledger": folder}, **FAST))
        sender = stack.enter_context(client.get_queue_sender("orders"))
        for send in (send_singles, send_batches):
            later.ns = 0
            rounds = in_sends.rounds(sender, send)
            in_send_ns = median(
                (ns - calls * empty_ns) / messages for ns, calls, messages in rounds
            )
            later_ns = later.ns / sum(messages for _, _, messages in rounds)
            assert min(in_send_ns, later_ns) > 0, "no call for the ledger was measured"
            results.append((in_send_ns + later_ns) / 1e3)
    return results
