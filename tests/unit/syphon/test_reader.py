"""What a task makes of the messages that the polls brought and of those that it reads."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pairbus.amqp.client import ClientOptions
from pairbus.amqp.events import Delivery
from pairbus.amqp.sections import Message
from pairbus.syphon.columns import Received, sequence_of
from pairbus.syphon.reader import QueueReader

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
    brought = Received("q", message(5), b"poll")

    found = list(Reader(*read).messages("q", brought, UNTIL, 10))

    assert [(sequence_of(one.payload), one.token) for one, _ in found] == given
    assert all((until == UNTIL) == (one.token == b"poll") for one, until in found)
