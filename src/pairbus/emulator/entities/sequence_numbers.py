"""Sequence numbers: one series for an entity and its subqueues. No number is used twice."""

from pairbus.emulator.storage.store import Store

RESERVATION_SIZE = 1000
"""Numbers that are reserved on disk at a time. A restart skips the unused rest of a reservation."""


class SequenceNumbers:
    """The sequence numbers of one entity.

    A dead-lettered message keeps its number, so the subqueues share the series of their entity.
    """

    def __init__(self, store: Store, entity: int, first: int) -> None:
        self._store = store
        self._entity = entity
        self._next = self._reserved = first

    def next(self) -> int:
        """Return a number that was never used before."""
        number = self._next
        self._next += 1
        if number >= self._reserved:
            self._reserved = number + RESERVATION_SIZE
            self._store.entities.reserve_sequences(self._entity, self._reserved)
        return number
