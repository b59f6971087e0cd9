"""Making a failing input small, by leaving out halves, quarters, and so on."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Piece = TypeVar("Piece", bytes, tuple[bytes, ...])

MOST_TRIES = 3000


class Shrinker:
    """Tries smaller inputs for as long as they fail, within a number of tries."""

    def __init__(self, fails: Callable[[tuple[bytes, ...]], bool]) -> None:
        self._fails = fails
        self._tries = 0

    def shrink(self, chunks: Sequence[bytes]) -> tuple[bytes, ...]:
        best = tuple(chunks)
        while self._tries < MOST_TRIES:
            before = best
            best = self._cut(best, lambda smaller: smaller)
            for place in range(len(best)):
                head, tail = best[:place], best[place + 1 :]
                shorter = self._cut(best[place], lambda piece, h=head, t=tail: (*h, piece, *t))
                best = (*head, shorter, *tail)
            if best == before:
                break
        return best

    def _cut(self, data: Piece, whole: Callable[[Piece], tuple[bytes, ...]]) -> Piece:
        """Leave out ranges of `data`, long ones first; `whole` puts it back among the rest."""
        size = max(len(data) // 2, 1)
        while size and len(data) > 0:
            start = 0
            while start < len(data) and self._tries < MOST_TRIES:
                smaller = data[:start] + data[start + size :]
                self._tries += 1
                if self._fails(whole(smaller)):
                    data = smaller
                else:
                    start += size
            size //= 2
        return data
