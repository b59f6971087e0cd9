"""Pause, resume and rates of a running syphon."""

import time
from datetime import timedelta
from pathlib import Path

import pytest

from pairbus.backlog.syphon_control import Control, ControlFile
from pairbus.errors import StateError
from tests.backlog import Backlog
from tests.messages import numbered
from tests.spark.conftest import MakeSyphon
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.rule("Y12")]


def test_paused_syphon_is_healthy_and_costs_nothing_and_a_restart_keeps_the_pause(
    backlog: Backlog, make_syphon: MakeSyphon, tmp_path: Path
) -> None:
    path = backlog.path("one")
    backlog.put(path, numbered(20))
    control = tmp_path / "control.json"
    ControlFile(control).update(Control.pause)

    with make_syphon(control_file=str(control)) as syphon:
        wait_until(lambda: syphon.status().paused, "a pause that was set before the start")
        assert ControlFile(control).is_in_use()
        status = syphon.status()
        assert (status.healthy, status.problem, status.moved.total()) == (True, None, 0)
        assert backlog.receives() == 0
        syphon.resume()
        wait_until(lambda: syphon.status().moved.total() == 20, "the backlog after the pause")
        syphon.pause()
        wait_until(lambda: syphon.status().paused, "the second pause")
        backlog.put(path, numbered(5, "later"))
        started_at = time.time()
        reports = syphon._reports
        wait_until(lambda: reports.read()[0].reported_at > started_at + 1, "another report")
        assert syphon.status().moved.total() == 20
        assert backlog.left() == 5

    with pytest.raises(StateError, match="does not run"):
        syphon.resume()
    assert ControlFile(control).read().paused
    assert not ControlFile(control).is_in_use()


@pytest.mark.parametrize("lock_duration", [timedelta(seconds=10)], ids=["short locks"])
def test_destination_is_paused_and_limited_while_others_go_on(
    backlog: Backlog, make_syphon: MakeSyphon
) -> None:
    slow, fast = backlog.path("slow"), backlog.path("fast")
    backlog.put(slow, numbered(100, "s"))

    with make_syphon(max_rates={slow: 4}) as syphon:
        started_at = time.monotonic()
        wait_until(lambda: syphon.status().moved[slow] >= 4, "the first messages")
        elapsed_s = time.monotonic() - started_at
        moved = syphon.status().moved[slow]
        assert moved <= 4 * (elapsed_s + 2) + 2 * 8, "two queues may use a burst each"
        syphon.pause(slow)
        backlog.put(fast, numbered(50, "f"), queue=1)
        wait_until(lambda: syphon.status().moved[fast] == 50, "the other destination")
        assert syphon.status().moved[slow] < 100
        syphon.resume(slow)
        syphon.set_max_rate(1000, slow)
        wait_until(lambda: syphon.status().moved[slow] == 100, "the destination at full rate")

    assert backlog.left() == 0
    assert sorted(backlog.ids(slow)) == sorted(f"s-{n}" for n in range(100))
