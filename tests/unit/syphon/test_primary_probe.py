"""When messages are received for a primary that may be down."""

import pytest

from pairbus.syphon.primary_probe import (
    MAX_TRIAL_S,
    TRIAL_S,
    Admission,
    PrimaryProbe,
)

pytestmark = pytest.mark.rule("Y8")
ALL, FEW, NONE = Admission.ALL, Admission.FEW, Admission.NONE


class Primary:
    """A primary that refuses connections or not, and the time of each probe."""

    def __init__(self, *, is_down: bool) -> None:
        self.is_down = is_down
        self.now = 0.0
        self.probes: list[float] = []
        self.probe = PrimaryProbe(self._connect)

    def _connect(self) -> str | None:
        self.probes.append(self.now)
        return "connection refused" if self.is_down else None

    def at(self, now: float, *, moved: int = 0, failing: bool = False) -> Admission:
        self.now = now
        return self.probe.admission(now, moved=moved, failing=failing)


def test_primary_that_works_is_probed_once():
    primary = Primary(is_down=False)

    assert [primary.at(now, moved=int(now)) for now in range(100)] == [ALL] * 100
    assert primary.probes == [0]


def test_nothing_is_received_while_the_primary_is_down():
    primary = Primary(is_down=True)

    assert [primary.at(now) for now in range(int(TRIAL_S))] == [NONE] * int(TRIAL_S)
    assert primary.probes == [0, 1, 3, 7, 12, 17, 22, 27]
    assert primary.probe.problem == "connection refused"

    primary.is_down = False
    assert primary.at(32) is ALL


def test_a_few_messages_are_tried_less_and_less_often():
    primary = Primary(is_down=True)

    trials = [now for now in range(4000) if primary.at(now) is FEW]

    assert trials == [30, 90, 210, 450, 930, 1830, 2730, 3630]
    assert trials[-1] - trials[-2] == MAX_TRIAL_S


def test_primary_that_only_executors_can_reach_is_not_probed_again():
    primary = Primary(is_down=True)
    assert primary.at(0) is NONE
    assert primary.at(TRIAL_S) is FEW

    assert primary.at(TRIAL_S + 1, moved=50) is ALL
    assert primary.at(TRIAL_S + 2, moved=50) is ALL
    assert primary.at(TRIAL_S + 3, moved=50, failing=True) is NONE


def test_destination_that_fails_does_not_stop_a_primary_that_can_be_reached():
    primary = Primary(is_down=False)

    assert [primary.at(now, failing=True) for now in range(12)] == [ALL] * 12
    assert primary.probes == [0, 5, 10]
