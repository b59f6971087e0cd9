"""The SQLite file of a namespace: buffered writes, one commit per turn, and failure.

A database that fails once (a full disk, an I/O error) stays unusable, because SQLite may have
rolled back, and then memory and disk differ. A new database on the same file has the last commit.
"""

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from pairbus.emulator.storage.lock import StoreLock
from pairbus.emulator.storage.schema import prepare
from pairbus.errors import StateError

Row = tuple[object, ...]

_INSERT_MESSAGE = "INSERT OR REPLACE INTO message VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"
_DELETE_MESSAGE = "DELETE FROM message WHERE key = ?"
_INSERT_GROUP = "INSERT INTO message_group VALUES (?,?,?,?,?,?,?,?,?)"
_DELETE_GROUP = "DELETE FROM message_group WHERE key = ?"
_SET_REMOVED = "INSERT OR REPLACE INTO removed_from_group VALUES (?, ?)"
_FORGET_REMOVED = "DELETE FROM removed_from_group WHERE key = ?"


class StoreFailed(StateError):
    """The file could not be read or written. Uncommitted changes are lost."""


class Lock(Protocol):
    """Exclusive use of a file."""

    def release(self) -> None: ...


def fetch_all(cursor: sqlite3.Cursor) -> list[Any]:
    return cursor.fetchall()


