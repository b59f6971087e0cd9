"""The data of one namespace on disk, in one SQLite file.

Writes are committed together: `commit` is called once per turn of the event loop, and no client is
told of a write before it has returned. A file is open in one store at a time, in this process and
in all others.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from pairbus.emulator.storage.database import Database, StoreFailed
from pairbus.emulator.storage.duplicates import MessageIdTable
from pairbus.emulator.storage.entities import EntityTable
from pairbus.emulator.storage.messages import MessageTable
from pairbus.emulator.storage.schema import TABLES
from pairbus.emulator.storage.sessions import SessionStateTable

MeterRow = tuple[str, str, int, int, int, int]
"""Entity, kind of operation, operations, messages, bytes and units."""


class Store:
    """The tables of a namespace. Used by one thread. Every call raises StoreFailed once one has."""

    def __init__(
        self,
        path: Path | str,
        *,
        on_failure: Callable[[], None] = lambda: None,
        open_database: Callable[[Path | str, Callable[[], None]], Database] = Database,
    ) -> None:
        """Open the file, and create it if it is missing.

        `on_failure` is called once, during the call that fails. Raises StateError if another store
        has the file open, and StoreFailed if it cannot be opened.
        """
        self._database = open_database(path, on_failure)
        self.entities = EntityTable(self._database)
        self.messages = MessageTable(self._database)
        self.session_states = SessionStateTable(self._database)
        self.message_ids = MessageIdTable(self._database)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def failure(self) -> StoreFailed | None:
        """The error that made the store unusable, or None."""
        return self._database.failure

    @property
    def is_dirty(self) -> bool:
        """True if there are uncommitted writes."""
        return self._database.is_dirty

    def commit(self) -> None:
        """Put all writes since the last commit on disk, or raise StoreFailed."""
        self._database.commit()

    def abandon(self) -> None:
        """Refuse all further calls, and lose the writes since the last commit."""
        self._database.abandon()

    def close(self) -> None:
        """Commit and close. Can be called again. A failed store is closed without a commit."""
        self._database.close()

    def meter_rows(self) -> list[MeterRow]:
        return [tuple(row) for row in self._database.read("SELECT * FROM meter")]

    def put_meter_rows(self, rows: Iterable[MeterRow]) -> None:
        # A delivery writes nothing else, and would wait for the disk otherwise.
        self._database.write_unsynced(
            "INSERT OR REPLACE INTO meter VALUES (?, ?, ?, ?, ?, ?)", rows
        )

    def clock_offset_ms(self) -> int:
        """Return by how much the clock of the namespace is ahead of that of the machine."""
        return self._database.read_integer("SELECT total(offset_ms) FROM clock") or 0

    def set_clock_offset_ms(self, offset_ms: int) -> None:
        self._database.write("INSERT OR REPLACE INTO clock VALUES (1, ?)", (offset_ms,))

    def clear(self) -> None:
        """Delete everything."""
        self._database.discard_messages()
        for table in TABLES:
            self._database.write(f"DELETE FROM {table}", ())
        self.messages.reload_removed()
