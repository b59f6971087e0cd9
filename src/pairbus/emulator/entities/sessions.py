"""The sessions of a queue: their locks, their messages and their state."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pairbus.emulator.entities.message_buffer import MessageBuffer
from pairbus.emulator.storage.store import Store
from pairbus.emulator.storage.stored_message import StoredMessage
from pairbus.errors import LockLost
from pairbus.servicebus import conditions

if TYPE_CHECKING:
    from pairbus.emulator.entities.queue import MessageQueue


@dataclass(slots=True, eq=False)
class SessionLock:
    """A session that a receiver has locked, with the messages it can receive."""

    receiver: object
    messages: MessageBuffer
    until_ms: int

    def is_held_by(self, receiver: object | None) -> bool:
        """Return True if this receiver has the lock. None stands for any receiver."""
        return receiver is None or self.receiver is receiver


class Sessions:
    """All sessions of one queue."""

    def __init__(self, queue: "MessageQueue", store: Store) -> None:
        self._queue = queue
        self._store = store
        self._active_counts = store.messages.session_counts(queue.id)
        """Active messages by session, in the order of each session's first message."""
        self._locks: dict[str, SessionLock] = {}

    # Messages.

    def append(self, session: str, message: StoredMessage) -> None:
        self._active_counts[session] = self._active_counts.get(session, 0) + 1
        lock = self._locks.get(session)
        if lock is not None:
            lock.messages.append(message)

    def put_back(self, session: str, message: StoredMessage) -> None:
        lock = self._locks.get(session)
        if lock is not None:
            lock.messages.put_back(message)

    def decrement(self, session: str) -> None:
        """Count one active message less."""
        count = self._active_counts.get(session, 0) - 1
        if count > 0:
            self._active_counts[session] = count
        else:
            self._active_counts.pop(session, None)

    def remove(self, message: StoredMessage) -> None:
        lock = None if message.session is None else self._locks.get(message.session)
        if lock is not None:
            lock.messages.remove(message.sequence)

    def messages(
        self, session: str | None, now_ms: int, receiver: object | None = None
    ) -> MessageBuffer:
        """Return the messages of a locked session.

        Raises LockLost if the session is not locked, or not by `receiver`.
        """
        lock = None if session is None else self._locks.get(session)
        if lock is None or lock.until_ms <= now_ms or not lock.is_held_by(receiver):
            raise _lock_lost(session)
        return lock.messages

    # Locks.

    def accept(self, session: str | None, receiver: object, now_ms: int) -> str | None:
        """Lock a session for a receiver and return its id.

        Without a session id, the first unlocked session with messages is locked; if there is none,
        None is returned. Raises LockLost if another receiver has locked the session.
        """
        self.expire(now_ms)
        if session is None:
            session = next((id for id in self._active_counts if id not in self._locks), None)
            if session is None:
                return None
        elif session in self._locks:
            raise LockLost(
                f"The requested session {session!r} cannot be accepted. "
                "It is locked by another receiver.",
                condition=conditions.SESSION_CANNOT_BE_LOCKED,
            )
        session_id = session
        messages = MessageBuffer(
            lambda after, limit: self._store.messages.active_in_session(
                self._queue.id, session_id, after, limit
            )
        )
        self._locks[session] = SessionLock(receiver, messages, now_ms + self._queue.lock_ms)
        return session

    def locked_until(self, session: str, receiver: object | None = None) -> int:
        """Return the time until which a session is locked.

        Raises LockLost if the session is not locked, or not by `receiver`.
        """
        lock = self._locks.get(session)
        if lock is None or not lock.is_held_by(receiver):
            raise _lock_lost(session)
        return lock.until_ms

    def renew(self, session: str, now_ms: int) -> int:
        """Renew the lock of a session and of its messages. Return the time until which it holds."""
        lock = self._locks.get(session)
        if lock is None or lock.until_ms <= now_ms:
            raise _lock_lost(session)
        lock.until_ms = now_ms + self._queue.lock_ms
        self._queue.renew_session(session, lock.until_ms)
        return lock.until_ms

    def release(self, session: str, receiver: object, now_ms: int) -> None:
        """Unlock a session on behalf of its receiver.

        As in the service, this does not increase the delivery count of the messages.
        """
        lock = self._locks.get(session)
        if lock is not None and lock.receiver is receiver:
            del self._locks[session]
            self._queue.release_session(session, now_ms, count_delivery=False)

    def expire(self, now_ms: int) -> None:
        """Unlock the sessions whose locks have expired."""
        expired = [id for id, lock in self._locks.items() if lock.until_ms <= now_ms]
        for session in expired:
            del self._locks[session]
            self._queue.release_session(session, now_ms, count_delivery=True)

    def next_lock_expiry_ms(self) -> int | None:
        return min((lock.until_ms for lock in self._locks.values()), default=None)

    def clear(self) -> None:
        """Forget all locks and counts, because the queue was deleted."""
        self._locks.clear()
        self._active_counts.clear()

    # State.

    def state(self, session: str) -> bytes | None:
        return self._store.session_states.get(self._queue.id, session)

    def set_state(self, session: str, state: bytes | None, now_ms: int = 0) -> None:
        self._store.session_states.set(self._queue.id, session, state, now_ms)

    def ids(self, updated_after_ms: int | None = None) -> list[str]:
        """Return the sessions that have messages or a state.

        With `updated_after_ms`, return those whose state was set after that time.
        """
        if updated_after_ms is not None:
            return sorted(self._store.session_states.sessions(self._queue.id, updated_after_ms))
        with_state = self._store.session_states.sessions(self._queue.id)
        return sorted({*self._active_counts, *with_state})


def _lock_lost(session: str | None) -> LockLost:
    return LockLost(
        f"The lock of session {session!r} has expired or is not held by this receiver.",
        condition=conditions.SESSION_LOCK_LOST,
    )
