"""Queues, topics and subscriptions on disk, with the rules of subscriptions."""

from dataclasses import dataclass

from pairbus.emulator.storage.database import Database
from pairbus.emulator.storage.stored_message import key_range


@dataclass(frozen=True, slots=True)
class EntityRow:
    """A stored entity. Its description is an Atom entry. An id is never used again."""

    id: int
    path: str
    kind: str
    description: str
    next_sequence: int
    created_ms: int
    updated_ms: int
    accessed_ms: int


class EntityTable:
    """All entities of a namespace."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[EntityRow]:
        rows = self._database.read("SELECT * FROM entity ORDER BY id")
        return [EntityRow(*row) for row in rows]

    def add(self, path: str, kind: str, description: str, now_ms: int) -> EntityRow:
        id = self._database.write(
            "INSERT INTO entity (path, kind, description, created_ms, updated_ms, accessed_ms)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (path, kind, description, now_ms, now_ms, now_ms),
        )
        assert id is not None
        return EntityRow(id, path, kind, description, 1, now_ms, now_ms, now_ms)

    def update(self, id: int, description: str, now_ms: int) -> None:
        self._database.write(
            "UPDATE entity SET description = ?, updated_ms = ? WHERE id = ?",
            (description, now_ms, id),
        )

    def touch(self, id: int, now_ms: int) -> None:
        """Set the time of the last access."""
        self._database.write("UPDATE entity SET accessed_ms = ? WHERE id = ?", (now_ms, id))

    def reserve_sequences(self, id: int, next_sequence: int) -> None:
        """Record that all sequence numbers below may be in use. The next start continues there."""
        self._database.write(
            "UPDATE entity SET next_sequence = ? WHERE id = ?", (next_sequence, id)
        )

    def delete(self, id: int) -> None:
        """Delete an entity with the messages of all its queues, its rules and its session state."""
        first_queue, last_queue = id << 2, id << 2 | 3
        keys = key_range(first_queue)[0], key_range(last_queue)[1]
        write = self._database.write
        write("DELETE FROM message WHERE key BETWEEN ? AND ?", keys)
        write("DELETE FROM message_group WHERE key BETWEEN ? AND ?", keys)
        write("DELETE FROM removed_from_group WHERE key BETWEEN ? AND ?", keys)
        write("DELETE FROM session_state WHERE entity BETWEEN ? AND ?", (first_queue, last_queue))
        write("DELETE FROM seen WHERE entity = ?", (id,))
        write("DELETE FROM rule WHERE entity = ?", (id,))
        write("DELETE FROM entity WHERE id = ?", (id,))

    # Rules of subscriptions.

    def rules(self, id: int) -> list[tuple[str, str]]:
        """Return the names and descriptions of a subscription's rules."""
        return self._database.read("SELECT name, description FROM rule WHERE entity = ?", (id,))

    def put_rule(self, id: int, name: str, description: str) -> None:
        self._database.write(
            "INSERT OR REPLACE INTO rule VALUES (?, ?, ?)", (id, name, description)
        )

    def delete_rule(self, id: int, name: str) -> None:
        self._database.write("DELETE FROM rule WHERE entity = ? AND name = ?", (id, name))
