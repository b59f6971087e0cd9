"""The pace of tasks, with a clock of their own."""

from dataclasses import replace
from pathlib import Path

import pytest

from pairbus.errors import Busy
from pairbus.spark.pace import MAX_TASK_S, SLICE_S, UNPACED, Pace, RatePlan
from pairbus.spark.rate_control import FIRST_DECREASE, NO_LIMIT, RateLimit
from pairbus.spark.rate_file import RateFile
from pairbus.spark.rate_schedule import MAX_LATE_S

pytestmark = pytest.mark.rule("Y9")
NOW = 1_000_000.0
THROTTLED = Busy("Error code : 50009. Please wait 2 seconds and try again.")


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def pace(clock: Clock, file: RateFile | None = None, **plan: object) -> Pace:
    return Pace(RatePlan(**plan), file, now=clock, sleep=clock.sleep)  # type: ignore[arg-type]


def known(rate: float) -> RateLimit:
    """Return a limit whose rate is constant for some time."""
    return RateLimit(rate, rate, NOW - 10, NOW - 5)


def messages_in(task: Pace, clock: Clock, seconds: float) -> int:
    end, messages = clock.now + seconds, 0
    while True:
        count = task.max_slice()
        task.wait(count)
        if clock.now >= end:
            return messages
        messages += count


def test_nothing_is_delayed_without_a_limit(clock: Clock):
    task = pace(clock)
    for _ in range(100):
        assert task.max_slice() == UNPACED
        task.wait(10_000)
    assert clock.now == NOW
    assert not task.is_over()


def test_messages_are_spread_over_time(clock: Clock):
    task = pace(clock, limit=known(400))
    assert task.max_slice() == 400 * SLICE_S
    assert messages_in(task, clock, 10) == pytest.approx(4000, rel=0.02)


def test_tasks_share_the_rate(clock: Clock):
    task = pace(clock, limit=known(400), shares=4)
    assert messages_in(task, clock, 10) == pytest.approx(1000, rel=0.02)


def test_tasks_of_one_machine_share_a_schedule(clock: Clock, tmp_path: Path):
    plan = RatePlan(limit=known(400), file=tmp_path / "rate.json")
    tasks = [replace(plan.start("send"), now=clock, sleep=clock.sleep) for _ in range(2)]
    for task in tasks:
        task.wait(40)
    assert clock.now == pytest.approx(NOW + 0.1, abs=MAX_LATE_S + 0.001)
    other = replace(plan.start("receive"), now=clock, sleep=clock.sleep)
    before = clock.now
    other.wait(40)
    assert clock.now == before, "receives do not wait for sends"


def test_task_that_ends_leaves_its_part_to_the_others(clock: Clock, tmp_path: Path):
    plan = RatePlan(limit=known(400), file=tmp_path / "rate.json")
    first, second = (replace(plan.start("send"), now=clock, sleep=clock.sleep) for _ in range(2))
    messages_in(first, clock, 1)
    assert messages_in(second, clock, 10) == pytest.approx(4000, rel=0.02)


def test_tasks_of_several_machines_have_schedules_of_their_own(clock: Clock, tmp_path: Path):
    plan = RatePlan(limit=known(400), file=tmp_path / "rate.json", shares=2)
    tasks = [replace(plan.start("send"), now=clock, sleep=clock.sleep) for _ in range(2)]
    for task in tasks:
        task.wait(5)
    assert clock.now == NOW


def test_wait_begins_again_if_an_operation_is_throttled_meanwhile(clock: Clock, tmp_path: Path):
    path = tmp_path / "rate.json"
    other = pace(clock, RateFile(path), limit=known(400))

    def sleep_while_throttled(seconds: float) -> None:
        clock.sleep(seconds)
        if other.throttled == 0:
            other.note_throttled(THROTTLED)

    task = Pace(RatePlan(limit=known(400)), RateFile(path), now=clock, sleep=sleep_while_throttled)
    task.wait(40)
    assert other.throttled == 0
    task.wait(40)
    assert other.throttled == 1
    assert clock.now >= NOW + 2


def test_cap_holds(clock: Clock):
    task = pace(clock, limit=known(400), max_rate=50.0)
    assert messages_in(task, clock, 10) <= 50 * (10 + MAX_LATE_S + SLICE_S)


def test_late_task_does_not_catch_up_in_a_burst(clock: Clock):
    task = pace(clock, limit=known(400))
    messages_in(task, clock, 1)
    clock.now += 5
    assert messages_in(task, clock, 1) <= 400 + 2 * 400 * SLICE_S


def test_messages_that_did_not_come_are_not_counted(clock: Clock):
    task = pace(clock, limit=known(400))
    task.wait(40)
    before = clock.now
    task.give_back(40)
    task.wait(40)
    assert clock.now == before


def test_throttled_task_waits_and_goes_on_at_the_observed_rate(clock: Clock):
    task = pace(clock, shares=2)
    task.wait(10_000)
    task.count(300)
    task.note_throttled(THROTTLED)
    assert task.throttled == 1
    task.wait(1)
    assert clock.now >= NOW + 2
    rate = task.limit.rate(clock.now)
    assert rate == pytest.approx(FIRST_DECREASE * 2 * 300, rel=0.01)


def test_observed_rate_is_that_of_the_best_second(clock: Clock):
    """A task that is throttled after a pause has no messages in the last second."""
    task = pace(clock)
    task.count(300)
    clock.now += 5
    task.note_throttled(THROTTLED)
    assert task.limit.limit == 300


def test_task_that_moved_nothing_is_paced_after_the_wait(clock: Clock):
    task = pace(clock)
    task.note_throttled(THROTTLED)
    assert task.max_slice() < UNPACED
    task.wait(task.max_slice())
    assert clock.now >= NOW + 2


def test_processes_of_a_machine_learn_from_each_other(clock: Clock, tmp_path: Path):
    path = tmp_path / "rate.json"
    reader = pace(clock, RateFile(path))
    writer = pace(clock, RateFile(path))
    reader.wait(500)
    writer.count(500)
    writer.note_throttled(THROTTLED)
    assert reader.limit == writer.limit != NO_LIMIT
    reader.wait(1)
    assert clock.now >= NOW + 2
    assert RateFile(path).read() == writer.limit


def test_paced_task_ends_in_time(clock: Clock):
    task = pace(clock, limit=known(400))
    assert not task.is_over()
    clock.now += MAX_TASK_S + 1
    assert task.is_over()


def test_file_that_is_missing_or_damaged_holds_no_limit(tmp_path: Path):
    path = tmp_path / "rate.json"
    assert RateFile(path).read() == NO_LIMIT
    path.write_text("{")
    assert RateFile(path).read() == NO_LIMIT
    RateFile(tmp_path / "gone" / "rate.json").write(known(1))


def test_worker_uses_the_file_of_the_driver_if_it_is_on_its_machine(tmp_path: Path):
    RateFile(tmp_path / "rate.json").write(known(7))
    file = RateFile.of_worker(tmp_path / "rate.json")
    assert file is not None
    assert file.read() == known(7)
    assert RateFile.of_worker(None) is None
