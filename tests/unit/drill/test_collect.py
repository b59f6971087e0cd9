"""Receiving until a queue is known to be empty."""

from typing import Any

import pytest

from pairbus.drill.collect import MAX_ATTEMPTS, receive_all


class SlowReceiver:
    """A receiver whose messages arrive one by one. None stands for a receive that returns nothing
    although messages are still to come."""

    def __init__(self, *arrivals: str | None) -> None:
        self._arrivals = list(arrivals)
        self.receives = 0

    def peek_messages(self, count: int) -> list[str]:
        return [message for message in self._arrivals if message is not None][:count]

    def receive_messages(self, count: int, **options: Any) -> list[str]:
        self.receives += 1
        message = self._arrivals.pop(0) if self._arrivals else None
        return [] if message is None else [message]


@pytest.mark.parametrize(
    ("arrivals", "messages"),
    [
        ((), []),
        (("a", "b"), ["a", "b"]),
        ((None, "a", None, None, "b"), ["a", "b"]),
    ],
    ids=["empty", "immediate", "delayed"],
)
def test_receiving_continues_while_a_peek_shows_messages(
    arrivals: tuple[str | None, ...], messages: list[str]
) -> None:
    assert list(receive_all(SlowReceiver(*arrivals))) == messages


def test_receiving_stops_after_a_number_of_attempts() -> None:
    receiver = SlowReceiver(*[None] * MAX_ATTEMPTS, "too late")

    assert list(receive_all(receiver)) == []
    assert receiver.receives == MAX_ATTEMPTS
