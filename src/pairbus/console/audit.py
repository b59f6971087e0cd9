"""The audit log: what was done through the console, by which token, from which address.

A line of JSON for each action, appended and written to disk before the action starts. An action
that cannot be recorded is not carried out.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pairbus.backlog.json_values import iso_time
from pairbus.console.text import shorten
from pairbus.errors import PairbusError

MAX_VALUE_CHARACTERS = 500


class AuditUnavailable(PairbusError):
    """Raised when an action could not be recorded in the audit log, so that it was not started."""


class AuditLog:
    """An append-only file that belongs to the user alone. Thread-safe."""

    def __init__(self, path: Path, *, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self._now = now
        self._lock = threading.Lock()

    def write(
        self, action: str, *, actor: str, address: str, details: Mapping[str, Any] | None = None
    ) -> None:
        """Append an entry and write it to disk. `actor` is the role and the id of a token. Raises
        AuditUnavailable."""
        entry = {
            "time": iso_time(int(self._now() * 1000)),
            "action": action,
            "actor": actor,
            "address": address,
            **{key: _limited(value) for key, value in (details or {}).items()},
        }
        # ASCII only: control characters and line ends of names are escaped.
        line = json.dumps(entry).encode("ascii") + b"\n"
        try:
            with self._lock:
                self._append(line)
        except OSError as exc:
            raise AuditUnavailable(
                f"The audit log {self.path} cannot be written ({exc.strerror}), so nothing was "
                "done."
            ) from exc

    def _append(self, line: bytes) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            remaining = memoryview(line)
            while remaining:
                remaining = remaining[os.write(handle, remaining) :]
            os.fsync(handle)
        finally:
            os.close(handle)


def _limited(value: Any) -> Any:
    return shorten(value, MAX_VALUE_CHARACTERS) if isinstance(value, str) else value
