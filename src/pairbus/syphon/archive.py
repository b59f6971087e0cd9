"""The archive: files with the messages that a syphon has moved.

A message is completed in the backlog only after its destination has accepted it and the file that
contains it is on disk. So every moved message is in the archive; after a failure it may be there
twice, and once in the primary if that has duplicate detection.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from pairbus.amqp.client import ClientOptions
from pairbus.servicebus.management import COMPLETED
from pairbus.spark.messages import ReceivedMessage, RestoredMessage
from pairbus.spark.rows import arrow_types, decode_or_null
from pairbus.spark.settler import Settler
from pairbus.spark.usage import UsageRecorder
from pairbus.syphon.archive_formats import WRITERS
from pairbus.syphon.options import ArchiveFormat

DECODED = ("message_id", "subject", "content_type", "application_properties")
"""Columns that are decoded from the message, as in `format("servicebus")`."""
ARCHIVE_SCHEMA = (
    "queue string, destination string, session_id string, message_id string, subject string, "
    "content_type string, application_properties map<string,string>, moved_time timestamp, "
    "payload binary"
)
"""The columns of the archive. `payload` is the whole message, encoded as AMQP."""
MAX_FILE_BYTES = 32 * 1024 * 1024
"""The payload of one file. A task with more messages writes several files."""

_TYPES = arrow_types(ARCHIVE_SCHEMA)


class ArchiveFile:
    """A file that appears in its folder when it is complete.

    Until then its name starts with a dot, which Spark and other readers ignore. Raises OSError at
    once if the folder cannot be written, before any message is sent.
    """

    def __init__(self, folder: Path, file_format: ArchiveFormat) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._write_table = WRITERS[file_format]
        self._path = folder / f"moved-{uuid4().hex}.{file_format}"
        self._draft = folder / f".{self._path.name}.new"
        self._draft.open("xb").close()

    def write(self, messages: Sequence[RestoredMessage], moved_ms: int) -> None:
        """Write messages to disk, and rename the file."""
        table = pa.Table.from_batches([archive_batch(messages, moved_ms)])
        self._write_table(table, self._draft)
        _sync(self._draft)
        self._draft.replace(self._path)
        _sync(self._path.parent)

    def discard(self) -> None:
        """Remove a file that was not written."""
        self._draft.unlink(missing_ok=True)


class ArchivingSettler(Settler):
    """Settles messages, and archives those that are completed before it completes them."""

    def __init__(
        self,
        namespace: ClientOptions | None,
        usage: UsageRecorder,
        folder: str,
        file_format: ArchiveFormat = "parquet",
        *,
        on_dead_lettered: Callable[[], object] = lambda: None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        super().__init__(namespace, usage, on_dead_lettered)
        self._folder = Path(folder)
        self._format: ArchiveFormat = file_format
        self._now_ms = now_ms
        self._file = self._new_file()
        self._moved: list[RestoredMessage] = []
        self._bytes = 0

    def add(self, messages: Sequence[RestoredMessage], status: str) -> None:
        """Settle messages, at the latest in `finish`. Raises OSError if they cannot be archived."""
        if status != COMPLETED:
            super().add(messages, status)
            return
        self._moved += messages
        self._bytes += sum(len(message.payload) for message in messages)
        if self._bytes >= MAX_FILE_BYTES:
            self._archive()
            self._file = self._new_file()

    def finish(self) -> int:
        """Archive and settle what is pending, and return how many completions failed."""
        if self._moved:
            self._archive()
        else:
            self._file.discard()
        return super().finish()

    def _new_file(self) -> ArchiveFile:
        return ArchiveFile(self._folder, self._format)

    def _archive(self) -> None:
        messages, self._moved, self._bytes = self._moved, [], 0
        self._file.write(messages, self._now_ms())
        super().add(messages, COMPLETED)


def archive_batch(messages: Sequence[RestoredMessage], moved_ms: int) -> pa.RecordBatch:
    """Return messages as rows of `ARCHIVE_SCHEMA`."""
    # A transformation may have written a payload that only the primary can read.
    received = [ReceivedMessage(message.queue, message.payload) for message in messages]
    decoded = decode_or_null(received, DECODED)
    columns = {
        "queue": [message.queue for message in messages],
        "destination": [message.destination for message in messages],
        "session_id": [message.session_id for message in messages],
        "moved_time": [moved_ms * 1000] * len(messages),
        "payload": [message.payload for message in messages],
    }
    arrays = [
        decoded.column(name) if name in DECODED else pa.array(columns[name], type=type_)
        for name, type_ in _TYPES.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(_TYPES))


def _sync(path: Path) -> None:
    """Write a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
