"""The formats of archive files. A task writes them itself, without the Spark session."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from pairbus.syphon.options import ArchiveFormat


def _write_parquet(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path)


def _write_orc(table: pa.Table, path: Path) -> None:
    from pyarrow import orc

    orc.write_table(table, str(path))


def _write_json(table: pa.Table, path: Path) -> None:
    """Write one JSON object in each line."""
    with path.open("w", encoding="utf-8") as file:
        for row in _text_rows(table):
            file.write(f"{json.dumps(row, ensure_ascii=False)}\n")


def _write_csv(table: pa.Table, path: Path) -> None:
    """Write a header and a line for each message. A null is empty; Spark reads an empty text as a
    null too."""
    from pyarrow import csv

    rows = [
        {**row, "application_properties": json.dumps(row["application_properties"])}
        for row in _text_rows(table)
    ]
    schema = pa.schema([(name, pa.string()) for name in table.column_names])
    csv.write_csv(pa.Table.from_pylist(rows, schema=schema), path)


def _text_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield rows with text instead of bytes and times, as Spark reads both."""
    for row in table.to_pylist():
        properties = row["application_properties"]
        yield {
            **row,
            "application_properties": None if properties is None else dict(properties),
            "moved_time": row["moved_time"].isoformat(),
            "payload": base64.b64encode(row["payload"]).decode(),
        }


WRITERS: Final[Mapping[ArchiveFormat, Callable[[pa.Table, Path], None]]] = {
    "parquet": _write_parquet,
    "orc": _write_orc,
    "json": _write_json,
    "csv": _write_csv,
}
"""Writes a table to a file, by format."""
