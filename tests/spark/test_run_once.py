"""A run with `once` ends when every backlog queue is known to be empty, or when it is stuck."""

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus.usage.operations import OperationKind
from pairbus.usage.records import read_operations
from tests.backlog import Backlog
from tests.messages import message, numbered
from tests.spark.conftest import Drain
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.rule("Y8")]


@pytest.fixture
def lock_duration() -> timedelta:
    return timedelta(seconds=5)


def test_run_that_drained_the_backlog_has_peeked_at_each_queue(
    backlog: Backlog, drain: Drain, tmp_path: Path
) -> None:
    path = backlog.path("orders")
    backlog.put(path, numbered(20))

    status = drain(ledger=str(tmp_path))

    assert (status.drained, status.healthy, status.moved) == (True, True, Counter({path: 20}))
    assert backlog.left() == 0
    peeks = peeks_in(tmp_path)
    assert set(peeks) >= set(backlog.queues)
    assert peeks.total() == backlog.peeks()


@pytest.mark.rule("C5")
def test_run_waits_for_messages_of_another_receiver_and_records_its_peeks(
    backlog: Backlog, drain: Drain, tmp_path: Path
) -> None:
    path = backlog.path("orders")
    backlog.put(path, numbered(5))
    began = time.monotonic()
    with backlog.locked(5) as locked:

        def complete_later() -> None:
            wait_until(lambda: backlog.peeks() >= 3, "the check to be repeated")
            locked.complete()

        status = drain(complete_later, ledger=str(tmp_path))
    seconds = time.monotonic() - began

    assert (status.drained, status.moved.total()) == (True, 0)
    assert backlog.left() == 0
    assert peeks_in(tmp_path).total() == backlog.peeks()
    assert peeks_in(tmp_path)[path] >= 2
    # There is at most one check a second, with one peek; the last check peeks at each queue.
    assert backlog.peeks() <= seconds + 2 * len(backlog.queues)


def test_run_with_a_deferred_and_a_scheduled_message_ends_as_stuck(
    backlog: Backlog, drain: Drain
) -> None:
    path = backlog.path("orders")
    backlog.put(path, [message("deferred")])
    with backlog.locked(1) as locked:
        locked.defer()
    with (
        ServiceBusClient.from_connection_string(backlog.secondary.connection_string) as client,
        client.get_queue_sender(backlog.queues[1]) as sender,
    ):
        sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
    backlog.put(path, [message("moved")])

    status = drain(stuck_after=timedelta(seconds=3))

    assert (status.drained, status.healthy) == (False, False)
    assert (status.problem or "").endswith(
        "2 messages are left in the backlog: 1 deferred, 1 scheduled)"
    )
    assert backlog.ids(path) == ["moved"]


def test_run_with_a_filter_waits_only_for_messages_that_match(
    backlog: Backlog, drain: Drain
) -> None:
    wanted, other = backlog.path("wanted"), backlog.path("other")
    backlog.put(wanted, [message("w-0")])
    backlog.put(other, [message("o-0"), message("o-1")], queue=1)
    with backlog.locked(1) as locked, backlog.locked(2, queue=1):
        status = drain(locked.stop_renewing, only=(wanted,))

    assert (status.drained, status.moved) == (True, Counter({wanted: 1}))
    assert backlog.ids(wanted) == ["w-0"]
    assert backlog.left() == 2


def test_run_with_a_filter_ends_as_stuck_when_a_matching_message_stays_locked(
    backlog: Backlog, drain: Drain
) -> None:
    wanted, other = backlog.path("wanted"), backlog.path("other")
    backlog.put(wanted, [message("w-0")])
    # This message is received again every five seconds.
    backlog.put(other, [message("o-0")], queue=1)
    with backlog.locked(1):
        status = drain(only=(wanted,), stuck_after=timedelta(seconds=12))

    assert not status.drained
    assert (status.problem or "").endswith(
        "1 message is left in the backlog: 1 locked by another receiver)"
    )
    assert backlog.left() == 2


def peeks_in(ledger: Path) -> Counter[str]:
    """Return the peeks in the ledger, by entity."""
    peeks: Counter[str] = Counter()
    for record in read_operations(ledger):
        if record["kind"] == OperationKind.PEEK.value and record["answered"]:
            peeks[record["entity"]] += record["operations"]
    return peeks
