"""What a task makes of the messages that the polls brought and of those that it reads."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pairbus.amqp.client import ClientOptions
from pairbus.amqp.events import Delivery
from pairbus.amqp.sections import Message
from pairbus.errors import AmqpError, ConnectionLost, EntityNotFound
from pairbus.spark import reader
from pairbus.spark.columns import ReceivedMessage, sequence_of
from pairbus.spark.polls import Poll
from pairbus.spark.reader import BatchPlan, QueueReader

UNTIL = 77


@dataclass
class Arrival:
    """As much of a delivery as is looked at."""

    payload: bytes
    tag: bytes


def message(number: int) -> bytes:
    return Message.build(
        message_annotations={"x-opt-sequence-number": number}, data=b"body"
    ).encode()


class Reader(QueueReader):
    """Reads what it is given."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(
            ClientOptions(host="localhost"), ("q",), partitions=1, max_messages=10, poll_s=1
        )
        self._numbers = numbers

    def _pulled(self, queue: str, count: int) -> Iterator[list[Delivery]]:
        yield [Arrival(message(number), b"new") for number in self._numbers]  # type: ignore[misc]


@pytest.mark.rule("Y2")
@pytest.mark.parametrize(
    ("read", "given"),
    [
        ((), [(5, b"poll")]),
        ((6, 7), [(5, b"poll"), (6, b"new"), (7, b"new")]),
        ((3, 4), [(3, b"new"), (4, b"new"), (5, b"poll")]),
        ((4, 6), [(4, b"new"), (5, b"poll"), (6, b"new")]),
        # Its lock has expired before it was read: what counts is the new one.
        ((5, 6), [(5, b"new"), (6, b"new")]),
        ((4, 5), [(4, b"new"), (5, b"new")]),
    ],
)
def test_a_message_that_a_poll_brought_has_its_place_and_comes_once(
    read: tuple[int, ...], given: list[tuple[int, bytes]]
) -> None:
    brought = ReceivedMessage("q", message(5), b"poll")

    found = list(Reader(*read).messages("q", brought, UNTIL, 10))

    assert [(sequence_of(one.payload), one.token) for one, _ in found] == given
    assert all((until == UNTIL) == (one.token == b"poll") for one, until in found)


# Whether there is something.


class Polled(Poll):
    """A poll that knows nothing for a while, and then one message, or an error."""

    def __init__(self, looks: int, error: AmqpError | None = None) -> None:
        self.looks = looks
        self._later = error
        self.error = None

    def resume(self) -> None: ...

    def wait_until_known(self, seconds: float) -> bool:
        self.looks -= 1
        if self.looks < 0:
            self.error = self._later
        return self.looks < 0 and self.error is None

    def found(self) -> list[ReceivedMessage]:
        return list(self.take().values())

    def take(self) -> dict[str, ReceivedMessage]:
        known = self.looks < 0 and self.error is None
        return {"q": ReceivedMessage("q", message(1), b"poll")} if known else {}


class Asked(Reader):
    def __init__(self, poll: Polled, *, once: bool) -> None:
        super().__init__()
        self._given = poll
        if once:
            self.prepareForTriggerAvailableNow()

    def make_poll(self) -> Poll:
        return self._given

    def end(self) -> dict[str, int]:
        return self.latestOffset({"batch": 4}, self.getDefaultReadLimit())

    def plan(self, poll: Poll) -> BatchPlan:
        return BatchPlan(1)


def test_a_stream_that_is_to_end_does_not_take_silence_for_nothing() -> None:
    assert Asked(Polled(3), once=True).end() == {"batch": 5}


def test_a_stream_that_goes_on_is_asked_again() -> None:
    stream = Asked(Polled(3), once=False)

    assert [stream.end() for _ in range(4)] == [{"batch": 4}] * 3 + [{"batch": 5}]


@pytest.mark.parametrize("once", [True, False])
def test_what_will_not_pass_is_raised(once: bool) -> None:
    with pytest.raises(EntityNotFound, match="no queue"):
        Asked(Polled(0, EntityNotFound("there is no queue 'q'")), once=once).end()


def test_a_namespace_that_is_away_fails_only_a_stream_that_would_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "REACH_S", 0.0)
    away = ConnectionLost("refused")

    assert Asked(Polled(0, away), once=False).end() == {"batch": 4}
    with pytest.raises(ConnectionLost):
        Asked(Polled(0, away), once=True).end()
