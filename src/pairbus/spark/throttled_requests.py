"""Requests that are repeated while the namespace throttles, such as peeks of a command."""

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from pairbus.errors import Busy
from pairbus.spark.rate_control import requested_wait_s

Result = TypeVar("Result")

logger = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""The time after which a namespace that goes on to throttle is given up."""
DEFAULT_WAIT_S = 2.0
"""The time to wait if the namespace does not ask for one."""


def retry_throttled(
    request: Callable[[], Result],
    *,
    patience_s: float = PATIENCE_S,
    sleep: Callable[[float], object] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Result:
    """Return the result of a request, which is repeated if it was throttled, after the time for
    which the namespace asks. Raises Busy when the time is over, and the other errors of the
    request at once."""
    sleep = threading.Event().wait if sleep is None else sleep
    deadline = now() + patience_s
    while True:
        try:
            return request()
        except Busy as exc:
            wait_s = requested_wait_s(exc) or DEFAULT_WAIT_S
            if now() + wait_s > deadline:
                raise
            logger.info("Throttled; the request is repeated after %g s: %s", wait_s, exc)
            sleep(wait_s)
