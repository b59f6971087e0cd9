"""Sequence numbers: one series for an entity and its sub-queues, each number given once."""

from pairbus.emulator.storage.store import Store

RESERVE = 1000
"""Numbers that are set aside at a time: a start may leave out so many."""


class Sequences:
    """The numbers of one entity. A dead letter keeps the one that it has, so a queue and its
    sub-queues cannot count on their own."""

    def __init__(self, store: Store, entity: int, first: int) -> None:
        self._store = store
        self._entity = entity
        self._next = self._reserved = first

    def next(self) -> int:
        """A number that was never given before."""
        sequence = self._next
        self._next += 1
        if sequence >= self._reserved:
            self._reserved = sequence + RESERVE
            self._store.entities.reserve_sequences(self._entity, self._reserved)
        return sequence
