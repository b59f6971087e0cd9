"""Waiting for a condition, with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 280.0
"""Long, because machines that run tests are slow: Spark starts several times at once."""


def wait_until(condition: Callable[[], T], what: str, *, deadline_s: float = DEADLINE_S) -> T:
    """Wait until a condition is true, and return its value. `what` completes the sentence "timed
    out waiting for"."""
    deadline = time.monotonic() + deadline_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.01)
    return result
