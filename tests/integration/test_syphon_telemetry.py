"""The sink records what it moved, for telemetry. Against an emulator, without Spark."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from pairbus.amqp.sections import Message
from pairbus.spark import connections
from pairbus.spark.messages import RestoredMessage
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.restore import to_backlog_batch
from pairbus.syphon.sink import BacklogSink
from pairbus.syphon.status_file import StatusFiles
from pairbus.telemetry.drains import DrainRecord
from tests.integration.backlog_queue import BacklogQueue

pytestmark = pytest.mark.rule("O1")

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def drain(
    backlog: BacklogQueue, messages: list[RestoredMessage], folder: Path, telemetry: bool | None
) -> list[DrainRecord]:
    """Move messages in a micro-batch, and return the records."""
    files = StatusFiles(folder)
    files.progress.create()
    options = SyphonOptions(
        primary=backlog.options,
        secondary=replace(backlog.options, endpoint_host="127.0.0.1"),
        queues=(backlog.path,),
        telemetry=telemetry,
    )
    sink = BacklogSink(options, files)
    sink.commit([sink.write(iter([to_backlog_batch(messages)]))], 0)
    assert files.writer.read().moved.total() == len(messages)
    connections.close_all()
    return files.drains.take()


def traced(message: RestoredMessage) -> RestoredMessage:
    parsed = Message.parse(message.payload)
    encoded = Message.build(
        properties=parsed.read_properties(),
        application_properties={"traceparent": PARENT},
        data=b"x",
    ).encode()
    return message._replace(payload=encoded)


def test_moved_messages_are_recorded(backlog: BacklogQueue, tmp_path: Path) -> None:
    before = time.time()
    path = backlog.create_queue()
    first, second = backlog.locked(path, ["1", "2"])

    [record] = drain(backlog, [traced(first), second], tmp_path, telemetry=True)

    assert (record.destination, record.messages) == (path, 2)
    assert before <= record.started_at <= record.ended_at <= time.time()
    [message] = record.traced
    assert (message.traceparent, message.queue) == (PARENT, backlog.path)
    assert message.enqueued_time == first.enqueued_time
    assert message.enqueued_time is not None
    assert (before - 1) * 1e6 <= message.enqueued_time <= message.moved_time <= time.time() * 1e6


def test_nothing_is_recorded_without_telemetry(backlog: BacklogQueue, tmp_path: Path) -> None:
    messages = [traced(message) for message in backlog.locked(backlog.create_queue(), ["1"])]

    assert drain(backlog, messages, tmp_path, telemetry=False) == []
