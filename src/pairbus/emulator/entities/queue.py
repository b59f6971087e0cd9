"""A queue of messages: that of a queue or subscription, or one of its dead-letter queues.

It does no I/O except through the store, and has no clock: `now_ms` is an argument. The effects of a
call are durable when the store has committed them; responses to clients wait for that.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pairbus.emulator.entities import message_codec
from pairbus.emulator.entities.locks import MessageLock, MessageLocks
from pairbus.emulator.entities.message_buffer import MessageBuffer
from pairbus.emulator.entities.message_codec import IncomingMessage, dead_letter_properties
from pairbus.emulator.entities.queue_settings import QueueSettings, expiry_ms
from pairbus.emulator.entities.sequence_numbers import SequenceNumbers
from pairbus.emulator.entities.sessions import Sessions
from pairbus.emulator.storage.messages import UNLIMITED
from pairbus.emulator.storage.store import Store
from pairbus.emulator.storage.stored_message import StoredMessage
from pairbus.errors import LockLost, MessageNotFound, Refused
from pairbus.servicebus import conditions
from pairbus.servicebus.application_properties import MAX_DELIVERY_COUNT_EXCEEDED, TTL_EXPIRED
from pairbus.servicebus.message_states import ACTIVE, DEFERRED, SCHEDULED
from pairbus.servicebus.time_spans import to_milliseconds


class MessageQueue:
    """Messages in order, with their locks and sessions, and the deferred and scheduled ones."""

    def __init__(
        self,
        *,
        id: int,
        path: str,
        settings: QueueSettings,
        store: Store,
        sequences: SequenceNumbers,
        new_token: Callable[[], bytes],
        on_available: Callable[["MessageQueue"], None],
        dead_letters: "MessageQueue | None" = None,
        forward: Callable[[StoredMessage, int], bool] | None = None,
    ) -> None:
        """Open a queue.

        `on_available` is called when a message or session becomes available to receivers.
        `dead_letters` takes the messages that cannot be delivered; a dead-letter queue has none.
        `forward` is called with each message that is dead-lettered to this queue, and returns True
        if it forwarded the message, which is then not stored here.
        """
        self.id = id
        self.path = path
        self.settings = settings
        self.dead_letters = dead_letters
        self._on_available = on_available
        self._forward = forward
        self._messages = store.messages
        self._sequences = sequences
        self._new_token = new_token
        self._locks = MessageLocks()
        self._ready = MessageBuffer(
            lambda after, limit: store.messages.active_after(id, after, limit), self._locks
        )
        totals = store.messages.totals(id)
        self.counts = {
            state: totals.get(state, (0, 0))[0] for state in (ACTIVE, DEFERRED, SCHEDULED)
        }
        """Messages by state. A locked message counts in the state it was received in."""
        self.bytes = sum(size for _, size in totals.values())
        self.sessions = Sessions(self, store) if settings.requires_session else None

    def __len__(self) -> int:
        return sum(self.counts.values())

    @property
    def lock_ms(self) -> int:
        return to_milliseconds(self.settings.lock_duration)

    # Sending.

    def check(self, message: IncomingMessage) -> None:
        """Raise Refused if the queue cannot accept the message."""
        if self.settings.requires_session and message.session is None:
            raise Refused(f"{self.path!r} requires a session id on every message.")

    def enqueue(self, message: IncomingMessage, now_ms: int) -> int:
        """Add a message and return its sequence number."""
        return self.enqueue_all([message], now_ms)[0]

    def enqueue_all(self, messages: Iterable[IncomingMessage], now_ms: int) -> list[int]:
        """Add messages and return their sequence numbers."""
        settings, next_sequence, to_stored = (
            self.settings,
            self._sequences.next,
            message_codec.to_stored,
        )
        default_expiry_ms = expiry_ms(settings, None, now_ms)
        new = []
        for message in messages:
            state, expires_ms, due_ms = ACTIVE, default_expiry_ms, message.scheduled_ms
            if due_ms is not None and due_ms > now_ms:
                state, expires_ms = SCHEDULED, expiry_ms(settings, message.ttl_ms, due_ms)
            elif message.ttl_ms is not None:
                expires_ms = expiry_ms(settings, message.ttl_ms, now_ms)
            new.append(to_stored(message, next_sequence(), state, now_ms, expires_ms))
        self._messages.add_all(self.id, new)
        self._added(new)
        return [message.sequence for message in new]

    def activate(self, message: StoredMessage, now_ms: int) -> None:
        """Move a scheduled message that is due to the end of the queue, under a new number."""
        self.remove(message)
        message.sequence = self.next_sequence()
        message.state, message.due_ms, message.enqueued_ms = ACTIVE, None, now_ms
        self._add(message)

    def next_sequence(self) -> int:
        """Return a sequence number that was never used before."""
        return self._sequences.next()

    def _add(self, message: StoredMessage) -> None:
        self._messages.put(self.id, message)
        self._added([message])

    def _added(self, messages: Sequence[StoredMessage]) -> None:
        """Take note of messages that were stored, and make the active ones available."""
        counts, sessions, append = self.counts, self.sessions, self._ready.append
        is_available = False
        for message in messages:
            counts[message.state] += 1
            self.bytes += message.size
            if message.state == ACTIVE:
                is_available = True
                if sessions is not None and message.session is not None:
                    sessions.append(message.session, message)
                else:
                    append(message)
        if is_available:
            self._on_available(self)

    def remove(self, message: StoredMessage) -> None:
        """Remove a message that is no longer in the buffer."""
        self._remove_all([message])

    def _remove_all(self, messages: Sequence[StoredMessage]) -> None:
        for message in messages:
            self.counts[message.state] -= 1
            self.bytes -= message.size
            if (
                self.sessions is not None
                and message.state == ACTIVE
                and message.session is not None
            ):
                self.sessions.decrement(message.session)
        self._messages.delete_all(self.id, messages)

    # Receiving.

    def receive(
        self,
        limit: int,
        now_ms: int,
        *,
        locked: bool,
        session: str | None = None,
        receiver: object | None = None,
        max_bytes: int = UNLIMITED,
    ) -> list[tuple[StoredMessage, MessageLock | None]]:
        """Lock up to `limit` messages, or remove them if `locked` is False, and return them.

        It stops after the message with which they reach `max_bytes` bytes. Raises LockLost if the
        session is not locked, or not by `receiver`.
        """
        buffer = self._ready
        if self.sessions is not None:
            buffer = self.sessions.messages(session, now_ms, receiver)
        until_ms = self._locked_until(session, now_ms) if locked else None
        messages: list[StoredMessage] = []
        while len(messages) < limit and max_bytes > 0:
            message = buffer.pop()
            if message is None:
                break
            if message.expires_ms is not None and message.expires_ms <= now_ms:
                self._expire(message, now_ms)
                continue
            max_bytes -= message.size
            messages.append(message)
        return self._lock_or_remove(messages, until_ms)

    def _lock_or_remove(
        self, messages: Sequence[StoredMessage], until_ms: int | None
    ) -> list[tuple[StoredMessage, MessageLock | None]]:
        """Lock messages until a time, or remove them if that is None."""
        if until_ms is None:
            self._remove_all(messages)
            return [(message, None) for message in messages]
        new_token, has_sessions = self._new_token, self.sessions is not None
        locks = [
            MessageLock(new_token(), message, until_ms, message.session if has_sessions else None)
            for message in messages
        ]
        self._locks.add_all(locks, until_ms)
        return list(zip(messages, locks, strict=True))

    def _locked_until(self, session: str | None, now_ms: int) -> int:
        """Return the end of a new lock. Messages of a session are locked as long as the session."""
        if self.sessions is None or session is None:
            return now_ms + self.lock_ms
        return self.sessions.locked_until(session)

    def receive_deferred(
        self,
        sequences: Iterable[int],
        now_ms: int,
        *,
        locked: bool,
        session: str | None = None,
        max_bytes: int = UNLIMITED,
    ) -> list[tuple[StoredMessage, MessageLock | None]]:
        """Lock or remove deferred messages by their sequence numbers, and return them.

        It stops after the message with which they reach `max_bytes` bytes. Raises MessageNotFound
        if one does not exist or is locked, and LockLost if their session is not locked, and then
        receives none."""
        if self.sessions is not None:
            self.sessions.messages(session, now_ms)
        messages: list[StoredMessage] = []
        for sequence in dict.fromkeys(sequences):
            if max_bytes <= 0:
                break
            message = None if sequence in self._locks else self._messages.get(self.id, sequence)
            if (
                message is None
                or message.state != DEFERRED
                or (self.sessions is not None and message.session != session)
            ):
                raise MessageNotFound(f"{self.path!r} has no deferred message {sequence}.")
            max_bytes -= message.size
            messages.append(message)
        until_ms = self._locked_until(session, now_ms) if locked else None
        return self._lock_or_remove(messages, until_ms)

    def peek(
        self, after: int, limit: int, session: str | None = None, max_bytes: int = UNLIMITED
    ) -> list[StoredMessage]:
        """Return messages in any state after a sequence number, without changing them.

        It stops after the message with which they reach `max_bytes` bytes.
        """
        return self._messages.all_after(self.id, after, limit, session, max_bytes)

    def cancel_scheduled(self, sequences: Sequence[int]) -> None:
        """Remove scheduled messages.

        Raises MessageNotFound if one of them does not exist; then none is removed.
        """
        messages = []
        for sequence in dict.fromkeys(sequences):
            message = self._messages.get(self.id, sequence)
            if message is None or message.state != SCHEDULED:
                raise MessageNotFound(f"{self.path!r} has no scheduled message {sequence}.")
            messages.append(message)
        for message in messages:
            self.remove(message)

    # Settling.

    def has_lock(self, token: bytes, now_ms: int) -> bool:
        """Return True if the message with this lock token can be settled."""
        return self._locks.get(token, now_ms) is not None

    def has_locks(self, tokens: Sequence[bytes], now_ms: int) -> bool:
        """Return True if the messages with these lock tokens can all be settled."""
        return self._locks.get_all(tokens, now_ms) is not None

    def complete(self, token: bytes, now_ms: int) -> None:
        self.complete_all([token], now_ms)

    def complete_all(self, tokens: Sequence[bytes], now_ms: int) -> None:
        """Complete messages, all or none. Raises LockLost."""
        locks = self._locks.get_all(tokens, now_ms)
        if locks is None:
            raise self._lock_lost()
        self._locks.remove_all(locks)
        self._remove_all([lock.message for lock in locks])

    def abandon(self, token: bytes, changes: dict[str, Any], now_ms: int) -> None:
        self._return(self._unlock(token, changes, now_ms), now_ms)

    def release(self, token: bytes, now_ms: int) -> None:
        """Make a message available again, without increasing its delivery count."""
        self._put_back(self._unlock(token, {}, now_ms))

    def defer(self, token: bytes, changes: dict[str, Any], now_ms: int) -> None:
        message = self._unlock(token, changes, now_ms)
        if message.state == ACTIVE:
            self.counts[ACTIVE] -= 1
            self.counts[DEFERRED] += 1
            if self.sessions is not None and message.session is not None:
                self.sessions.decrement(message.session)
        message.state = DEFERRED
        message.deliveries += 1
        self._messages.put(self.id, message)

    def dead_letter(
        self,
        token: bytes,
        reason: str | None,
        description: str | None,
        changes: dict[str, Any],
        now_ms: int,
    ) -> None:
        if self.dead_letters is None:
            raise Refused(
                f"{self.path!r} is a dead-letter queue. Its messages cannot be dead-lettered again."
            )
        changes = {**changes, **dead_letter_properties(reason, description)}
        self._move_to_dead_letters(self._unlock(token, changes, now_ms), {}, now_ms)

    def renew_lock(self, token: bytes, now_ms: int) -> int:
        """Renew the lock on a message and return the time until which it holds."""
        lock = self._get_lock(token, now_ms)
        self._locks.renew(lock, self._locked_until(lock.session, now_ms))
        return lock.until_ms

    def renew_session(self, session: str, until_ms: int) -> None:
        """Renew the locks on the messages of a session, whose own lock was renewed."""
        self._locks.renew_session(session, until_ms)

    def _get_lock(self, token: bytes, now_ms: int) -> MessageLock:
        lock = self._locks.get(token, now_ms)
        if lock is None:
            raise self._lock_lost()
        return lock

    def _lock_lost(self) -> LockLost:
        # For a message of a session, the lock that was lost is that of the session.
        return LockLost(
            "The lock supplied is invalid. Either the lock expired, or the message has already "
            f"been removed from {self.path!r}.",
            condition=None if self.sessions is None else conditions.SESSION_LOCK_LOST,
        )

    def _unlock(self, token: bytes, changes: dict[str, Any], now_ms: int) -> StoredMessage:
        """Change the message, remove its lock and return it.

        Raises LockLost. Raises EncodeError for changes that AMQP cannot encode; then the message
        stays locked.
        """
        lock = self._get_lock(token, now_ms)
        message_codec.set_application_properties(lock.message, changes)
        self._locks.remove(lock)
        return lock.message

    def _return(self, message: StoredMessage, now_ms: int) -> None:
        """Make an unlocked message available again, or dead-letter it after too many deliveries."""
        message.deliveries += 1
        if message.deliveries >= self.settings.max_delivery_count and self.dead_letters is not None:
            properties = dead_letter_properties(
                MAX_DELIVERY_COUNT_EXCEEDED,
                f"Message could not be consumed after {message.deliveries} delivery attempts.",
            )
            self._move_to_dead_letters(message, properties, now_ms)
        else:
            self._put_back(message)

    def _put_back(self, message: StoredMessage) -> None:
        """Make an unlocked message available again in its previous state."""
        self._messages.put(self.id, message)
        if message.state == ACTIVE:
            if self.sessions is None:
                self._ready.put_back(message)
            elif message.session is not None:
                self.sessions.put_back(message.session, message)
            self._on_available(self)

    # Dead-lettering.

    def _move_to_dead_letters(
        self, message: StoredMessage, properties: dict[str, Any], now_ms: int
    ) -> None:
        assert self.dead_letters is not None
        self.remove(message)
        message_codec.set_application_properties(message, properties)
        self.dead_letters.add_dead_letter(message, self.path, now_ms)

    def add_dead_letter(self, message: StoredMessage, source: str, now_ms: int) -> None:
        """Add a message of the queue `source`. It keeps its sequence number and enqueued time."""
        message_codec.set_dead_letter_source(message, source)
        message.state, message.due_ms, message.expires_ms = ACTIVE, None, None
        if self._forward is None or not self._forward(message, now_ms):
            self._add(message)

    def add_new_dead_letter(
        self, message: IncomingMessage, reason: str, description: str, source: str, now_ms: int
    ) -> None:
        """Add a message that could not be enqueued or forwarded by the queue `source`."""
        stored = message_codec.to_stored(message, self.next_sequence(), ACTIVE, now_ms, None)
        message_codec.set_application_properties(
            stored, dead_letter_properties(reason, description)
        )
        self.add_dead_letter(stored, source, now_ms)

    # Expiry.

    def expire(self, message: StoredMessage, now_ms: int) -> None:
        """Remove or dead-letter a message whose time-to-live is over, or wait for its lock."""
        lock = self._locks.of_message(message.sequence)
        if lock is not None:
            self._messages.postpone_expiry(self.id, message.sequence, lock.until_ms)
            return
        if self.sessions is None:
            self._ready.remove(message.sequence)
        else:
            self.sessions.remove(message)
        self._expire(message, now_ms)

    def _expire(self, message: StoredMessage, now_ms: int) -> None:
        if self.settings.dead_lettering_on_message_expiration and self.dead_letters is not None:
            properties = dead_letter_properties(
                TTL_EXPIRED, "The message expired and was dead lettered."
            )
            self._move_to_dead_letters(message, properties, now_ms)
        else:
            self.remove(message)

    def expire_locks(self, now_ms: int) -> None:
        """Make messages available again whose locks, or those of their sessions, have expired."""
        if self.sessions is not None:
            self.sessions.expire(now_ms)
        for lock in self._locks.remove_expired(now_ms):
            self._return(lock.message, now_ms)

    def release_session(self, session: str, now_ms: int, *, count_delivery: bool) -> None:
        """Unlock the messages of a session that was unlocked."""
        for lock in self._locks.remove_session(session):
            if count_delivery:
                self._return(lock.message, now_ms)
            else:
                self._put_back(lock.message)
        self._on_available(self)

    def close(self) -> None:
        """Drop all locks and buffered messages, because the entity was deleted."""
        self._locks.clear()
        self._ready = MessageBuffer(lambda after, limit: [])
        if self.sessions is not None:
            self.sessions.clear()

    def next_lock_expiry_ms(self) -> int | None:
        return self._locks.next_expiry_ms()
