"""Signals that ask a command to stop."""

import signal
import threading

import pytest

from pairbus.cli.cancellation import cancel_on_signal
from pairbus.cli.console import consoles
from pairbus.cli.syphon_pairings import PairingsRun
from pairbus.cli.syphon_run import SyphonRun
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.status import SyphonStatus, initial_status
from tests.commands import ONE, TWO

SIGNALS = (signal.SIGINT, signal.SIGTERM)
OPTIONS = SyphonOptions(primary=ONE, secondary=TWO)  # type: ignore[arg-type]


class SignalledSyphon:
    """A syphon without Spark. The user stops the command while it starts."""

    options = OPTIONS

    def __init__(self, number: int) -> None:
        self.number = number
        self.starts = self.stops = 0

    def start(self, *, once: bool) -> None:
        self.starts += 1
        signal.raise_signal(self.number)

    def stop(self) -> None:
        self.stops += 1

    def seconds_without_executors(self) -> float:
        return 0.0

    def status(self) -> SyphonStatus:
        return initial_status()


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_sets_the_event_and_handlers_are_restored(number: int) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    stopped = threading.Event()

    with cancel_on_signal(stopped) as cancel:
        assert cancel is stopped
        signal.raise_signal(number)
        assert stopped.is_set()

    assert [signal.getsignal(each) for each in SIGNALS] == before


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("several", [False, True])
def test_signal_stops_a_run_of_syphons_and_handlers_are_restored(
    number: int,
    several: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    syphon = SignalledSyphon(number)
    monkeypatch.setattr("pairbus.syphon.query.Syphon", lambda *_, **__: syphon)
    run: SyphonRun | PairingsRun
    if several:
        options = {"a": OPTIONS, "b": OPTIONS}
        run = PairingsRun(options, None, None, once=True, status_file=None)
    else:
        run = SyphonRun(OPTIONS, None, None, once=True, status_file=None)

    assert run.run(*consoles()) != 0
    assert (syphon.starts, syphon.stops) == (1, 1)
    assert "Stopping…" in capsys.readouterr().out
    assert [signal.getsignal(each) for each in SIGNALS] == before
