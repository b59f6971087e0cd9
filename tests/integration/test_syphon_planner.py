"""Planning of micro-batches in the driver, against emulators, without Spark."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from pairbus.amqp.client import Client, Receiver
from pairbus.emulator.namespace import LocalNamespace
from pairbus.spark import connections
from pairbus.spark.plans import BatchPlan
from pairbus.spark.stream_reader import BatchPlanner
from pairbus.syphon.sink import BacklogSink
from pairbus.syphon.source import backlog_reader, backlog_stream_reader
from pairbus.syphon.status_file import StatusFiles
from tests.backlog import Backlog
from tests.messages import id_of, message, numbered
from tests.tiers import TEST_TIER
from tests.waiting import DEADLINE_S, wait_until

SECOND = timedelta(seconds=1)


class Planned:
    """A backlog of two queues, and the planner of a syphon for it."""

    def __init__(self, primary: LocalNamespace, secondary: LocalNamespace, folder: Path) -> None:
        self.backlog = Backlog(primary, secondary, lock_duration=60 * SECOND)
        self.path = self.backlog.path("orders")
        self.files = StatusFiles(folder)
        self.planner: BatchPlanner | None = None

    def start(self, stuck_after: timedelta = 60 * SECOND) -> None:
        self.options = self.backlog.options(stuck_after=stuck_after)
        self.planner = backlog_stream_reader(self.options, self.files)._planner

    def run_once(self) -> int:
        """Run all micro-batches, as Spark does, and return their number."""
        batches = 0
        while (plan := self.next_batch()) is not None:
            batches += 1
            sink = BacklogSink(self.options, self.files)
            commits = [
                sink.write(backlog_reader(self.options).read(part))
                for part in plan.split(self.options.backlog_queues, 2, batches)
            ]
            sink.commit([*commits], batches)
        return batches

    def next_batch(self) -> BatchPlan | None:
        """Return the next micro-batch of a run with `once`."""
        assert self.planner is not None
        return self.planner.next_batch(available_now=True)

    def lock_first(self, queue: int = 0) -> None:
        """Lock the first message of a queue, as a syphon does that is killed afterwards."""
        options = self.backlog.options().secondary
        with Client(options) as client, Receiver(client, self.backlog.queues[queue]) as receiver:
            assert sum(map(len, receiver.receive_available(1))) == 1

    def metered(self, kind: str) -> list[int]:
        """Return the operations on each queue."""
        meter = self.backlog.secondary.meter()
        return [
            meter[queue, kind].operations if (queue, kind) in meter else 0
            for queue in self.backlog.queues
        ]


@pytest.fixture
def planned(tmp_path: Path) -> Iterator[Planned]:
    with (
        LocalNamespace("primary", tier=TEST_TIER) as primary,
        LocalNamespace("secondary", tier=TEST_TIER) as secondary,
    ):
        planned = Planned(primary, secondary, tmp_path)
        yield planned
        if planned.planner is not None:
            planned.planner.stop()
        connections.close_all()


@pytest.mark.unlimited  # more messages than the Standard tier takes in a second
@pytest.mark.rule("Y8")
def test_one_message_of_each_queue_is_received_for_a_dead_primary(planned: Planned) -> None:
    for queue in range(2):
        planned.backlog.put(planned.path, numbered(700), queue)
    planned.backlog.primary.stop()
    planned.start(stuck_after=2 * SECOND)

    assert planned.next_batch() is None

    status = planned.files.reader.read()
    assert not status.drained
    assert "the primary cannot be reached" in (status.remaining or "")
    assert planned.metered("receive") == [1, 1]
    assert planned.metered("peek") == [0, 0]


@pytest.mark.rule("Y8")
def test_messages_are_received_as_soon_as_the_primary_can_be_reached(planned: Planned) -> None:
    planned.backlog.put(planned.path, numbered(700))
    planned.backlog.primary.stop()
    planned.start()
    with ThreadPoolExecutor(1) as executor:
        batch = executor.submit(planned.next_batch)
        wait_until(lambda: planned.files.reader.read().remaining, "a probe")
        planned.backlog.primary.start()

        plan = batch.result(DEADLINE_S)

    assert plan is not None
    assert list(plan.first_messages) == planned.backlog.queues[:1]


@pytest.mark.rule("Y8")
def test_secondary_that_goes_away_after_the_first_messages_is_waited_for(planned: Planned) -> None:
    planned.backlog.put(planned.path, numbered(700))
    planned.start()
    assert planned.next_batch() is not None
    planned.backlog.secondary.stop()
    with ThreadPoolExecutor(1) as executor:
        batch = executor.submit(planned.next_batch)
        wait_until(lambda: planned.files.reader.read().error is not None, "the connection to end")
        planned.backlog.secondary.start()

        assert batch.result(DEADLINE_S) is not None


@pytest.mark.rule("Y10")
def test_queue_whose_session_another_receiver_has_locked_is_read_when_the_lock_is_over(
    planned: Planned,
) -> None:
    planned.backlog.put(planned.path, numbered(3, session="s"))
    planned.backlog.put(planned.path, [message("other", session="t")], queue=1)
    planned.lock_first()
    planned.start()

    first = planned.next_batch()

    assert first is not None
    assert list(first.first_messages) == planned.backlog.queues[1:]
    with ThreadPoolExecutor(1) as executor:
        batch = executor.submit(planned.next_batch)
        wait_until(lambda: planned.metered("peek")[0] >= 3, "the check to be repeated")
        # By the other receiver, and by the poll, which has abandoned its message twice.
        assert planned.metered("receive")[0] <= 2 + 2
        planned.backlog.secondary.advance(61 * SECOND)
        second = batch.result(DEADLINE_S)
    assert second is not None
    if list(second.first_messages) == planned.backlog.queues[1:]:  # its lock has expired, too
        second = planned.next_batch()
        assert second is not None
    assert id_of(second.first_messages[planned.backlog.queues[0]].payload) == "m-0"


@pytest.mark.rule("Y8", "Y10")
def test_run_keeps_the_order_of_sessions_behind_messages_that_another_receiver_has_locked(
    planned: Planned,
) -> None:
    ids = [f"{n}" for n in range(600)]
    planned.backlog.put(planned.path, [message(id, session=f"s{int(id) % 2}") for id in ids])
    for _ in range(3):
        planned.lock_first()
    planned.backlog.put(planned.path, [message("free", session="t")], queue=1)
    planned.start()
    with ThreadPoolExecutor(1) as executor:
        batches = executor.submit(planned.run_once)
        wait_until(lambda: planned.metered("peek")[0] >= 3, "the check to be repeated")
        assert planned.backlog.ids(planned.path) == ["free"]
        planned.backlog.secondary.advance(61 * SECOND)

        assert batches.result(DEADLINE_S) >= 2

    assert planned.files.reader.read().drained
    assert planned.backlog.left() == 0
    assert planned.backlog.ids(planned.path) == ["free", *ids]
    assert planned.metered("receive")[0] < 2 * 600


@pytest.mark.rule("Y10")
def test_queue_without_sessions_is_read_at_once_and_without_a_peek(planned: Planned) -> None:
    planned.backlog.put(planned.path, [message("a"), message("b")])
    planned.lock_first()
    planned.start()

    plan = planned.next_batch()

    assert plan is not None
    assert list(plan.first_messages) == planned.backlog.queues[:1]
    assert planned.metered("peek") == [0, 0]
