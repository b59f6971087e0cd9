"""How many messages the next micro-batch may have, and when it may be. No clock of its own."""

LOCK_SHARE_S = 20.0
"""A micro-batch should take no longer: locks hold for a minute."""
LEAST = 500
FEWEST = 50
"""Messages of a micro-batch that tries a destination again."""
HALVINGS = 11
"""As often as it is worth while: 100 000 in eleven halves is fewer than the fewest."""
LOOK_PAST_S, MAX_LOOK_PAST_S = 30.0, 900.0


def restraint(before: int, *, moved: bool, failed: bool) -> int:
    """How often to halve micro-batches that a destination has a part in.

    One that took nothing is tried again with the fewest: each try costs receives and keeps what it
    has read under locks. One that took some and then no more, which is how throttling looks, gets
    half. One that takes all gets twice as much each time.
    """
    if not failed:
        return max(0, before - 1)
    return min(before + 1, HALVINGS) if moved else HALVINGS


class Pace:
    """Sizes micro-batches by a cap on messages a second, by what the last ones took, and by how the
    destinations are that are to be tried again."""

    def __init__(self, most: int, max_rate: float | None) -> None:
        self._most = most
        self._max_rate = max_rate
        self._allowed_at = 0.0

    def wait_s(self, now: float) -> float:
        """How long to wait before the next micro-batch."""
        return 0.0 if self._max_rate is None else max(0.0, self._allowed_at - now)

    def size(self, now: float, rate: float, halvings: int = 0) -> int:
        """How many messages the next one may have; `rate` is what the last one reached."""
        size = self._most
        if rate > 0:
            size = min(size, max(LEAST, int(rate * LOCK_SHARE_S)))
        if halvings > 0:
            size = min(size, max(FEWEST, self._most >> halvings))
        if self._max_rate is not None:
            size = min(size, max(1, int(self._max_rate)))
            self._allowed_at = now + size / self._max_rate
        return size


class LookPast:
    """When to read past messages whose destinations are left alone: others may be behind them.

    What is read then is locked or given back, and each receive is billed. So it is done once at
    first, again when something was moved since, and else after half a minute, a minute, two, and so
    on.
    """

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._wait_s = LOOK_PAST_S
        self._moved = 0

    def due(self, now: float, moved: int) -> bool:
        """`moved`: messages so far. If it is due, it counts as done."""
        waited = self._looked_at is None or now - self._looked_at >= self._wait_s
        progress = moved > self._moved
        if not waited and not progress:
            return False
        if progress:
            self._wait_s = LOOK_PAST_S
        elif self._looked_at is not None:
            self._wait_s = min(2 * self._wait_s, MAX_LOOK_PAST_S)
        self._looked_at, self._moved = now, moved
        return True
