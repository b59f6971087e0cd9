"""Planning while destinations are blocked for a long time, as those that do not exist are."""

import time
from pathlib import Path
from typing import Any, cast

import pytest

from pairbus.amqp.client import ClientOptions
from pairbus.errors import AmqpError, Busy
from pairbus.servicebus.limits import CREDITS_PER_SECOND_STANDARD
from pairbus.spark.messages import ReceivedMessage
from pairbus.syphon import planner as planner_module
from pairbus.syphon.drain_rate import DrainRate
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.pacing import MAX_BATCH_S
from pairbus.syphon.planner import BacklogPlanner
from pairbus.syphon.primary_probe import PrimaryProbe
from pairbus.syphon.reader_status import ReaderReporter
from pairbus.syphon.session_order import PeekedMessage
from pairbus.syphon.status_file import StatusFiles
from pairbus.syphon.writer_status import WriterStatus
from pairbus.transfer import to_backlog
from tests.messages import message


class ReceivedMessages:
    """The messages that long polls have received."""

    def __init__(self, *messages: ReceivedMessage) -> None:
        self.error: AmqpError | None = None
        self.received = {message.queue: message for message in messages}
        self.taken = False

    def resume(self) -> None:
        """Continue the polls."""

    def wait_until_known(self, seconds: float) -> bool:
        return True

    def wait_for_message(self, seconds: float) -> None:
        """Let the throttling end, and a message arrive."""
        self.error = None
        self.received["q"] = ReceivedMessage("q", to_backlog(message("m"), "orders"))

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


def planner_for(
    polls: ReceivedMessages, folder: Path, blocked: dict[str, float], *, has_credits: bool = False
) -> BacklogPlanner:
    files = StatusFiles(folder)
    files.writer.write(WriterStatus(blocked_until=blocked))
    options = SyphonOptions(
        primary=ClientOptions(host="one"), secondary=ClientOptions(host="two"), queues=("q",)
    )
    return BacklogPlanner(
        options,
        polls=cast(Any, polls),
        emptiness=cast(Any, None),
        movable=cast(Any, None),
        peeks=cast(Any, EmptyPeeks()),
        probe=PrimaryProbe(lambda: None),
        reporter=ReaderReporter(files.reader.write, time.time),
        writer_status=files.writer,
        rate=DrainRate(files.rate, None),
        rate_shares=2,
        has_credits=lambda: has_credits,
    )


@pytest.mark.rule("Y5")
def test_messages_for_destinations_that_are_blocked_for_long_are_not_read_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read would receive all messages of the queue, and abandon them."""
    monkeypatch.setattr(planner_module, "MAX_BLOCK_S", 0.1)
    polls = ReceivedMessages(ReceivedMessage("q", to_backlog(message("m"), "missing")))
    planner = planner_for(polls, tmp_path, {"missing": time.time() + 3600})
    first = planner.next_batch(available_now=False)
    assert first is not None, "there was no search for messages behind the blocked one"
    assert first.blocked == {"missing"}
    polls.taken = False

    batches = [planner.next_batch(available_now=False) for _ in range(3)]

    assert (batches, polls.taken) == ([None] * 3, False)
    polls.received["q"] = ReceivedMessage("q", to_backlog(message("n"), "other"))
    assert planner.next_batch(available_now=False) is not None


@pytest.mark.rule("Y9")
def test_drain_of_a_namespace_with_credits_starts_below_them(tmp_path: Path) -> None:
    polls = ReceivedMessages(ReceivedMessage("q", to_backlog(message("m"), "other")))
    planner = planner_for(polls, tmp_path, {}, has_credits=True)

    batch = planner.next_batch(available_now=False)

    assert batch is not None
    rate = batch.rate.limit.rate(time.time())
    assert rate is not None
    assert 0 < rate < CREDITS_PER_SECOND_STANDARD
    assert batch.max_messages < CREDITS_PER_SECOND_STANDARD * MAX_BATCH_S


@pytest.mark.rule("Y9")
def test_throttled_polls_slow_the_drain_and_do_not_end_it(tmp_path: Path) -> None:
    polls = ReceivedMessages()
    polls.error = Busy("Error code : 50009. Please wait 2 seconds and try again.")
    planner = planner_for(polls, tmp_path, {})

    batch = planner.next_batch(available_now=True)

    assert batch is not None
    assert batch.rate.limit.rate(time.time()) == 0.0  # for as long as the namespace asks
    assert StatusFiles(tmp_path).reader.read().error is None
