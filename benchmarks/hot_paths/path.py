"""A hot path: code that runs for each message."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HotPath:
    """Some work, whose instructions are counted. It does the same at each call: its input is fixed,
    and it uses no network."""

    name: str
    work: Callable[[], None]
    messages: int
    """The number of messages of one call of `work`."""
    baseline: str | None = None
    """Another path, whose instructions are deducted: the SDK without pairbus."""


def reference() -> HotPath:
    """Return the unit of all counts. It does what most Python code does: calls, attributes, small
    integers, bytes and dictionaries. Its count depends on the interpreter as theirs does."""
    counter = _Counter()

    def work() -> None:
        for number in range(2000):
            counter.add(b"key %d" % (number & 63), number)

    return HotPath("reference", work, 2000)


class _Counter:
    def __init__(self) -> None:
        self._totals: dict[bytes, int] = {}

    def add(self, key: bytes, number: int) -> None:
        head, _, tail = key.partition(b" ")
        self._totals[tail] = self._totals.get(tail, 0) + number + len(head)
