"""The disk of a namespace: SQLite in memory, with the durability that the code asks for.

A crash loses what was not committed. If the code does not ask SQLite to sync each commit
(`PRAGMA synchronous = FULL`), a crash also loses commits since the last sync. A commit can fail
with an unknown outcome, and a write because the disk is full.
"""

import sqlite3
from random import Random
from typing import Any

FULL = 2
"""The value of `PRAGMA synchronous` with which every commit is synced."""


class SimulatedDisk:
    """The file of one namespace, and its faults. It survives crashes."""

    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self.fail_commits = 0
        """The number of commits that fail from now on, with an unknown outcome."""
        self.full = False
        self.commits = 0
        self._random = random
        self._durable: bytes | None = None
        """The content after the last sync, if it is not that of the connection."""
        self._connection: sqlite3.Connection | None = None
        self._synced = True

    def connect(self, path: object, **options: Any) -> "SimulatedConnection":
        """Open the file, in the place of `sqlite3.connect`."""
        if self._connection is None:
            self._connection = sqlite3.connect(":memory:", **options)
            if self._durable is not None:
                self._connection.deserialize(self._durable)
        return SimulatedConnection(self, self._connection)

    def crash(self) -> None:
        """Lose what is not on the disk."""
        connection = self._connection
        if connection is None:
            return
        if connection.in_transaction:
            connection.rollback()
        if not self._synced:
            connection.close()
            self._connection = None

    # Called by the connection.

    def is_synced(self, connection: sqlite3.Connection) -> bool:
        """Return whether the code asked for a sync at each commit."""
        return bool(connection.execute("PRAGMA synchronous").fetchone()[0] >= FULL)

    def opened(self, connection: sqlite3.Connection) -> None:
        """Take note of the settings of the code, before its first transaction."""
        self._synced = self.is_synced(connection)
        if not self._synced:  # a crash returns to this state
            self._durable = connection.serialize()

    def fails_now(self) -> bool:
        if self.fail_commits > 0:
            self.fail_commits -= 1
            return True
        return False

    def is_committed_nevertheless(self) -> bool:
        return self._random.random() < 0.5


class SimulatedConnection:
    """A connection of SQLite whose commits may fail."""

    def __init__(self, disk: SimulatedDisk, connection: sqlite3.Connection) -> None:
        self._disk = disk
        self._connection = connection
        self._has_started = False

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        disk = self._disk
        if statement == "COMMIT":
            disk.commits += 1
            if disk.fails_now():
                if disk.is_committed_nevertheless():
                    self._connection.execute(statement)
                raise sqlite3.OperationalError("disk I/O error")
        elif statement.startswith("BEGIN") and not self._has_started:
            self._has_started = True
            disk.opened(self._connection)
        elif disk.full and statement.startswith("INSERT"):
            raise sqlite3.OperationalError("database or disk is full")
        return self._connection.execute(statement, values)

    def executemany(self, statement: str, rows: Any) -> sqlite3.Cursor:
        if self._disk.full and statement.startswith("INSERT"):
            raise sqlite3.OperationalError("database or disk is full")
        return self._connection.executemany(statement, rows)

    def executescript(self, script: str) -> sqlite3.Cursor:
        return self._connection.executescript(script)

    def close(self) -> None:
        """Keep the content: the disk owns the connection."""
