"""Sets of sequence numbers, as ranges."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

MAX_RANGES = 1000


class SequenceRanges:
    """A set of sequence numbers. It forgets the lowest ones if it would have too many ranges."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def add(self, first: int, last: int) -> None:
        """Add the numbers from `first` to `last`."""
        if first > last:
            return
        # The ranges that overlap the new one or are next to it become one range with it.
        start = bisect_left(self._lasts, first - 1)
        end = bisect_right(self._firsts, last + 1)
        if start < end:
            first = min(first, self._firsts[start])
            last = max(last, self._lasts[end - 1])
        self._firsts[start:end] = [first]
        self._lasts[start:end] = [last]
        if len(self._firsts) > MAX_RANGES:
            del self._firsts[0], self._lasts[0]

    def update(self, other: "SequenceRanges") -> None:
        """Add all numbers of another set."""
        for first, last in zip(other._firsts, other._lasts, strict=True):
            self.add(first, last)

    def clear(self) -> None:
        self._firsts.clear()
        self._lasts.clear()

    def missing(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges from `first` to `last` that are not in the set."""
        index = bisect_left(self._lasts, first)
        while first <= last and index < len(self._firsts) and self._firsts[index] <= last:
            if first < self._firsts[index]:
                yield first, self._firsts[index] - 1
            first = self._lasts[index] + 1
            index += 1
        if first <= last:
            yield first, last

    def __contains__(self, number: int) -> bool:
        index = bisect_left(self._lasts, number)
        return index < len(self._firsts) and self._firsts[index] <= number
