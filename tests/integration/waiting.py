"""Wait for a condition, with a deadline."""

import time
from collections.abc import Callable
from typing import Any

DEADLINE_S = 20.0


def wait_until(condition: Callable[[], Any], description: str) -> Any:
    """Wait until a condition is true, and return its value. Fails at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not (result := condition()):
        assert time.monotonic() < deadline, f"timed out for {description}"
        time.sleep(0.01)
    return result
