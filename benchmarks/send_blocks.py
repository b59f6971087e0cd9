"""Blocks of sends: the same work with senders of two contenders, in turns.

The senders and their threads stay open between the blocks. A block of several senders uses a thread
for each, or a task in the asynchronous flavour.

Blocks are short and many. What slows a few calls, such as other programs, a checkpoint of the
namespace or threads that take the interpreter's lock from each other, lasts for some time: in long
blocks it would meet one contender and not the other.

The time of a call includes the creation of the message or batch that it sends: pairbus and the SDK
encode messages at different moments.
"""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from statistics import median
from time import perf_counter, process_time
from typing import Any

from azure.servicebus import ServiceBusMessage

BODY = b"x" * 200
PROPERTIES: Any = {"tenant": "contoso", "priority": 3, "express": True}
SENDS, BATCHES, BATCH = 48, 8, 100
"""The sends of a block, or its batches and their messages."""


@dataclass(frozen=True, slots=True)
class Work:
    """What the senders of a block do together."""

    name: str
    batched: bool
    properties: Any = None

    def message(self) -> ServiceBusMessage:
        return ServiceBusMessage(BODY, application_properties=self.properties)

    def calls(self, senders: int) -> int:
        """Return the number of calls of each sender."""
        return (BATCHES if self.batched else SENDS) // senders

    @property
    def messages(self) -> int:
        """The number of messages of each call."""
        return BATCH if self.batched else 1


ALL_WORK = (
    Work("single", batched=False),
    Work("single, with application properties", batched=False, properties=PROPERTIES),
    Work("batched", batched=True),
    Work("batched, with application properties", batched=True, properties=PROPERTIES),
)


@dataclass(frozen=True, slots=True)
class Block:
    """The measurements of a block."""

    messages: int
    seconds: float
    cpu_seconds: float
    """The CPU time of this process."""
    call_times: list[float]

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time of a message, in microseconds."""
        return self.cpu_seconds / self.messages * 1e6


def median_rate(blocks: Sequence[Block]) -> float:
    """Return the median of the rates of some blocks."""
    return median(block.rate for block in blocks)


def median_cpu_us(blocks: Sequence[Block]) -> float:
    """Return the median of the CPU times of a message in some blocks, in microseconds."""
    return median(block.cpu_us for block in blocks)


def percentile_ms(blocks: Sequence[Block]) -> float:
    """Return the 99th percentile of the times of all calls of some blocks, in milliseconds."""
    call_times = sorted(chain.from_iterable(block.call_times for block in blocks))
    return call_times[int(len(call_times) * 0.99)] * 1000


Contender = Callable[[Work], Block]
"""Runs one block of some work with the senders of a contender."""


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Exclude all existing objects from garbage collections, so that the collection before each
    block is short."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _measured(run: Callable[[list[float]], float], messages: int) -> Block:
    """Run a block without garbage collections. `run` returns the time of its end."""
    call_times: list[float] = []
    gc.collect()
    gc.disable()
    try:
        cpu, start = process_time(), perf_counter()
        end = run(call_times)
        return Block(messages, end - start, process_time() - cpu, call_times)
    finally:
        gc.enable()


@contextmanager
def threads(senders: list[Any]) -> Iterator[Contender]:
    """Provide a contender with a thread for each of some senders."""

    def send(sender: Any, work: Work, call_times: list[float]) -> None:
        for _ in range(work.calls(len(senders))):
            start = perf_counter()
            if work.batched:
                messages: Any = sender.create_message_batch()
                for _ in range(BATCH):
                    messages.add_message(work.message())
            else:
                messages = work.message()
            sender.send_messages(messages)
            call_times.append(perf_counter() - start)

    def run_block(work: Work) -> Block:
        def run(call_times: list[float]) -> float:
            if len(senders) == 1:
                send(senders[0], work, call_times)
            else:
                calls = [pool.submit(send, sender, work, call_times) for sender in senders]
                for call in calls:
                    call.result()
            return perf_counter()

        return _measured(run, work.calls(len(senders)) * len(senders) * work.messages)

    with ThreadPoolExecutor(len(senders)) as pool:
        yield run_block


def tasks(senders: list[Any], runner: asyncio.Runner) -> Contender:
    """Return a contender with a task for each of some asynchronous senders."""

    async def send(sender: Any, work: Work, call_times: list[float]) -> None:
        for _ in range(work.calls(len(senders))):
            start = perf_counter()
            if work.batched:
                messages: Any = await sender.create_message_batch()
                for _ in range(BATCH):
                    messages.add_message(work.message())
            else:
                messages = work.message()
            await sender.send_messages(messages)
            call_times.append(perf_counter() - start)

    async def send_all(work: Work, call_times: list[float]) -> float:
        await asyncio.gather(*(send(sender, work, call_times) for sender in senders))
        return perf_counter()

    def run_block(work: Work) -> Block:
        calls = work.calls(len(senders)) * len(senders)
        return _measured(
            lambda call_times: runner.run(send_all(work, call_times)), calls * work.messages
        )

    return run_block


async def gathered(work: list[Awaitable[Any]]) -> list[Any]:
    """Await some work side by side."""
    return await asyncio.gather(*work)
