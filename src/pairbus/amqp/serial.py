"""Serial numbers of 32 bits (RFC 1982): delivery ids, transfer ids and delivery counts wrap
around."""

from collections.abc import Collection, Sequence

SERIAL = 0xFFFFFFFF


def ahead(a: int, b: int) -> int:
    """How far `a` is ahead of `b`; 0 where it is behind."""
    distance = (a - b) & SERIAL
    return distance if distance <= SERIAL >> 1 else 0


def among(known: Collection[int], first: int, last: int) -> list[int]:
    """Which of the known numbers lie in a range, both ends included.

    The ends are the peer's to choose: a range wider than what is known is not walked.
    """
    width = (last - first) & SERIAL
    if width == 0:
        return [first] if first in known else []
    if width <= len(known):
        if first <= last:
            return [number for number in range(first, last + 1) if number in known]
        return [
            number
            for number in ((first + step) & SERIAL for step in range(width + 1))
            if number in known
        ]
    return [number for number in known if (number - first) & SERIAL <= width]


def ranges(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Sorted ids as ranges without gaps, both ends included."""
    result: list[tuple[int, int]] = []
    for id_ in ids:
        if result and result[-1][1] == id_ - 1:
            result[-1] = result[-1][0], id_
        else:
            result.append((id_, id_))
    return result
