"""Work that Ctrl-C does not meet halfway."""

import sys
import threading

import pytest

from pairbus.cli.background import in_background


def test_what_it_gives_or_raises_reaches_whoever_waits() -> None:
    assert in_background(lambda: threading.current_thread().name) == "pairbus works"
    with pytest.raises(ZeroDivisionError):
        in_background(lambda: 1 // 0)
    with pytest.raises(SystemExit):
        in_background(sys.exit)
