"""Idle timeouts (part 2, 2.4.5): when to give up on the peer, and when to send it a heartbeat."""

import math


class IdleTimer:
    """The idle timeouts of both peers. An infinite timeout never expires."""

    def __init__(self, timeout_s: float | None, now: float) -> None:
        self.timeout_s = math.inf if timeout_s is None else timeout_s
        """The longest time for which the peer may send nothing."""
        self.remote_timeout_s = math.inf
        """The longest time for which we may send nothing."""
        self.last_received = now
        self.last_sent = now

    def expired(self, now: float) -> bool:
        """Return True if the peer sent nothing for too long."""
        return now - self.last_received >= self.timeout_s

    def heartbeat_due(self, now: float) -> bool:
        """Return True if half of the peer's timeout has passed since we sent something."""
        return now - self.last_sent >= self.remote_timeout_s / 2

    def deadline(self, *, heartbeats: bool) -> float | None:
        """Return when the next timeout expires or heartbeat is due, or None without timeouts."""
        deadline = self.last_received + self.timeout_s
        if heartbeats:
            deadline = min(deadline, self.last_sent + self.remote_timeout_s / 2)
        return None if deadline == math.inf else deadline
