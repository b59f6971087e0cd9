"""Receiving until a queue is known to be empty."""

from typing import Any

import pytest

from pairbus.drill.collect import BATCH_SIZE, MAX_ATTEMPTS, ReceivePace, receive_all

NO_PACE = ReceivePace(None)


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
    assert list(receive_all(SlowReceiver(*arrivals), NO_PACE)) == messages


def test_receiving_stops_after_a_number_of_attempts() -> None:
    receiver = SlowReceiver(*[None] * MAX_ATTEMPTS, "too late")

    assert list(receive_all(receiver, NO_PACE)) == []
    assert receiver.receives == MAX_ATTEMPTS


def test_rate_of_all_receivers_together_is_limited() -> None:
    now, waits = [0.0], []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    pace = ReceivePace(BATCH_SIZE / 2, lambda: now[0], wait)
    received = [*receive_all(SlowReceiver("a", "b"), pace), *receive_all(SlowReceiver("c"), pace)]

    assert received == ["a", "b", "c"]
    # A receiver is granted a full batch first, and then as much as it has received.
    one = 2 / BATCH_SIZE
    assert waits == pytest.approx([0.0, 2.0, one, one, 2.0])
