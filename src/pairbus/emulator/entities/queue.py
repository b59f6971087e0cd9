"""A queue, or anything that messages are received from: a subscription, a dead-letter queue.

No I/O but the store's, no clock: `now_ms` is passed in. What a call changes is durable once the
store has committed; answers wait for that.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, Protocol

from pairbus.emulator.entities import envelope
from pairbus.emulator.entities.envelope import Incoming
from pairbus.emulator.entities.locks import Lock, Locks
from pairbus.emulator.entities.ready import Ready
from pairbus.emulator.entities.sequences import Sequences
from pairbus.emulator.entities.sessions import Sessions
from pairbus.emulator.storage.store import UNBOUNDED, Store, StoredMessage
from pairbus.errors import LockLost, MessageNotFound, Refused
from pairbus.servicebus import conditions
from pairbus.servicebus.application_properties import (
    DEAD_LETTER_DESCRIPTION,
    DEAD_LETTER_REASON,
    MAX_DELIVERY_COUNT_EXCEEDED,
    TTL_EXPIRED,
)
from pairbus.servicebus.message_states import ACTIVE, DEFERRED, SCHEDULED

NEVER_MS = 253402300799999
"""The end of the year 9999: a message that expires later never does."""


class QueueSettings(Protocol):
    """What a queue must know of its description."""

    @property
    def lock_duration(self) -> timedelta: ...
    @property
    def max_delivery_count(self) -> int: ...
    @property
    def default_message_time_to_live(self) -> timedelta: ...
    @property
    def dead_lettering_on_message_expiration(self) -> bool: ...
    @property
    def requires_session(self) -> bool: ...


@lru_cache
def _ms(span: timedelta) -> int:
    """Milliseconds. Asked for with every message, and there are few spans."""
    return span // timedelta(milliseconds=1)


class Queue:
    """One line of messages with its locks, sessions, deferred and scheduled messages."""

    def __init__(
        self,
        *,
        id: int,
        path: str,
        settings: QueueSettings,
        store: Store,
        sequences: Sequences,
        new_token: Callable[[], bytes],
        dead_letters: "Queue | None",
    ) -> None:
        self.id = id
        self.path = path
        self.settings = settings
        self.dead_letters = dead_letters
        """Where messages go that cannot be delivered; None: this is such a place."""
        self.arrived: Callable[[], None] = _nothing
        """Is called when something can be taken that could not before."""
        self.send_on: Callable[[StoredMessage, int], bool] = _stays
        """Takes what would be buried here elsewhere. False: it stays."""
        self._store = store
        self._sequences = sequences
        self._new_token = new_token
        self._locks = Locks()
        self._ready = Ready(lambda after, limit: store.active_after(id, after, limit), self._locks)
        totals = store.totals(id)
        self.counts = {
            state: totals.get(state, (0, 0))[0] for state in (ACTIVE, DEFERRED, SCHEDULED)
        }
        """Messages by state; those that are locked count as what they were."""
        self.bytes = sum(size for _, size in totals.values())
        self.sessions = Sessions(self, store) if settings.requires_session else None

    def __len__(self) -> int:
        return sum(self.counts.values())

    @property
    def lock_ms(self) -> int:
        return _ms(self.settings.lock_duration)

    # In.

    def check(self, incoming: Incoming) -> None:
        """Raises Refused for a message that cannot be taken in."""
        if self.settings.requires_session and incoming.session is None:
            raise Refused(f"{self.path!r} requires a session id on every message")

    def enqueue(self, incoming: Incoming, now_ms: int) -> int:
        """Take a message in; its sequence number."""
        due = incoming.scheduled_ms
        state = SCHEDULED if due is not None and due > now_ms else ACTIVE
        start = due if state == SCHEDULED and due is not None else now_ms
        stored = envelope.store(
            incoming, self.next_sequence(), state, now_ms, self._expiry(incoming.ttl_ms, start)
        )
        self._add(stored)
        return stored.sequence

    def activate(self, stored: StoredMessage, now_ms: int) -> None:
        """The time of a scheduled message has come: it goes to the end of the line."""
        self.drop(stored)
        stored.sequence = self.next_sequence()
        stored.state, stored.due_ms, stored.enqueued_ms = ACTIVE, None, now_ms
        self._add(stored)

    def next_sequence(self) -> int:
        """A number that was never given before."""
        return self._sequences.next()

    def _expiry(self, ttl_ms: int | None, start_ms: int) -> int | None:
        default = _ms(self.settings.default_message_time_to_live)
        life = default if ttl_ms is None else min(ttl_ms, default)
        return None if start_ms + life >= NEVER_MS else start_ms + life

    def _add(self, stored: StoredMessage) -> None:
        self._store.put(self.id, stored)
        self.counts[stored.state] += 1
        self.bytes += stored.size
        if stored.state == ACTIVE:
            if self.sessions is not None and stored.session is not None:
                self.sessions.append(stored.session, stored)
            else:
                self._ready.append(stored)
            self.arrived()

    def drop(self, stored: StoredMessage) -> None:
        """It is no longer here."""
        self._store.delete(self.id, stored.sequence)
        self.counts[stored.state] -= 1
        self.bytes -= stored.size
        if stored.state == ACTIVE and self.sessions is not None and stored.session is not None:
            self.sessions.gone(stored.session)

    # Out.

    def take(
        self,
        limit: int,
        now_ms: int,
        *,
        locked: bool,
        session: str | None = None,
        holder: Any = None,
        room: int = UNBOUNDED,
    ) -> list[tuple[StoredMessage, Lock | None]]:
        """Up to `limit` messages, under a lock each, or for good; no more once they have `room`
        bytes together. Raises LockLost if the session is not held, or not by `holder`, where one is
        given."""
        line = self._ready
        if self.sessions is not None:
            line = self.sessions.line(session, now_ms, holder)
        taken: list[tuple[StoredMessage, Lock | None]] = []
        while len(taken) < limit and room > 0:
            stored = line.take()
            if stored is None:
                break
            if stored.expires_ms is not None and stored.expires_ms <= now_ms:
                self._expire(stored, now_ms)
                continue
            room -= stored.size
            taken.append((stored, self._hand_over(stored, now_ms, locked)))
        return taken

    def _hand_over(self, stored: StoredMessage, now_ms: int, locked: bool) -> Lock | None:
        """Give a message to somebody: under a lock, or for good."""
        if locked:
            return self._lock(stored, now_ms)
        self.drop(stored)
        return None

    def _lock(self, stored: StoredMessage, now_ms: int) -> Lock:
        session = None if self.sessions is None else stored.session
        lock = Lock(self._new_token(), stored, self._locked_until(session, now_ms), session)
        self._locks.add(lock)
        return lock

    def _locked_until(self, session: str | None, now_ms: int) -> int:
        """The lock of a session is that of its messages."""
        if self.sessions is None or session is None:
            return now_ms + self.lock_ms
        return self.sessions.held_until(session)

    def take_deferred(
        self,
        sequences: Iterable[int],
        now_ms: int,
        *,
        locked: bool,
        session: str | None = None,
        room: int = UNBOUNDED,
    ) -> list[tuple[StoredMessage, Lock | None]]:
        """Deferred messages by their sequence numbers; those behind the one with which they have
        `room` bytes together are left where they are. Raises MessageNotFound, and takes none, if
        one of them is not there to be taken; LockLost if their session is not held."""
        if self.sessions is not None:
            self.sessions.line(session, now_ms)
        found: list[StoredMessage] = []
        for sequence in dict.fromkeys(sequences):
            if room <= 0:
                break
            stored = None if sequence in self._locks else self._store.get(self.id, sequence)
            if (
                stored is None
                or stored.state != DEFERRED
                or (self.sessions is not None and stored.session != session)
            ):
                raise MessageNotFound(f"{self.path!r} has no deferred message {sequence}")
            room -= stored.size
            found.append(stored)
        return [(stored, self._hand_over(stored, now_ms, locked)) for stored in found]

    def peek(
        self, after: int, limit: int, session: str | None = None, room: int = UNBOUNDED
    ) -> list[StoredMessage]:
        """Messages of every state behind a sequence number; no more once they have `room` bytes
        together."""
        return self._store.any_after(self.id, after, limit, session, room)

    def cancel(self, sequences: Sequence[int]) -> None:
        """Cancel scheduled messages. Raises MessageNotFound, and cancels none, if one is not
        there."""
        found = []
        for sequence in dict.fromkeys(sequences):
            stored = self._store.get(self.id, sequence)
            if stored is None or stored.state != SCHEDULED:
                raise MessageNotFound(f"{self.path!r} has no scheduled message {sequence}")
            found.append(stored)
        for stored in found:
            self.drop(stored)

    # Settling.

    def holds(self, token: bytes, now_ms: int) -> bool:
        """Whether the lock can still be settled."""
        return self._locks.get(token, now_ms) is not None

    def complete(self, token: bytes, now_ms: int) -> None:
        self.drop(self._unlock(token, {}, now_ms))

    def abandon(self, token: bytes, changes: dict[str, Any], now_ms: int) -> None:
        self._return(self._unlock(token, changes, now_ms), now_ms)

    def defer(self, token: bytes, changes: dict[str, Any], now_ms: int) -> None:
        stored = self._unlock(token, changes, now_ms)
        if stored.state == ACTIVE:
            self.counts[ACTIVE] -= 1
            self.counts[DEFERRED] += 1
            if self.sessions is not None and stored.session is not None:
                self.sessions.gone(stored.session)
        stored.state = DEFERRED
        stored.deliveries += 1
        self._store.put(self.id, stored)

    def dead_letter(
        self,
        token: bytes,
        reason: str | None,
        description: str | None,
        changes: dict[str, Any],
        now_ms: int,
    ) -> None:
        if self.dead_letters is None:
            raise Refused(f"{self.path!r} holds dead letters: they cannot be dead-lettered again.")
        changes = {**changes, **_told(reason, description)}
        self._bury(self._unlock(token, changes, now_ms), {}, now_ms)

    def renew(self, token: bytes, now_ms: int) -> int:
        """Start a lock anew; until when it holds."""
        lock = self._held(token, now_ms)
        self._locks.renew(lock, self._locked_until(lock.session, now_ms))
        return lock.until_ms

    def renew_session(self, session: str, until_ms: int) -> None:
        """A session is held for longer: so are its messages."""
        self._locks.renew_session(session, until_ms)

    def _held(self, token: bytes, now_ms: int) -> Lock:
        lock = self._locks.get(token, now_ms)
        if lock is None:
            # The lock of a message in a session is the session's.
            raise LockLost(
                "The lock supplied is invalid. Either the lock expired, or the message has already "
                f"been removed from {self.path!r}.",
                condition=None if self.sessions is None else conditions.SESSION_LOCK_LOST,
            )
        return lock

    def _unlock(self, token: bytes, changes: dict[str, Any], now_ms: int) -> StoredMessage:
        """End a lock; its message, changed. Raises LockLost, or EncodeError for changes that AMQP
        cannot carry, and the lock holds on."""
        lock = self._held(token, now_ms)
        envelope.modify(lock.message, changes)
        self._locks.pop(token, now_ms)
        return lock.message

    def _return(self, stored: StoredMessage, now_ms: int) -> None:
        """A message was not wanted: it can be taken again, unless it was too often."""
        stored.deliveries += 1
        if stored.deliveries >= self.settings.max_delivery_count and self.dead_letters is not None:
            description = (
                f"Message could not be consumed after {stored.deliveries} delivery attempts."
            )
            self._bury(stored, _told(MAX_DELIVERY_COUNT_EXCEEDED, description), now_ms)
        else:
            self._put_back(stored)

    def _put_back(self, stored: StoredMessage) -> None:
        """A message is no longer locked, and is what it was."""
        self._store.put(self.id, stored)
        if stored.state == ACTIVE:
            if self.sessions is None:
                self._ready.give_back(stored)
            elif stored.session is not None:
                self.sessions.give_back(stored.session, stored)
            self.arrived()

    def _bury(self, stored: StoredMessage, told: dict[str, Any], now_ms: int) -> None:
        assert self.dead_letters is not None
        self.drop(stored)
        envelope.modify(stored, told)
        self.dead_letters.bury_here(stored, self.path, now_ms)

    def bury_here(self, stored: StoredMessage, source: str, now_ms: int) -> None:
        """Take in a message that another queue gave up. It keeps its number and its age."""
        envelope.set_dead_letter_source(stored, source)
        stored.state, stored.due_ms, stored.expires_ms = ACTIVE, None, None
        if not self.send_on(stored, now_ms):
            self._add(stored)

    def bury_new(
        self, incoming: Incoming, reason: str, description: str, source: str, now_ms: int
    ) -> None:
        """Take in a message that could not be put where it was to go."""
        stored = envelope.store(incoming, self.next_sequence(), ACTIVE, now_ms, None)
        envelope.modify(stored, _told(reason, description))
        self.bury_here(stored, source, now_ms)

    # Time.

    def expire(self, stored: StoredMessage, now_ms: int) -> bool:
        """A message's time-to-live is over. False: it is locked, and stays until that is over."""
        lock = self._locks.on(stored.sequence)
        if lock is not None:
            self._store.postpone_expiry(self.id, stored.sequence, lock.until_ms)
            return False
        if self.sessions is None:
            self._ready.remove(stored.sequence)
        else:
            self.sessions.remove(stored)
        self._expire(stored, now_ms)
        return True

    def _expire(self, stored: StoredMessage, now_ms: int) -> None:
        if self.settings.dead_lettering_on_message_expiration and self.dead_letters is not None:
            told = _told(TTL_EXPIRED, "The message expired and was dead lettered.")
            self._bury(stored, told, now_ms)
        else:
            self.drop(stored)

    def expire_locks(self, now_ms: int) -> None:
        """Locks that ran out, those of sessions too: their messages can be taken again."""
        if self.sessions is not None:
            self.sessions.expire(now_ms)
        for lock in self._locks.expired(now_ms):
            self._return(lock.message, now_ms)

    def release_session(self, session: str, now_ms: int, *, counted: bool) -> None:
        """A session has no holder any more: nor have its messages."""
        for lock in self._locks.of_session(session):
            if counted:
                self._return(lock.message, now_ms)
            else:
                self._put_back(lock.message)
        self.arrived()

    def close(self) -> None:
        """The entity is gone: nothing is locked or held, and nothing can be taken."""
        self._locks.clear()
        self._ready = Ready(lambda after, limit: [])
        if self.sessions is not None:
            self.sessions.clear()

    def next_lock_expiry_ms(self) -> int | None:
        return self._locks.next_expiry_ms()


def _told(reason: str | None, description: str | None) -> dict[str, Any]:
    told = {DEAD_LETTER_REASON: reason, DEAD_LETTER_DESCRIPTION: description}
    return {name: text for name, text in told.items() if text is not None}


def _nothing() -> None:
    pass


def _stays(stored: StoredMessage, now_ms: int) -> bool:
    return False
