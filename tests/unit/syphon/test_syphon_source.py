"""The source of the syphon."""

from pathlib import Path

from pyspark import cloudpickle

from pairbus.spark.messages import ReceivedMessage
from pairbus.spark.plans import BatchPlan
from pairbus.syphon.backlog_source import BacklogSourceFactory, ServerFolder
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.source import backlog_stream_reader
from pairbus.syphon.status_file import StatusFiles
from tests.commands import ONE, TWO

OPTIONS = SyphonOptions(primary=ONE, secondary=TWO)  # type: ignore[arg-type]


def test_each_backlog_queue_is_a_task_of_its_own(tmp_path: Path) -> None:
    reader = backlog_stream_reader(OPTIONS, StatusFiles(tmp_path))
    first = {queue: ReceivedMessage(queue, b"payload") for queue in OPTIONS.backlog_queues}
    reader._plans = {1: BatchPlan(100, first)}

    partitions = reader.partitions({"batch": 0}, {"batch": 1})

    assert [partition.queues for partition in partitions] == [
        (queue,) for queue in OPTIONS.backlog_queues
    ]


def test_progress_of_the_query_has_the_reports_of_reader_and_writer(tmp_path: Path) -> None:
    files = StatusFiles(tmp_path)
    writer = files.writer.read()
    writer.moved["orders"] = 5
    files.writer.write(writer)

    reported = backlog_stream_reader(OPTIONS, files).reportLatestOffset()

    assert reported is not None
    assert reported["writer"]["moved"] == {"orders": 5}
    assert reported["reader"]["drained"] is False


def test_folder_on_a_server_is_private_and_removed_with_the_reader(tmp_path: Path) -> None:
    folder = tmp_path / "pairbus-syphon-1"
    factory = BacklogSourceFactory(OPTIONS, ServerFolder(folder))
    factory = cloudpickle.loads(cloudpickle.dumps(factory))

    reader = factory({}).streamReader(None)  # type: ignore[arg-type]
    assert folder.stat().st_mode & 0o777 == 0o700
    reader.stop()

    assert not folder.exists()
