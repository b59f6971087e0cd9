"""How long jobs have waited without an executor."""

from pairbus.spark.executors import ExecutorWatch
from pairbus.spark.sessions import SPECULATION
from pairbus.syphon.pacing import MAX_BATCH_S


class Context:
    def __init__(self) -> None:
        self.now = 100.0
        self.starved = False
        self.questions = 0

    def is_starved(self) -> bool:
        self.questions += 1
        return self.starved


def test_time_counts_while_a_job_has_no_executor() -> None:
    context = Context()
    watch = ExecutorWatch("spark://host:7077", context.is_starved, lambda: context.now)
    assert watch.seconds_without() == 0

    context.starved = True
    context.now = 110
    assert watch.seconds_without() == 0
    context.now = 145
    assert watch.seconds_without() == 35

    context.starved = False
    context.now = 150
    assert watch.seconds_without() == 0


def test_spark_is_not_asked_more_often_than_every_two_seconds() -> None:
    context = Context()
    watch = ExecutorWatch("spark://host:7077", context.is_starved, lambda: context.now)
    for _ in range(50):
        watch.seconds_without()
        context.now += 0.1

    assert context.questions == 3


def test_spark_that_has_ended_is_not_without_executors() -> None:
    def fail() -> bool:
        raise ConnectionRefusedError

    assert ExecutorWatch("spark://host:7077", fail).seconds_without() == 0


def test_second_run_of_a_task_starts_after_three_times_its_aim() -> None:
    """Not sooner: it costs duplicates. Not later either, if the other tasks last as they should."""
    aim_s = MAX_BATCH_S
    assert SPECULATION["spark.speculation.minTaskRuntime"] == f"{3 * aim_s:.0f}s"
    assert SPECULATION["spark.speculation.task.duration.threshold"] == f"{3 * aim_s:.0f}s"
    assert float(SPECULATION["spark.speculation.multiplier"]) * aim_s == 3 * aim_s
    assert SPECULATION["spark.speculation.efficiency.enabled"] == "false"
