"""How many messages the next micro-batch may have. No clock of its own."""

LOCK_SHARE_S = 20.0
"""A micro-batch should take no longer: locks hold for a minute."""
LEAST = 500


class Pace:
    """Sizes micro-batches by a cap on messages a second, and by what the last ones took."""

    def __init__(self, most: int, max_rate: float | None) -> None:
        self._most = most
        self._max_rate = max_rate
        self._allowed_at = 0.0

    def wait_s(self, now: float) -> float:
        """How long to wait before the next micro-batch."""
        return 0.0 if self._max_rate is None else max(0.0, self._allowed_at - now)

    def size(self, now: float, rate: float) -> int:
        """How many messages the next one may have; `rate` is what the last one reached."""
        size = self._most
        if rate > 0:
            size = min(size, max(LEAST, int(rate * LOCK_SHARE_S)))
        if self._max_rate is not None:
            size = min(size, max(1, int(self._max_rate)))
            self._allowed_at = now + size / self._max_rate
        return size
