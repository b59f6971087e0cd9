"""The clock of an emulated namespace, so that a test need not wait for locks to expire."""

import time

LOCK_S = 61.0


class LockClock:
    def __init__(self) -> None:
        self._offset_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self._offset_ms

    def expire_locks(self) -> None:
        """Advance the clock by more than the lock duration."""
        self._offset_ms += int(LOCK_S * 1000)
