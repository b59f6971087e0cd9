"""Which destinations get messages, and whether their queues should be read."""

import pytest

from pairbus.syphon.destination_limits import DestinationLimits, Read

LIMITS = DestinationLimits(
    failing=frozenset({"failing"}),
    paused=frozenset({"paused"}),
    allowances={"slow": 0, "limited": 5},
)


def test_destinations_are_blocked_for_three_reasons() -> None:
    assert LIMITS.exhausted == {"slow"}
    assert LIMITS.blocked == {"failing", "paused", "slow"}


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ({"orders"}, Read.NOW),
        ({"limited"}, Read.NOW),
        ({"failing", "orders"}, Read.NOW),
        ({"failing", None}, Read.NOW),
        ({"failing"}, Read.SEARCH),
        ({"paused", "slow"}, Read.SEARCH),
        ({"slow"}, Read.LATER),
        (set(), Read.LATER),
    ],
)
def test_queues_are_read_by_their_first_destinations(
    first: set[str | None], expected: Read
) -> None:
    assert LIMITS.read(first) is expected


def test_queues_are_read_if_nothing_is_blocked() -> None:
    assert DestinationLimits(frozenset(), frozenset(), {}).read(set()) is Read.NOW
