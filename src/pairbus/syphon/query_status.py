"""The state of a query: what Spark says about it, and what its reader and writer report.

The reader puts both reports into the progress of the query, so that a client of Spark Connect gets
them as well. On the machine of the driver they are read from files, which are more recent.
"""

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from pairbus.spark.error_summary import error_summary
from pairbus.syphon.reader_status import ReaderStatus
from pairbus.syphon.status_file import StatusFiles, status_from_json
from pairbus.syphon.task_progress import with_progress
from pairbus.syphon.writer_status import WriterStatus


@dataclass(frozen=True, slots=True)
class QueryState:
    """The state of a query, as Spark knows it."""

    running: bool
    failure: str | None = None


def query_state(query: StreamingQuery) -> QueryState:
    """Return the state of a query. A Spark that cannot be reached any more is a failure."""
    try:
        exception = query.exception()
        running = query.isActive
    except Exception as exc:  # noqa: BLE001  Py4J, sockets and gRPC have errors of their own
        return QueryState(
            False,
            f"Spark ended or cannot be reached any more ({error_summary(exc)}). Nothing is lost; "
            "start the syphon again.",
        )
    return QueryState(running, None if exception is None else str(exception))


class FileReports:
    """The reports of the reader and the writer, from files on this machine."""

    def __init__(self, files: StatusFiles) -> None:
        self.files = files

    def read(self) -> tuple[ReaderStatus, WriterStatus]:
        reports = self.files.progress.read()
        reader = self.files.reader.read()
        return reader, with_progress(self.files.writer.read(), reports)


class ProgressReports:
    """The reports of the reader and the writer, from the progress of a query. If Spark cannot be
    reached, the last ones."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._last = ReaderStatus(), WriterStatus()

    def read(self) -> tuple[ReaderStatus, WriterStatus]:
        try:
            progress = self._query.lastProgress
        except Exception:  # noqa: BLE001  `query_state` reports it
            return self._last
        if progress is not None and progress.sources:
            self._last = parse_reports(progress.sources[0].latestOffset) or self._last
        return self._last


def parse_reports(text: Any) -> tuple[ReaderStatus, WriterStatus] | None:
    """Return the reports in the latest offset of a source, or None if it has none yet."""
    values = json.loads(text) if isinstance(text, str) else text
    match values:
        case {"reader": dict() as reader, "writer": dict() as writer}:
            return status_from_json(ReaderStatus, reader), status_from_json(WriterStatus, writer)
    return None
