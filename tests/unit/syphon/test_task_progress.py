"""Progress of tasks within a micro-batch."""

from collections import Counter
from pathlib import Path

import pytest

from pairbus.spark.outcome import Outcome
from pairbus.syphon.task_progress import REPORT_S, TaskProgress, with_progress
from pairbus.syphon.writer_status import KNOWN_BATCHES, WriterStatus

pytestmark = pytest.mark.rule("Y9")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    TaskProgress(tmp_path / "progress").create()
    return tmp_path / "progress"


def test_messages_of_a_running_micro_batch_count_once(folder: Path):
    tasks = TaskProgress(folder)
    tasks.report("a", 0, Counter(orders=5, bills=1))
    reports = tasks.read()
    writer = WriterStatus(moved=Counter(orders=10))
    assert with_progress(writer, reports).moved == {"orders": 15, "bills": 1}

    ended = WriterStatus(moved=Counter(orders=10))
    ended.add([Outcome(moved=Counter(orders=7, bills=1))], 1.0)
    ended.end_batch("a")
    assert with_progress(ended, reports).moved == {"orders": 17, "bills": 1}

    tasks.remove("a")
    assert tasks.read() == {}


def test_task_reports_from_time_to_time(folder: Path):
    now = 0.0
    tasks = TaskProgress(folder, lambda: now)
    tasks.report("a", 0, Counter(orders=1))
    tasks.report("a", 0, Counter(orders=2))
    assert tasks.read() == {"a": {"orders": 1}}
    now = REPORT_S
    tasks.report("a", 0, Counter(orders=3))
    assert tasks.read() == {"a": {"orders": 3}}


def test_process_that_runs_several_tasks_reports_each(folder: Path):
    TaskProgress(folder).report("a", 0, Counter(orders=5))
    TaskProgress(folder).report("a", 1, Counter(orders=2))
    assert TaskProgress(folder).read() == {"a": {"orders": 7}}

    TaskProgress(folder).report("a", 1, Counter(orders=1))  # it is tried again
    assert TaskProgress(folder).read() == {"a": {"orders": 6}}


def test_last_report_of_a_task_is_made_at_once(folder: Path):
    task = TaskProgress(folder, lambda: 0.0)
    task.report("a", 0, Counter(orders=1))
    task.report("a", 0, Counter(orders=2), is_last=True)
    assert task.read() == {"a": {"orders": 2}}


def test_without_the_folder_of_the_driver_nothing_is_reported(tmp_path: Path):
    tasks = TaskProgress(tmp_path / "elsewhere")
    tasks.report("a", 0, Counter(orders=1))
    assert tasks.read() == {}
    assert not (tmp_path / "elsewhere").exists()


def test_few_ended_micro_batches_are_remembered():
    status = WriterStatus()
    for number in range(10):
        status.end_batch(str(number))
    assert status.ended_batches[-1] == "9"
    assert len(status.ended_batches) == KNOWN_BATCHES + 1
