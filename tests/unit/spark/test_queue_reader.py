"""The order of the messages that a task reads."""

from dataclasses import dataclass

import pytest

from pairbus.amqp.sections import Message
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.spark.locks import wall_clock_ms
from pairbus.spark.messages import ReceivedMessage, sequence_number_of
from pairbus.spark.queue_reader import in_order

LOCKED_UNTIL = 77


@dataclass
class FakeDelivery:
    """The attributes of a delivery that are read."""

    payload: bytes
    tag: bytes


def message(sequence_number: int, locked_until: int = 0) -> bytes:
    annotations = {
        Symbol("x-opt-sequence-number"): sequence_number,
        Symbol("x-opt-locked-until"): Timestamp(locked_until),
    }
    return Message.build(message_annotations=annotations, data=b"body").encode()


@pytest.mark.rule("Y2")
@pytest.mark.parametrize(
    ("received", "expected"),
    [
        ((), [(5, b"poll")]),
        ((6, 7), [(5, b"poll"), (6, b"new"), (7, b"new")]),
        ((3, 4), [(3, b"new"), (4, b"new"), (5, b"poll")]),
        ((4, 6), [(4, b"new"), (5, b"poll"), (6, b"new")]),
        # The lock of the poll's message has expired, so only the new delivery is used.
        ((5, 6), [(5, b"new"), (6, b"new")]),
        ((4, 5), [(4, b"new"), (5, b"new")]),
    ],
)
def test_message_of_the_long_poll_is_read_once_and_in_its_position(
    received: tuple[int, ...], expected: list[tuple[int, bytes]]
) -> None:
    first = ReceivedMessage("q", message(5), b"poll", LOCKED_UNTIL)
    deliveries = [[FakeDelivery(message(number), b"new") for number in received]]

    messages = list(in_order("q", first, deliveries))  # type: ignore[arg-type]

    assert [(sequence_number_of(m.payload), m.lock_token) for m in messages] == expected
    assert all((m.locked_until == LOCKED_UNTIL) == (m.lock_token == b"poll") for m in messages)


@pytest.mark.rule("Y13")
def test_locks_expire_when_the_first_of_the_deliveries_says_that_arrived_together() -> None:
    now = wall_clock_ms()
    numbers = [[0, 1], [2, 3]]
    deliveries = [
        [FakeDelivery(message(n, now + 10_000 + n), b"new") for n in batch] for batch in numbers
    ]

    messages = list(in_order("q", None, deliveries))  # type: ignore[arg-type]

    assert [m.locked_until - now for m in messages] == [10_000, 10_000, 10_002, 10_002]


def test_queue_without_a_long_poll_message_is_read_in_order() -> None:
    deliveries = [[FakeDelivery(message(1), b"a")], [], [FakeDelivery(message(2), b"b")]]

    messages = list(in_order("q", None, deliveries))  # type: ignore[arg-type]

    assert [m.lock_token for m in messages] == [b"a", b"b"]
