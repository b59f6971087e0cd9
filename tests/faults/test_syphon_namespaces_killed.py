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
from pairbus.syphon.packed_rows import messages_of
from pairbus.syphon.source import backlog_reader
from tests.backlog import Backlog
from tests.faults.backlog_messages import MANY, BacklogMessages
from tests.faults.namespace_process import Namespace
from tests.faults.syphon_process import SyphonProcess
from tests.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.timeout(900)


@pytest.mark.soak
@pytest.mark.rule("X1", "X2", "Y2", "Y5")
def test_killed_primary_and_killed_secondary_lose_nothing(tmp_path: Path) -> None:
    with (
        LocalNamespace("primary", folder=tmp_path / "primary") as primary,
        LocalNamespace("secondary", folder=tmp_path / "secondary") as secondary,
    ):
        backlog: Any = Backlog(primary, secondary, lock_duration=timedelta(seconds=5))
        messages = BacklogMessages(backlog)
    backlog.primary = Namespace("primary", tmp_path)
    backlog.secondary = Namespace("secondary", tmp_path)
    try:
        messages.put(MANY)
        answer = messages.delay_answer()
        syphon = SyphonProcess(tmp_path / "syphon", *backlog.arguments, **backlog.variables)
        with syphon as process:
            messages.wait_for_unsettled(answer)
            backlog.primary.kill()
            wait_until(lambda: process.writer_status().errors, "an error of the syphon")
            backlog.primary.start()
            messages.wait_until_drained()
            messages.check()

            answer = messages.delay_answer(seconds=5)
            messages.put(MANY)
            answer.wait()
            backlog.secondary.kill()
            backlog.secondary.start()
            messages.wait_until_drained()
            process.stop()
        messages.check()
        assert (backlog.primary.kills, backlog.secondary.kills) == (1, 1)
    finally:
        backlog.primary.close()
        backlog.secondary.close()


# A test that reads and forwards a backlog in its own process.


@pytest.fixture
def backlog(backlog: Backlog) -> Iterator[Backlog]:
    yield backlog
    connections.close_all()


def read(backlog: Backlog) -> Iterator[list[RestoredMessage]]:
    """Read the backlog as a task does, in batches of rows."""
    plan = PartitionPlan(tuple(backlog.queues), (), 100_000, frozenset())
    for batch in backlog_reader(backlog.options()).read(plan):
        yield messages_of(batch)


@contextmanager
def blocked(namespace: LocalNamespace) -> Iterator[None]:
    """Block the event loop of a namespace, so that it reads no data."""
    started, released = threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        released.wait()

    namespace.call(lambda core: asyncio.get_running_loop().call_soon(block))
    assert started.wait(DEADLINE_S)
    try:
        yield
    finally:
        released.set()


@pytest.mark.rule("Y2")
def test_interrupted_read_returns_the_messages_received_so_far(
    backlog: Backlog, messages: BacklogMessages
) -> None:
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
    backlog: Backlog, messages: BacklogMessages
) -> None:
    messages.put(2000)
    received = [message for batch in read(backlog) for message in batch]
    options = backlog.options()
    short_timeouts = replace(options.secondary, operation_timeout_s=2, connect_timeout_s=2)

    with blocked(backlog.secondary):
        forwarder = Forwarder(options.primary, short_timeouts)
        forwarder.forward(received)
        outcome = forwarder.finish()

    assert outcome.moved == Counter({messages.exact: 2000, messages.plain: 2000})
    assert outcome.unsettled == 4000
    assert messages.left() == 4000
