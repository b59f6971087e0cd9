"""Messages that can be taken, in order: the first of them in memory, all others on disk.

A queue has one such line, or, if it has sessions, one for each session that somebody holds.
"""

from collections.abc import Callable, Container
from heapq import heappop, heappush

from pairbus.emulator.storage.store import StoredMessage

BUFFER = 2000
"""How many messages a line keeps in memory at most, but for those that come back."""
CHUNK = 1000

Load = Callable[[int, int], list[StoredMessage]]
"""Active messages behind a sequence number, at most so many."""


class Ready:
    """One line of messages, ordered by sequence number."""

    def __init__(self, load: Load, taken: Container[int] = ()) -> None:
        """`taken` are the sequence numbers of messages that are on disk and not to be had."""
        self._load = load
        self._taken = taken
        self._heap: list[int] = []
        self._messages: dict[int, StoredMessage] = {}
        self._reached = 0
        """All up to here have been in memory: they are, or are locked, or are gone."""
        self._all = False
        """Nothing active is behind that."""

    def __len__(self) -> int:
        """How many messages are in memory."""
        return len(self._messages)

    def append(self, message: StoredMessage) -> None:
        """A new message. Among dead letters it may be older than others that are here."""
        room = len(self._messages) < BUFFER
        if message.sequence <= self._reached:
            if room:
                self._add(message)
            else:
                self._start_over(min(self._heap[0], message.sequence))
        elif self._all and room:
            self._add(message)
            self._reached = message.sequence
        else:
            self._all = False

    def _start_over(self, sequence: int) -> None:
        """Keep nothing in memory; the next read starts with this number."""
        self._heap.clear()
        self._messages.clear()
        self._reached = sequence - 1
        self._all = False

    def give_back(self, message: StoredMessage) -> None:
        """A message that was taken, and can be taken again."""
        if message.sequence <= self._reached:  # otherwise it is read with those before it
            self._add(message)

    def _add(self, message: StoredMessage) -> None:
        self._messages[message.sequence] = message
        heappush(self._heap, message.sequence)

    def remove(self, sequence: int) -> None:
        """It was taken otherwise, or is gone."""
        self._messages.pop(sequence, None)

    def take(self) -> StoredMessage | None:
        """The first message; None: there is none."""
        while True:
            while self._heap:
                message = self._messages.pop(heappop(self._heap), None)
                if message is not None:
                    return message
            if self._all:
                return None
            self._read_on()

    def _read_on(self) -> None:
        loaded = self._load(self._reached, CHUNK)
        for message in loaded:
            if message.sequence not in self._taken:
                self._add(message)
        if loaded:
            self._reached = loaded[-1].sequence
        self._all = len(loaded) < CHUNK
