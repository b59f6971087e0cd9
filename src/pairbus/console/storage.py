"""The database file of the console: samples for the charts, sessions, and used login links.

The file is a convenience: if the disk fails, the console goes on in memory, and says so.
"""

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from pairbus.errors import ConfigurationError

T = TypeVar("T")

logger = logging.getLogger(__name__)

VERSION: Final = 2
_SCHEMA: Final = """
CREATE TABLE samples (
    time INTEGER PRIMARY KEY, backlog INTEGER, rate REAL, throttled INTEGER NOT NULL);
CREATE TABLE sessions (
    key BLOB PRIMARY KEY, role TEXT NOT NULL, actor TEXT NOT NULL, expires_at REAL NOT NULL);
CREATE TABLE used_tokens (id TEXT PRIMARY KEY, expires_at REAL NOT NULL);
"""


class ConsoleDatabase:
    """A small SQLite file that belongs to the user alone, or a database in memory. Thread-safe."""

    def __init__(self, path: Path | None) -> None:
        """Open or create the file. Raises ConfigurationError if it is not a database of the
        console, or if it cannot be created."""
        self._lock = threading.Lock()
        self.problem: str | None = None
        """The reason why the last change could not be written."""
        name = ":memory:" if path is None else str(path)
        try:
            if path is not None:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = sqlite3.connect(name, check_same_thread=False, timeout=1.0)
            self._create()
        except (OSError, sqlite3.Error) as exc:
            raise ConfigurationError(
                f"The database {name} of the console cannot be opened: {exc}. Delete it to start "
                "without history."
            ) from exc

    def _create(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, VERSION):
            raise ConfigurationError(
                f"The database of the console has the version {version}, and this program reads "
                f"version {VERSION}. Delete it to start without history."
            )
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        if version == 0:
            self._connection.executescript(
                f"BEGIN;{_SCHEMA}PRAGMA user_version = {VERSION};COMMIT;"
            )

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query. Empty if the disk fails."""

        def work() -> list[tuple[Any, ...]]:
            return self._connection.execute(statement, values).fetchall()

        return self._run(work) or []

    def write(self, *statements: tuple[str, Sequence[Any]]) -> None:
        """Carry out changes together."""

        def work() -> None:
            with self._connection:
                for statement, values in statements:
                    self._connection.execute(statement, values)

        self._run(work)

    def close(self) -> None:
        """Close the file. It can be called again."""
        with self._lock:
            self._connection.close()

    def _run(self, work: Callable[[], T]) -> T | None:
        with self._lock:
            try:
                result = work()
            except sqlite3.Error as exc:
                if self.problem is None:
                    logger.warning("The database of the console cannot be used: %s", exc)
                self.problem = f"History and sessions are not stored: {exc}."
                return None
            self.problem = None
            return result
