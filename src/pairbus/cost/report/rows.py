"""Ledgers as rows: JSON lines that Spark parses, and the Parquet rows of earlier reports."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pairbus.cost.report.files import LedgerFile, ReportInput
from pairbus.cost.report.result import InputProblem
from pairbus.usage.operations import OperationKind, Purpose

OPERATIONS, STATE_CHANGE, GAP = "operations", "state_change", "gap"
"""The values of the column `record`."""
_HEADER, _INVALID = "header", "invalid"
_RECORD_SCHEMA = T.StructType(
    [
        T.StructField("format", T.StringType()),
        T.StructField("time", T.DoubleType()),
        T.StructField("namespace", T.StringType()),
        T.StructField("entity", T.StringType()),
        T.StructField("kind", T.StringType()),
        T.StructField("purpose", T.StringType()),
        T.StructField("operations", T.LongType()),
        T.StructField("messages", T.LongType()),
        T.StructField("bytes", T.LongType()),
        T.StructField("units", T.LongType()),
        T.StructField("answered", T.BooleanType()),
        T.StructField("from_state", T.StringType()),
        T.StructField("to_state", T.StringType()),
        T.StructField("cause", T.StringType()),
        T.StructField("dropped", T.LongType()),
        T.StructField("dropped_operations", T.LongType()),
        T.StructField("failed_writes", T.LongType()),
        T.StructField("_corrupt", T.StringType()),
    ]
)
_RECORD_COLUMNS = [
    name for name in _RECORD_SCHEMA.names if name not in ("format", "time", "_corrupt")
]
_FILE_COLUMNS = ("file", "file_bytes", "ledger", "writer")
ROW_SCHEMA = T.StructType(
    [
        T.StructField("time", T.TimestampType()),
        T.StructField("record", T.StringType()),
        *[field for field in _RECORD_SCHEMA.fields if field.name in _RECORD_COLUMNS],
        T.StructField("file", T.StringType()),
        T.StructField("file_bytes", T.LongType()),
        T.StructField("ledger", T.StringType()),
        T.StructField("writer", T.StringType()),
    ]
)
_MAX_TIME = 253402300799
"""The last second of the year 9999."""
_MAX_COUNT = 10**15
"""A larger number is damage. Sums of smaller numbers cannot overflow."""


class LedgerRows(NamedTuple):
    """Rows of ledgers."""

    frame: DataFrame
    files: tuple[str, ...] = ()
    """Parquet files with exactly these rows, if there are such files."""


def read_lines(spark: SparkSession, files: Sequence[LedgerFile]) -> DataFrame:
    """Return each line of some ledgers as a row. The column `record` has the type of the record."""
    options = {
        "columnNameOfCorruptRecord": "_corrupt",
        "allowNonNumericNumbers": "false",
    }
    lines = (
        spark.read.schema(_RECORD_SCHEMA)
        .options(**options)
        .json([_escape_glob(file.path) for file in files])
        .withColumn("uri", F.col("_metadata.file_path"))
    )
    files_by_uri = spark.createDataFrame(
        [
            (uri, f.header.file, f.size, f.header.ledger, f.header.writer)
            for f in files
            for uri in _equivalent_uris(f.uri)
        ],
        "uri string, file string, file_bytes long, ledger string, writer string",
    )
    has_time = F.col("_corrupt").isNull() & _is_between("time", _MAX_TIME)
    record = (
        F.when(F.col("_corrupt").isNull() & F.col("format").isNotNull(), _HEADER)
        .when(has_time & _is_operations_record(), OPERATIONS)
        .when(has_time & _is_state_change(), STATE_CHANGE)
        .when(has_time & _is_between("dropped", _MAX_COUNT), GAP)
        .otherwise(_INVALID)
    )
    micros = F.when(_is_between("time", _MAX_TIME), (F.col("time") * 1e6).cast("long"))
    return lines.join(F.broadcast(files_by_uri), "uri").select(
        "uri",
        F.timestamp_micros(micros).alias("time"),
        record.alias("record"),
        *_RECORD_COLUMNS,
        *_FILE_COLUMNS,
    )


def valid_rows(lines: DataFrame, observation: Observation) -> DataFrame:
    """Return the rows of valid records. The observation counts headers and invalid lines."""
    observed = lines.observe(
        observation,
        F.count_if(F.col("record") == _INVALID).alias(_INVALID),
        F.count_if(F.col("record") == _HEADER).alias(_HEADER),
    )
    is_valid = F.col("record").isin(OPERATIONS, STATE_CHANGE, GAP)
    return observed.where(is_valid).select(*ROW_SCHEMA.names)


def all_lines_are_valid(observation: Observation, files: Sequence[LedgerFile]) -> bool:
    """Return True if an observation of `valid_rows` saw one header per file and no invalid line."""
    counts: dict[str, int] = observation.get
    return counts[_INVALID] == 0 and counts[_HEADER] == len(files)


def find_invalid_lines(lines: DataFrame, files: Sequence[LedgerFile]) -> list[InputProblem]:
    """Return the problems of files with lines that are not valid records."""
    counts = (
        lines.where(F.col("record").isin(_INVALID, _HEADER))
        .groupBy("uri")
        .agg(
            F.count_if(F.col("record") == _INVALID).alias("invalid"),
            F.count_if(F.col("record") == _HEADER).alias("headers"),
        )
        .collect()
    )
    by_uri = {_normalize_uri(file.uri): file for file in files}
    unread = by_uri.keys() - {_normalize_uri(row["uri"]) for row in counts}
    problems = [
        InputProblem(path=by_uri[uri].path, description="Spark read no line of it", skipped=True)
        for uri in sorted(unread)
    ]
    for row in sorted(counts, key=lambda row: str(row["uri"])):
        file = by_uri[_normalize_uri(row["uri"])]
        invalid = row["invalid"] - file.truncated
        if file.truncated and row["invalid"]:
            problems.append(_line_problem(file, "the last record is truncated", 1))
        if invalid > 0:
            problems.append(_line_problem(file, "invalid records", invalid))
        if row["headers"] > 1:
            description = "several ledgers in one file; their copies are not detected"
            problems.append(_line_problem(file, description, 0))
    return problems


def read_parquet(spark: SparkSession, report_input: ReportInput) -> LedgerRows | None:
    """Return the rows of earlier reports, or None if there are none.

    Rows of a file are left out if a ledger, or another report, has more of the same file.
    """
    rows = None
    files: list[str] = []
    for paths in _by_folder(report_input.parquet):
        try:
            # The schema is checked per folder: any folder may hold unrelated Parquet files.
            folder_rows = spark.read.parquet(*map(_escape_glob, paths)).select(
                *ROW_SCHEMA.names, F.lit(paths[0]).alias("origin")
            )
        except PySparkException as exc:
            description = "a Parquet file without the rows of a ledger"
            report_input.problems += [
                InputProblem(path=path, description=description, skipped=True) for path in paths
            ]
            if exc.getCondition() is None:
                raise
            continue
        rows = folder_rows if rows is None else rows.unionByName(folder_rows)
        files += paths
    if rows is None:
        return None
    return _without_copies(spark, LedgerRows(rows, tuple(files)), report_input)


def _without_copies(spark: SparkSession, rows: LedgerRows, report_input: ReportInput) -> LedgerRows:
    """Keep the longest state of each ledger file, in Parquet rows or as a ledger."""
    ledger_sizes = {file.header.file: file.size for file in report_input.ledgers}
    longest: dict[str, tuple[str, int]] = {}
    states = rows.frame.groupBy("origin", "file").agg(F.max("file_bytes").alias("size")).collect()
    for row in sorted(states, key=lambda row: (row["size"], row["origin"])):
        longest[row["file"]] = row["origin"], row["size"]
    if len(states) == len(longest) and not ledger_sizes.keys() & longest.keys():
        return rows._replace(frame=rows.frame.drop("origin"))
    kept = []
    for row in states:
        file, origin = row["file"], row["origin"]
        if longest[file][0] != origin or ledger_sizes.get(file, -1) > row["size"]:
            report_input.copies.append(f"{origin} ({file})")
        else:
            kept.append((origin, file))
            ledger_sizes.pop(file, None)
    report_input.copies += [
        file.path for file in report_input.ledgers if file.header.file not in ledger_sizes
    ]
    report_input.ledgers = [
        file for file in report_input.ledgers if file.header.file in ledger_sizes
    ]
    wanted = spark.createDataFrame(kept, "origin string, file string")
    kept_rows = rows.frame.join(F.broadcast(wanted), ["origin", "file"], "left_semi")
    return LedgerRows(kept_rows.select(*ROW_SCHEMA.names))


def _by_folder(paths: list[str]) -> list[list[str]]:
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    return list(folders.values())


def _is_operations_record() -> Column:
    valid = (
        F.col("namespace").isNotNull()
        & F.col("entity").isNotNull()
        & F.col("answered").isNotNull()
        & F.col("kind").isin([kind.value for kind in OperationKind])
        & F.col("purpose").isin([purpose.value for purpose in Purpose])
    )
    for name in ("operations", "messages", "bytes", "units"):
        valid &= _is_between(name, _MAX_COUNT)
    return valid


def _is_state_change() -> Column:
    valid = F.lit(True)
    for name in ("namespace", "entity", "from_state", "to_state"):
        valid &= F.col(name).isNotNull()
    return valid


def _is_between(name: str, maximum: int) -> Column:
    """Return a condition, never null: the column has a number from 0 to the maximum."""
    return F.coalesce(F.col(name).between(0, maximum), F.lit(False))


def _escape_glob(path: str) -> str:
    """Escape the characters of glob patterns.

    Spark's option `__globPaths__` disables patterns, but with it Spark reads all other files twice
    if the name of one file looks like a pattern.
    """
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def _normalize_uri(uri: str) -> str:
    """Return a URI as Hadoop writes it, `file:/x`. Spark writes `file:///x`."""
    scheme, separator, rest = uri.partition(":///")
    return f"{scheme}:/{rest}" if separator else uri


def _equivalent_uris(uri: str) -> set[str]:
    """Return a URI in all forms that Spark may report, so that rows can be joined as they are:
    to normalize the URI of each row took about a tenth of the time for reading ledgers."""
    normalized = _normalize_uri(uri)
    return {normalized, re.sub(r"^([a-zA-Z0-9+.-]+):/(?!/)", r"\1:///", normalized)}


def _line_problem(file: LedgerFile, description: str, lines: int) -> InputProblem:
    return InputProblem(path=file.path, description=description, skipped=False, skipped_lines=lines)
