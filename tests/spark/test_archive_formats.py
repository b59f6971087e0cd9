"""The formats of the archive, as Spark reads them."""

from pathlib import Path
from typing import Any, get_args

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pairbus.spark.messages import RestoredMessage
from pairbus.syphon.archive import ARCHIVE_SCHEMA, ArchiveFile
from pairbus.syphon.options import ArchiveFormat
from tests.messages import message

pytestmark = [pytest.mark.timeout(600), pytest.mark.rule("Y11")]

PAYLOADS = (message("a", session="s", body=b"text"), message('two\nlines, "quoted"'), b"no message")
CSV_OPTIONS = {"header": "true", "multiLine": "true", "escape": '"'}


def test_spark_reads_the_same_rows_from_every_format(session: SparkSession, tmp_path: Path) -> None:
    sessions = ("s", "t", None)
    messages = [
        RestoredMessage("backlog/0", None, 0, session_id, "orders", payload)
        for session_id, payload in zip(sessions, PAYLOADS, strict=True)
    ]
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for name in get_args(ArchiveFormat):
        ArchiveFile(tmp_path / name, name).write(messages, 1_700_000_000_123)
        reader = session.read.format(name)
        if name == "csv":
            text = reader.options(**CSV_OPTIONS).load(str(tmp_path / name))
            frame = text.select(
                *text.columns[:6],
                F.from_json("application_properties", "map<string,string>"),
                F.col("moved_time").cast("timestamp"),
                F.unbase64("payload"),
            )
        else:
            frame = reader.schema(ARCHIVE_SCHEMA).load(str(tmp_path / name))
        rows[name] = [tuple(row) for row in frame.collect()]

    first, second, third = rows["parquet"]
    assert (first[3], second[3], third[3]) == ("a", 'two\nlines, "quoted"', None)
    assert [row[8] for row in rows["parquet"]] == [bytearray(data) for data in PAYLOADS]
    for name, others in rows.items():
        assert others == rows["parquet"], name
