"""Reads the status file and the control file of a syphon."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pairbus.backlog.syphon_control import ControlFile
from pairbus.backlog.syphon_file import parse_syphon_status
from pairbus.console.inspection import SyphonView
from pairbus.errors import ConfigurationError

MAX_FILE_BYTES = 16 * 2**20


class SyphonFiles:
    """The files of a syphon that drains one pairing or several."""

    def __init__(
        self,
        status_file: Path | None,
        control: ControlFile,
        names: tuple[str, ...],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`names` are the names by which a status file of several pairings may list this one."""
        self._status_file = status_file
        self._control = control
        self._names = names
        self._now = now

    def read(self) -> SyphonView:
        """Read both files. Errors are part of the result."""
        control = self._control.read_or_keep()
        if self._status_file is None:
            return SyphonView(control=control)
        try:
            values = self._values(self._status_file)
            summary = parse_syphon_status(values, self._now())
        except (OSError, ValueError, ConfigurationError) as exc:
            return SyphonView(control=control, problem=f"The status file cannot be read: {exc}")
        written = values.get("time") if isinstance(values, dict) else None
        time_ms = int(written * 1000) if isinstance(written, int | float) else None
        return SyphonView(summary=summary, time_ms=time_ms, control=control)

    def _values(self, path: Path) -> Any:
        """Return the values of this pairing, or None if the file does not exist."""
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise ConfigurationError("This is not the status file of a syphon.")
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        pairings = values.get("pairings") if isinstance(values, dict) else None
        if isinstance(pairings, dict):
            for name in self._names:
                if isinstance(pairings.get(name), dict):
                    return {**pairings[name], "time": values.get("time")}
        return values
