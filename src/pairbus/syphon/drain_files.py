"""Files through which the sink tells the process that started the syphon what was moved."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from pairbus.telemetry.drains import DrainRecord

MAX_FILES = 1000
"""Further records are dropped if nothing takes them."""


class DrainFiles:
    """A folder with a file for each micro-batch whose records were not taken yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, records: Sequence[DrainRecord]) -> None:
        """Add the records of a micro-batch, in the process that commits it."""
        if not records:
            return
        with contextlib.suppress(OSError):  # the records are for telemetry only
            self._folder.mkdir(exist_ok=True)
            if sum(1 for _ in self._folder.iterdir()) >= MAX_FILES:
                return
            path = self._folder / uuid4().hex
            draft = path.with_suffix(".new")
            draft.write_text(json.dumps([record.to_json() for record in records]))
            draft.replace(path)

    def take(self) -> list[DrainRecord]:
        """Return and remove all records."""
        records: list[DrainRecord] = []
        if not self._folder.is_dir():
            return records
        for path in sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime_ns):
            if not path.suffix:
                records += map(DrainRecord.from_json, json.loads(path.read_text()))
                path.unlink()
        return records
