"""Namespaces that are killed and started again while a syphon drains the backlog."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pairbus.emulator.namespace import LocalNamespace
from pairbus.spark import connections
from pairbus.spark.forwarder import Forwarder
from pairbus.spark.messages import RestoredMessage
from pairbus.spark.plans import PartitionPlan
from pairbus.syphon.source import backlog_reader
from tests.faults.namespace_process import Namespace
from tests.faults.syphon_kit import (
    DEADLINE_S,
    MANY,
    BacklogMessages,
    DelayedAnswer,
    syphon,
    wait_until,
)
from tests.spark.kit import Backlog, message

pytestmark = pytest.mark.timeout(900)


@pytest.mark.soak
@pytest.mark.rule("X1", "X2", "Y2", "Y5")
def test_killed_primary_and_killed_secondary_lose_nothing(
    tmp_path: Path,
) -> None:
    with (
        LocalNamespace("primary", folder=tmp_path / "primary") as primary,
        LocalNamespace("secondary", folder=tmp_path / "secondary") as secondary,
    ):
        backlog: Any = Backlog(primary, secondary, name="p", lock_duration=timedelta(seconds=5))
        messages = BacklogMessages(backlog, "orders")
    backlog.primary = Namespace("primary", tmp_path)
    backlog.secondary = Namespace("secondary", tmp_path)
    try:
        messages.put(MANY)
        answer = DelayedAnswer(backlog.primary.connection_string, messages.exact)
        with syphon(backlog, tmp_path / "syphon") as process:
            wait_until(lambda: answer.happened, "a delivery without an answer")
            wait_until(lambda: bool(messages.in_both_places()), "a message to arrive")
            backlog.primary.kill()
            wait_until(lambda: bool(process.writer_status().errors), "an error of the syphon")
            backlog.primary.start()
            wait_until(lambda: messages.left() == 0, "the backlog to be empty")
            messages.check()

            answer = DelayedAnswer(backlog.primary.connection_string, messages.exact, seconds=5)
            messages.put(MANY)
            wait_until(lambda: answer.happened, "a second delivery without an answer")
            backlog.secondary.kill()
            backlog.secondary.start()
            wait_until(lambda: messages.left() == 0, "the backlog to be empty again")
            process.stop()
        messages.check()
        assert (backlog.primary.kills, backlog.secondary.kills) == (1, 1)
    finally:
        backlog.primary.close()
        backlog.secondary.close()


@pytest.fixture
def small_backlog() -> Iterator[tuple[Backlog, BacklogMessages]]:
    """A backlog that the test reads and forwards in its own process."""
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        backlog = Backlog(primary, secondary, name="p")
        yield backlog, BacklogMessages(backlog, "orders")
        connections.close_all()


def read(backlog: Backlog) -> Iterator[list[RestoredMessage]]:
    """Read the backlog as a task does, in batches of rows."""
    plan = PartitionPlan(tuple(backlog.queues), (), 100_000, frozenset())
    for batch in backlog_reader(backlog.options()).read(plan):
        columns = [column.to_pylist() for column in batch.columns]
        yield [RestoredMessage(*row) for row in zip(*columns, strict=True)]


@contextmanager
def hung(namespace: LocalNamespace) -> Iterator[None]:
    """Block the event loop of a namespace, so that it does not even read what it receives."""
    started, released = threading.Event(), threading.Event()

    def hang() -> None:
        started.set()
        released.wait()

    namespace.call(lambda core: asyncio.get_running_loop().call_soon(hang))
    assert started.wait(DEADLINE_S)
    try:
        yield
    finally:
        released.set()


@pytest.mark.rule("Y2")
def test_interrupted_read_returns_the_messages_received_so_far(
    small_backlog: tuple[Backlog, BacklogMessages],
) -> None:
    backlog, messages = small_backlog
    messages.put(5000, (0,), size=1000)

    batches = read(backlog)
    count = len(next(batches))
    backlog.secondary.stop()
    count += sum(map(len, batches))

    assert 0 < count < 10_000
    backlog.secondary.start()
    assert sum(map(len, read(backlog))) == 10_000


@pytest.mark.rule("Y2")
def test_settlement_at_a_hanging_secondary_does_not_wait_for_each_message(
    small_backlog: tuple[Backlog, BacklogMessages],
) -> None:
    backlog, messages = small_backlog
    messages.put(2000)
    received = [message for batch in read(backlog) for message in batch]
    options = backlog.options()
    short_timeouts = replace(options.secondary, operation_timeout_s=2, connect_timeout_s=2)

    with hung(backlog.secondary):
        forwarder = Forwarder(options.primary, short_timeouts)
        forwarder.forward(received)
        outcome = forwarder.finish()

    assert outcome.moved == Counter({messages.exact: 2000, messages.plain: 2000})
    assert outcome.unsettled == 4000
    assert messages.left() == 4000


@pytest.mark.rule("S12", "Y2")
def test_no_message_overtakes_one_of_its_session_whose_lock_expires(
    small_backlog: tuple[Backlog, BacklogMessages],
) -> None:
    backlog, messages = small_backlog
    backlog.put(messages.plain, [message(f"{n}-{s}", session=s) for n in range(3) for s in "ab"])
    options = backlog.options()

    def forward(batch: list[RestoredMessage]) -> None:
        forwarder = Forwarder(options.primary, options.secondary)
        forwarder.forward(batch)
        forwarder.finish()

    (batch,) = read(backlog)
    batch[2] = batch[2]._replace(locked_until=0)
    forward(batch)
    assert messages.arrived(messages.plain) == ["0-a", "0-b", "1-b", "2-b"]

    (second_batch,) = read(backlog)
    forward(second_batch)
    assert messages.arrived(messages.plain)[4:] == ["1-a", "2-a"]
