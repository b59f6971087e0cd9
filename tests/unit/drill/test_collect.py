"""When a queue has been emptied."""

from typing import Any

import pytest

from pairbus.drill.collect import LOOKS, _taken


class Slow:
    """A receiver of a namespace that lets it wait: None is a wait in vain."""

    def __init__(self, *arrivals: str | None) -> None:
        self._arrivals = list(arrivals)
        self.waits = 0

    def peek_messages(self, count: int) -> list[str]:
        return [one for one in self._arrivals if one is not None][:count]

    def receive_messages(self, count: int, **options: Any) -> list[str]:
        self.waits += 1
        arrived = self._arrivals.pop(0) if self._arrivals else None
        return [] if arrived is None else [arrived]


@pytest.mark.parametrize(
    ("arrivals", "found"),
    [
        ((), []),
        (("a", "b"), ["a", "b"]),
        ((None, "a", None, None, "b"), ["a", "b"]),
    ],
    ids=["nothing", "at once", "late"],
)
def test_a_namespace_that_is_slow_is_not_empty(
    arrivals: tuple[str | None, ...], found: list[str]
) -> None:
    assert list(_taken(Slow(*arrivals))) == found


def test_what_never_comes_is_not_waited_for_for_ever() -> None:
    never = Slow(*[None] * LOOKS, "never")

    assert list(_taken(never)) == []
    assert never.waits == LOOKS
