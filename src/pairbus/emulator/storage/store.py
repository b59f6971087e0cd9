"""What a namespace keeps on disk: entities and messages, in one SQLite file.

Writes are gathered and carried out together: `commit` is called once in a turn of the event loop,
and only when it has returned (the write-ahead log is on disk then) may anybody be told of them.
Reads see what was written before, committed or not. A message's key is its entity's number and
its own sequence number in one integer, so that a queue is one stretch of one B-tree.

A file has one store at a time, in this process and in all others: a second one is refused.

A store that fails once (a full disk, an I/O error) has failed for good: what is in memory and what
is on disk are no longer the same. A new one on the same file has the last commit.
"""

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from pairbus.emulator.storage.lock import StoreLock
from pairbus.errors import StateError

UNBOUNDED = 1 << 62
"""More bytes than there are."""
_SHIFT = 40
_SIZE = 7
"""The column of a message's row."""
MAX_SEQUENCE = (1 << _SHIFT) - 1

_MIGRATIONS = [
    """
    CREATE TABLE entity (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        path TEXT NOT NULL UNIQUE COLLATE NOCASE,
        kind TEXT NOT NULL,
        description TEXT NOT NULL,
        next_sequence INTEGER NOT NULL DEFAULT 1,
        created_ms INTEGER NOT NULL,
        updated_ms INTEGER NOT NULL,
        accessed_ms INTEGER NOT NULL
    );
    CREATE TABLE message (
        key INTEGER PRIMARY KEY,
        state INTEGER NOT NULL,
        enqueued_ms INTEGER NOT NULL,
        expires_ms INTEGER,
        due_ms INTEGER,
        deliveries INTEGER NOT NULL,
        session TEXT,
        size INTEGER NOT NULL,
        header BLOB NOT NULL,
        annotation_count INTEGER NOT NULL,
        annotations BLOB NOT NULL,
        rest BLOB NOT NULL
    );
    CREATE INDEX message_expires ON message (expires_ms)
        WHERE expires_ms IS NOT NULL AND state <> 1;
    CREATE INDEX message_due ON message (due_ms) WHERE due_ms IS NOT NULL;
    CREATE INDEX message_session ON message (session) WHERE session IS NOT NULL;
    CREATE INDEX message_aside ON message (state) WHERE state <> 0;
    CREATE TABLE rule (
        entity INTEGER NOT NULL,
        name TEXT NOT NULL COLLATE NOCASE,
        description TEXT NOT NULL,
        PRIMARY KEY (entity, name)
    ) WITHOUT ROWID;
    CREATE TABLE seen (
        entity INTEGER NOT NULL,
        message_id TEXT NOT NULL,
        until_ms INTEGER NOT NULL,
        PRIMARY KEY (entity, message_id)
    ) WITHOUT ROWID;
    CREATE INDEX seen_until ON seen (until_ms);
    CREATE TABLE session_state (
        entity INTEGER NOT NULL,
        session TEXT NOT NULL,
        state BLOB,
        updated_ms INTEGER NOT NULL,
        PRIMARY KEY (entity, session)
    ) WITHOUT ROWID;
    CREATE TABLE meter (
        entity TEXT NOT NULL,
        kind TEXT NOT NULL,
        operations INTEGER NOT NULL,
        messages INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        units INTEGER NOT NULL,
        PRIMARY KEY (entity, kind)
    ) WITHOUT ROWID;
    """,
]


@dataclass(frozen=True, slots=True)
class EntityRow:
    """An entity as it is stored; its description is an Atom entry. Ids are never used again."""

    id: int
    path: str
    kind: str
    description: str
    next_sequence: int
    created_ms: int
    updated_ms: int
    accessed_ms: int


class StoredMessage:
    """A message as it is stored: the sections that the emulator changes, and the rest in one
    piece. `header` is the header and the delivery annotations."""

    __slots__ = (
        "annotation_count",
        "annotations",
        "deliveries",
        "due_ms",
        "enqueued_ms",
        "expires_ms",
        "header",
        "rest",
        "sequence",
        "session",
        "size",
        "state",
    )

    def __init__(
        self,
        sequence: int,
        state: int,
        enqueued_ms: int,
        expires_ms: int | None,
        due_ms: int | None,
        deliveries: int,
        session: str | None,
        size: int,
        header: bytes,
        annotation_count: int,
        annotations: bytes,
        rest: bytes,
    ) -> None:
        self.sequence = sequence
        self.state = state
        self.enqueued_ms = enqueued_ms
        self.expires_ms = expires_ms
        self.due_ms = due_ms
        self.deliveries = deliveries
        self.session = session
        self.size = size
        self.header = header
        self.annotation_count = annotation_count
        self.annotations = annotations
        self.rest = rest

    def row(self, entity: int) -> tuple[object, ...]:
        return (
            entity << _SHIFT | self.sequence,
            self.state,
            self.enqueued_ms,
            self.expires_ms,
            self.due_ms,
            self.deliveries,
            self.session,
            self.size,
            self.header,
            self.annotation_count,
            self.annotations,
            self.rest,
        )


