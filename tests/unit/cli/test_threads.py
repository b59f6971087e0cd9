"""Functions that run in a thread, so that Ctrl-C does not interrupt them."""

import sys
import threading

import pytest

from pairbus.cli.threads import run_in_thread


def test_result_and_exception_reach_the_caller() -> None:
    assert run_in_thread(lambda: threading.current_thread().name) == "pairbus worker"
    with pytest.raises(ZeroDivisionError):
        run_in_thread(lambda: 1 // 0)
    with pytest.raises(SystemExit):
        run_in_thread(sys.exit)
