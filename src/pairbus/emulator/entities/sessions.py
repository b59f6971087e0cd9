"""The sessions of a queue: which have messages, who holds which, and their lines of messages."""

from typing import TYPE_CHECKING, Any

from pairbus.emulator.entities.ready import Ready
from pairbus.emulator.storage.store import Store, StoredMessage
from pairbus.errors import LockLost
from pairbus.servicebus import conditions

if TYPE_CHECKING:
    from pairbus.emulator.entities.queue import Queue


class Held:
    """A session that somebody holds."""

    __slots__ = ("holder", "line", "until_ms")

    def __init__(self, holder: Any, line: Ready, until_ms: int) -> None:
        self.holder = holder
        self.line = line
        self.until_ms = until_ms

    def is_by(self, holder: Any) -> bool:
        """Whether this is the holder. None: whoever it is."""
        return holder is None or self.holder is holder


class Sessions:
    """All sessions of one queue."""

    def __init__(self, queue: "Queue", store: Store) -> None:
        self._queue = queue
        self._store = store
        self._active = store.session_counts(queue.id)
        """Active messages by session, in the order in which the sessions first had some."""
        self._held: dict[str, Held] = {}

    # Messages.

    def append(self, session: str, message: StoredMessage) -> None:
        self._active[session] = self._active.get(session, 0) + 1
        held = self._held.get(session)
        if held is not None:
            held.line.append(message)

    def give_back(self, session: str, message: StoredMessage) -> None:
        held = self._held.get(session)
        if held is not None:
            held.line.give_back(message)

    def gone(self, session: str) -> None:
        left = self._active.get(session, 0) - 1
        if left > 0:
            self._active[session] = left
        else:
            self._active.pop(session, None)

    def remove(self, message: StoredMessage) -> None:
        held = None if message.session is None else self._held.get(message.session)
        if held is not None:
            held.line.remove(message.sequence)

    def line(self, session: str | None, now_ms: int, holder: Any = None) -> Ready:
        """The messages of a session that is held. Raises LockLost if it is not, or by somebody
        else."""
        held = None if session is None else self._held.get(session)
        if held is None or held.until_ms <= now_ms or not held.is_by(holder):
            raise _lost(session)
        return held.line

    # Holders.

    def accept(self, session: str | None, holder: Any, now_ms: int) -> str | None:
        """Give a session to a holder: the one that is named, or the first that has messages and no
        holder. None: there is none. Raises LockLost if the one that is named has a holder."""
        self.expire(now_ms)
        if session is None:
            session = next((name for name in self._active if name not in self._held), None)
            if session is None:
                return None
        elif session in self._held:
            raise LockLost(
                f"The requested session {session!r} cannot be accepted: another receiver has it.",
                condition=conditions.SESSION_CANNOT_BE_LOCKED,
            )
        name = session
        line = Ready(
            lambda after, limit: self._store.active_in_session(self._queue.id, name, after, limit)
        )
        self._held[session] = Held(holder, line, now_ms + self._queue.lock_ms)
        return session

    def held_until(self, session: str, holder: Any = None) -> int:
        """Until when a session is held. Raises LockLost if it is not, or by somebody else."""
        held = self._held.get(session)
        if held is None or not held.is_by(holder):
            raise _lost(session)
        return held.until_ms

    def renew(self, session: str, now_ms: int) -> int:
        """Start the lock of a session anew, and with it those of its messages; until when it
        holds."""
        held = self._held.get(session)
        if held is None or held.until_ms <= now_ms:
            raise _lost(session)
        held.until_ms = now_ms + self._queue.lock_ms
        self._queue.renew_session(session, held.until_ms)
        return held.until_ms

    def release(self, session: str, holder: Any, now_ms: int) -> None:
        """The holder lets go. That does not count as a delivery, as in the service."""
        held = self._held.get(session)
        if held is not None and held.holder is holder:
            del self._held[session]
            self._queue.release_session(session, now_ms, counted=False)

    def expire(self, now_ms: int) -> list[Any]:
        """Take sessions from holders whose time is over; those holders."""
        over = [name for name, held in self._held.items() if held.until_ms <= now_ms]
        holders = []
        for name in over:
            holders.append(self._held.pop(name).holder)
            self._queue.release_session(name, now_ms, counted=True)
        return holders

    def clear(self) -> None:
        """Nobody holds anything any more."""
        self._held.clear()
        self._active.clear()

    def next_expiry_ms(self) -> int | None:
        return min((held.until_ms for held in self._held.values()), default=None)

    # State.

    def state(self, session: str) -> bytes | None:
        return self._store.session_state(self._queue.id, session)

    def set_state(self, session: str, state: bytes | None, now_ms: int = 0) -> None:
        self._store.set_session_state(self._queue.id, session, state, now_ms)

    def names(self, updated_after_ms: int | None = None) -> list[str]:
        """Sessions that have messages or a state; or those whose state was set after a moment."""
        if updated_after_ms is not None:
            return sorted(self._store.sessions_with_state(self._queue.id, updated_after_ms))
        with_state = self._store.sessions_with_state(self._queue.id)
        return sorted({*self._active, *with_state})


def _lost(session: str | None) -> LockLost:
    return LockLost(
        f"The lock of session {session!r} has expired or is not held by this receiver.",
        condition=conditions.SESSION_LOCK_LOST,
    )
