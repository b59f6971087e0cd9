"""Serial numbers that wrap around, and their ranges."""

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
def test_distance_is_computed_across_the_wrap(a: int, b: int, distance: int) -> None:
    assert serial_distance(a, b) == distance


@pytest.mark.parametrize(
    ("existing", "first", "last", "expected"),
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
def test_existing_numbers_in_a_range_are_found(
    existing: list[int], first: int, last: int, expected: list[int]
) -> None:
    assert numbers_in_range(existing, first, last) == expected


def test_very_wide_range_is_not_iterated() -> None:
    class CountingDict(dict[int, None]):
        lookups = 0

        def __contains__(self, key: object) -> bool:
            CountingDict.lookups += 1
            return super().__contains__(key)

    existing = CountingDict.fromkeys(range(100))

    assert numbers_in_range(existing, 0, 2**31 - 1) == list(range(100))
    assert CountingDict.lookups <= 101
