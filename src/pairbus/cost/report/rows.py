"""Ledgers as rows: JSON lines parsed by Spark, rows of earlier reports beside them."""

import re
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pairbus.cost.report.files import Found, LedgerFile
from pairbus.cost.report.result import Problem
from pairbus.usage.operations import OperationKind, Part

DONE, CHANGE, MISSING = "done", "change", "missing"
_HEADER, _BAD = "header", "bad"
_RECORD = T.StructType(
    [
        T.StructField("format", T.StringType()),
        T.StructField("time", T.DoubleType()),
        T.StructField("namespace", T.StringType()),
        T.StructField("entity", T.StringType()),
        T.StructField("kind", T.StringType()),
        T.StructField("part", T.StringType()),
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
_KEPT = [name for name in _RECORD.names if name not in ("format", "time", "_corrupt")]
_OF_FILE = ("file", "file_bytes", "ledger", "writer")
ROW_SCHEMA = T.StructType(
    [
        T.StructField("time", T.TimestampType()),
        T.StructField("record", T.StringType()),
        *[field for field in _RECORD.fields if field.name in _KEPT],
        T.StructField("file", T.StringType()),
        T.StructField("file_bytes", T.LongType()),
        T.StructField("ledger", T.StringType()),
        T.StructField("writer", T.StringType()),
    ]
)
_LATEST = 253402300799
"""The last second of the year 9999."""
_LARGEST = 10**15
"""A number above it is damage; below it sums cannot overflow."""


def read_lines(spark: SparkSession, files: Sequence[LedgerFile]) -> DataFrame:
    """Each line of some ledgers as a row. What kind of record it is stands in `record`."""
    options = {
        "columnNameOfCorruptRecord": "_corrupt",
        "allowNonNumericNumbers": "false",
    }
    lines = (
        spark.read.schema(_RECORD)
        .options(**options)
        .json([_literally(file.path) for file in files])
        .withColumn("uri", _same("_metadata.file_path"))
    )
    known = spark.createDataFrame(
        [
            (_same_text(f.uri), f.header.file, f.size, f.header.ledger, f.header.writer)
            for f in files
        ],
        "uri string, file string, file_bytes long, ledger string, writer string",
    )
    makes_sense = F.col("_corrupt").isNull() & _between("time", _LATEST)
    record = (
        F.when(F.col("_corrupt").isNull() & F.col("format").isNotNull(), _HEADER)
        .when(makes_sense & _is_done(), DONE)
        .when(makes_sense & _is_change(), CHANGE)
        .when(makes_sense & _between("dropped", _LARGEST), MISSING)
        .otherwise(_BAD)
    )
    micros = F.when(_between("time", _LATEST), (F.col("time") * 1e6).cast("long"))
    return lines.join(F.broadcast(known), "uri").select(
        "uri",
        F.timestamp_micros(micros).alias("time"),
        record.alias("record"),
        *_KEPT,
        *_OF_FILE,
    )


def clean(lines: DataFrame, watch: Observation) -> DataFrame:
    """The rows of lines that are records. The observation hears of the others."""
    counted = lines.observe(
        watch,
        F.count_if(F.col("record") == _BAD).alias(_BAD),
        F.count_if(F.col("record") == _HEADER).alias(_HEADER),
    )
    return counted.where(F.col("record").isin(DONE, CHANGE, MISSING)).select(*ROW_SCHEMA.names)


def broken_lines(lines: DataFrame, files: Sequence[LedgerFile]) -> list[Problem]:
    """Which files have lines that are no records."""
    counts = (
        lines.where(F.col("record").isin(_BAD, _HEADER))
        .groupBy("uri")
        .agg(
            F.count_if(F.col("record") == _BAD).alias("bad"),
            F.count_if(F.col("record") == _HEADER).alias("headers"),
        )
        .collect()
    )
    by_uri = {_same_text(file.uri): file for file in files}
    unread = by_uri.keys() - {row["uri"] for row in counts}
    problems = [
        Problem(path=by_uri[uri].path, what="Spark has read nothing of it", skipped=True)
        for uri in sorted(unread)
    ]
    for row in sorted(counts, key=lambda row: str(row["uri"])):
        file = by_uri[row["uri"]]
        bad = row["bad"] - file.torn
        if file.torn and row["bad"]:
            problems.append(_broken(file, "half a record at its end", 1))
        if bad > 0:
            problems.append(_broken(file, "lines that are no records", bad))
        if row["headers"] > 1:
            what = "several ledgers put together: copies of them are not noticed"
            problems.append(_broken(file, what, 0))
    return problems


def read_parquet(spark: SparkSession, found: Found) -> DataFrame | None:
    """Rows of earlier reports. A file that a ledger, or another row, has more of is left out."""
    rows = None
    for paths in _by_folder(found.parquet):
        try:
            # One schema for all: a folder may hold anything that ends in .parquet.
            read = spark.read.parquet(*map(_literally, paths))
            some = read.select(*ROW_SCHEMA.names, F.lit(paths[0]).alias("origin"))
        except PySparkException as exc:
            what = "it is Parquet, but no rows of a ledger"
            found.problems += [Problem(path=path, what=what, skipped=True) for path in paths]
            if exc.getCondition() is None:
                raise
            continue
        rows = some if rows is None else rows.unionByName(some)
    if rows is None:
        return None
    return _each_once(spark, rows, found)


def _each_once(spark: SparkSession, rows: DataFrame, found: Found) -> DataFrame:
    best = {file.header.file: file.size for file in found.ledgers}
    origins: dict[str, tuple[str, int]] = {}
    held = rows.groupBy("origin", "file").agg(F.max("file_bytes").alias("size")).collect()
    for row in sorted(held, key=lambda row: (row["size"], row["origin"])):
        origins[row["file"]] = row["origin"], row["size"]
    if len(held) == len(origins) and not best.keys() & origins.keys():
        return rows.drop("origin")
    kept = []
    for row in held:
        name, origin = row["file"], row["origin"]
        if origins[name][0] != origin or best.get(name, -1) > row["size"]:
            found.copies.append(f"{origin} ({name})")
        else:
            kept.append((origin, name))
            best.pop(name, None)
    gone = [file for file in found.ledgers if file.header.file not in best]
    found.copies += [file.path for file in gone]
    found.ledgers = [file for file in found.ledgers if file.header.file in best]
    wanted = spark.createDataFrame(kept, "origin string, file string")
    return rows.join(F.broadcast(wanted), ["origin", "file"], "left_semi").select(*ROW_SCHEMA.names)


def _by_folder(paths: list[str]) -> list[list[str]]:
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    return list(folders.values())


def _is_done() -> Column:
    valid = (
        F.col("namespace").isNotNull()
        & F.col("entity").isNotNull()
        & F.col("answered").isNotNull()
        & F.col("kind").isin([kind.value for kind in OperationKind])
        & F.col("part").isin([part.value for part in Part])
    )
    for name in ("operations", "messages", "bytes", "units"):
        valid &= _between(name, _LARGEST)
    return valid


def _is_change() -> Column:
    names = ("namespace", "entity", "from_state", "to_state")
    valid = F.lit(True)
    for name in names:
        valid &= F.col(name).isNotNull()
    return valid


def _between(name: str, most: int) -> Column:
    """Whether a number is there and makes sense. Never null."""
    return F.coalesce(F.col(name).between(0, most), F.lit(False))


def _literally(path: str) -> str:
    """A path that Spark does not take for a pattern. With its option to take none, `__globPaths__`,
    it reads all other files twice if there is one with such a name."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def _same(name: str) -> Column:
    # Hadoop writes file:/x, Spark file:///x.
    return F.regexp_replace(F.col(name), "^([a-zA-Z0-9+.-]+):///", "$1:/")


def _same_text(uri: str) -> str:
    scheme, mark, rest = uri.partition(":///")
    return f"{scheme}:/{rest}" if mark else uri


def _broken(file: LedgerFile, what: str, lines: int) -> Problem:
    return Problem(path=file.path, what=what, skipped=False, lines=lines)