def _all(cursor: sqlite3.Cursor) -> list[Any]:
    return cursor.fetchall()


def _up_to(room: int, cursor: sqlite3.Cursor) -> list[Any]:
    """Messages, no more once they have so many bytes together."""
    rows = []
    for row in cursor:
        rows.append(row)
        room -= row[_SIZE]
        if room <= 0:
            break
    cursor.close()
    return rows


def _prepare(db: sqlite3.Connection) -> None:
    # FULL: every commit waits until the log is on disk. The log is replayed by the next start.
    db.executescript(
        "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
        "PRAGMA cache_size = -32768; PRAGMA wal_autocheckpoint = 4000;"
    )
    (version,) = db.execute("PRAGMA user_version").fetchone()
    for number, statements in enumerate(_MIGRATIONS[version:], start=version + 1):
        db.executescript(f"BEGIN; {statements} PRAGMA user_version = {number}; COMMIT;")


class StoreFailed(StateError):
    """The file could not be read or written. What was not committed before is lost."""


class Store:
    """One namespace's file. Used by one thread. Every call raises StoreFailed once one has."""

    def __init__(self, path: Path | str) -> None:
        """Raises StateError where another store has the file, and StoreFailed where it cannot be
        opened."""
        self._path = path
        self.failure: StoreFailed | None = None
        """Why the store can no longer be used."""
        self.on_failure: Callable[[], None] = _nothing
        """Is called once, in the middle of the call that fails."""
        self._inserts: list[tuple[object, ...]] = []
        self._deletes: list[tuple[int]] = []
        self._open = False
        self._lock = StoreLock(path)
        try:
            self._db = self._connect()
        except sqlite3.Error as exc:
            self._lock.release()
            raise self._failed(exc) from exc

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Commit and close. Can be called again. A store that has failed is closed only."""
        try:
            if self.failure is None:
                self.commit()
        finally:
            self.on_failure = _nothing
            try:
                self._db.close()
            finally:
                self._lock.release()

    @property
    def dirty(self) -> bool:
        """Whether there is something to commit."""
        return self._open or bool(self._inserts) or bool(self._deletes)

    def commit(self) -> None:
        """Put everything that was written since the last commit on disk, or raise StoreFailed."""
        self._check()
        if self.dirty:
            self._flush()
            self._change("COMMIT", ())
            self._open = False

    def _flush(self) -> None:
        """Carry out what was gathered."""
        if not self._open:
            self._change("BEGIN IMMEDIATE", ())
            self._open = True
        if self._inserts:
            self._change_many(
                "INSERT OR REPLACE INTO message VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", self._inserts
            )
            self._inserts.clear()
        if self._deletes:
            self._change_many("DELETE FROM message WHERE key = ?", self._deletes)
            self._deletes.clear()

    # Failing. SQLite may have rolled back by itself: one more statement, and it would stand alone.

    def _check(self) -> None:
        if self.failure is not None:
            raise StoreFailed(str(self.failure)) from self.failure.__cause__

    def _failed(self, exc: Exception) -> StoreFailed:
        """What to raise; nothing works from now on."""
        failure = StoreFailed(f"{self._path}: {exc} ({type(exc).__name__})")
        failure.__cause__ = exc
        self.failure = failure
        self.on_failure()
        return failure

    def _change(self, statement: str, values: tuple[object, ...]) -> sqlite3.Cursor:
        self._check()
        try:
            return self._db.execute(statement, values)
        except Exception as exc:  # of whatever kind: memory is ahead of the disk now
            raise self._failed(exc) from exc

    def _change_many(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        self._check()
        try:
            self._db.executemany(statement, rows)
        except Exception as exc:  # of whatever kind: memory is ahead of the disk now
            raise self._failed(exc) from exc

    # Entities.

    def entities(self) -> list[EntityRow]:
        rows = self._read("SELECT * FROM entity ORDER BY id")
        return [EntityRow(*row) for row in rows]

    def add_entity(self, path: str, kind: str, description: str, now_ms: int) -> EntityRow:
        self._flush()
        cursor = self._change(
            "INSERT INTO entity (path, kind, description, created_ms, updated_ms, accessed_ms)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (path, kind, description, now_ms, now_ms, now_ms),
        )
        assert cursor.lastrowid is not None
        return EntityRow(cursor.lastrowid, path, kind, description, 1, now_ms, now_ms, now_ms)

    def update_entity(self, id: int, description: str, now_ms: int) -> None:
        self._write(
            "UPDATE entity SET description = ?, updated_ms = ? WHERE id = ?",
            (description, now_ms, id),
        )

    def touch_entity(self, id: int, now_ms: int) -> None:
        self._write("UPDATE entity SET accessed_ms = ? WHERE id = ?", (now_ms, id))

    def reserve_sequences(self, id: int, next_sequence: int) -> None:
        """Say that all below may have been given out. A start goes on from there."""
        self._write("UPDATE entity SET next_sequence = ? WHERE id = ?", (next_sequence, id))

    def delete_entity(self, id: int) -> None:
        """Forget an entity and all that it and its sub-queues hold."""
        first, last = id << 2, id << 2 | 3
        span = first << _SHIFT, last << _SHIFT | MAX_SEQUENCE
        self._write("DELETE FROM message WHERE key BETWEEN ? AND ?", span)
        self._write("DELETE FROM session_state WHERE entity BETWEEN ? AND ?", (first, last))
        for table in ("seen", "rule"):
            self._write(f"DELETE FROM {table} WHERE entity = ?", (id,))
        self._write("DELETE FROM entity WHERE id = ?", (id,))

    def rules(self, entity: int) -> list[tuple[str, str]]:
        """Names and descriptions of a subscription's rules."""
        return self._read("SELECT name, description FROM rule WHERE entity = ?", (entity,))

    def put_rule(self, entity: int, name: str, description: str) -> None:
        self._write("INSERT OR REPLACE INTO rule VALUES (?, ?, ?)", (entity, name, description))

    def delete_rule(self, entity: int, name: str) -> None:
        self._write("DELETE FROM rule WHERE entity = ? AND name = ?", (entity, name))

    # Messages.

    def put(self, entity: int, message: StoredMessage) -> None:
        """Add a message, or write a changed one anew."""
        if self._deletes:  # the order of a delete and an insert of one key matters
            self._flush()
        self._inserts.append(message.row(entity))

    def delete(self, entity: int, sequence: int) -> None:
        self._deletes.append((entity << _SHIFT | sequence,))

    def active_after(self, entity: int, sequence: int, limit: int) -> list[StoredMessage]:
        """Active messages behind a sequence number, in order."""
        return self._messages(
            "key > ? AND key <= ? AND state = 0", _behind(entity, sequence), limit
        )

    def active_in_session(
        self, entity: int, session: str, sequence: int, limit: int
    ) -> list[StoredMessage]:
        return self._messages(
            "key > ? AND key <= ? AND session = ? AND state = 0",
            (*_behind(entity, sequence), session),
            limit,
        )

    def any_after(
        self,
        entity: int,
        sequence: int,
        limit: int,
        session: str | None = None,
        room: int = UNBOUNDED,
    ) -> list[StoredMessage]:
        """Messages of every state behind a sequence number, for peeking; no more once they have
        `room` bytes together."""
        condition, values = "key > ? AND key <= ?", (*_behind(entity, sequence),)
        if session is None:
            return self._messages(condition, values, limit, room)
        return self._messages(f"{condition} AND session = ?", (*values, session), limit, room)

    def get(self, entity: int, sequence: int) -> StoredMessage | None:
        if not 0 < sequence <= MAX_SEQUENCE:  # from a client; it must not reach another entity
            return None
        found = self._messages("key = ?", (entity << _SHIFT | sequence,), 1)
        return found[0] if found else None

    def due(self, now_ms: int, limit: int) -> list[tuple[int, StoredMessage]]:
        """Scheduled messages whose time has come, with their entities."""
        return self._with_entities("due_ms <= ? ORDER BY due_ms", now_ms, limit)

    def expired(self, now_ms: int, limit: int) -> list[tuple[int, StoredMessage]]:
        """Messages whose time-to-live is over, with their entities. Deferred ones stay, as in the
        service."""
        return self._with_entities(
            "expires_ms <= ? AND state <> 1 ORDER BY expires_ms", now_ms, limit
        )

    def postpone_expiry(self, entity: int, sequence: int, until_ms: int) -> None:
        """Do not name a message among the expired before this time."""
        self._write(
            "UPDATE message SET expires_ms = ? WHERE key = ?",
            (until_ms, entity << _SHIFT | sequence),
        )

    def next_due_ms(self) -> int | None:
        return self._least("SELECT min(due_ms) FROM message WHERE due_ms IS NOT NULL")

    def next_expiry_ms(self) -> int | None:
        return self._least(
            "SELECT min(expires_ms) FROM message WHERE expires_ms IS NOT NULL AND state <> 1"
        )

    def totals(self, entity: int) -> dict[int, tuple[int, int]]:
        """How many messages there are in each state, and their bytes."""
        rows = self._read(
            "SELECT state, count(*), sum(size) FROM message"
            " WHERE key BETWEEN ? AND ? GROUP BY state",
            _span(entity),
        )
        return {int(state): (int(count), int(size)) for state, count, size in rows}

    def session_counts(self, entity: int) -> dict[str, int]:
        """How many active messages each session has."""
        rows = self._read(
            "SELECT session, count(*) FROM message WHERE session IS NOT NULL AND state = 0"
            " AND key BETWEEN ? AND ? GROUP BY session ORDER BY min(key)",
            _span(entity),
        )
        return {str(session): int(count) for session, count in rows}

    # Sessions and duplicates.

    def session_state(self, entity: int, session: str) -> bytes | None:
        rows = self._read(
            "SELECT state FROM session_state WHERE entity = ? AND session = ?", (entity, session)
        )
        return rows[0][0] if rows else None

    def set_session_state(
        self, entity: int, session: str, state: bytes | None, now_ms: int = 0
    ) -> None:
        if state is None:
            self._write(
                "DELETE FROM session_state WHERE entity = ? AND session = ?", (entity, session)
            )
        else:
            self._write(
                "INSERT OR REPLACE INTO session_state VALUES (?, ?, ?, ?)",
                (entity, session, state, now_ms),
            )

    def sessions_with_state(self, entity: int, updated_after_ms: int = -1) -> list[str]:
        rows = self._read(
            "SELECT session FROM session_state WHERE entity = ? AND updated_ms > ?",
            (entity, updated_after_ms),
        )
        return [str(row[0]) for row in rows]

    def seen(self, entity: int, message_id: str, now_ms: int, until_ms: int) -> bool:
        """Whether this id was seen within the window; from now on it was."""
        rows = self._read(
            "SELECT until_ms FROM seen WHERE entity = ? AND message_id = ?", (entity, message_id)
        )
        if rows and int(rows[0][0]) > now_ms:
            return True
        self._write("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", (entity, message_id, until_ms))
        return False

    def forget_seen(self, now_ms: int) -> None:
        """Forget the ids whose window is over. Where there is none, there is nothing to commit."""
        oldest = self._least("SELECT min(until_ms) FROM seen")
        if oldest is not None and oldest <= now_ms:
            self._write("DELETE FROM seen WHERE until_ms <= ?", (now_ms,))

    # The meter.

    def meter_rows(self) -> list[tuple[str, str, int, int, int, int]]:
        return [tuple(row) for row in self._read("SELECT * FROM meter")]

    def put_meter(self, rows: Iterable[tuple[str, str, int, int, int, int]]) -> None:
        self._flush()
        self._change_many("INSERT OR REPLACE INTO meter VALUES (?, ?, ?, ?, ?, ?)", rows)

    def clear(self) -> None:
        """Forget everything."""
        self._inserts.clear()
        self._deletes.clear()
        for table in ("entity", "message", "rule", "seen", "session_state", "meter"):
            self._write(f"DELETE FROM {table}", ())

    def _messages(
        self, condition: str, values: tuple[object, ...], limit: int, room: int = UNBOUNDED
    ) -> list[StoredMessage]:
        statement = f"SELECT * FROM message WHERE {condition} ORDER BY key LIMIT ?"
        gather = _all if room == UNBOUNDED else partial(_up_to, room)
        rows = self._read(statement, (*values, limit), gather)
        return [StoredMessage(row[0] & MAX_SEQUENCE, *row[1:]) for row in rows]

    def _with_entities(
        self, condition: str, value: int, limit: int
    ) -> list[tuple[int, StoredMessage]]:
        rows = self._read(f"SELECT * FROM message WHERE {condition} LIMIT ?", (value, limit))
        return [(row[0] >> _SHIFT, StoredMessage(row[0] & MAX_SEQUENCE, *row[1:])) for row in rows]

    def _least(self, statement: str) -> int | None:
        value = self._read(statement)[0][0]
        return None if value is None else int(value)

    def _write(self, statement: str, values: Iterable[object]) -> None:
        self._flush()
        self._change(statement, tuple(values))

    def _read(
        self,
        statement: str,
        values: Iterable[object] = (),
        gather: Callable[[sqlite3.Cursor], list[Any]] = _all,
    ) -> list[Any]:
        if self._inserts or self._deletes:
            self._flush()
        self._check()
        try:
            return gather(self._db.execute(statement, tuple(values)))
        except sqlite3.Error as exc:
            raise self._failed(exc) from exc


def _span(entity: int) -> tuple[int, int]:
    return entity << _SHIFT, entity << _SHIFT | MAX_SEQUENCE


def _behind(entity: int, sequence: int) -> tuple[int, int]:
    behind = min(max(sequence, 0), MAX_SEQUENCE)
    return entity << _SHIFT | behind, entity << _SHIFT | MAX_SEQUENCE


def _nothing() -> None:
    pass
