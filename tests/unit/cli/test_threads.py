"""Work that Ctrl-C does not meet halfway."""

import sys
import threading

import pytest

from pairbus.cli.threads import run_in_thread


def test_what_it_gives_or_raises_reaches_whoever_waits() -> None:
    assert run_in_thread(lambda: threading.current_thread().name) == "pairbus works"
    with pytest.raises(ZeroDivisionError):
        run_in_thread(lambda: 1 // 0)
    with pytest.raises(SystemExit):
        run_in_thread(sys.exit)
