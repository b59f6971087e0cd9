"""Rows of Parquet files on this machine, condensed with Arrow in the tasks of Spark.

All rows of a day with the same keys become one row, with the sums of their numbers. Spark needs
several times as long for these sums, because each row causes cache misses in a hash table of
strings. Arrow reads strings as indices of a dictionary, and groups by numbers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from pairbus.spark.sessions import is_local_master

MIN_ROWS = 2_000_000
"""For fewer rows, the start of Spark's Python workers takes longer than it saves."""
ROWS_PER_BATCH = 2**18
MAX_ADDEND = 2**36
"""Rows with larger numbers are not condensed: sums of Arrow overflow without an error."""
MAX_BATCHES = 400
"""Batches that are condensed together, so that sums are less than 2**63."""
MAX_PARTIAL_SUMS = 8
"""Sums of batches that are in memory at a time."""
RowGroup = tuple[str, int]
"""The path of a file, and the index of one of its row groups."""
_TEXTS = ("record", "namespace", "entity", "kind", "purpose")
_NUMBERS = ("operations", "messages", "units", "bytes")
_KEYS = ("day", "answered", *_TEXTS)
_SCHEMA = pa.schema(
    [
        ("day", pa.date32()),
        ("answered", pa.bool_()),
        *[(name, pa.string()) for name in _TEXTS],
        *[(name, pa.int64()) for name in _NUMBERS],
    ]
)
_SPARK_SCHEMA = ", ".join(
    ["day date", "answered boolean"]
    + [f"{name} string" for name in _TEXTS]
    + [f"{name} long" for name in _NUMBERS]
)


def condense(spark: SparkSession, files: Sequence[str]) -> DataFrame | None:
    """Return the condensed rows of Parquet files, or None if Spark has to read the rows: because
    the files are not on this machine, or are small. The column `day` replaces `time`; days are
    those of the session's time zone."""
    paths = [path for file in files if (path := _local_path(file)) is not None]
    if len(paths) < len(files) or not is_local_master(spark.sparkContext.master or ""):
        return None
    row_groups = [group for path in paths for group in _row_groups(path)]
    if sum(rows for *_, rows in row_groups) < MIN_ROWS:
        return None
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    if not _knows_time_zone(zone):
        return None
    tasks = _divide(row_groups, spark.sparkContext.defaultParallelism)
    numbers = spark.range(0, len(tasks), numPartitions=len(tasks))  # one for each task
    return numbers.mapInArrow(partial(_condense_tasks, tasks=tasks, zone=zone), _SPARK_SCHEMA)


def _local_path(file: str) -> str | None:
    scheme, separator, path = file.partition(":")
    if not separator:
        return file
    return "/" + path.lstrip("/") if scheme == "file" else None


def _row_groups(path: str) -> Iterator[tuple[str, int, int]]:
    """Yield the path, the index and the number of rows of each row group of a file."""
    metadata = pq.read_metadata(path)
    for index in range(metadata.num_row_groups):
        yield path, index, metadata.row_group(index).num_rows


def _divide(row_groups: Iterable[tuple[str, int, int]], count: int) -> list[list[RowGroup]]:
    """Divide row groups among tasks, such that the tasks have about as many rows each."""
    tasks: list[list[RowGroup]] = [[] for _ in range(count)]
    sizes = [0] * count
    for path, index, rows in sorted(row_groups, key=lambda group: group[2], reverse=True):
        smallest = sizes.index(min(sizes))
        tasks[smallest].append((path, index))
        sizes[smallest] += rows
    return [task for task in tasks if task]


def _knows_time_zone(zone: str) -> bool:
    """Return False if Arrow finds no data of a time zone. Java has data of its own."""
    try:
        _days(pa.array([0], pa.timestamp("us")), zone)
    except pa.ArrowException:
        return False
    return True


