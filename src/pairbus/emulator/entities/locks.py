"""Locks on messages: who holds what until when. In memory only: a start frees them all."""

from heapq import heapify, heappop, heappush

from pairbus.emulator.storage.store import StoredMessage


class Lock:
    """A message that somebody has received and not settled."""

    __slots__ = ("message", "session", "token", "until_ms")

    def __init__(
        self, token: bytes, message: StoredMessage, until_ms: int, session: str | None
    ) -> None:
        self.token = token
        self.message = message
        self.until_ms = until_ms
        self.session = session


SLACK = 1000
"""Entries by age that may be stale before they are cleared away."""


class Locks:
    """The locks of one queue, by token."""

    def __init__(self) -> None:
        self._by_token: dict[bytes, Lock] = {}
        self._by_sequence: dict[int, Lock] = {}
        self._by_age: list[tuple[int, bytes]] = []
        """With stale entries of locks that were renewed or have ended."""

    def __len__(self) -> int:
        return len(self._by_token)

    def __contains__(self, sequence: object) -> bool:
        """Whether the message with this sequence number is locked."""
        return sequence in self._by_sequence

    def add(self, lock: Lock) -> None:
        self._by_token[lock.token] = lock
        self._by_sequence[lock.message.sequence] = lock
        self._note_age(lock)

    def on(self, sequence: int) -> Lock | None:
        """The lock on a message."""
        return self._by_sequence.get(sequence)

    def get(self, token: bytes, now_ms: int) -> Lock | None:
        """The lock, if it still holds."""
        lock = self._by_token.get(token)
        return None if lock is None or lock.until_ms <= now_ms else lock

    def pop(self, token: bytes, now_ms: int) -> Lock | None:
        """End a lock, if it still holds."""
        lock = self.get(token, now_ms)
        if lock is not None:
            self._end(lock)
        return lock

    def renew(self, lock: Lock, until_ms: int) -> None:
        lock.until_ms = until_ms
        self._note_age(lock)

    def renew_session(self, session: str, until_ms: int) -> None:
        for lock in self._of(session):
            self.renew(lock, until_ms)

    def _note_age(self, lock: Lock) -> None:
        heappush(self._by_age, (lock.until_ms, lock.token))
        if len(self._by_age) > 2 * len(self._by_token) + SLACK:
            self._by_age = [(one.until_ms, one.token) for one in self._by_token.values()]
            heapify(self._by_age)

    def expired(self, now_ms: int) -> list[Lock]:
        """End the locks whose time is over. Their age is that of the last renewal."""
        result = []
        while self._by_age and self._by_age[0][0] <= now_ms:
            token = heappop(self._by_age)[1]
            lock = self._by_token.get(token)
            if lock is not None and lock.until_ms <= now_ms:
                self._end(lock)
                result.append(lock)
        return result

    def next_expiry_ms(self) -> int | None:
        return self._by_age[0][0] if self._by_age else None

    def of_session(self, session: str) -> list[Lock]:
        """End all locks of a session."""
        result = self._of(session)
        for lock in result:
            self._end(lock)
        return result

    def clear(self) -> None:
        """End all locks."""
        self._by_token.clear()
        self._by_sequence.clear()
        self._by_age.clear()

    def _of(self, session: str) -> list[Lock]:
        return [lock for lock in self._by_token.values() if lock.session == session]

    def _end(self, lock: Lock) -> None:
        del self._by_token[lock.token]
        del self._by_sequence[lock.message.sequence]
