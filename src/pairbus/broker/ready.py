"""Messages that can be taken, in order: the first of them in memory, all others on disk.

A queue has one such line, or, if it has sessions, one for each session that somebody holds.
"""

from collections.abc import Callable
from heapq import heappop, heappush

from pairbus.broker.store import Stored

BUFFER = 2000
"""How many messages a line keeps in memory at most, but for those that come back."""
CHUNK = 1000

Load = Callable[[int, int], list[Stored]]
"""Active messages behind a sequence number, at most so many."""


class Ready:
    """One line of messages, ordered by sequence number."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._heap: list[int] = []
        self._messages: dict[int, Stored] = {}
        self._reached = 0
        """All up to here have been in memory: they are, or are locked, or are gone."""
        self._all = False
        """Nothing active is behind that."""

    def append(self, message: Stored) -> None:
        """A new message, with the highest sequence number so far."""
        if self._all and len(self._messages) < BUFFER:
            self.give_back(message)
            self._reached = message.sequence
        else:
            self._all = False

    def give_back(self, message: Stored) -> None:
        """A message that was taken, and can be taken again."""
        self._messages[message.sequence] = message
        heappush(self._heap, message.sequence)

    def remove(self, sequence: int) -> None:
        """It was taken otherwise, or is gone."""
        self._messages.pop(sequence, None)

    def take(self) -> Stored | None:
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
            self.give_back(message)
        if loaded:
            self._reached = loaded[-1].sequence
        self._all = len(loaded) < CHUNK