class Database:
    """One file, used by one thread. Every call raises StoreFailed once one has failed.

    Writes of messages are buffered and executed together, before the next other statement. Reads
    see all earlier writes, committed or not.
    """

    def __init__(
        self,
        path: Path | str,
        on_failure: Callable[[], None],
        *,
        connect: Callable[..., sqlite3.Connection] = sqlite3.connect,
        lock: Callable[[Path | str], Lock] = StoreLock,
    ) -> None:
        """Open the file, and create it if it is missing.

        `on_failure` is called once, during the call that fails. `connect` and `lock` open and lock
        the file. Raises StateError if another database has the file open, and StoreFailed if it
        cannot be opened.
        """
        self._path = path
        self._open = connect
        self._on_failure = on_failure
        self.failure: StoreFailed | None = None
        self._inserts: list[Row] = []
        self._deletes: list[tuple[int]] = []
        self._group_inserts: list[Row] = []
        self._group_deletes: list[tuple[int]] = []
        self._removed: dict[int, int] = {}
        self._in_transaction = False
        self._lock = lock(path)
        try:
            self.connection = self._connect()
        except sqlite3.Error as exc:
            self._lock.release()
            self.failure = self._failure(exc)
            raise self.failure from exc

    def _connect(self) -> sqlite3.Connection:
        connection = self._open(self._path, isolation_level=None, check_same_thread=False)
        try:
            prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def abandon(self) -> None:
        """Refuse all further calls, and lose the writes since the last commit."""
        self.failure = StoreFailed(f"{self._path}: the namespace was killed")

    def close(self) -> None:
        """Commit and close. Can be called again. A failed database is closed without a commit."""
        try:
            if self.failure is None:
                self.commit()
        finally:
            self._on_failure = _ignore
            try:
                self.connection.close()
            finally:
                self._lock.release()

    # Writing.

    @property
    def is_dirty(self) -> bool:
        """True if there are uncommitted writes."""
        return self._in_transaction or self._has_buffered

    @property
    def _has_buffered(self) -> bool:
        return bool(
            self._inserts
            or self._deletes
            or self._group_inserts
            or self._group_deletes
            or self._removed
        )

    def commit(self) -> None:
        """Put all writes since the last commit on disk, or raise StoreFailed."""
        self._check()
        if self.is_dirty:
            self._flush()
            self._execute("COMMIT", ())
            self._in_transaction = False

    def insert_messages(self, rows: Iterable[Row]) -> None:
        """Buffer messages that are inserted, or that replace those with their keys."""
        if self._deletes:  # the order of a delete and an insert of the same key matters
            self._flush()
        self._inserts += rows

    def delete_messages(self, keys: Iterable[tuple[int]]) -> None:
        """Buffer the deletion of messages, each given by a row of its key."""
        self._deletes += keys

    def insert_group(self, row: Row) -> None:
        """Buffer a row with several messages."""
        self._group_inserts.append(row)

    def delete_group(self, key: int) -> None:
        """Buffer the deletion of a row with several messages."""
        self._removed.pop(key, None)
        self._group_deletes.append((key,))

    def set_removed(self, key: int, bits: int) -> None:
        """Buffer which messages are removed from a row with several messages."""
        self._removed[key] = bits

    def discard_messages(self) -> None:
        """Forget the buffered writes."""
        self._inserts.clear()
        self._deletes.clear()
        self._group_inserts.clear()
        self._group_deletes.clear()
        self._removed.clear()

    def write(self, statement: str, values: Row) -> int | None:
        """Execute a statement, and return the id of the last inserted row."""
        self._flush()
        return self._execute(statement, values).lastrowid

    def write_many(self, statement: str, rows: Iterable[Row]) -> None:
        """Execute a statement once for each row."""
        self._flush()
        self._execute_many(statement, rows)

    def write_unsynced(self, statement: str, rows: Iterable[Row]) -> None:
        """Execute a statement once for each row, together with the uncommitted writes. If there are
        none, commit it without waiting for the disk: it survives the end of this process, and
        reaches the disk with the next commit."""
        if self.is_dirty:
            self.write_many(statement, rows)
            return
        self._execute("PRAGMA synchronous = NORMAL", ())
        self.write_many(statement, rows)
        self.commit()
        self._execute("PRAGMA synchronous = FULL", ())

    def _flush(self) -> None:
        """Execute the buffered writes, in a transaction that `commit` ends."""
        if not self._in_transaction:
            self._execute("BEGIN IMMEDIATE", ())
            self._in_transaction = True
        # A row with several messages is inserted once, so its deletion is always later.
        if self._group_inserts:
            self._execute_many(_INSERT_GROUP, self._group_inserts)
            self._group_inserts.clear()
        if self._removed:
            self._execute_many(_SET_REMOVED, self._removed.items())
            self._removed.clear()
        if self._group_deletes:
            self._execute_many(_DELETE_GROUP, self._group_deletes)
            self._execute_many(_FORGET_REMOVED, self._group_deletes)
            self._group_deletes.clear()
        if self._inserts:
            self._execute_many(_INSERT_MESSAGE, self._inserts)
            self._inserts.clear()
        if self._deletes:
            self._execute_many(_DELETE_MESSAGE, self._deletes)
            self._deletes.clear()

    def _execute(self, statement: str, values: Row) -> sqlite3.Cursor:
        self._check()
        try:
            return self.connection.execute(statement, values)
        except Exception as exc:  # whatever its type, memory is ahead of the disk now
            raise self._fail(exc) from exc

    def _execute_many(self, statement: str, rows: Iterable[Row]) -> None:
        self._check()
        try:
            self.connection.executemany(statement, rows)
        except Exception as exc:  # whatever its type, memory is ahead of the disk now
            raise self._fail(exc) from exc

    # Reading.

    def read(
        self,
        statement: str,
        values: Row = (),
        fetch: Callable[[sqlite3.Cursor], list[Any]] = fetch_all,
    ) -> list[Any]:
        """Return the rows of a query, as far as `fetch` fetches them."""
        if self._has_buffered:
            self._flush()
        self._check()
        try:
            return fetch(self.connection.execute(statement, values))
        except sqlite3.Error as exc:
            raise self._fail(exc) from exc

    def read_integer(self, statement: str) -> int | None:
        """Return the only value of a query."""
        value = self.read(statement)[0][0]
        return None if value is None else int(value)

    # Failing.

    def _check(self) -> None:
        if self.failure is not None:
            raise StoreFailed(str(self.failure)) from self.failure.__cause__

    def _fail(self, exc: Exception) -> StoreFailed:
        """Refuse all further calls, and return the error to raise."""
        self.failure = self._failure(exc)
        self._on_failure()
        return self.failure

    def _failure(self, exc: Exception) -> StoreFailed:
        failure = StoreFailed(f"{self._path}: {exc} ({type(exc).__name__})")
        failure.__cause__ = exc
        return failure


def _ignore() -> None:
    pass
