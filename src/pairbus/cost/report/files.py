"""The input files of a report, found through Hadoop's file systems.

Any path that Spark can read is accepted. Only the start and the end of each file are read here.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pairbus.cost.report.result import InputProblem
from pairbus.usage.records import (
    MAX_LINE_BYTES,
    LedgerHeader,
    UnreadableLedgerError,
    is_truncated,
    read_header,
)

ROWS = "rows"
TABLES = ("by_day", "by_purpose", "by_kind", "by_namespace", "by_entity", "outages", "problems")
PARQUET = ".parquet"
_PARQUET_MAGIC = b"PAR1"
_HIDDEN_PREFIXES = ("_", ".")
_MAX_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFile:
    """A ledger file that can be read."""

    path: str
    uri: str
    size: int
    header: LedgerHeader
    truncated: bool
    """True if the file ends within a record."""


@dataclass(slots=True)
class ReportInput:
    """The files to read, and those that are left out."""

    ledgers: list[LedgerFile] = field(default_factory=list)
    parquet: list[str] = field(default_factory=list)
    """Files with the rows of an earlier report."""
    copies: list[str] = field(default_factory=list)
    problems: list[InputProblem] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListedFile:
    path: str
    uri: str
    size: int
    status: Any
    requested: bool
    """True if the user named this file or its folder, not only a folder further up."""
    folder_name: str


class HadoopFiles:
    """Hadoop's file systems, with the configuration of a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        self._io_utils = jvm.org.apache.commons.io.IOUtils
        self._configuration = spark._jsparkSession.sessionState().newHadoopConf()

    def qualified(self, path: str) -> str:
        """Return a path with its scheme and authority."""
        hadoop_path = self._hadoop.Path(path)
        file_system = hadoop_path.getFileSystem(self._configuration)
        return str(file_system.makeQualified(hadoop_path).toString())

    def list_files(self, path: str) -> Iterator[_ListedFile | InputProblem]:
        """Yield the files that a path, a folder or a glob pattern stands for."""
        try:
            hadoop_path = self._hadoop.Path(path)
            file_system = hadoop_path.getFileSystem(self._configuration)
            # The name of an existing file may look like a glob pattern.
            if file_system.exists(hadoop_path):
                statuses = [file_system.getFileStatus(hadoop_path)]
            else:
                statuses = list(file_system.globStatus(hadoop_path) or ())
            if not statuses:
                yield InputProblem(path=path, description="no such file", skipped=True)
            for status in statuses:
                if status.isFile():
                    yield self._listed(status, requested=True)
                else:
                    yield from self._walk(file_system, status.getPath(), requested=True)
        except Py4JJavaError as exc:
            description = f"cannot be listed: {java_error_line(exc)}"
            yield InputProblem(path=path, description=description, skipped=True)

    def _walk(self, file_system: Any, folder: Any, *, requested: bool) -> Iterator[_ListedFile]:
        for status in file_system.listStatus(folder):
            if status.getPath().getName().startswith(_HIDDEN_PREFIXES):
                continue  # Such as Spark's _SUCCESS.
            if status.isFile():
                yield self._listed(status, requested=requested)
            else:
                yield from self._walk(file_system, status.getPath(), requested=False)

    def _listed(self, status: Any, *, requested: bool) -> _ListedFile:
        path = status.getPath()
        return _ListedFile(
            path=path.toString(),
            uri=path.toUri().toString(),
            size=status.getLen(),
            status=status,
            requested=requested,
            folder_name=path.getParent().getName(),
        )

    def read_ends(self, file: _ListedFile) -> tuple[bytes, bytes]:
        """Return the start and the end of a file, each long enough for one line."""
        length = min(file.size, MAX_LINE_BYTES)
        path = file.status.getPath()
        stream = path.getFileSystem(self._configuration).open(path)
        try:
            start = bytes(self._io_utils.toByteArray(stream, length))
            if file.size == length:
                return start, start
            stream.seek(file.size - length)
            return start, bytes(self._io_utils.toByteArray(stream, length))
        finally:
            stream.close()


def find_input(file_systems: HadoopFiles, paths: Iterable[str]) -> ReportInput:
    """Find all files of some paths, each once. Of several copies of a file the longest is used."""
    result = ReportInput()
    listed: dict[str, _ListedFile] = {}
    for path in paths:
        for entry in file_systems.list_files(path):
            if isinstance(entry, InputProblem):
                result.problems.append(entry)
            else:
                listed.setdefault(entry.uri, entry)
    with ThreadPoolExecutor(_MAX_THREADS) as pool:
        inspected = list(pool.map(lambda file: _inspect(file_systems, file), listed.values()))
    longest: dict[str, LedgerFile] = {}
    for file in inspected:
        if isinstance(file, InputProblem):
            result.problems.append(file)
        elif isinstance(file, str):
            result.parquet.append(file)
        elif file is not None:
            other = longest.setdefault(file.header.file, file)
            if other is not file:
                shorter, longer = sorted((file, other), key=_completeness)
                result.copies.append(shorter.path)
                longest[file.header.file] = longer
    result.ledgers = list(longest.values())
    result.copies.sort()
    return result


def _completeness(file: LedgerFile) -> tuple[int, bool, str]:
    return file.size, not file.truncated, file.path


def _inspect(
    file_systems: HadoopFiles, file: _ListedFile
) -> LedgerFile | InputProblem | str | None:
    """Return a ledger, a problem or the path of Parquet rows; None for a table of a report."""
    name = file.path.rpartition("/")[2]
    if name.startswith(_HIDDEN_PREFIXES):
        description = "Spark does not read files whose names begin with '_' or '.'"
        return InputProblem(path=file.path, description=description, skipped=True)
    try:
        start, end = file_systems.read_ends(file)
        if name.endswith(PARQUET):
            if file.folder_name in TABLES and not file.requested:
                return None
            is_whole = start.startswith(_PARQUET_MAGIC) and end.endswith(_PARQUET_MAGIC)
            if not is_whole or file.size < 2 * len(_PARQUET_MAGIC):
                raise UnreadableLedgerError("damaged: the header or footer of Parquet is missing")
            return file.path
        return LedgerFile(
            path=file.path,
            uri=file.uri,
            size=file.size,
            header=read_header(start),
            truncated=is_truncated(end),
        )
    except UnreadableLedgerError as exc:
        return InputProblem(path=file.path, description=str(exc), skipped=True)
    except Py4JJavaError as exc:
        description = f"cannot be read: {java_error_line(exc)}"
        return InputProblem(path=file.path, description=description, skipped=True)


def java_error_line(exc: Py4JJavaError) -> str:
    """Return the first line of a Java exception."""
    lines = str(exc.java_exception.toString()).splitlines()
    return lines[0] if lines else type(exc).__name__
