"""Namespaces that are killed under a syphon, and started again."""

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
from pairbus.spark.columns import RestoredMessage
from pairbus.spark.forwarder import Forwarder
from pairbus.spark.reader import PartitionPlan
from pairbus.syphon.source import BacklogReader
from tests.faults.pairing_kit import Namespace
from tests.faults.syphon_kit import DEADLINE_S, MANY, Cargo, Held, syphon, wait_until
from tests.spark.kit import Backlog, message

pytestmark = pytest.mark.timeout(900)


@pytest.mark.soak
@pytest.mark.rule("X1", "X2", "Y2", "Y5")
def test_a_primary_and_a_secondary_that_are_killed_in_the_middle_lose_nothing(
    tmp_path: Path,
) -> None:
    with (
        LocalNamespace("primary", folder=tmp_path / "primary") as primary,
        LocalNamespace("secondary", folder=tmp_path / "secondary") as secondary,
    ):
        backlog: Any = Backlog(primary, secondary, name="p", lock_duration=timedelta(seconds=5))
        cargo = Cargo(backlog, "orders")
    backlog.primary = Namespace("primary", tmp_path)
    backlog.secondary = Namespace("secondary", tmp_path)
    try:
        cargo.put(MANY)
        held = Held(backlog.primary.connection_string, cargo.exact)
        with syphon(backlog, tmp_path / "syphon") as process:
            wait_until(lambda: held.happened, "it to be in the middle")
            wait_until(lambda: bool(cargo.in_both_places()), "something to have arrived")
            backlog.primary.kill()
            wait_until(lambda: bool(process.record().errors), "the syphon to notice it")
            backlog.primary.start()
            wait_until(lambda: cargo.left() == 0, "the backlog to be empty")
            cargo.check()

            held = Held(backlog.primary.connection_string, cargo.exact, seconds=5)
            cargo.put(MANY)
            wait_until(lambda: held.happened, "it to be in the middle again")
            backlog.secondary.kill()
            backlog.secondary.start()
            wait_until(lambda: cargo.left() == 0, "the backlog to be empty again")
            process.stop()
        cargo.check()
        assert (backlog.primary.kills, backlog.secondary.kills) == (1, 1)
    finally:
        backlog.primary.close()
        backlog.secondary.close()


@pytest.fixture
def at_hand() -> Iterator[tuple[Backlog, Cargo]]:
    """A backlog that is read and sent on by this process."""
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        backlog = Backlog(primary, secondary, name="p")
        yield backlog, Cargo(backlog, "orders")
        connections.close_all()


def read(backlog: Backlog, folder: Path) -> Iterator[list[RestoredMessage]]:
    """What a task reads of the backlog, a few thousand messages at a time."""
    reader = BacklogReader(backlog.options(), folder / "record.json", 1)
    for batch in reader.read(PartitionPlan(tuple(backlog.queues), (), 100_000, frozenset())):
        columns = [column.to_pylist() for column in batch.columns]
        yield [RestoredMessage(*row) for row in zip(*columns, strict=True)]


@contextmanager
def hung(namespace: LocalNamespace) -> Iterator[None]:
    """A namespace that does nothing: what it is sent is not even read."""
    began, ended = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        ended.wait()

    namespace.call(lambda core: asyncio.get_running_loop().call_soon(hang))
    assert began.wait(DEADLINE_S)
    try:
        yield
    finally:
        ended.set()


@pytest.mark.rule("Y2")
def test_a_read_that_is_cut_off_gives_what_had_come(
    at_hand: tuple[Backlog, Cargo], tmp_path: Path
) -> None:
    backlog, cargo = at_hand
    cargo.put(5000, (0,), size=1000)

    batches = read(backlog, tmp_path)
    count = len(next(batches))
    backlog.secondary.stop()
    count += sum(map(len, batches))

    assert 0 < count < 10_000
    backlog.secondary.start()
    assert sum(map(len, read(backlog, tmp_path))) == 10_000


@pytest.mark.rule("Y2")
def test_a_secondary_that_hangs_is_not_asked_for_each_message(
    at_hand: tuple[Backlog, Cargo], tmp_path: Path
) -> None:
    backlog, cargo = at_hand
    cargo.put(2000)
    messages = [one for some in read(backlog, tmp_path) for one in some]
    options = backlog.options()
    impatient = replace(options.secondary, operation_timeout_s=2, connect_timeout_s=2)

    with hung(backlog.secondary):
        forwarder = Forwarder(options.primary, impatient)
        forwarder.take(messages)
        outcome = forwarder.finish()

    assert outcome.moved == Counter({cargo.exact: 2000, cargo.plain: 2000})
    assert outcome.unsettled == 4000
    assert cargo.left() == 4000


@pytest.mark.rule("S12", "Y2")
def test_a_message_that_is_too_late_to_be_sent_is_passed_by_none_of_its_session(
    at_hand: tuple[Backlog, Cargo], tmp_path: Path
) -> None:
    backlog, cargo = at_hand
    backlog.put(cargo.plain, [message(f"{n}-{s}", session=s) for n in range(3) for s in "ab"])
    options = backlog.options()

    def forward(messages: list[RestoredMessage]) -> None:
        forwarder = Forwarder(options.primary, options.secondary)
        forwarder.take(messages)
        forwarder.finish()

    (messages,) = read(backlog, tmp_path)
    messages[2] = messages[2]._replace(locked_until=0)
    forward(messages)
    assert cargo.arrived(cargo.plain) == ["0-a", "0-b", "1-b", "2-b"]

    (again,) = read(backlog, tmp_path)
    forward(again)
    assert cargo.arrived(cargo.plain)[4:] == ["1-a", "2-a"]
