"""The data source of one syphon. Its options are in the object, not in options of Spark, where
their secrets would appear in plans and logs."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.restore import BACKLOG_SCHEMA
from pairbus.syphon.sink import BacklogSink
from pairbus.syphon.source import backlog_stream_reader
from pairbus.syphon.status_file import StatusFiles


@dataclass(frozen=True, slots=True)
class ServerFolder:
    """A folder on the machine of a Spark Connect server, for status files and for the checkpoint if
    there is no other. The program that started the query gets the status with its progress."""

    path: Path

    @property
    def checkpoint(self) -> str:
        return f"file://{self.path}/checkpoint"

    def create(self) -> Path:
        """Return the folder, in a process of the server."""
        self.path.mkdir(exist_ok=True)  # Spark may have created it for the checkpoint
        self.path.chmod(0o700)
        return self.path

    def remove(self) -> None:
        """Delete the folder, in a process of the server."""
        shutil.rmtree(self.path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class BacklogSourceFactory:
    """Creates the data source in a process of Spark."""

    options: SyphonOptions
    folder: Path | ServerFolder
    cores: int | None = None
    """The number of tasks that run at a time. None: it is not known."""

    def __call__(self, _: dict[str, str]) -> "BacklogSource":
        return BacklogSource(self.options, self.folder, self.cores)


class BacklogSource(DataSource):
    """The source and the sink of a syphon."""

    def __init__(
        self, options: SyphonOptions, folder: Path | ServerFolder, cores: int | None = None
    ) -> None:
        super().__init__({})
        self._cores = cores
        self._options = options
        self._folder = folder
        self._files = StatusFiles(folder if isinstance(folder, Path) else folder.create())

    def schema(self) -> str:
        return BACKLOG_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        on_stop: Any = None if isinstance(self._folder, Path) else self._folder.remove
        return backlog_stream_reader(self._options, self._files, on_stop, self._cores)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        return BacklogSink(self._options, self._files)
