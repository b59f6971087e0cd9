"""Rate control: how many messages a second two namespaces bear that throttle. No I/O, no clock.

A drain shares the throughput of both namespaces with live senders and receivers. A namespace does
not say how much is left, only that it was too much (server-busy, with a time to wait). So the rate
is found by additive increase and multiplicative decrease, as in TCP:

- after a throttled operation nothing is moved for as long as the namespace asks;
- then the rate starts a little below the limit, which is the rate at which it throttled;
- it grows by the same amount each second, and reaches the limit after `RECOVERY_S`;
- beyond the limit it grows slowly at first and then faster: the old limit is forgotten.

The rate between two throttled operations is a function of the time alone. Processes that know the
last throttled operation therefore agree on the rate without further communication.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pairbus.errors import Busy
from pairbus.servicebus.limits import CREDITS_PER_SECOND_STANDARD

DECREASE = 0.9
"""The factor by which the rate starts below the limit."""
FIRST_DECREASE = 0.5
"""The factor after the first throttled operation: a burst is not a rate that a namespace bears."""
REPEATED_DECREASE = 0.6
"""The factor if a namespace throttles again soon after the wait: the start was too high."""
SOON_S = 2.0
RECOVERY_S = 45.0
"""The time in which the rate grows from its start to the limit. Each attempt to exceed the limit
costs the wait that the service asks for, and a part of a second of live traffic."""
DOUBLING_S = 10.0
"""The time after which the rate, beyond the limit, is twice the limit. It then grows faster."""
MIN_RATE = 10.0
"""Messages a second that are tried even if live traffic uses all of the throughput."""
MAX_KNOWN_RATE = 100_000.0
"""A higher rate is no limit."""
DEFAULT_WAIT_S = 2.0
"""The wait if a namespace does not name one; Service Bus asks for two seconds."""
MAX_WAIT_S = 30.0

_WAIT = re.compile(r"wait (\d+(?:\.\d+)?) seconds?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The last throttled operation, and the rate that follows from it.

    Times are in seconds since 1970. The rate is that of all tasks together.
    """

    limit: float | None = None
    """Messages a second when a namespace throttled last. None: no namespace has throttled."""
    start: float = 0.0
    """The rate after the wait."""
    throttled_at: float = 0.0
    resume_at: float = 0.0
    """The end of the wait that the namespace asked for."""

    def rate(self, now: float, max_rate: float | None = None) -> float | None:
        """Return the messages a second that are allowed now. None: no limit is known."""
        rate = self._uncapped_rate(now)
        if rate is None or max_rate is None:
            return max_rate if rate is None else rate
        return min(rate, max_rate)

    def batch_rate(self, now: float) -> float | None:
        """Return the rate for the size of a micro-batch, which may start during a wait."""
        return self._uncapped_rate(max(now, self.resume_at))

    def throttled(
        self, now: float, wait_s: float, observed: float | None, *, sent_at: float | None = None
    ) -> "RateLimit":
        """Return the limit after a throttled operation. `observed` is the number of messages a
        second until then, which may be lower than the rate that was allowed. None: it is not known.
        `sent_at` is the time of the operation, if its answer was not read at once.
        """
        resume_at = max(self.resume_at, now + min(wait_s, MAX_WAIT_S))
        if now < self.resume_at:
            # Operations that were in flight are throttled too. They say nothing about the rate.
            return RateLimit(self.limit, self.start, self.throttled_at, resume_at)
        if sent_at is not None and sent_at <= self.throttled_at:
            return self  # the wait is over, and its answer was read late
        allowed = self._uncapped_rate(now)
        if allowed is None:
            limit = CREDITS_PER_SECOND_STANDARD if observed is None else observed
            decrease = FIRST_DECREASE
        else:
            limit = allowed if observed is None else min(observed, allowed)
            decrease = REPEATED_DECREASE if now - self.resume_at < SOON_S else DECREASE
        limit = max(limit, MIN_RATE)
        return RateLimit(limit, max(decrease * limit, MIN_RATE), now, resume_at)

    def _uncapped_rate(self, now: float) -> float | None:
        if self.limit is None:
            return None
        elapsed = now - self.resume_at
        if elapsed < 0:
            return 0.0
        if elapsed <= RECOVERY_S:
            return self.start + (self.limit - self.start) * elapsed / RECOVERY_S
        doublings = ((elapsed - RECOVERY_S) / DOUBLING_S) ** 2
        rate = self.limit * 2.0 ** min(doublings, 64.0)
        return rate if rate <= MAX_KNOWN_RATE else None


NO_LIMIT = RateLimit()


def credit_limit(now: float) -> RateLimit:
    """Return the limit of a namespace that has credits, before it throttles: the rate starts at
    half of them."""
    return RateLimit(CREDITS_PER_SECOND_STANDARD, 0.0, 0.0, now - RECOVERY_S / 2)


def latest(limits: Iterable[RateLimit]) -> RateLimit:
    """Return the limit that was learned last. Tasks on several machines learn separately."""
    return max(limits, key=lambda limit: (limit.throttled_at, limit.resume_at), default=NO_LIMIT)


def requested_wait_s(error: Busy) -> float | None:
    """Return the seconds that a namespace asks its clients to wait, or None if it does not: then
    a single entity may be busy, and not the namespace."""
    match = _WAIT.search(str(error))
    return None if match is None else float(match[1])
