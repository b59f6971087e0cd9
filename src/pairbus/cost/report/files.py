"""Which files there are to read: looked at through Hadoop's file systems, so that any path that
Spark takes will do. Only the ends of files are read here."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pairbus.cost.report.result import Problem
from pairbus.usage.records import HEADER_LIMIT, LedgerHeader, Unreadable, is_torn, read_header

ROWS = "rows"
TABLES = ("by_day", "by_part", "by_kind", "by_namespace", "by_entity", "outages", "problems")
PARQUET = ".parquet"
_MAGIC = b"PAR1"
_HIDDEN = ("_", ".")
_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFile:
    path: str
    uri: str
    size: int
    header: LedgerHeader
    torn: bool


@dataclass(slots=True)
class Found:
    """What is to be read, and what is not."""

    ledgers: list[LedgerFile] = field(default_factory=list)
    parquet: list[str] = field(default_factory=list)
    """Files with rows of an earlier report."""
    copies: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    path: str
    uri: str
    size: int
    status: Any
    asked_for: bool
    """By its name, or by that of its folder."""
    parent: str


class Disk:
    """Hadoop's file systems, as a session sees them."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        self._bytes = jvm.org.apache.commons.io.IOUtils
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()

    def qualified(self, path: str) -> str:
        """The whole address of a path."""
        found = self._hadoop.Path(path)
        return str(found.getFileSystem(self._conf).makeQualified(found).toString())

    def files(self, path: str) -> Iterator[_Listed | Problem]:
        """The files that a path, folder or pattern stands for."""
        try:
            place = self._hadoop.Path(path)
            system = place.getFileSystem(self._conf)
            # A file may have a name that reads like a pattern.
            if system.exists(place):
                found = [system.getFileStatus(place)]
            else:
                found = list(system.globStatus(place) or ())
            if not found:
                yield Problem(path=path, what="there is no such file", skipped=True)
            for status in found:
                if status.isFile():
                    yield self._listed(status, asked_for=True)
                else:
                    yield from self._below(system, status.getPath(), asked_for=True)
        except Py4JJavaError as exc:
            yield Problem(path=path, what=f"it cannot be listed: {reason(exc)}", skipped=True)

    def _below(self, system: Any, folder: Any, *, asked_for: bool) -> Iterator[_Listed]:
        for status in system.listStatus(folder):
            if status.getPath().getName().startswith(_HIDDEN):
                continue  # such as Spark's _SUCCESS
            if status.isFile():
                yield self._listed(status, asked_for=asked_for)
            else:
                yield from self._below(system, status.getPath(), asked_for=False)

    def _listed(self, status: Any, *, asked_for: bool) -> _Listed:
        path = status.getPath()
        return _Listed(
            path=path.toString(),
            uri=path.toUri().toString(),
            size=status.getLen(),
            status=status,
            asked_for=asked_for,
            parent=path.getParent().getName(),
        )

    def ends(self, file: _Listed) -> tuple[bytes, bytes]:
        """The beginning of a file and its end, as much of each as a header may take."""
        length = min(file.size, HEADER_LIMIT)
        path = file.status.getPath()
        stream = path.getFileSystem(self._conf).open(path)
        try:
            start = self._bytes.toByteArray(stream, length)
            if file.size == length:
                return bytes(start), bytes(start)
            stream.seek(file.size - length)
            return bytes(start), bytes(self._bytes.toByteArray(stream, length))
        finally:
            stream.close()


def find(disk: Disk, paths: Iterable[str]) -> Found:
    """All files of some paths, each once, of copies the longest."""
    found = Found()
    listed: dict[str, _Listed] = {}
    for path in paths:
        for one in disk.files(path):
            if isinstance(one, Problem):
                found.problems.append(one)
            else:
                listed.setdefault(one.uri, one)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        looked = list(pool.map(lambda one: _look(disk, one), listed.values()))
    best: dict[str, LedgerFile] = {}
    for file in looked:
        if isinstance(file, Problem):
            found.problems.append(file)
        elif isinstance(file, str):
            found.parquet.append(file)
        elif file is not None:
            other = best.setdefault(file.header.file, file)
            if other is not file:
                copy, whole = sorted((file, other), key=_rank)
                found.copies.append(copy.path)
                best[file.header.file] = whole
    found.ledgers = list(best.values())
    found.copies.sort()
    return found


def _rank(file: LedgerFile) -> tuple[int, bool, str]:
    return file.size, not file.torn, file.path


def _look(disk: Disk, file: _Listed) -> LedgerFile | Problem | str | None:
    """A ledger, a problem, or a file of Parquet rows; None for a table of a report."""
    name = file.path.rpartition("/")[2]
    if name.startswith(_HIDDEN):
        what = "Spark reads no file whose name begins with '_' or '.'"
        return Problem(path=file.path, what=what, skipped=True)
    try:
        start, end = disk.ends(file)
        if name.endswith(PARQUET):
            if file.parent in TABLES and not file.asked_for:
                return None
            if file.size < 2 * len(_MAGIC) or not start.startswith(_MAGIC) or end[-4:] != _MAGIC:
                raise Unreadable("it is damaged: Parquet without a beginning or an end")
            return file.path
        return LedgerFile(
            path=file.path,
            uri=file.uri,
            size=file.size,
            header=read_header(start),
            torn=is_torn(end),
        )
    except Unreadable as exc:
        return Problem(path=file.path, what=str(exc), skipped=True)
    except Py4JJavaError as exc:
        return Problem(path=file.path, what=f"it cannot be read: {reason(exc)}", skipped=True)


def reason(exc: Py4JJavaError) -> str:
    """The first line of what Java says."""
    lines = str(exc.java_exception.toString()).splitlines()
    return lines[0] if lines else type(exc).__name__
