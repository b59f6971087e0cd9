"""Status files: how the processes of a syphon tell each other what they know.

The reader, the writer and the program that started the query are three processes on the machine of
the driver. Each file is written by one process and read by the others.
"""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from pairbus.syphon.drain_files import DrainFiles
from pairbus.syphon.reader_status import ReaderStatus
from pairbus.syphon.task_progress import TaskProgress
from pairbus.syphon.writer_status import WriterStatus

Status = TypeVar("Status", bound=ReaderStatus | WriterStatus)


class StatusFile(Generic[Status]):
    """The status of one process, as a JSON file."""

    def __init__(self, path: Path, kind: type[Status]) -> None:
        self._path = path
        self._kind = kind

    def read(self) -> Status:
        """Return what the file contains, or an initial status if it does not exist yet."""
        try:
            return status_from_json(self._kind, json.loads(self._path.read_text()))
        except FileNotFoundError:
            return self._kind()

    def write(self, status: Status) -> None:
        """Replace the file."""
        write_json(self._path, status_to_json(status))


def status_to_json(status: ReaderStatus | WriterStatus) -> dict[str, Any]:
    """Return the values of a status."""
    return {field.name: getattr(status, field.name) for field in fields(status)}


def status_from_json(kind: type[Status], values: dict[str, Any]) -> Status:
    """Return a status from its JSON values."""
    return kind(**values)


class StatusFiles:
    """The status files of a syphon, one for each process that writes."""

    def __init__(self, folder: Path) -> None:
        self.reader = StatusFile(folder / "reader.json", ReaderStatus)
        self.writer = StatusFile(folder / "writer.json", WriterStatus)
        self.rate = folder / "rate.json"
        """The rate limit (`RateFile`)."""
        self.progress = TaskProgress(folder / "progress")
        self.drains = DrainFiles(folder / "drains")


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Replace a JSON file atomically: a process that reads it gets the old or the new content."""
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(json.dumps(values))
    draft.replace(path)
