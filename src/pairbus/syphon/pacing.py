"""Sizes of micro-batches, and pauses between them. The caller passes the time."""

MAX_BATCH_S = 20.0
"""The longest duration that a micro-batch should have. Its messages are locked all the time, so it
should also end within a third of their locks."""
MIN_BATCH = 500
"""The smallest micro-batch that a slow primary gets. If locks are shorter than a minute and some of
them were too short for the last micro-batch, it is smaller in the same proportion."""
FIRST_RATE = 1000.0
"""Messages a second, assumed for the first micro-batch if locks last for less than a minute."""
LONG_LOCK_S = 55.0
"""Locks of a minute. A part of the lock is over when a message arrives."""
MIN_RETRY_BATCH = 50
"""The smallest micro-batch that retries a destination."""
MAX_HALVINGS = 12
"""Halving 200 000 messages twelve times gives fewer than `MIN_RETRY_BATCH`."""
BLOCKED_READ_S, MAX_BLOCKED_READ_S = 30.0, 900.0
"""The interval between two reads past blocked messages. It doubles up to the maximum."""


def next_halvings(halvings: int, *, moved: bool, failed: bool) -> int:
    """Return how often to halve the next micro-batch with messages for a destination.

    A destination that accepted nothing gets the smallest micro-batches, because each retry costs
    receives and locks what it receives. A destination that accepted some messages and then failed,
    as one that throttles does, gets half as many. A destination that accepted all gets twice as
    many, up to the full size.
    """
    if not failed:
        return max(0, halvings - 1)
    return min(halvings + 1, MAX_HALVINGS) if moved else MAX_HALVINGS


class Pacer:
    """Sizes micro-batches by the rate limit, the last rate, and the destinations to retry."""

    def __init__(self, max_messages: int, max_rate: float | None) -> None:
        self._max_messages = max_messages
        self._max_rate = max_rate
        self._next_at = 0.0

    def set_max_rate(self, max_rate: float | None) -> None:
        """Change the rate limit. A wait for the old one ends."""
        if max_rate != self._max_rate:
            self._max_rate, self._next_at = max_rate, 0.0

    def wait_s(self, now: float) -> float:
        """Return the time until the rate limit allows the next micro-batch."""
        return 0.0 if self._max_rate is None else max(0.0, self._next_at - now)

    def size(
        self,
        now: float,
        rate: float,
        halvings: int = 0,
        *,
        lock_s: float = LONG_LOCK_S,
        left: bool = False,
        limit: float | None = None,
    ) -> int:
        """Return the size of a micro-batch that starts now, at the last one's `rate`. `lock_s` is
        the duration of the locks. `left`: the last one did not move all messages. `limit` is the
        rate that the namespaces bear: tasks keep to it, so that they may last longer."""
        size = self._max_messages
        share = min(lock_s / LONG_LOCK_S, 1.0)
        if rate == 0 and share < 1:
            rate = FIRST_RATE
        if rate > 0:
            # A small micro-batch has a low rate, so the next one must not always be smaller.
            smallest = int(MIN_BATCH * share) if left else MIN_BATCH
            size = min(size, max(1, smallest, int(rate * MAX_BATCH_S * share)))
        if halvings > 0:
            size = min(size, max(MIN_RETRY_BATCH, self._max_messages >> halvings))
        if limit is not None:
            limit = limit if self._max_rate is None else min(limit, self._max_rate)
            size = min(size, max(1, int(limit * MAX_BATCH_S * share)))
        if self._max_rate is not None:
            if limit is None:
                size = min(size, max(1, int(self._max_rate)))
            self._next_at = now + size / self._max_rate
        return size


class BlockedReadBackoff:
    """Decides when to read queues whose first messages are for blocked destinations.

    Messages for other destinations may be behind them. But each receive is billed, and what is
    received must be abandoned or stays locked. So it is done at once, again after any message was
    moved, and otherwise after a time that doubles.
    """

    def __init__(self) -> None:
        self._last_read: float | None = None
        self._wait_s = BLOCKED_READ_S
        self._moved = 0

    def is_due(self, now: float, moved: int) -> bool:
        """Return True if it is time to read. `moved` is the total of all messages so far."""
        waited = self._last_read is None or now - self._last_read >= self._wait_s
        progress = moved > self._moved
        if not waited and not progress:
            return False
        if progress:
            self._wait_s = BLOCKED_READ_S
        elif self._last_read is not None:
            self._wait_s = min(2 * self._wait_s, MAX_BLOCKED_READ_S)
        self._last_read, self._moved = now, moved
        return True
