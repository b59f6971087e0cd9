"""Measures the CPU time that an option adds to a healthy paired sender.

Two identical processes differ by a few percent, and an option adds less than that. So its code is
measured directly, with a `Stopwatch`. Sender processes that run in turns show the total.
"""

import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from statistics import median
from typing import Any

from azure.servicebus import ServiceBusMessage

from benchmarks.harness import Unit
from benchmarks.pairing import FAST, NamespaceAddress, paired
from benchmarks.send_blocks import BODY

ROUNDS, SENDS, BATCH = 20, 192, 100
SPAWN = multiprocessing.get_context("spawn")
CPU_TIME = Unit("CPU µs per message, healthy")

Send = Callable[[Any], int]
"""Sends with a sender, and returns the number of messages."""


def send_singles(sender: Any) -> int:
    """Send single messages."""
    for _ in range(SENDS):
        sender.send_messages(ServiceBusMessage(BODY))
    return SENDS


def send_batches(sender: Any) -> int:
    """Send batches."""
    for _ in range(10):
        batch = sender.create_message_batch()
        for _ in range(BATCH):
            batch.add_message(ServiceBusMessage(BODY))
        sender.send_messages(batch)
    return 10 * BATCH


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

    def rounds(self, sender: Any, send: Send) -> list[tuple[int, int, int]]:
        """Return nanoseconds, calls and messages of each round."""
        send(sender)
        results = []
        for _ in range(ROUNDS):
            self.ns = self.calls = 0
            messages = send(sender)
            results.append((self.ns, self.calls, messages))
        return results


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of each contender."""
    return {contender: median(values) for contender, values in times.items()}


@contextmanager
def sender_process(
    primary: NamespaceAddress,
    secondary: NamespaceAddress,
    options: dict[str, Any],
    prepare: Callable[[], object] | None = None,
) -> Iterator[Any]:
    """Provide the pipe of a sender process, which measures the CPU time per message. `prepare` is
    called in the process before it pairs."""
    parent_end, child_end = SPAWN.Pipe()
    addresses = primary.connection_string, secondary.connection_string
    process = SPAWN.Process(target=_serve, args=(child_end, *addresses, options, prepare))
    process.start()
    child_end.close()
    try:
        yield parent_end
    finally:
        parent_end.close()
        process.join()


def _serve(
    pipe: Any,
    primary: str,
    secondary: str,
    options: dict[str, Any],
    prepare: Callable[[], object] | None,
) -> None:
    if prepare is not None:
        prepare()
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


def measure_in_turns(
    processes: list[tuple[str, Any]], send: Send, times: dict[str, list[float]]
) -> None:
    """Let the processes send in turns, in random order, and add the time of each round."""
    for number in range(ROUNDS + 1):
        for contender, pipe in random.sample(processes, len(processes)):
            pipe.send(send)
            microseconds = pipe.recv()
            if number > 0:  # The first round opens links.
                times[contender].append(microseconds)
