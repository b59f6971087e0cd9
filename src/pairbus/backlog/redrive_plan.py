"""The dead letters that a redrive takes: those that were there when it started. No I/O.

A message keeps its sequence number and its enqueued time when it is dead-lettered, and the service
does not record when that happened. So a message that is dead-lettered later can have a smaller
sequence number and an older time than those that are there already, and neither separates the two.
The plan therefore contains the sequence number of each message, which is unique in its queue.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pairbus.amqp.serial import contiguous_ranges
from pairbus.errors import ConfigurationError

FORMAT: Final = 1
"""The version of the JSON format."""


class SequenceNumberSet:
    """A set of sequence numbers, 8 bytes each: there may be millions."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._numbers = array("q", sorted(set(numbers)))

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        position = bisect_left(self._numbers, number)
        return position < len(self._numbers) and self._numbers[position] == number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SequenceNumberSet) and self._numbers == other._numbers

    __hash__ = None  # type: ignore[assignment]

    def part(self, start: int, count: int) -> list[int]:
        """Return `count` numbers in ascending order from a position on."""
        return self._numbers[start : start + count].tolist()


@dataclass(frozen=True, slots=True)
class RedrivePlan:
    """The dead letters to move, or to delete with a purge."""

    taken_ms: int
    """The time when the plan was made, as Unix time in milliseconds."""
    queues: Mapping[str, SequenceNumberSet]
    """The sequence numbers by entity."""
    destinations: Mapping[str | None, int] = field(default_factory=dict)
    """The number of messages by destination."""
    others: int = 0
    """The number of dead letters that were there and are not part of the plan."""
    duplicates: Mapping[str, int] = field(default_factory=dict)
    """The number of messages that the duplicate detection of their entity would drop, if it was
    asked for. They stay."""

    def __len__(self) -> int:
        return sum(map(len, self.queues.values()))

    def to_json(self) -> dict[str, object]:
        """Return the plan for `json.dumps`. Consecutive numbers take the place of one."""
        return {
            "format": FORMAT,
            "taken_ms": self.taken_ms,
            "queues": {
                entity: [list(numbers) for numbers in contiguous_ranges(list(numbers))]
                for entity, numbers in self.queues.items()
            },
        }


def plan_from_json(values: Any) -> RedrivePlan:
    """Return the plan that `RedrivePlan.to_json` returned, without its totals. Raises
    ConfigurationError if the values are not a plan."""
    try:
        if values["format"] != FORMAT:
            raise ConfigurationError(f"The plan has the unknown format {values['format']!r}.")
        queues = {
            str(entity): SequenceNumberSet(
                number for first, last in ranges for number in range(first, last + 1)
            )
            for entity, ranges in values["queues"].items()
        }
        return RedrivePlan(int(values["taken_ms"]), queues)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise ConfigurationError("This is not the plan of a redrive.") from exc


class PlanBuilder:
    """Collects the messages of a plan."""

    def __init__(self, taken_ms: int) -> None:
        self._taken_ms = taken_ms
        self._numbers: dict[str, array[int]] = {}
        self._destinations: Counter[str | None] = Counter()
        self._others = 0
        self._duplicates: Counter[str] = Counter()

    def add(
        self, entity: str, number: int, destination: str | None, *, duplicate: bool = False
    ) -> None:
        self._numbers.setdefault(entity, array("q")).append(number)
        self._destinations[destination] += 1
        self._duplicates[entity] += duplicate

    def skip(self) -> None:
        """Count a message that is not part of the plan."""
        self._others += 1

    def plan(self) -> RedrivePlan:
        queues = {entity: SequenceNumberSet(numbers) for entity, numbers in self._numbers.items()}
        return RedrivePlan(
            self._taken_ms, queues, dict(self._destinations), self._others, +self._duplicates
        )
