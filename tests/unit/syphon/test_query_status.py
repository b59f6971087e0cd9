"""The state of a query, and the reports in its progress."""

import json
from collections import Counter
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from pairbus.syphon.query_status import ProgressReports, QueryState, parse_reports, query_state
from pairbus.syphon.reader_status import ReaderStatus
from pairbus.syphon.status_file import status_to_json
from pairbus.syphon.writer_status import WriterStatus

REPORT = {
    "reader": status_to_json(ReaderStatus(reported_at=5, drained=True)),
    "writer": status_to_json(WriterStatus(batches=2, moved=Counter({"orders": 600}))),
}


class LostQuery:
    """A query of a Spark that was killed."""

    def exception(self) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        raise ConnectionRefusedError(111, "Connection refused")


def test_reports_are_found_in_the_offset_that_spark_shows() -> None:
    reports = parse_reports(json.dumps(REPORT))

    assert reports is not None
    reader, writer = reports
    assert (reader.drained, writer.batches, writer.moved) == (True, 2, {"orders": 600})


@pytest.mark.parametrize("text", [None, "null", '{"batch": 3}'])
def test_offset_without_reports_is_no_report(text: str | None) -> None:
    assert parse_reports(text) is None


def test_spark_that_cannot_be_reached_is_a_failure_and_the_last_reports_stay() -> None:
    query = cast(StreamingQuery, LostQuery())

    assert query_state(query) == QueryState(
        False,
        "Spark ended or cannot be reached any more ([Errno 111] Connection refused). Nothing is "
        "lost; start the syphon again.",
    )
    assert ProgressReports(query).read() == (ReaderStatus(), WriterStatus())
