"""The tier of the namespaces that fixtures start: PAIRBUS_TEST_TIER, by default unlimited."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

from pairbus.emulator.tiers import tier_of
from pairbus.errors import Busy

T = TypeVar("T")

TEST_TIER = tier_of(os.environ.get("PAIRBUS_TEST_TIER", "unlimited"))
ATTEMPTS = 60


def when_admitted(call: Callable[[], T]) -> T:
    """Call a function, and again each second while the namespace throttles it."""
    for _ in range(ATTEMPTS):
        try:
            return call()
        except Busy:
            time.sleep(1)
    return call()
