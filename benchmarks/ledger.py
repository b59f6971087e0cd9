"""The CPU time that a ledger adds to a healthy paired sender.

Two identical processes differ by a few percent on this machine, and a ledger adds less than that.
So the code of the ledger is measured directly. All functions that a send calls for it are timed,
minus the time of an empty call, and so are the functions that run later. The sum is added to the
CPU time of the same sends without a ledger. The lines "in turns" show the total CPU time of two
processes with and two without a ledger, which run in turns and are restarted several times. All
figures are medians of many short rounds.
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
from benchmarks.pairing import BODY, FAST, NamespaceAddress, namespace, paired
from pairbus.pairing import sdk
from pairbus.pairing.sender_base import SenderLinks
from pairbus.usage.ledger import Ledger

WITHOUT = "without a ledger"
AIM = 0.99
RESTARTS, ROUNDS, SENDS, BATCH = 4, 20, 150, 100
SPAWN = multiprocessing.get_context("spawn")
CPU_TIME = Unit("CPU µs per message, healthy")


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
                        worker_stack.enter_context(_worker(primary, secondary, options)),
                    )
                    for contender, options in 2 * [(OURS, {"ledger": folder}), (WITHOUT, {})]
                ]
                _measure_in_turns(workers, _send_singles, single)
                _measure_in_turns(workers, _send_batches, batched)
        plain_single, plain_batched = median(single[WITHOUT]), median(batched[WITHOUT])
        added_single, added_batched = _measure_ledger_code(primary, secondary, folder)
        return [
            Figure("single sends", _with_added(plain_single, added_single), CPU_TIME, AIM),
            Figure("batched sends", _with_added(plain_batched, added_batched), CPU_TIME, AIM),
            Figure("single sends, in turns", _medians(single), CPU_TIME),
            Figure("batched sends, in turns", _medians(batched), CPU_TIME),
        ]


def _with_added(plain: float, added: float) -> dict[str, float]:
    return {OURS: plain + added, WITHOUT: plain}


class Stopwatch:
    """Measures the time spent in functions."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.calls = 0
        self.ns = 0

    @contextmanager
    def around(self, owner: Any, name: str) -> Iterator[None]:
        """Time the calls of a function, which is replaced meanwhile."""
        function = getattr(owner, name)

        def timed(*args: Any, **options: Any) -> Any:
            start = self._clock()
            try:
                return function(*args, **options)
            finally:
                self.ns += self._clock() - start
                self.calls += 1

        setattr(owner, name, timed)
        try:
            yield
        finally:
            setattr(owner, name, function)

    def rounds(self, sender: Any, send: Any) -> list[tuple[int, int, int]]:
        """Return nanoseconds, calls and messages of each round."""
        send(sender)
        results = []
        for _ in range(ROUNDS):
            self.ns = self.calls = 0
            messages = send(sender)
            results.append((self.ns, self.calls, messages))
        return results


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
        empty_ns = median(ns / calls for ns, calls, _ in in_sends.rounds(sender, _send_singles))

        for owner, name in ((sdk, "_message_sizes"), (sdk, "_record")):
            stack.enter_context(in_sends.around(owner, name))
        stack.enter_context(later.around(Ledger, "_sum_up"))
        client = stack.enter_context(paired(primary, secondary, {"ledger": folder}, **FAST))
        sender = stack.enter_context(client.get_queue_sender("orders"))
        for send in (_send_singles, _send_batches):
            later.ns = 0
            rounds = in_sends.rounds(sender, send)
            in_send_ns = median(
                (ns - calls * empty_ns) / messages for ns, calls, messages in rounds
            )
            later_ns = later.ns / sum(messages for _, _, messages in rounds)
            assert min(in_send_ns, later_ns) > 0, "no call for the ledger was measured"
            results.append((in_send_ns + later_ns) / 1e3)
    return results


def _medians(times: dict[str, list[float]]) -> dict[str, float]:
    return {contender: median(values) for contender, values in times.items()}


@contextmanager
def _worker(
    primary: NamespaceAddress, secondary: NamespaceAddress, options: dict[str, Any]
) -> Iterator[Any]:
    """Provide the pipe of a sender process, which measures the CPU time per message."""
    parent_end, child_end = SPAWN.Pipe()
    arguments = (child_end, primary.connection_string, secondary.connection_string, options)
    process = SPAWN.Process(target=_serve, args=arguments)
    process.start()
    child_end.close()
    try:
        yield parent_end
    finally:
        parent_end.close()
        process.join()


def _serve(pipe: Any, primary: str, secondary: str, options: dict[str, Any]) -> None:
    with (
        paired(NamespaceAddress(primary), NamespaceAddress(secondary), options, **FAST) as client,
        client.get_queue_sender("orders") as sender,
        suppress(EOFError),
    ):
        while True:
            send = pipe.recv()
            start = time.process_time()
            messages = send(sender)
            pipe.send((time.process_time() - start) / messages * 1e6)


def _measure_in_turns(
    workers: list[tuple[str, Any]], send: Any, times: dict[str, list[float]]
) -> None:
    """Let the workers send in turns, in random order, and add the time of each round."""
    for number in range(ROUNDS + 1):
        for contender, worker in random.sample(workers, len(workers)):
            worker.send(send)
            microseconds = worker.recv()
            if number > 0:  # The first round opens links.
                times[contender].append(microseconds)


def _send_singles(sender: Any) -> int:
    for _ in range(SENDS):
        sender.send_messages(ServiceBusMessage(BODY))
    return SENDS


def _send_batches(sender: Any) -> int:
    for _ in range(10):
        batch = sender.create_message_batch()
        for _ in range(BATCH):
            batch.add_message(ServiceBusMessage(BODY))
        sender.send_messages(batch)
    return 10 * BATCH
