"""Rate limits of single destinations. The caller passes the time."""

from collections.abc import Mapping
from dataclasses import dataclass

BURST_S = 2.0
"""A destination may get the messages of this time at once."""


@dataclass(slots=True)
class _Budget:
    tokens: float
    updated_at: float
    moved: int


class DestinationRates:
    """A token bucket for each limited destination, charged with what was really moved.

    Tasks share a destination without knowing of each other, so a micro-batch may move more than it
    should. The budget is negative then, and the destination pauses until it is positive again.
    """

    def __init__(self) -> None:
        self._budgets: dict[str, _Budget] = {}

    def allowances(
        self, now: float, rates: Mapping[str, float], moved: Mapping[str, int]
    ) -> dict[str, int]:
        """Return how many messages each limited destination may get now. `rates` are messages a
        second, and `moved` are the totals so far."""
        self._budgets = {path: self._update(path, now, rates[path], moved) for path in rates}
        return {path: max(0, int(budget.tokens)) for path, budget in self._budgets.items()}

    def _update(self, path: str, now: float, rate: float, moved: Mapping[str, int]) -> _Budget:
        total = moved.get(path, 0)
        burst = max(1.0, rate * BURST_S)
        before = self._budgets.get(path)
        if before is None:
            return _Budget(min(burst, max(1.0, rate)), now, total)
        refilled = before.tokens + rate * (now - before.updated_at)
        return _Budget(min(burst, refilled) - (total - before.moved), now, total)


def limits_of_queues(
    allowances: Mapping[str, int], first_destinations: Mapping[str, str | None]
) -> dict[str, int]:
    """Return how many messages for a destination each queue may yield. `first_destinations` has the
    destination of the first message of each queue: the queues that start with a destination share
    its allowance."""
    limits = {}
    for path, allowance in allowances.items():
        queues = sum(destination == path for destination in first_destinations.values())
        limits[path] = -(-allowance // max(1, queues))
    return limits


def largest_batch(
    limits: Mapping[str, int], first_destinations: Mapping[str, str | None]
) -> int | None:
    """Return the largest useful size of a micro-batch, or None if there is no limit: if each queue
    starts with a limited destination, more messages would be received and given back."""
    sizes = []
    for destination in first_destinations.values():
        if destination is None or destination not in limits:
            return None
        sizes.append(limits[destination])
    return max(1, sum(sizes)) if sizes else None
