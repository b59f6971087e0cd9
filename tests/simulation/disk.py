"""The disk of a namespace: SQLite in memory, with the durability that the code asks for.

A crash loses what was not committed, and also the last commits if the code did not ask SQLite to
sync them (`PRAGMA synchronous = FULL`). A synced commit syncs all commits before it. A commit can
fail with an unknown outcome, and a write because the disk is full.
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
        self._synced: bytes | None = None
        """The content after the last sync, if there were commits since then."""
        self._connection: sqlite3.Connection | None = None

    @property
    def is_failing(self) -> bool:
        """Return whether writes or commits fail now."""
        return self.full or self.fail_commits > 0

    def connect(self, path: object, **options: Any) -> "SimulatedConnection":
        """Open the file, in the place of `sqlite3.connect`."""
        if self._connection is None:
            self._connection = sqlite3.connect(":memory:", **options)
            if self._synced is not None:
                self._connection.deserialize(self._synced)
                self._synced = None
        return SimulatedConnection(self, self._connection)

    def crash(self) -> None:
        """Lose what is not on the disk."""
        connection = self._connection
        if connection is None:
            return
        if connection.in_transaction:
            connection.rollback()
        if self._synced is not None:
            connection.close()
            self._connection = None

    # Called by the connection.

    def begin(self, connection: sqlite3.Connection, *, syncs: bool) -> None:
        """Keep the content if the transaction that begins is the first without a sync."""
        if not syncs and self._synced is None:
            self._synced = connection.serialize()

    def committed(self, *, syncs: bool) -> None:
        if syncs:
            self._synced = None

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
        self._syncs: bool | None = None
        """Whether the code asked for a sync of each commit, as far as is known."""

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        disk, connection = self._disk, self._connection
        if statement == "COMMIT":
            disk.commits += 1
            fails = disk.fails_now()
            if not fails or disk.is_committed_nevertheless():
                cursor = connection.execute(statement)
                disk.committed(syncs=self._asks_for_sync())
            if fails:
                raise sqlite3.OperationalError("disk I/O error")
            return cursor
        if statement.startswith("BEGIN"):
            disk.begin(connection, syncs=self._asks_for_sync())
        elif statement.startswith("PRAGMA synchronous"):
            self._syncs = None
        elif disk.full and statement.startswith("INSERT"):
            raise sqlite3.OperationalError("database or disk is full")
        return connection.execute(statement, values)

    def _asks_for_sync(self) -> bool:
        if self._syncs is None:
            (level,) = self._connection.execute("PRAGMA synchronous").fetchone()
            self._syncs = level >= FULL
        return self._syncs

    def executemany(self, statement: str, rows: Any) -> sqlite3.Cursor:
        if self._disk.full and statement.startswith("INSERT"):
            raise sqlite3.OperationalError("database or disk is full")
        return self._connection.executemany(statement, rows)

    def executescript(self, script: str) -> sqlite3.Cursor:
        return self._connection.executescript(script)

    def close(self) -> None:
        """Keep the content: the disk owns the connection."""
