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


def moved(**counts: int) -> Outcome:
    return Outcome(moved=Counter(counts))


def test_messages_of_a_running_micro_batch_count_once(folder: Path):
    tasks = TaskProgress(folder)
    refused = {"bills": Counter(Refused=2, Expired=1)}
    report = Outcome(moved=Counter(orders=5, bills=1), dead_letter_reasons=refused)
    tasks.report("a", "1", report)
    reports = tasks.read()
    writer = with_progress(WriterStatus(moved=Counter(orders=10)), reports)
    assert writer.moved == {"orders": 15, "bills": 1}
    assert (writer.dead_lettered, writer.dead_letter_reasons) == ({"bills": 3}, refused)

    ended = WriterStatus(moved=Counter(orders=10))
    ended.add([moved(orders=7, bills=1)], 1.0)
    ended.end_batch("a")
    assert with_progress(ended, reports).moved == {"orders": 17, "bills": 1}
    assert ended.dead_lettered == {}

    tasks.remove("a")
    assert tasks.read() == {}


def test_each_attempt_of_a_micro_batch_counts(folder: Path):
    TaskProgress(folder).report("a", "1", moved(orders=1))
    TaskProgress(folder).report("a", "2", moved(orders=2))
    assert with_progress(WriterStatus(), TaskProgress(folder).read()).moved == {"orders": 3}


def test_task_reports_from_time_to_time_and_dead_letters_at_once(folder: Path):
    now = 0.0
    tasks = TaskProgress(folder, lambda: now)
    tasks.report("a", "1", moved(orders=1))
    tasks.report("a", "1", moved(orders=2))
    assert tasks.read() == {"a": {"1": moved(orders=1)}}
    now = REPORT_S
    tasks.report("a", "1", moved(orders=3))
    assert tasks.read() == {"a": {"1": moved(orders=3)}}
    tasks.report("a", "1", moved(orders=4), at_once=True)
    assert tasks.read() == {"a": {"1": moved(orders=4)}}


def test_without_the_folder_of_the_driver_nothing_is_reported(tmp_path: Path):
    tasks = TaskProgress(tmp_path / "elsewhere")
    tasks.report("a", "1", moved(orders=1))
    assert tasks.read() == {}
    assert not (tmp_path / "elsewhere").exists()


def test_few_ended_micro_batches_are_remembered():
    status = WriterStatus()
    for number in range(10):
        status.end_batch(str(number))
    assert status.ended_batches[-1] == "9"
    assert len(status.ended_batches) == KNOWN_BATCHES + 1
