"""Planning of micro-batches: what the planner waits for, and when it ends a run."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from pairbus.amqp.client import ClientOptions
from pairbus.backlog.syphon_control import Control, ControlFile
from pairbus.errors import AmqpError, Busy, Unavailable
from pairbus.servicebus.limits import CREDITS_PER_SECOND_STANDARD
from pairbus.spark.emptiness import Remaining
from pairbus.spark.messages import ReceivedMessage
from pairbus.syphon import batch_builder
from pairbus.syphon.batch_builder import BatchBuilder
from pairbus.syphon.drain_rate import DrainRate
from pairbus.syphon.live_control import LiveControl
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.pacing import MAX_BATCH_S
from pairbus.syphon.planner import BacklogPlanner
from pairbus.syphon.primary_probe import PrimaryProbe
from pairbus.syphon.reader_status import ReaderReporter
from pairbus.syphon.session_order import PeekedMessage
from pairbus.syphon.status_file import StatusFiles
from pairbus.syphon.task_slots import TaskSlots
from pairbus.syphon.writer_status import WriterStatus
from pairbus.transfer import to_backlog
from tests.messages import message


def received(destination: str, queue: str = "q") -> ReceivedMessage:
    return ReceivedMessage(queue, to_backlog(message("m"), destination))


class ReceivedMessages:
    """The messages that long polls have received."""

    def __init__(self, *messages: ReceivedMessage) -> None:
        self.error: AmqpError | None = None
        self.received = {message.queue: message for message in messages}
        self.taken = False
        self.suspended = False
        self.on_wait: Callable[[], None] = lambda: None
        """Called when the planner waits for the polls."""

    def resume(self) -> None:
        self.suspended = False

    def suspend(self) -> None:
        self.suspended = True

    def wait_until_known(self, seconds: float) -> bool:
        self.on_wait()
        return True

    def wait_for_message(self, seconds: float) -> None:
        self.on_wait()

    def messages(self) -> list[ReceivedMessage]:
        return list(self.received.values())

    def release(self, queue: str) -> None:
        """Receive another message."""

    def take(self, queues: set[str]) -> dict[str, ReceivedMessage]:
        self.taken = True
        return {queue: self.received[queue] for queue in queues}


class EmptyPeeks:
    """Peeks that find nothing."""

    def peek(self, queue: str, first: int, count: int) -> list[PeekedMessage]:
        return []


class Peeked:
    """Checks by peeking. The last result is repeated."""

    def __init__(self, *results: bool | AmqpError) -> None:
        self.results = list(results)
        self.checks = 0

    def are_empty(self) -> bool:
        self.checks += 1
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        if isinstance(result, AmqpError):
            raise result
        return result

    def remaining(self) -> Remaining:
        return Remaining(active=3)

    def reset(self) -> None:
        """Peek at all messages again."""


EMPTY = Peeked(True)


def planner_for(
    polls: ReceivedMessages,
    folder: Path,
    blocked: dict[str, float],
    *,
    emptiness: Peeked = EMPTY,
    movable: Peeked = EMPTY,
    control: ControlFile | None = None,
    is_filtered: bool = False,
    has_credits: bool = False,
    **options: Any,
) -> BacklogPlanner:
    files = StatusFiles(folder)
    files.writer.write(WriterStatus(blocked_until=blocked))
    syphon_options = SyphonOptions(
        primary=ClientOptions(host="one"),
        secondary=ClientOptions(host="two"),
        queues=("q",),
        **options,
    )
    shared: dict[str, Any] = {
        "polls": polls,
        "reporter": ReaderReporter(files.reader.write, time.time),
        "writer_status": files.writer,
        "rate": DrainRate(files.rate, None),
        "control": LiveControl(syphon_options, control),
    }
    builder = BatchBuilder(
        syphon_options,
        peeks=cast(Any, EmptyPeeks()),
        probe=PrimaryProbe(lambda: None),
        slots=TaskSlots(2, on_one_machine=True),
        has_credits=lambda: has_credits,
        **shared,
    )
    return BacklogPlanner(
        syphon_options,
        builder=builder,
        emptiness=cast(Any, emptiness),
        movable=cast(Any, movable),
        is_filtered=is_filtered,
        **shared,
    )


@pytest.mark.rule("Y5")
def test_messages_for_destinations_that_are_blocked_for_long_are_not_read_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read would receive all messages of the queue, and abandon them."""
    monkeypatch.setattr(batch_builder, "MAX_BLOCK_S", 0.1)
    polls = ReceivedMessages(received("missing"))
    planner = planner_for(polls, tmp_path, {"missing": time.time() + 3600})
    first = planner.next_batch(available_now=False)
    assert first is not None, "there was no search for messages behind the blocked one"
    assert first.blocked == {"missing"}
    polls.taken = False

    batches = [planner.next_batch(available_now=False) for _ in range(3)]

    assert (batches, polls.taken) == ([None] * 3, False)
    polls.received["q"] = received("other")
    assert planner.next_batch(available_now=False) is not None


@pytest.mark.rule("Y9")
def test_throttled_polls_slow_the_drain_and_do_not_end_it(tmp_path: Path) -> None:
    polls = ReceivedMessages()
    waits: list[None] = []

    def throttle_once() -> None:
        waits.append(None)
        busy = Busy("Error code : 50009. Please wait 2 seconds and try again.")
        polls.error = busy if len(waits) == 1 else None
        if len(waits) > 1:
            polls.received["q"] = received("orders")

    polls.on_wait = throttle_once
    planner = planner_for(polls, tmp_path, {})

    batch = planner.next_batch(available_now=True)

    assert batch is not None
    assert batch.rate.limit.rate(time.time()) == 0.0  # for as long as the namespace asks
    assert StatusFiles(tmp_path).reader.read().error is None


