"""Waiting for a condition, with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 280.0
"""Long, because test machines can be slow: several Spark sessions may start at once."""


def wait_until(condition: Callable[[], T], event: str, *, deadline_s: float = DEADLINE_S) -> T:
    """Wait until a condition is true, and return its value. `event` completes the sentence "timed
    out waiting for"."""
    deadline = time.monotonic() + deadline_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"timed out waiting for {event}"
        time.sleep(0.01)
    return result
