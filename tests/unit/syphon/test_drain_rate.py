"""The rate limit in the processes of the driver."""

from pathlib import Path

import pytest

from pairbus.errors import Busy
from pairbus.spark.rate_control import NO_LIMIT, RateLimit
from pairbus.syphon.drain_rate import DrainRate

pytestmark = pytest.mark.rule("Y9")
NOW = 1_000_000.0
THROTTLED = Busy("Error code : 50009. Please wait 2 seconds and try again.")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rate.json"


def test_micro_batch_has_what_tasks_of_other_machines_learned(path: Path):
    rate = DrainRate(path, max_rate=70.0)
    learned = NO_LIMIT.throttled(NOW, 2.0, 300.0)
    older = NO_LIMIT.throttled(NOW - 5, 2.0, 100.0)
    rate.learn([NO_LIMIT, learned, older])

    plan = DrainRate(path, max_rate=70.0).plan(3)

    assert plan.limit == learned
    assert (plan.max_rate, plan.shares, plan.file) == (70.0, 3, path)
    assert rate.batch_rate(NOW) == learned.start


def test_sink_knows_the_number_of_tasks(path: Path):
    assert DrainRate(path, None).planned().shares == 1
    DrainRate(path, None).plan(4)
    assert DrainRate(path, None).planned().shares == 4


def test_throttled_poll_is_a_wait_and_lowers_a_known_limit(path: Path):
    rate = DrainRate(path, None)
    rate.note_throttled(THROTTLED, NOW)
    assert rate.plan(1).limit.rate(NOW + 1) == 0.0
    assert rate.batch_rate(NOW) is not None

    rate.learn([RateLimit(400.0, 400.0, NOW + 10, NOW + 12)])
    rate.note_throttled(THROTTLED, NOW + 30)
    limit = rate.plan(1).limit
    assert limit.throttled_at == NOW + 30
    assert limit.start < 400


def test_throttled_polls_and_receives_of_tasks_are_counted_together(path: Path):
    rate = DrainRate(path, None)
    assert rate.throttled_receives() == 0
    rate.note_throttled(THROTTLED, NOW)
    task = rate.plan(1).start("receive")
    task.note_throttled(THROTTLED)
    task.note_throttled(THROTTLED)
    rate.plan(1).start("send").note_throttled(THROTTLED)

    assert rate.throttled_receives() == 3
