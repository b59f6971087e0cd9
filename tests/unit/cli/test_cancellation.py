"""Signals that ask a command to stop."""

import signal
import threading

import pytest

from pairbus.cli.cancellation import cancel_on_signal

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_sets_the_event_and_handlers_are_restored(number: int) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    stopped = threading.Event()

    with cancel_on_signal(stopped) as cancel:
        assert cancel is stopped
        signal.raise_signal(number)
        assert stopped.is_set()

    assert [signal.getsignal(each) for each in SIGNALS] == before
