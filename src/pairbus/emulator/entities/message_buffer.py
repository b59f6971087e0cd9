"""The messages that can be received, in order: the first of them in memory, the others on disk.

A queue has one buffer, or, if it has sessions, one for each locked session.
"""

from collections import deque
from collections.abc import Callable, Container
from heapq import heappop, heappush

from pairbus.emulator.storage.stored_message import StoredMessage

MAX_BUFFERED = 2000
"""Messages in memory at most. Messages that were returned are kept beyond this limit."""
PAGE_SIZE = 1000
"""Messages that are read from disk at a time."""

LoadPage = Callable[[int, int], list[StoredMessage]]
"""Takes a sequence number and a limit, and returns the active messages after that number."""


class MessageBuffer:
    """Active messages, ordered by sequence number."""

    def __init__(self, load: LoadPage, locked: Container[int] = ()) -> None:
        """`locked` holds the sequence numbers of messages on disk that cannot be received."""
        self._load = load
        self._locked = locked
        self._new: deque[int] = deque()
        """The sequence numbers of new messages, in ascending order."""
        self._returned: list[int] = []
        """A priority queue of all other sequence numbers."""
        self._messages: dict[int, StoredMessage] = {}
        self._loaded_to = 0
        """All messages up to this number were loaded: they are buffered, locked or removed."""
        self._at_end = False
        """No active message on disk has a higher number than `_loaded_to`."""

    def __len__(self) -> int:
        """Return the number of messages in memory."""
        return len(self._messages)

    def append(self, message: StoredMessage) -> None:
        """Add a new message. A dead-lettered message may be older than those in the buffer."""
        has_space = len(self._messages) < MAX_BUFFERED
        if message.sequence <= self._loaded_to:
            if has_space:
                self._add(message)
            else:
                self._reload_from(min(*self._messages, message.sequence))
        elif self._at_end and has_space:
            self._add(message)
            self._loaded_to = message.sequence
        else:
            self._at_end = False

    def _reload_from(self, sequence: int) -> None:
        """Empty the buffer, so that the next page read from disk starts at this number."""
        self._new.clear()
        self._returned.clear()
        self._messages.clear()
        self._loaded_to = sequence - 1
        self._at_end = False

    def put_back(self, message: StoredMessage) -> None:
        """Add a message again that was popped before."""
        if message.sequence <= self._loaded_to:  # otherwise a later page contains it
            self._add(message)

    def _add(self, message: StoredMessage) -> None:
        sequence = message.sequence
        self._messages[sequence] = message
        if not self._new or sequence > self._new[-1]:
            self._new.append(sequence)
        else:
            heappush(self._returned, sequence)

    def remove(self, sequence: int) -> None:
        self._messages.pop(sequence, None)

    def pop(self) -> StoredMessage | None:
        """Remove and return the first message, or return None if there is none."""
        new, returned = self._new, self._returned
        while True:
            while new or returned:
                is_new = not returned or (new and new[0] < returned[0])
                sequence = new.popleft() if is_new else heappop(returned)
                message = self._messages.pop(sequence, None)
                if message is not None:
                    return message
            if self._at_end:
                return None
            self._load_page()

    def _load_page(self) -> None:
        page = self._load(self._loaded_to, PAGE_SIZE)
        for message in page:
            if message.sequence not in self._locked:
                self._add(message)
        if page:
            self._loaded_to = page[-1].sequence
        self._at_end = len(page) < PAGE_SIZE
