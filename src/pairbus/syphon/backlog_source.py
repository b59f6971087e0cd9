"""The data source of one syphon. Its options are in the object, not in options of Spark, where
their secrets would appear in plans and logs."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from pairbus.backlog.syphon_control import ControlFile
from pairbus.spark.owned_folders import own_folder, remove_abandoned_folders
from pairbus.syphon.detailed_rows import DETAILED_SCHEMA
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.packed_rows import PACKED_SCHEMA
from pairbus.syphon.restore import BACKLOG_SCHEMA
from pairbus.syphon.selection import Selection
from pairbus.syphon.sink import BacklogSink
from pairbus.syphon.source import backlog_stream_reader
from pairbus.syphon.status_file import StatusFiles
from pairbus.syphon.task_slots import TaskSlots


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

    def own(self) -> None:
        """Make this process of the server the owner of the folder, and delete the folders of
        queries that were killed with their server."""
        own_folder(self.create())
        remove_abandoned_folders(self.path.parent)

    def remove(self) -> None:
        """Delete the folder, in a process of the server."""
        shutil.rmtree(self.path, ignore_errors=True)


def control_path(options: SyphonOptions, folder: Path) -> Path:
    """Return the path of the control file. `folder` is the private folder of the syphon."""
    return folder / "control.json" if options.control_file is None else Path(options.control_file)


@dataclass(frozen=True, slots=True)
class BacklogSourceFactory:
    """Creates the data source in a process of Spark."""

    options: SyphonOptions
    folder: Path | ServerFolder
    slots: TaskSlots = field(default_factory=TaskSlots)
    selection: Selection | None = None
    """Set if the rows have the columns that a transformation sees."""

    @property
    def has_filter(self) -> bool:
        """True if Spark looks into the rows."""
        return self.selection is not None or bool(self.options.only)

    @property
    def source_schema(self) -> str:
        if not self.has_filter:
            return PACKED_SCHEMA
        return BACKLOG_SCHEMA if self.selection is None else DETAILED_SCHEMA

    def __call__(self, _: dict[str, str]) -> "BacklogSource":
        return BacklogSource(self)


class BacklogSource(DataSource):
    """The source and the sink of a syphon."""

    def __init__(self, factory: BacklogSourceFactory) -> None:
        super().__init__({})
        self._factory = factory
        self._options = factory.options
        self._folder = factory.folder
        folder = self._folder if isinstance(self._folder, Path) else self._folder.create()
        self._files = StatusFiles(folder)
        self._control = ControlFile(control_path(self._options, folder))

    def schema(self) -> str:
        return self._factory.source_schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        on_start: Any = None
        on_stop: Any = None
        if isinstance(self._folder, ServerFolder):
            on_start, on_stop = self._folder.own, self._folder.remove
        return backlog_stream_reader(
            self._options,
            self._files,
            on_start=on_start,
            on_stop=on_stop,
            slots=self._factory.slots,
            control=self._control,
            selection=self._factory.selection,
        )

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        return BacklogSink(self._options, self._files)
