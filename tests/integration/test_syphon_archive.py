"""The archive of a syphon, against emulators, without Spark."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from pairbus.amqp.client import Client, ClientOptions, Receiver
from pairbus.amqp.events import Delivery
from pairbus.emulator.namespace import LocalNamespace
from pairbus.spark import connections
from pairbus.spark.forwarder import Forwarder
from pairbus.spark.messages import ReceivedMessage, RestoredMessage
from pairbus.spark.outcome import Outcome, OutcomeRecorder
from pairbus.spark.usage import NO_USAGE
from pairbus.syphon import archive
from pairbus.syphon.archive import ArchivingSettler
from pairbus.syphon.options import ArchiveFormat
from pairbus.syphon.restore import restore
from tests.backlog import Backlog
from tests.messages import message, numbered

pytestmark = pytest.mark.rule("Y11")


@pytest.fixture
def namespaces() -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        yield primary, secondary
        connections.close_all()


@pytest.fixture
def backlog(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    return Backlog(*namespaces)


class ArchivedRun:
    """A task of a syphon that archives what it moves."""

    def __init__(
        self, backlog: Backlog, folder: Path, file_format: ArchiveFormat = "parquet"
    ) -> None:
        options = backlog.options()
        self.settler = ArchivingSettler(options.secondary, NO_USAGE, str(folder), file_format)
        recorder = OutcomeRecorder(self.settler, NO_USAGE)
        self.forwarder = Forwarder(options.primary, options.secondary, recorder=recorder)

    def forward(self, messages: list[RestoredMessage]) -> Outcome:
        self.forwarder.forward(messages)
        return self.forwarder.finish()


def receive(backlog: Backlog, count: int) -> list[RestoredMessage]:
    """Receive messages of the first backlog queue under locks, and restore them."""
    queue, deliveries = backlog.queues[0], list[Delivery]()
    options = ClientOptions.from_connection_string(backlog.secondary.connection_string)
    with Client(options) as client:
        receiver = Receiver(client, queue, confirm=False)
        while len(deliveries) < count:
            deliveries += receiver.receive(count - len(deliveries))
    until = int(time.time() * 1000) + 60_000
    return [restore(ReceivedMessage(queue, d.payload, d.tag, until), None) for d in deliveries]


def archived(folder: Path) -> list[dict[str, Any]]:
    return [
        row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()
    ]


def test_moved_messages_are_archived_and_others_are_not(backlog: Backlog, tmp_path: Path) -> None:
    path = backlog.path("one")
    backlog.put(path, [message("a", session="s", body=b"text"), message("b")])
    backlog.put_raw([message("no destination")])

    outcome = ArchivedRun(backlog, tmp_path).forward(receive(backlog, 3))

    assert (outcome.moved.total(), outcome.dead_lettered.total(), outcome.unsettled) == (2, 1, 0)
    rows = archived(tmp_path)
    assert [row["message_id"] for row in rows] == ["a", "b"]
    assert {row["destination"] for row in rows} == {path}
    assert [row["session_id"] for row in rows] == ["s", None]
    assert dict(rows[0]["application_properties"]) == {"n": "1", "text": "é"}
    assert rows[0]["payload"] == message("a", session="s", body=b"text")
    assert backlog.left() == 0


@pytest.mark.parametrize("file_format", get_args(ArchiveFormat))
def test_message_whose_completion_failed_is_in_the_archive(
    backlog: Backlog, tmp_path: Path, file_format: ArchiveFormat
) -> None:
    path = backlog.path("one")
    backlog.put(path, numbered(20))
    run = ArchivedRun(backlog, tmp_path, file_format)
    run.forwarder.forward(receive(backlog, 20))

    backlog.secondary.close()
    outcome = run.forwarder.finish()

    assert outcome.unsettled == 20, "the completions did not fail"
    ids = pyarrow.dataset.dataset(tmp_path, format=file_format).to_table()["message_id"].to_pylist()
    assert sorted(backlog.ids(path)) == sorted(ids)


def test_message_that_could_not_be_archived_is_not_completed(
    backlog: Backlog, tmp_path: Path
) -> None:
    path, folder = backlog.path("one"), tmp_path / "archive"
    backlog.put(path, numbered(20))
    run = ArchivedRun(backlog, folder)
    run.forwarder.forward(receive(backlog, 20))

    shutil.rmtree(folder)
    with pytest.raises(OSError, match="archive"):
        run.forwarder.finish()

    assert len(backlog.ids(path)) == 20, "the primary had accepted the messages"
    assert backlog.left() == 20


def test_large_task_writes_several_files(
    backlog: Backlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_FILE_BYTES", 1)
    for number in range(20):
        backlog.put(backlog.path(f"path-{number}"), numbered(1))

    ArchivedRun(backlog, tmp_path).forward(receive(backlog, 20))

    assert len(list(tmp_path.glob("*.parquet"))) == len(archived(tmp_path)) == 20
    assert [file for file in tmp_path.iterdir() if file.name.startswith(".")] == []
    assert backlog.left() == 0


def test_nothing_is_sent_if_the_folder_cannot_be_written(backlog: Backlog, tmp_path: Path) -> None:
    path = backlog.path("one")
    backlog.put(path, numbered(3))
    (tmp_path / "file").touch()

    with pytest.raises(OSError, match="file"):
        ArchivedRun(backlog, tmp_path / "file").forward(receive(backlog, 3))

    assert backlog.ids(path) == []
    assert backlog.left() == 3


def test_task_that_moves_nothing_leaves_no_file(backlog: Backlog, tmp_path: Path) -> None:
    backlog.put("no-such-queue", numbered(1))

    ArchivedRun(backlog, tmp_path).forward(receive(backlog, 1))

    assert list(tmp_path.iterdir()) == []
