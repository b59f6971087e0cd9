"""Each dead letter is in the status of a syphon, by destination and reason, in every way that a
task can end. Against an emulator, without Spark."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pairbus.backlog.message import NOT_A_MESSAGE
from pairbus.emulator.namespace import LocalNamespace
from pairbus.spark import connections
from pairbus.spark.settler import MAX_TOKENS
from pairbus.spark.task_commit import TaskCommit
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.query_status import FileReports
from pairbus.syphon.restore import to_backlog_batch
from pairbus.syphon.sink import BacklogSink
from pairbus.syphon.status_file import StatusFiles
from pairbus.syphon.writer_status import WriterStatus
from tests.integration.backlog_queue import BacklogQueue

pytestmark = [pytest.mark.rule("Y5", "Y8"), pytest.mark.unlimited]

REASONS = {"orders": {"Refused": 300, NOT_A_MESSAGE: MAX_TOKENS}, "": {"MissingPath": 7}}


class Killed(Exception):
    """Ends an attempt in the middle."""


@pytest.fixture
def files(tmp_path: Path) -> StatusFiles:
    files = StatusFiles(tmp_path)
    files.progress.create()
    return files


@pytest.fixture
def options(backlog: BacklogQueue) -> Iterator[SyphonOptions]:
    with LocalNamespace("primary") as primary:
        yield SyphonOptions(
            primary=primary.connection_string,  # type: ignore[arg-type]
            secondary=backlog.options,
            queues=(backlog.path,),
        )
        connections.close_all()


@pytest.fixture
def sink(options: SyphonOptions, files: StatusFiles) -> BacklogSink:
    """The sink of a micro-batch."""
    return BacklogSink(options, files)


@pytest.fixture
def rows(backlog: BacklogQueue) -> list[pa.RecordBatch]:
    """Messages to dead-letter: for each reason, as many as `REASONS` says."""
    messages = backlog.locked("orders", [str(n) for n in range(307 + MAX_TOKENS)])
    rows = []
    for destination, reasons in REASONS.items():
        for reason, count in reasons.items():
            part, messages = messages[:count], messages[count:]
            rows += [
                message._replace(
                    problem=reason, description="because", destination=destination or None
                )
                for message in part
            ]
    return [to_backlog_batch(rows)]


def reported(files: StatusFiles) -> WriterStatus:
    """Return the status that the program sees which started the query."""
    return FileReports(files).read()[1]


def check(status: WriterStatus, backlog: BacklogQueue) -> None:
    """Check that the status has all dead letters, and nothing else."""
    reasons = Counter(reason for reason, _ in backlog.dead_letters())
    counted: Counter[str] = Counter()
    for by_reason in status.dead_letter_reasons.values():
        counted.update(by_reason)
    assert counted == reasons
    assert status.dead_lettered.total() == reasons.total()


def write_and_die(sink: BacklogSink, rows: list[pa.RecordBatch]) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows
        raise Killed

    with pytest.raises(Killed):
        sink.write(batches())


def test_dead_letters_of_a_task_that_ended_count(
    sink: BacklogSink, rows: list[pa.RecordBatch], files: StatusFiles, backlog: BacklogQueue
) -> None:
    commit = sink.write(iter(rows))

    # Spark may be killed now, before the micro-batch ends.
    assert reported(files).dead_letter_reasons == REASONS
    sink.commit([commit], 0)
    assert reported(files).dead_letter_reasons == REASONS
    assert files.progress.read() == {}
    check(reported(files), backlog)


def test_dead_letters_of_a_task_that_was_killed_count(
    sink: BacklogSink, rows: list[pa.RecordBatch], files: StatusFiles, backlog: BacklogQueue
) -> None:
    write_and_die(sink, rows)

    assert reported(files).dead_lettered == {"orders": MAX_TOKENS}, "one request was full"
    check(reported(files), backlog)
    sink.abort([None], 0)
    check(reported(files), backlog)


@pytest.mark.parametrize("batch_fails", [False, True])
def test_dead_letters_of_an_attempt_that_another_one_replaced_count(
    sink: BacklogSink,
    rows: list[pa.RecordBatch],
    files: StatusFiles,
    backlog: BacklogQueue,
    batch_fails: bool,
) -> None:
    write_and_die(sink, rows)
    again = sink.write(iter(rows))  # the locks of its first messages are gone
    assert isinstance(again, TaskCommit)
    assert again.outcome.dead_lettered == {"orders": 300, "": 7}

    (sink.abort if batch_fails else sink.commit)([again], 0)

    assert reported(files).dead_letter_reasons == REASONS
    assert files.progress.read() == {}
    check(reported(files), backlog)


def test_totals_are_those_of_all_micro_batches(
    options: SyphonOptions, files: StatusFiles, backlog: BacklogQueue
) -> None:
    for number in range(3):
        messages = [
            message._replace(problem="Refused", description="because")
            for message in backlog.locked("orders", ["a", "b"])
        ]
        sink = BacklogSink(options, files)
        sink.commit([sink.write(iter([to_backlog_batch(messages)]))], number)

    assert reported(files).dead_letter_reasons == {"orders": {"Refused": 6}}
    check(reported(files), backlog)
