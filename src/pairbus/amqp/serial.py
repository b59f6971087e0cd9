"""Serial numbers of 32 bits (RFC 1982).

Delivery ids, transfer ids and delivery counts are serial numbers: they wrap around to zero.
"""

from collections.abc import Collection, Sequence

SERIAL_MASK = 0xFFFFFFFF


def serial_distance(a: int, b: int) -> int:
    """Return the distance from `b` to `a`, or 0 if `a` is not ahead of `b`."""
    distance = (a - b) & SERIAL_MASK
    return distance if distance <= SERIAL_MASK >> 1 else 0


def numbers_in_range(numbers: Collection[int], first: int, last: int) -> list[int]:
    """Return those of `numbers` that lie between `first` and `last`, both included.

    The peer chooses the range, so its cost is bounded by the count of `numbers`, not by its width.
    """
    width = (last - first) & SERIAL_MASK
    if width == 0:
        return [first] if first in numbers else []
    if width <= len(numbers):
        if first <= last:
            return [number for number in range(first, last + 1) if number in numbers]
        return [
            number
            for number in ((first + step) & SERIAL_MASK for step in range(width + 1))
            if number in numbers
        ]
    return [number for number in numbers if (number - first) & SERIAL_MASK <= width]


def contiguous_ranges(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return sorted ids as ranges without gaps, both ends included."""
    result: list[tuple[int, int]] = []
    for id_ in ids:
        if result and result[-1][1] == id_ - 1:
            result[-1] = result[-1][0], id_
        else:
            result.append((id_, id_))
    return result
