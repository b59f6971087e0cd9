"""Message locks, in memory only: after a restart no message is locked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

from pairbus.emulator.storage.stored_message import StoredMessage


@dataclass(slots=True, eq=False)
class MessageLock:
    """The lock on a message that was received and is not yet settled."""

    token: bytes
    message: StoredMessage
    until_ms: int
    session: str | None


MAX_STALE_TOKENS = 1000
"""Outdated tokens that the priority queue of expiries may hold before it is rebuilt."""


class MessageLocks:
    """The locks of one queue, by lock token and by sequence number."""

    def __init__(self) -> None:
        self._by_token: dict[bytes, MessageLock] = {}
        self._by_sequence: dict[int, MessageLock] = {}
        self._expiries: list[tuple[int, int, list[bytes]]] = []
        """A priority queue of expiries, each with a number that makes it unique, and the tokens of
        locks that were added together. Released locks leave outdated tokens."""
        self._expiry_numbers = count()
        self._tokens_in_expiries = 0

    def __len__(self) -> int:
        return len(self._by_token)

    def __contains__(self, sequence: object) -> bool:
        """Return True if the message with this sequence number is locked."""
        return sequence in self._by_sequence

    def add_all(self, locks: Sequence[MessageLock], until_ms: int) -> None:
        """Add locks that all expire at the same time."""
        by_token, by_sequence = self._by_token, self._by_sequence
        tokens = []
        for lock in locks:
            token = lock.token
            by_token[token] = by_sequence[lock.message.sequence] = lock
            tokens.append(token)
        if tokens:
            self._push_expiry(until_ms, tokens)

    def of_message(self, sequence: int) -> MessageLock | None:
        """Return the lock on the message with this sequence number, even if it has expired."""
        return self._by_sequence.get(sequence)

    def get(self, token: bytes, now_ms: int) -> MessageLock | None:
        """Return the lock, or None if it does not exist or has expired."""
        lock = self._by_token.get(token)
        return None if lock is None or lock.until_ms <= now_ms else lock

    def get_all(self, tokens: Sequence[bytes], now_ms: int) -> list[MessageLock] | None:
        """Return the locks, or None if one does not exist, has expired, or is given twice."""
        by_token = self._by_token
        locks = []
        for token in tokens:
            lock = by_token.get(token)
            if lock is None or lock.until_ms <= now_ms:
                return None
            locks.append(lock)
        return locks if len(set(tokens)) == len(tokens) else None

    def remove(self, lock: MessageLock) -> None:
        del self._by_token[lock.token]
        del self._by_sequence[lock.message.sequence]

    def remove_all(self, locks: Iterable[MessageLock]) -> None:
        by_token, by_sequence = self._by_token, self._by_sequence
        for lock in locks:
            del by_token[lock.token]
            del by_sequence[lock.message.sequence]

    def renew(self, lock: MessageLock, until_ms: int) -> None:
        lock.until_ms = until_ms
        self._push_expiry(until_ms, [lock.token])

    def renew_session(self, session: str, until_ms: int) -> None:
        for lock in self._of_session(session):
            self.renew(lock, until_ms)

    def _push_expiry(self, until_ms: int, tokens: list[bytes]) -> None:
        heappush(self._expiries, (until_ms, next(self._expiry_numbers), tokens))
        self._tokens_in_expiries += len(tokens)
        if self._tokens_in_expiries > 2 * len(self._by_token) + MAX_STALE_TOKENS:
            self._rebuild_expiries()

    def _rebuild_expiries(self) -> None:
        """Remove the outdated tokens."""
        by_expiry: dict[int, list[bytes]] = {}
        for lock in self._by_token.values():
            by_expiry.setdefault(lock.until_ms, []).append(lock.token)
        numbers = self._expiry_numbers
        self._expiries = [(until_ms, next(numbers), each) for until_ms, each in by_expiry.items()]
        heapify(self._expiries)
        self._tokens_in_expiries = len(self._by_token)

    def remove_expired(self, now_ms: int) -> list[MessageLock]:
        """Remove the expired locks and return them, in the order of their last renewals."""
        expired = []
        while self._expiries and self._expiries[0][0] <= now_ms:
            tokens = heappop(self._expiries)[2]
            self._tokens_in_expiries -= len(tokens)
            for token in tokens:
                lock = self._by_token.get(token)
                if lock is not None and lock.until_ms <= now_ms:
                    self.remove(lock)
                    expired.append(lock)
        return expired

    def next_expiry_ms(self) -> int | None:
        """Return the time at which the next lock expires, or None if no message is locked."""
        while self._expiries:
            expiry_ms, _, tokens = self._expiries[0]
            while tokens:
                lock = self._by_token.get(tokens[-1])
                if lock is not None and lock.until_ms == expiry_ms:
                    return expiry_ms
                tokens.pop()  # outdated
                self._tokens_in_expiries -= 1
            heappop(self._expiries)
        return None

    def remove_session(self, session: str) -> list[MessageLock]:
        """Remove all locks of a session and return them."""
        locks = self._of_session(session)
        self.remove_all(locks)
        return locks

    def clear(self) -> None:
        self._by_token.clear()
        self._by_sequence.clear()
        self._expiries.clear()
        self._tokens_in_expiries = 0

    def _of_session(self, session: str) -> list[MessageLock]:
        return [lock for lock in self._by_token.values() if lock.session == session]
