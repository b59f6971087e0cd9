"""Message locks, in memory only: after a restart no message is locked."""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from pairbus.emulator.storage.messages import StoredMessage


@dataclass(slots=True, eq=False)
class MessageLock:
    """The lock on a message that was received and is not yet settled."""

    token: bytes
    message: StoredMessage
    until_ms: int
    session: str | None


MAX_STALE_ENTRIES = 1000
"""Outdated entries that the expiry heap may hold before it is rebuilt."""


class MessageLocks:
    """The locks of one queue, by lock token and by sequence number."""

    def __init__(self) -> None:
        self._by_token: dict[bytes, MessageLock] = {}
        self._by_sequence: dict[int, MessageLock] = {}
        self._expiries: list[tuple[int, bytes]] = []
        """A priority queue of (expiry, token). Released locks leave outdated entries."""

    def __len__(self) -> int:
        return len(self._by_token)

    def __contains__(self, sequence: object) -> bool:
        """Return True if the message with this sequence number is locked."""
        return sequence in self._by_sequence

    def add(self, lock: MessageLock) -> None:
        self._by_token[lock.token] = lock
        self._by_sequence[lock.message.sequence] = lock
        self._push_expiry(lock)

    def of_message(self, sequence: int) -> MessageLock | None:
        """Return the lock on the message with this sequence number, even if it has expired."""
        return self._by_sequence.get(sequence)

    def get(self, token: bytes, now_ms: int) -> MessageLock | None:
        """Return the lock, or None if it does not exist or has expired."""
        lock = self._by_token.get(token)
        return None if lock is None or lock.until_ms <= now_ms else lock

    def remove(self, lock: MessageLock) -> None:
        del self._by_token[lock.token]
        del self._by_sequence[lock.message.sequence]

    def renew(self, lock: MessageLock, until_ms: int) -> None:
        lock.until_ms = until_ms
        self._push_expiry(lock)

    def renew_session(self, session: str, until_ms: int) -> None:
        for lock in self._of_session(session):
            self.renew(lock, until_ms)

    def _push_expiry(self, lock: MessageLock) -> None:
        heappush(self._expiries, (lock.until_ms, lock.token))
        if len(self._expiries) > 2 * len(self._by_token) + MAX_STALE_ENTRIES:
            self._expiries = [(lock.until_ms, lock.token) for lock in self._by_token.values()]
            heapify(self._expiries)

    def remove_expired(self, now_ms: int) -> list[MessageLock]:
        """Remove the expired locks and return them, in the order of their last renewals."""
        expired = []
        while self._expiries and self._expiries[0][0] <= now_ms:
            token = heappop(self._expiries)[1]
            lock = self._by_token.get(token)
            if lock is not None and lock.until_ms <= now_ms:
                self.remove(lock)
                expired.append(lock)
        return expired

    def next_expiry_ms(self) -> int | None:
        """Return the time at which the next lock expires, or None if no message is locked."""
        while self._expiries:
            expiry_ms, token = self._expiries[0]
            lock = self._by_token.get(token)
            if lock is not None and lock.until_ms == expiry_ms:
                return expiry_ms
            heappop(self._expiries)  # outdated
        return None

    def remove_session(self, session: str) -> list[MessageLock]:
        """Remove all locks of a session and return them."""
        locks = self._of_session(session)
        for lock in locks:
            self.remove(lock)
        return locks

    def clear(self) -> None:
        self._by_token.clear()
        self._by_sequence.clear()
        self._expiries.clear()

    def _of_session(self, session: str) -> list[MessageLock]:
        return [lock for lock in self._by_token.values() if lock.session == session]
