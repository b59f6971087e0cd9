"""The message ids that duplicate detection knows, on disk."""

from pairbus.emulator.storage.database import Database


class MessageIdTable:
    """Ids of accepted messages, each until the end of its entity's detection window."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def is_duplicate(self, entity: int, message_id: str, now_ms: int, until_ms: int) -> bool:
        """Return True if the id is known. Otherwise record it until the given time."""
        rows = self._database.read(
            "SELECT until_ms FROM seen WHERE entity = ? AND message_id = ?", (entity, message_id)
        )
        if rows and int(rows[0][0]) > now_ms:
            return True
        self._database.write(
            "INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", (entity, message_id, until_ms)
        )
        return False

    def delete_expired(self, now_ms: int) -> None:
        """Delete the ids whose window has ended. Without any, there is nothing to commit."""
        oldest = self._database.read_integer("SELECT min(until_ms) FROM seen")
        if oldest is not None and oldest <= now_ms:
            self._database.write("DELETE FROM seen WHERE until_ms <= ?", (now_ms,))
