"""Status files of the processes of a syphon."""

from collections import Counter
from pathlib import Path

from pairbus.spark.outcome import Outcome
from pairbus.syphon.reader_status import REPORT_S, ReaderReporter, ReaderStatus
from pairbus.syphon.status_file import StatusFiles
from pairbus.syphon.writer_status import WriterStatus

START = 1000.0


def test_writer_status_is_read_as_it_was_written(tmp_path: Path):
    file = StatusFiles(tmp_path).writer
    assert file.read() == WriterStatus()
    status = WriterStatus()
    status.add(
        [
            Outcome(moved=Counter(a=2), dead_letter_reasons={"a": Counter(Refused=1)}),
            Outcome(left=Counter(b=3), errors={"b": "not found"}, missing={"b"}),
        ],
        7.0,
    )

    file.write(status)

    copy = StatusFiles(tmp_path).writer.read()
    assert copy == status
    assert (copy.moved["a"], copy.moved["b"]) == (2, 0)
    assert (copy.missing_since, copy.dead_letter_reasons["a"]["Refused"]) == ({"b": 7.0}, 1)
    assert copy.dead_letter_reasons["a"]["other"] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["writer.json"]


def test_reader_status_is_written_when_it_changes_and_otherwise_once_a_second(tmp_path: Path):
    now = START
    file = StatusFiles(tmp_path).reader
    reporter = ReaderReporter(file.write, lambda: now)
    assert file.read() == ReaderStatus()

    reporter.report(waiting=True)
    assert file.read() == ReaderStatus(reported_at=START, waiting_since=START)
    now += REPORT_S / 2
    reporter.report(waiting=True)
    assert file.read().reported_at == START
    reporter.report(waiting=False, error="down")
    assert file.read() == ReaderStatus(reported_at=now, failing_since=now, error="down")
    now += REPORT_S
    reporter.report(waiting=False, error="down")
    assert file.read().reported_at == now
    assert [path.name for path in tmp_path.iterdir()] == ["reader.json"]
