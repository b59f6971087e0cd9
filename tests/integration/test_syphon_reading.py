"""Tasks of a syphon that read backlog queues of an emulator and forward the messages, without
Spark: order behind locks of others, and locks that are short."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark import TaskContext

from pairbus.amqp.client import Client, ClientOptions, Receiver
from pairbus.emulator.namespace import LocalNamespace
from pairbus.spark import connections
from pairbus.spark.forwarder import Forwarder
from pairbus.spark.locks import wall_clock_ms
from pairbus.spark.messages import ReceivedMessage, RestoredMessage
from pairbus.spark.outcome import Outcome
from pairbus.spark.plans import PartitionPlan
from pairbus.syphon.packed_rows import messages_of
from pairbus.syphon.source import MAX_HELD, backlog_reader
from pairbus.usage.operations import OperationKind
from pairbus.usage.records import read_operations
from tests.backlog import Backlog
from tests.messages import message, numbered
from tests.tiers import TEST_TIER

MINUTE = timedelta(minutes=1)


@pytest.fixture
def namespaces() -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with (
        LocalNamespace("primary", tier=TEST_TIER) as primary,
        LocalNamespace("secondary", tier=TEST_TIER) as secondary,
    ):
        yield primary, secondary
        connections.close_all()


class Tasks:
    """Runs tasks that read a backlog queue and forward its messages."""

    def __init__(self, backlog: Backlog, ledger: Path) -> None:
        self.backlog = backlog
        self.ledger = ledger
        self.options = backlog.options(ledger=str(ledger))
        self.queue = backlog.queues[0]

    def read(self, *first: ReceivedMessage, count: int = 100_000) -> list[RestoredMessage]:
        plan = PartitionPlan((self.queue,), first, count, frozenset())
        return [
            message
            for batch in backlog_reader(self.options).read(plan)
            for message in messages_of(batch)
        ]

    def forward(self, messages: list[RestoredMessage]) -> Outcome:
        forwarder = Forwarder(self.options.primary, self.options.secondary)
        forwarder.forward(messages)
        return forwarder.finish()

    def lock(self, count: int) -> list[ReceivedMessage]:
        """Lock the first messages, as a syphon does that is killed afterwards."""
        options = ClientOptions.from_connection_string(self.backlog.secondary.connection_string)
        with Client(options) as client, Receiver(client, self.queue, confirm=False) as receiver:
            return [
                ReceivedMessage(self.queue, d.payload, d.tag, wall_clock_ms() + 60_000, 60_000)
                for part in receiver.receive_available(count)
                for d in part
            ]

    def metered(self) -> Counter[str]:
        """Return the operations on the queue by kind."""
        meter = self.backlog.secondary.meter().items()
        return Counter({k: r.operations for (path, k), r in meter if path == self.queue})

    def recorded(self, kind: OperationKind) -> int:
        return sum(
            record["operations"]
            for record in read_operations(self.ledger)
            if record["answered"] and record["kind"] == kind.value
        )


@pytest.fixture
def tasks(namespaces: tuple[LocalNamespace, LocalNamespace], tmp_path: Path) -> Tasks:
    return Tasks(Backlog(*namespaces, lock_duration=MINUTE), tmp_path)


@pytest.mark.rule("Y10", "C5")
def test_sessions_wait_for_messages_that_a_killed_syphon_has_locked(tasks: Tasks) -> None:
    path = tasks.backlog.path("orders")
    names = ("a", "b", None)
    payloads = [message(f"{s}-{n}", session=s) for n in range(3) for s in names]
    tasks.backlog.put(path, payloads)
    assert len(tasks.lock(1)) == 1  # a-0

    outcome = tasks.forward(tasks.read())

    assert outcome.moved[path] == 6
    assert tasks.backlog.ids(path) == ["b-0", "None-0", "b-1", "None-1", "b-2", "None-2"]
    assert tasks.metered()["abandon"] == tasks.recorded(OperationKind.ABANDON) == 2
    assert tasks.metered()["peek"] == tasks.recorded(OperationKind.PEEK) == 1

    tasks.backlog.secondary.advance(2 * MINUTE)  # the lock expires
    assert tasks.forward(tasks.read()).moved[path] == 3
    assert tasks.backlog.ids(path)[6:] == ["a-0", "a-1", "a-2"]
    assert tasks.backlog.left() == 0


@pytest.mark.rule("Y10")
def test_messages_without_sessions_cost_no_peek(tasks: Tasks) -> None:
    path = tasks.backlog.path("orders")
    tasks.backlog.put(path, numbered(300))
    assert len(tasks.lock(7)) == 7

    assert tasks.forward(tasks.read()).moved[path] == 293
    assert tasks.metered()["peek"] == 0


@pytest.mark.unlimited  # more messages than the Standard tier takes in a second
@pytest.mark.rule("Y10")
def test_large_batch_of_sessions_costs_one_peek(tasks: Tasks) -> None:
    path = tasks.backlog.path("orders")
    tasks.backlog.put(path, [message(f"{n}", session=f"s{n % 7}") for n in range(5000)])

    assert tasks.forward(tasks.read()).moved[path] == 5000
    assert tasks.backlog.ids(path) == [f"{n}" for n in range(5000)]
    assert tasks.metered()["peek"] == 0  # the queue was new, so nothing could be before them
    tasks.backlog.put(path, [message("last", session="s1")])
    assert tasks.forward(tasks.read()).moved[path] == 1
    assert tasks.metered()["peek"] == 1


@pytest.mark.unlimited  # more messages than the Standard tier takes in a second
@pytest.mark.rule("Y10")
def test_task_stops_receiving_when_many_messages_wait_for_others(tasks: Tasks) -> None:
    path = tasks.backlog.path("orders")
    tasks.backlog.put(path, numbered(4 * MAX_HELD, session="s"))
    assert len(tasks.lock(1)) == 1

    assert tasks.read() == []

    received = tasks.metered()["receive"] - 1
    assert MAX_HELD <= received <= 2 * MAX_HELD
    assert tasks.metered()["abandon"] == received


@pytest.mark.rule("Y8", "Y10")
def test_second_attempt_of_a_task_drops_a_first_message_that_was_completed(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tasks.backlog.path("orders")
    tasks.backlog.put(path, numbered(4, session="s"))
    [first] = tasks.lock(1)
    assert tasks.forward(tasks.read(first, count=2)).moved[path] == 2

    class SecondAttempt(TaskContext):
        def attemptNumber(self) -> int:  # noqa: N802
            return 1

    monkeypatch.setattr(TaskContext, "get", staticmethod(SecondAttempt))
    assert tasks.forward(tasks.read(first)).moved[path] == 2
    assert tasks.backlog.ids(path) == [f"m-{n}" for n in range(4)]


@pytest.mark.rule("Y8", "Y13", "C5")
def test_late_task_renews_the_lock_of_its_first_message(tasks: Tasks) -> None:
    path = tasks.backlog.path("orders")
    tasks.backlog.put(path, numbered(2))
    [first] = tasks.lock(1)
    late = first._replace(locked_until=wall_clock_ms() + 15_000)

    messages = tasks.read(late)

    assert tasks.metered()["renew"] == tasks.recorded(OperationKind.RENEW) == 1
    assert min(m.locked_until for m in messages) > wall_clock_ms() + 40_000
    assert tasks.forward(messages).moved[path] == 2
    assert tasks.backlog.left() == 0


@pytest.mark.unlimited  # more messages than the Standard tier takes in a second
@pytest.mark.rule("Y13")
def test_messages_with_short_locks_are_received_and_sent_once(
    namespaces: tuple[LocalNamespace, LocalNamespace], tmp_path: Path
) -> None:
    tasks = Tasks(Backlog(*namespaces, lock_duration=timedelta(seconds=10)), tmp_path)
    path = tasks.backlog.path("orders")
    tasks.backlog.put(path, numbered(2000))

    messages = tasks.read()
    remaining = [m.locked_until - wall_clock_ms() for m in messages]
    assert max(remaining) <= 10_000
    assert tasks.forward(messages).moved[path] == 2000

    assert tasks.backlog.ids(path) == [f"m-{n}" for n in range(2000)]
    assert tasks.metered()["receive"] == tasks.metered()["complete"] == 2000
