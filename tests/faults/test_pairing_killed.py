"""Namespaces that are killed under load, with `kill -9`, at random times, and restarted.

Every message that a pairing acknowledged is in the primary or in the backlog, by message id. Other
messages may be in either or in none. A message has a duplicate only if it was in flight when a
namespace was killed.
"""

import asyncio
import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus.errors import SendUnavailable
from tests.faults.bounded_calls import bounded, in_thread, pairbus_threads
from tests.faults.namespace_process import Namespace, backlog_path, wait_until
from tests.faults.paired_clients import enter, paired

pytestmark = pytest.mark.timeout(600)

QUEUE = "orders"
WORKERS = 8
NAME = "primary"
QUEUES = 3
KILLS = 3
PAUSE_S = 0.01
"""The pause of a worker between two calls, which fail at once while everything is down."""
MESSAGES = 100
"""The smallest number of successful calls between two kills."""


@pytest.fixture(autouse=True)
def _collect_sockets(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Collect the sockets of the SDK within the test that ignores their warnings. Log records keep
    errors alive, and errors keep sockets alive."""
    yield
    caplog.get_records("call").clear()
    gc.collect()


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[Namespace]:
    namespace = Namespace("primary", tmp_path / "primary", QUEUE)
    yield namespace
    namespace.close()


@pytest.fixture
def secondary(tmp_path: Path) -> Iterator[Namespace]:
    namespace = Namespace("secondary", tmp_path / "secondary")
    yield namespace
    namespace.close()


@pytest.fixture
def seed() -> int:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return seed


@dataclass
class Sent:
    """One call: its ids, its start and end, and its error."""

    ids: list[str]
    began: float
    ended: float = 0.0
    error: Exception | None = None


@dataclass
class Load:
    """Workers that send, each with its own sender, until they are stopped."""

    seed: int
    calls: list[Sent] = field(default_factory=list)
    stop: bool = False
    unavailable: int = 0
    """The number of calls that raised SendUnavailable."""
    succeeded: int = 0
    """The number of messages that were acknowledged."""

    async def work(self, sender: Any, number: int) -> None:
        chance = random.Random(self.seed + number)
        await enter(sender)
        while not self.stop:
            call = Sent(
                [str(uuid4()) for _ in range(chance.choice([1, 1, 3, 10]))], time.monotonic()
            )
            try:
                if len(call.ids) == 10:
                    batch = await bounded(sender.create_message_batch)
                    for id in call.ids:
                        batch.add_message(message(id))
                    await bounded(sender.send_messages, batch)
                elif len(call.ids) == 3:
                    await bounded(sender.send_messages, [message(id) for id in call.ids])
                else:
                    await bounded(sender.send_messages, message(call.ids[0]))
            except (SendUnavailable, ServiceBusError) as exc:
                call.error = exc
                self.unavailable += isinstance(exc, SendUnavailable)
            else:
                self.succeeded += len(call.ids)
            call.ended = time.monotonic()
            self.calls.append(call)
            await asyncio.sleep(PAUSE_S)
        await bounded(sender.close)

    @property
    def acknowledged(self) -> set[str]:
        return {id for call in self.calls if call.error is None for id in call.ids}

    def wait_for_progress(self, chance: random.Random) -> None:
        """Wait until calls succeed again, and for a random time after that. A sender of the SDK
        takes half a second or more to open."""
        before = self.succeeded
        wait_until(lambda: self.succeeded > before + MESSAGES, "calls to succeed")
        time.sleep(chance.uniform(0, 1))


def message(id: str) -> ServiceBusMessage:
    return ServiceBusMessage(b"x" * 100, message_id=id)


Period = tuple[float, float]
Kill = Callable[[Load, random.Random], list[Period]]


def timed(kill: Callable[[], None]) -> Period:
    """Run a kill, and return its start and end."""
    began = time.monotonic()
    kill()
    return began, time.monotonic()


async def under_load(
    flavour: str, primary: Namespace, secondary: Namespace, seed: int, kill: Kill
) -> tuple[Load, list[Period]]:
    """Kill namespaces under load. Return all calls and the times of the kills."""
    load = Load(seed)
    async with paired(
        flavour,
        primary,
        secondary,
        NAME,
        backlog_queue_count=QUEUES,
        ping_primary_interval=timedelta(seconds=1),
        backlog_cool_down=timedelta(milliseconds=200),
        operation_timeout=timedelta(seconds=20),
    ) as bus:
        senders = [bus.get_queue_sender(QUEUE) for _ in range(WORKERS)]
        workers = [asyncio.ensure_future(load.work(sender, n)) for n, sender in enumerate(senders)]
        try:
            kills = await asyncio.wrap_future(in_thread(kill, load, random.Random(seed)))
        finally:
            load.stop = True
            await asyncio.gather(*workers)
    return load, kills


def check(
    load: Load, kills: list[Period], primary: Namespace, secondary: Namespace
) -> Counter[str]:
    """Check that no acknowledged message is lost, and that duplicates are explained."""
    stored = Counter(primary.ids(QUEUE))
    backlog = Counter(
        id for index in range(QUEUES) for id in secondary.ids(backlog_path(NAME, index))
    )
    copies = stored + backlog
    lost = load.acknowledged - copies.keys()
    assert not lost
    assert copies.keys() <= {id for call in load.calls for id in call.ids}
    unexplained = [
        call
        for call in load.calls
        if any(copies[id] > 1 for id in call.ids)
        and not any(call.began <= ended and began <= call.ended for began, ended in kills)
    ]
    assert not unexplained
    assert stored.total() > MESSAGES
    assert backlog.total() > MESSAGES
    failed = Counter(type(call.error).__name__ for call in load.calls if call.error is not None)
    summary = {
        "calls": len(load.calls),
        "in the primary": stored.total(),
        "in the backlog": backlog.total(),
        "twice": sum(number > 1 for number in copies.values()),
        **failed,
    }
    print(summary)
    return Counter(summary)


@pytest.mark.rule("X1", "X2", "S5")
async def test_primary_that_is_killed_repeatedly_loses_no_acknowledged_message(
    flavour: str, primary: Namespace, secondary: Namespace, seed: int
) -> None:
    def kill(load: Load, chance: random.Random) -> list[Period]:
        kills = []
        for _ in range(KILLS):
            load.wait_for_progress(chance)
            kills.append(timed(primary.kill))
            load.wait_for_progress(chance)
            primary.start()
        time.sleep(2)  # for a ping, and for sends to the primary
        return kills

    load, kills = await under_load(flavour, primary, secondary, seed, kill)
    assert primary.kills == KILLS
    check(load, kills, primary, secondary)
    # The backlog accepted all messages that the primary did not.
    assert [call.error for call in load.calls if call.error is not None] == []
    await bounded(wait_until, lambda: not pairbus_threads(), "threads to end")


@pytest.mark.rule("X1", "X2", "S5", "S4")
async def test_secondary_that_is_killed_during_an_outage_loses_no_acknowledged_message(
    flavour: str, primary: Namespace, secondary: Namespace, seed: int
) -> None:
    def kill(load: Load, chance: random.Random) -> list[Period]:
        load.wait_for_progress(chance)
        kills = [timed(primary.kill)]
        for _ in range(KILLS):
            load.wait_for_progress(chance)
            failed = load.unavailable
            kills.append(timed(secondary.kill))
            wait_until(lambda: load.unavailable > failed, "calls to fail")  # noqa: B023
            secondary.start()
        load.wait_for_progress(chance)
        primary.start()
        time.sleep(2)
        return kills

    load, kills = await under_load(flavour, primary, secondary, seed, kill)
    assert (primary.kills, secondary.kills) == (1, KILLS)
    summary = check(load, kills, primary, secondary)
    # While both namespaces were down, calls raised errors.
    assert summary["SendUnavailable"] > 0
    await bounded(wait_until, lambda: not pairbus_threads(), "threads to end")
