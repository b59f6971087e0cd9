"""Serial numbers that wrap around, and ranges of them."""

import pytest

from pairbus.amqp.serial import SERIAL_MASK, numbers_in_range, serial_distance


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        (5, 3, 2),
        (3, 3, 0),
        (3, 5, 0),
        (0, SERIAL_MASK, 1),
        (SERIAL_MASK, 0, 0),
        (9, SERIAL_MASK - 9, 19),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31, 0, 0),
    ],
)
def test_number_is_ahead_of_another_across_the_wrap(a: int, b: int, distance: int) -> None:
    assert serial_distance(a, b) == distance


@pytest.mark.parametrize(
    ("known", "first", "last", "found"),
    [
        ([1, 2, 3], 2, 2, [2]),
        ([1, 2, 3], 7, 7, []),
        ([1, 2, 3], 2, 3, [2, 3]),
        ([1, 3], 0, 9, [1, 3]),
        ([SERIAL_MASK - 1, SERIAL_MASK, 0, 1], SERIAL_MASK, 0, [SERIAL_MASK, 0]),
        (
            [SERIAL_MASK - 1, SERIAL_MASK, 0, 1],
            SERIAL_MASK - 1,
            1,
            [SERIAL_MASK - 1, SERIAL_MASK, 0, 1],
        ),
        ([SERIAL_MASK, 0, 1, 5], SERIAL_MASK, 2**30, [SERIAL_MASK, 0, 1, 5]),
        ([5], 0, 2**31 - 1, [5]),
        ([], 0, 2**31 - 1, []),
    ],
)
def test_range_finds_what_is_known(
    known: list[int], first: int, last: int, found: list[int]
) -> None:
    assert numbers_in_range(known, first, last) == found


def test_range_that_is_absurdly_wide_is_not_walked() -> None:
    class Counted(dict[int, None]):
        asked = 0

        def __contains__(self, key: object) -> bool:
            Counted.asked += 1
            return super().__contains__(key)

    known = Counted.fromkeys(range(100))

    assert numbers_in_range(known, 0, 2**31 - 1) == list(range(100))
    assert Counted.asked <= 101
