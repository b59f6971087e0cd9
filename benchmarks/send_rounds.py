"""Rounds of sends: the same work with senders of two contenders, in turns.

The senders stay open between the rounds. A round of several senders uses a thread for each, or a
task in the asynchronous flavour.
"""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

from azure.servicebus import ServiceBusMessage

BODY = b"x" * 200
PROPERTIES: Any = {"tenant": "contoso", "priority": 3, "express": True}
SENDS, BATCHES, BATCH = 240, 16, 100
"""The sends of a round, or its batches and their messages."""


@dataclass(frozen=True, slots=True)
class Work:
    """What the senders of a round do together."""

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
class Round:
    """The measurements of a round."""

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

    @property
    def percentile_ms(self) -> float:
        """The 99th percentile of the time of a call, in milliseconds."""
        return sorted(self.call_times)[int(len(self.call_times) * 0.99)] * 1000


Contender = Callable[[Work], Round]
"""Runs one round of some work with the senders of a contender."""


def _measured(run: Callable[[list[float]], float], messages: int) -> Round:
    """Run a round without garbage collections. `run` returns the time of its end."""
    call_times: list[float] = []
    gc.collect()
    gc.disable()
    try:
        cpu, start = process_time(), perf_counter()
        end = run(call_times)
        return Round(messages, end - start, process_time() - cpu, call_times)
    finally:
        gc.enable()


def threads(senders: list[Any]) -> Contender:
    """Return a contender with a thread for each of some senders."""

    def send(sender: Any, work: Work, call_times: list[float]) -> None:
        for _ in range(work.calls(len(senders))):
            if work.batched:
                messages: Any = sender.create_message_batch()
                for _ in range(BATCH):
                    messages.add_message(work.message())
            else:
                messages = work.message()
            start = perf_counter()
            sender.send_messages(messages)
            call_times.append(perf_counter() - start)

    def run_round(work: Work) -> Round:
        calls = work.calls(len(senders)) * len(senders)

        def run(call_times: list[float]) -> float:
            if len(senders) == 1:
                send(senders[0], work, call_times)
            else:
                workers = [
                    threading.Thread(target=send, args=(sender, work, call_times))
                    for sender in senders
                ]
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()
            assert len(call_times) == calls, "a sender failed"
            return perf_counter()

        return _measured(run, calls * work.messages)

    return run_round


def tasks(senders: list[Any], runner: asyncio.Runner) -> Contender:
    """Return a contender with a task for each of some asynchronous senders."""

    async def send(sender: Any, work: Work, call_times: list[float]) -> None:
        for _ in range(work.calls(len(senders))):
            if work.batched:
                messages: Any = await sender.create_message_batch()
                for _ in range(BATCH):
                    messages.add_message(work.message())
            else:
                messages = work.message()
            start = perf_counter()
            await sender.send_messages(messages)
            call_times.append(perf_counter() - start)

    async def send_all(work: Work, call_times: list[float]) -> float:
        await asyncio.gather(*(send(sender, work, call_times) for sender in senders))
        return perf_counter()

    def run_round(work: Work) -> Round:
        calls = work.calls(len(senders)) * len(senders)
        return _measured(
            lambda call_times: runner.run(send_all(work, call_times)), calls * work.messages
        )

    return run_round


async def gathered(work: list[Awaitable[Any]]) -> list[Any]:
    """Await some work side by side."""
    return await asyncio.gather(*work)