def _condense_tasks(
    numbers: Iterable[pa.RecordBatch], tasks: Sequence[Sequence[RowGroup]], zone: str
) -> Iterator[pa.RecordBatch]:
    """Condense the row groups of the tasks with these numbers. In a worker."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from _condense_row_groups(tasks[number], zone)


def _condense_row_groups(row_groups: Iterable[RowGroup], zone: str) -> Iterator[pa.RecordBatch]:
    texts = _TextCodes()
    sums: list[pa.Table] = []
    batch_count = 0
    for table in chain.from_iterable(_read(*row_group) for row_group in row_groups):
        coded = _with_codes(table, texts, zone)
        if _may_overflow(coded):
            yield from texts.decode(coded).to_batches()
            continue
        sums.append(_sum(coded))
        batch_count += 1
        if len(sums) == MAX_PARTIAL_SUMS or batch_count == MAX_BATCHES:
            sums = [_sum(pa.concat_tables(sums))]
        if batch_count == MAX_BATCHES:
            yield from texts.decode(sums.pop()).to_batches()
            batch_count = 0
    if sums:
        yield from texts.decode(_sum(pa.concat_tables(sums))).to_batches()


def _read(path: str, row_group: int) -> Iterator[pa.Table]:
    with pq.ParquetFile(
        path, read_dictionary=list(_TEXTS), coerce_int96_timestamp_unit="us"
    ) as file:
        for batch in file.iter_batches(
            ROWS_PER_BATCH,
            row_groups=[row_group],
            columns=["time", "answered", *_TEXTS, *_NUMBERS],
            use_threads=False,
        ):
            yield pa.Table.from_batches([batch])


class _TextCodes:
    """Numbers for the texts of each column, which are the same in all batches of a task."""

    def __init__(self) -> None:
        self._codes: Mapping[str, dict[str | None, int]] = {name: {} for name in _TEXTS}

    def encode(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        codes = self._codes[name]
        chunks = []
        for chunk in column.chunks:
            if not pa.types.is_dictionary(chunk.type):
                chunk = chunk.dictionary_encode()
            numbers = [codes.setdefault(text, len(codes)) for text in chunk.dictionary.to_pylist()]
            chunks.append(pa.array(numbers, pa.int32()).take(chunk.indices))
        return pa.chunked_array(chunks, pa.int32())

    def decode(self, table: pa.Table) -> pa.Table:
        """Return a table with the texts, in the schema that Spark expects."""
        for name in _TEXTS:
            texts = pa.array(list(self._codes[name]), pa.string())
            index = table.schema.get_field_index(name)
            column = texts.take(table.column(index).combine_chunks())
            table = table.set_column(index, name, column)
        return table.select(_SCHEMA.names).cast(_SCHEMA)


def _with_codes(table: pa.Table, texts: _TextCodes, zone: str) -> pa.Table:
    """Return a table whose keys are numbers."""
    columns: dict[str, Any] = {"day": _days(table["time"], zone), "answered": table["answered"]}
    columns |= {name: texts.encode(name, table[name]) for name in _TEXTS}
    columns |= {name: table[name] for name in _NUMBERS}
    return pa.table(columns)


def _days(times: Any, zone: str) -> Any:
    """Return the days of timestamps, which are in UTC, in a time zone."""
    utc = times.cast(pa.timestamp("us"), safe=False)
    if zone not in ("UTC", "Etc/UTC"):
        utc = pc.local_timestamp(pc.assume_timezone(utc, "UTC").cast(pa.timestamp("us", zone)))
    return utc.cast(pa.date32(), safe=False)


def _may_overflow(table: pa.Table) -> bool:
    limits = [pc.min_max(table[name]).as_py() for name in _NUMBERS]
    return any(
        limit["max"] is not None and not -MAX_ADDEND < limit["min"] <= limit["max"] < MAX_ADDEND
        for limit in limits
    )


def _sum(table: pa.Table) -> pa.Table:
    sums = table.group_by(list(_KEYS), use_threads=False).aggregate(
        [(name, "sum") for name in _NUMBERS]
    )
    return sums.rename_columns([name.removesuffix("_sum") for name in sums.column_names])
