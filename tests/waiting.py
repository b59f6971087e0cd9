"""Waiting for a condition, with a deadline."""

import time
from collections.abc import Callable

DEADLINE_S = 280.0
"""Long, because machines that run tests are slow: Spark starts several times at once."""


def wait_until(
    condition: Callable[[], object], what: str, *, deadline_s: float = DEADLINE_S
) -> None:
    """Wait for a condition. `what` completes the sentence "timed out waiting for"."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.02)
