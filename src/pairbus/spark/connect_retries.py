"""Retries of a client of Spark Connect whose server cannot be reached.

By default, PySpark tries for ten minutes, and does so again in each later call.
"""

import time
from collections.abc import Callable
from typing import Any

OUTAGE_S = 60.0
"""A server that cannot be reached for longer is lost."""
MAX_BACKOFF_S = 5.0
FORGOTTEN_S = 3 * MAX_BACKOFF_S
"""Without a failed request for so long, the server has answered meanwhile."""


class ServerOutage:
    """Measures for how long requests have failed, over all calls of a client."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = self._last = float("-inf")

    def allows_retry(self) -> bool:
        """Take note of a request that failed. Return True if it should be sent again."""
        now = self._now()
        if now - self._last > FORGOTTEN_S:
            self._since = now
        self._last = now
        return now - self._since < OUTAGE_S


def limit_retries(client: Any, now: Callable[[], float] = time.monotonic) -> None:
    """Let a client of Spark Connect fail when its server cannot be reached for `OUTAGE_S`."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    class Policy(DefaultPolicy):
        def __init__(self) -> None:
            super().__init__(max_retries=None, max_backoff=int(MAX_BACKOFF_S * 1000))
            self._outage = ServerOutage(now)

        def can_retry(self, e: BaseException) -> bool:
            return super().can_retry(e) and self._outage.allows_retry()

    client.set_retry_policies([Policy()])
