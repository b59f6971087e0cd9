"""The decision which destinations get messages, and whether their queues should be read."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import Enum


class Read(Enum):
    """The decision about queues, by the destinations of their first messages."""

    NOW = "a destination gets messages"
    SEARCH = "messages for other destinations may be behind those for blocked ones"
    LATER = "rates are exhausted: more messages would be received and given back"


@dataclass(frozen=True, slots=True)
class DestinationLimits:
    """The limits of destinations at one moment. Destinations that are not named have none."""

    failing: frozenset[str]
    """They failed recently."""
    paused: frozenset[str]
    """An operator has paused them."""
    allowances: Mapping[str, int]
    """The messages that destinations with a rate may get."""

    @property
    def exhausted(self) -> frozenset[str]:
        """The destinations whose rates allow no message."""
        return frozenset(path for path, count in self.allowances.items() if count == 0)

    @property
    def blocked(self) -> frozenset[str]:
        """The destinations that get no messages."""
        return self.failing | self.paused | self.exhausted

    def read(self, first_destinations: Set[str | None]) -> Read:
        """Decide whether to read the queues whose first messages are for these destinations."""
        if not self.blocked or not first_destinations <= self.blocked:
            return Read.NOW
        return Read.LATER if first_destinations <= self.exhausted else Read.SEARCH