@pytest.mark.rule("Y9")
def test_drain_of_a_namespace_with_credits_starts_below_them(tmp_path: Path) -> None:
    polls = ReceivedMessages(received("other"))
    planner = planner_for(polls, tmp_path, {}, has_credits=True)

    batch = planner.next_batch(available_now=False)

    assert batch is not None
    rate = batch.rate.limit.rate(time.time())
    assert rate is not None
    assert 0 < rate < CREDITS_PER_SECOND_STANDARD
    assert batch.max_messages < CREDITS_PER_SECOND_STANDARD * MAX_BATCH_S
    assert batch.max_tasks == 2


@pytest.mark.rule("Y12")
def test_paused_syphon_holds_no_message_and_says_so(tmp_path: Path) -> None:
    control = ControlFile(tmp_path / "control.json")
    control.update(Control.pause)
    polls = ReceivedMessages(received("orders"))
    planner = planner_for(polls, tmp_path, {}, control=control)

    assert planner.next_batch(available_now=False) is None
    assert polls.suspended
    assert StatusFiles(tmp_path).reader.read().paused

    control.update(Control.resume)
    assert planner.next_batch(available_now=False) is not None
    assert not StatusFiles(tmp_path).reader.read().paused


@pytest.mark.rule("Y12")
def test_rate_of_the_operator_replaces_that_of_the_options(tmp_path: Path) -> None:
    control = ControlFile(tmp_path / "control.json")
    polls = ReceivedMessages(received("orders"))
    planner = planner_for(polls, tmp_path, {}, control=control, max_rate=0.001)
    first = planner.next_batch(available_now=False)
    assert first is not None
    assert first.max_messages == 1
    assert planner.next_batch(available_now=False) is None, "the rate was not kept"

    control.update(lambda state: state.set_max_rate(500))

    second = planner.next_batch(available_now=False)
    assert second is not None
    assert second.max_messages == 500


@pytest.mark.rule("Y12")
def test_paused_destination_is_blocked_and_not_read_again(tmp_path: Path) -> None:
    control = ControlFile(tmp_path / "control.json")
    control.update(lambda state: state.pause("orders"))
    polls = ReceivedMessages(received("orders"), received("other", "r"))
    planner = planner_for(polls, tmp_path, {}, control=control, movable=Peeked(True))
    batch = planner.next_batch(available_now=False)
    assert batch is not None
    assert batch.blocked == {"orders"}

    assert planner.next_batch(available_now=False) is None
    assert polls.suspended, "messages that stay would be received again"


@pytest.mark.rule("Y11")
def test_run_ends_when_the_filter_dropped_all_that_is_left(tmp_path: Path) -> None:
    polls = ReceivedMessages(received("orders"))
    emptiness = Peeked(True)
    planner = planner_for(polls, tmp_path, {}, emptiness=emptiness, is_filtered=True)
    assert planner.next_batch(available_now=True) is not None
    polls.taken = False

    assert planner.next_batch(available_now=True) is None
    assert not polls.taken
    assert emptiness.checks == 1
    assert StatusFiles(tmp_path).reader.read().drained


@pytest.mark.rule("Y8")
def test_run_waits_for_locked_messages_and_ends_when_they_are_gone(tmp_path: Path) -> None:
    emptiness = Peeked(False, Busy("throttled"), Unavailable("lost"), True)
    planner = planner_for(ReceivedMessages(), tmp_path, {}, emptiness=emptiness)

    assert planner.next_batch(available_now=True) is None
    assert emptiness.checks == 4
    assert StatusFiles(tmp_path).reader.read().drained


@pytest.mark.rule("Y8")
def test_run_that_is_stuck_counts_the_messages_that_are_left(tmp_path: Path) -> None:
    planner = planner_for(
        ReceivedMessages(),
        tmp_path,
        {},
        emptiness=Peeked(False),
        stuck_after=timedelta(milliseconds=50),
    )

    assert planner.next_batch(available_now=True) is None
    assert "3 messages are left" in (StatusFiles(tmp_path).reader.read().remaining or "")


@pytest.mark.rule("Y8")
def test_namespace_that_was_never_reached_ends_a_run(tmp_path: Path) -> None:
    polls = ReceivedMessages()
    polls.error = Unavailable("no such host")
    planner = planner_for(polls, tmp_path, {})

    assert planner.next_batch(available_now=True) is None
    status = StatusFiles(tmp_path).reader.read()
    assert "no such host" in (status.error or "")
    assert not status.drained


@pytest.mark.rule("Y8")
def test_namespace_that_was_reached_is_waited_for(tmp_path: Path) -> None:
    polls = ReceivedMessages(received("orders"))
    planner = planner_for(polls, tmp_path, {})
    assert planner.next_batch(available_now=True) is not None
    polls.received.clear()
    errors = [Unavailable("lost"), Unavailable("lost")]

    def lose_connection() -> None:
        polls.error = errors.pop() if errors else None
        if polls.error is None:
            polls.received["q"] = received("orders")

    polls.on_wait = lose_connection

    assert planner.next_batch(available_now=True) is not None
    assert errors == []
