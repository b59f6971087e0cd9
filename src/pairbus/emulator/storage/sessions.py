"""The state of message sessions on disk."""

from pairbus.emulator.storage.database import Database


class SessionStateTable:
    """The session state that applications set. A queue is given by its id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, queue: int, session: str) -> bytes | None:
        rows = self._database.read(
            "SELECT state FROM session_state WHERE entity = ? AND session = ?", (queue, session)
        )
        return rows[0][0] if rows else None

    def set(self, queue: int, session: str, state: bytes | None, now_ms: int) -> None:
        """Set the state of a session, or delete it if it is None."""
        if state is None:
            self._database.write(
                "DELETE FROM session_state WHERE entity = ? AND session = ?", (queue, session)
            )
        else:
            self._database.write(
                "INSERT OR REPLACE INTO session_state VALUES (?, ?, ?, ?)",
                (queue, session, state, now_ms),
            )

    def sessions(self, queue: int, updated_after_ms: int = -1) -> list[str]:
        """Return the ids of sessions with state that was set after a time."""
        rows = self._database.read(
            "SELECT session FROM session_state WHERE entity = ? AND updated_ms > ?",
            (queue, updated_after_ms),
        )
        return [str(row[0]) for row in rows]
