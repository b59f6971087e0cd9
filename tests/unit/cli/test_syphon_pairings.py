"""Several syphons in one run: its signals and its exit status."""

import signal

import pytest

from pairbus.cli.console import consoles
from pairbus.cli.syphon_pairings import (
    DRAINED,
    FAILED,
    STOPPED,
    STUCK,
    PairingsRun,
    combined_exit_status,
)
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.status import SyphonStatus, initial_status
from tests.commands import ONE, TWO

OPTIONS = SyphonOptions(primary=ONE, secondary=TWO)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([DRAINED, DRAINED], DRAINED),
        ([DRAINED, STUCK], STUCK),
        ([STUCK, STOPPED], STOPPED),
        ([STUCK, FAILED, DRAINED], FAILED),
    ],
)
def test_exit_status_is_that_of_the_worst(results: list[int], expected: int) -> None:
    assert combined_exit_status(results) == expected


class SignalledSyphon:
    """A syphon without Spark. The user stops the command while it starts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.starts = self.stops = 0

    def start(self, *, once: bool) -> None:
        self.starts += 1
        signal.raise_signal(self.number)

    def stop(self) -> None:
        self.stops += 1

    def status(self) -> SyphonStatus:
        return initial_status()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_all_syphons_and_the_handlers_are_restored(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(number)
    syphon = SignalledSyphon(number)
    monkeypatch.setattr("pairbus.syphon.query.Syphon", lambda *_, **__: syphon)
    run = PairingsRun({"a": OPTIONS, "b": OPTIONS}, None, None, once=True, status_file=None)

    assert run.run(*consoles()) == FAILED  # the second one was not started
    assert (syphon.starts, syphon.stops) == (1, 1)
    assert signal.getsignal(number) is before
