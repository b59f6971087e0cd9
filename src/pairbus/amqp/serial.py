"""Serial numbers of 32 bits (RFC 1982): delivery ids, transfer ids and delivery counts wrap
around."""

from collections.abc import Collection, Sequence

SERIAL_MASK = 0xFFFFFFFF


def serial_distance(a: int, b: int) -> int:
    """How far `a` is ahead of `b`; 0 where it is behind."""
    distance = (a - b) & SERIAL_MASK
    return distance if distance <= SERIAL_MASK >> 1 else 0


def numbers_in_range(known: Collection[int], first: int, last: int) -> list[int]:
    """Which of the known numbers lie in a range, both ends included.

    The ends are the peer's to choose: a range wider than what is known is not walked.
    """
    width = (last - first) & SERIAL_MASK
    if width == 0:
        return [first] if first in known else []
    if width <= len(known):
        if first <= last:
            return [number for number in range(first, last + 1) if number in known]
        return [
            number
            for number in ((first + step) & SERIAL_MASK for step in range(width + 1))
            if number in known
        ]
    return [number for number in known if (number - first) & SERIAL_MASK <= width]


def contiguous_ranges(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Sorted ids as ranges without gaps, both ends included."""
    result: list[tuple[int, int]] = []
    for id_ in ids:
        if result and result[-1][1] == id_ - 1:
            result[-1] = result[-1][0], id_
        else:
            result.append((id_, id_))
    return result
