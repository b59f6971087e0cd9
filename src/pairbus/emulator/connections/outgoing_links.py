"""Links on which clients receive from queues, subscriptions and dead-letter queues."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pairbus.amqp.events import OutgoingDelivery
from pairbus.amqp.link import SenderLink
from pairbus.amqp.performatives import (
    SETTLE_FIRST,
    SETTLE_SECOND,
    SETTLE_SETTLED,
    Accepted,
    Error,
    Modified,
    Rejected,
    Released,
    Source,
)
from pairbus.amqp.serial import contiguous_ranges
from pairbus.amqp.types import Described, Symbol
from pairbus.emulator.auth import Right
from pairbus.emulator.entities.entity import Entity
from pairbus.emulator.entities.message_codec import encode_deliveries, encode_removed
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.entities.sessions import Sessions
from pairbus.errors import (
    AmqpError,
    DecodeError,
    EntityDisabled,
    EntityNotFound,
    LockLost,
    OperationTimeout,
    Refused,
)
from pairbus.servicebus import links
from pairbus.servicebus.application_properties import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON

if TYPE_CHECKING:
    from pairbus.emulator.connections.amqp_connection import AmqpConnection

MESSAGES_PER_TURN = 500
"""Messages that a receiver gets before the other receivers have their turn."""
BYTES_PER_TURN = 1024 * 1024
MAX_TRACKED = 10_000
"""Unsettled deliveries of a session after which those are forgotten whose locks are gone. A client
that settles over the management link, or lets locks expire, never settles them on the link."""
SESSION_FILTER = Symbol(links.SESSION_FILTER)
LOCKED_UNTIL = Symbol(links.LOCKED_UNTIL)
TIMEOUT = Symbol(links.TIMEOUT)
DEFAULT_SESSION_TIMEOUT_MS = 60_000
_TICKS_1970 = 621355968000000000
"""Ticks of .NET (100 ns since the year 1) at the start of 1970."""


class OutgoingLink:
    """A link on which a client receives from a queue, subscription or dead-letter queue."""

    right = Right.LISTEN

    def __init__(
        self, connection: "AmqpConnection", link: SenderLink, entity: Entity, queue: MessageQueue
    ) -> None:
        self.connection = connection
        self.runtime = connection.runtime
        self.link = link
        link.context = self
        self.entity = entity
        self.queue = queue
        self.path = queue.path
        self.session: str | None = None
        self._peek_lock = link.remote is not None and link.remote.snd_settle_mode != SETTLE_SETTLED
        self._polling = False
        """True if credit was granted, and nothing was delivered since: one billable receive."""
        self._ended = False
        """Set by `on_end`. The state of the link changes earlier, with events still to handle."""
        self._known_credit = 0
        """The remaining credit, to tell a flow that grants more from one that repeats it."""
        self._forget_at = MAX_TRACKED
        self._session_deadline_ms = 0
        """By the clock of the machine, as for the client that waits."""
        self.active_ms = self.runtime.now_ms()
        """Time of the last flow, delivery or settlement."""

    def accept(self) -> None:
        """Reply to the attach, now or as soon as a session is available."""
        wanted, session = self._requested_session()
        if self.queue.sessions is None:
            if wanted:
                raise Refused(f"{self.path!r} does not require sessions.")
            self._attach()
            return
        if not wanted:
            raise Refused(f"{self.path!r} requires sessions. Receive from a session.")
        now_ms = self.runtime.now_ms()
        properties = self.link.remote.properties if self.link.remote is not None else None
        timeout_ms = (properties or {}).get(TIMEOUT, DEFAULT_SESSION_TIMEOUT_MS)
        self._session_deadline_ms = self.runtime.clock.machine_ms() + int(timeout_ms)
        self.session = self.queue.sessions.accept(session, self, now_ms)
        if self.session is not None:
            self._attach()
        self.runtime.add_receiver(self)

    def _requested_session(self) -> tuple[bool, str | None]:
        """Return True and the session id, or None for any session, if the client asks for one."""
        source = self.link.remote.source if self.link.remote is not None else None
        filters = (source.filter or {}) if isinstance(source, Source) else {}
        if SESSION_FILTER not in filters:
            return False, None
        value = filters[SESSION_FILTER]
        value = value.value if isinstance(value, Described) else value
        if value is not None and not isinstance(value, str):
            raise Refused("The session filter is neither null nor a string.")
        return True, value

    def _attach(self) -> None:
        attach = self.link.remote
        source = attach.source if attach is not None else None
        properties: dict[Any, Any] | None = None
        if self.session is not None and isinstance(source, Source):
            source = replace(source, filter={SESSION_FILTER: self.session})
            assert self.queue.sessions is not None
            until_ms = self.queue.sessions.locked_until(self.session, self)
            properties = {LOCKED_UNTIL: until_ms * 10000 + _TICKS_1970}
        # The Azure SDK announces a maximum message size, but accepts larger messages.
        self.link.remote_max_message_size = None
        self.link.accept(
            source=source,
            rcv_settle_mode=SETTLE_SECOND if self._peek_lock else SETTLE_FIRST,
            properties=properties,
        )
        if self.queue.sessions is None:
            self.runtime.add_receiver(self)
        self.connection.flush_after_turn()

    @property
    def _waits_for_session(self) -> bool:
        return self.queue.sessions is not None and self.session is None

    def on_flow(self) -> None:
        credit = self.link.credit
        self.active_ms = self.runtime.now_ms()
        if credit > self._known_credit:
            throttle = self.runtime.throttle
            if throttle is not None and throttle.is_exhausted("receive"):
                self.detach(throttle.error("receive"))
                return
            self._polling = True
        self._known_credit = credit
        if credit > 0:
            self.runtime.messages_available(self.queue)
        elif self._polling:
            self._meter_empty_receive()
        if self.link.drain:
            self.deliver()

    def deliver(self) -> None:
        """Deliver available messages, as far as the credit goes."""
        link, runtime = self.link, self.runtime
        if self._waits_for_session:
            self._try_session()
            return
        if not self.connection.can_deliver() or link.session.outgoing.queued:
            return
        if link.credit > 0 and runtime.faults and runtime.faults.fire(("disable",), self.path):
            self._on_disabled()
            return
        more = False
        if link.credit > 0 and self.entity.description.status.allows_receiving:
            more = self._deliver_up_to(min(link.credit, MESSAGES_PER_TURN))
        if link.drain and not (more and link.credit > 0):
            if self._polling:
                self._meter_empty_receive()
            link.drained()
            self._known_credit = 0
        self.connection.flush_after_turn()

    def _deliver_up_to(self, limit: int) -> bool:
        """Deliver messages, and return True if there may be more for the next turn."""
        link, runtime = self.link, self.runtime
        now_ms = runtime.now_ms()
        if runtime.throttle is not None:
            limit = runtime.throttle.max_messages("receive", limit)
            if limit == 0:
                runtime.deliver_later(self.queue)
                return False
        try:
            received = self.queue.receive(
                limit,
                now_ms,
                locked=self._peek_lock,
                session=self.session,
                max_bytes=BYTES_PER_TURN,
            )
        except LockLost as exc:
            self.detach(exc)
            return False
        messages = [stored for stored, _ in received]
        locks = [lock for _, lock in received if lock is not None]
        if locks:
            tokens = [lock.token for lock in locks]
            link.send_all(encode_deliveries(messages, tokens, locks[0].until_ms), tokens)
            self._forget_lost_locks(now_ms)
        else:
            for stored in messages:  # as in the service: no tag, because there is nothing to settle
                link.send(encode_removed(stored), tag=b"", settled=True)
        sizes = [stored.size for stored in messages]
        size = sum(sizes)
        runtime.meter.add_messages(self.path, "receive", sizes)
        if received:
            self._polling = False
            self.active_ms = now_ms
            self._known_credit = link.credit
            self.connection.add_unwritten(size)
        if len(received) < limit and size < BYTES_PER_TURN:
            return False
        runtime.messages_available(self.queue)
        return True

    def _forget_lost_locks(self, now_ms: int) -> None:
        outgoing = self.link.session.outgoing
        if len(outgoing.unsettled) > self._forget_at:
            outgoing.forget_unless(lambda delivery: _may_be_settled(delivery, now_ms))
            self._forget_at = max(MAX_TRACKED, 2 * len(outgoing.unsettled))

    def _meter_empty_receive(self) -> None:
        self._polling = False
        self.runtime.meter.add_without_message(self.path, "receive")

    def _try_session(self) -> bool:
        assert self.queue.sessions is not None
        self.session = self.queue.sessions.accept(None, self, self.runtime.now_ms())
        if self.session is None:
            return False
        self._attach()
        self.runtime.messages_available(self.queue)
        return True

    def tick(self) -> None:
        if not self.entity.description.status.allows_receiving:
            self._on_disabled()
        elif self._waits_for_session:
            waited = self.runtime.clock.machine_ms() >= self._session_deadline_ms
            if not self._try_session() and waited:
                self.runtime.remove_receiver(self)
                self.link.refuse(
                    OperationTimeout("The operation did not complete: no session is available.")
                )
                self.connection.flush_after_turn()
        elif self.session is not None and self.queue.sessions is not None:
            try:
                until_ms = self.queue.sessions.locked_until(self.session, self)
            except LockLost as exc:
                self.detach(exc)
            else:
                self._keep_session(self.queue.sessions, until_ms)

    def _keep_session(self, sessions: Sessions, until_ms: int) -> None:
        """Renew the lock of the session while the client waits for messages, as in the service."""
        now_ms = self.runtime.now_ms()
        if self.link.credit > 0 and now_ms < until_ms <= now_ms + self.queue.lock_ms // 2:
            assert self.session is not None
            sessions.renew(self.session, now_ms)

    def on_outcome(
        self, deliveries: Sequence[OutgoingDelivery], outcome: Any, settled: bool
    ) -> None:
        """Settle messages as the client asks, and confirm it after the commit."""
        if self._ended:
            # The emulator detached the link. The Azure SDK does not see a reply, and settles again
            # over the management link: that must not fail because of a settlement here.
            return
        self.active_ms = now_ms = self.runtime.now_ms()
        settled_ids: list[int] = []
        for delivery in deliveries:
            if delivery.tag is None or delivery.id is None:
                continue
            try:
                self._settle(delivery.tag, outcome, now_ms)
            except AmqpError as exc:
                if not settled:
                    self.link.session.confirm(delivery.id, delivery.id, Rejected(Error.of(exc)))
            else:
                settled_ids.append(delivery.id)
        if settled_ids and not settled:
            # An error in the reply would mean that the settlement has failed.
            reply = Rejected() if isinstance(outcome, Rejected) else outcome
            self.runtime.after_commit(lambda: self._confirm(settled_ids, reply))

    def _confirm(self, ids: list[int], outcome: Any) -> None:
        for first, last in contiguous_ranges(sorted(ids)):
            self.link.session.confirm(first, last, outcome)
        self.connection.flush_after_turn()

    def _settle(self, lock_token: bytes, outcome: Any, now_ms: int) -> None:
        meter = self.runtime.meter
        if isinstance(outcome, Accepted) or outcome is None:
            self.queue.complete(lock_token, now_ms)
            meter.add(self.path, "complete")
        elif isinstance(outcome, Released):
            self.queue.release(lock_token, now_ms)
            meter.add(self.path, "abandon")
        elif isinstance(outcome, Modified):
            changes = _text_keys(outcome.message_annotations)
            if outcome.undeliverable_here:
                self.queue.defer(lock_token, changes, now_ms)
                meter.add(self.path, "defer")
            else:
                self.queue.abandon(lock_token, changes, now_ms)
                meter.add(self.path, "abandon")
        elif isinstance(outcome, Rejected):
            info = _text_keys(outcome.error.info if outcome.error is not None else None)
            reason = info.pop(DEAD_LETTER_REASON, None)
            description = info.pop(DEAD_LETTER_DESCRIPTION, None)
            self.queue.dead_letter(lock_token, reason, description, info, now_ms)
            meter.add(self.path, "dead-letter")
        else:
            raise DecodeError(f"{type(outcome).__name__} is not an outcome.")

    def on_entity_deleted(self) -> None:
        self.detach(EntityNotFound(f"The messaging entity {self.path!r} was deleted."))

    def _on_disabled(self) -> None:
        self.detach(EntityDisabled(f"{self.path!r} is disabled for receiving."))

    def detach(self, error: AmqpError) -> None:
        """Detach the link with an error, or refuse it if it waits for a session."""
        if self.link.alive:
            self.link.detach(error)
        else:
            self.link.refuse(error)
        self.on_end()
        self.connection.flush_after_turn()

    def on_end(self) -> None:
        """Release the session. Locks of messages stay until they expire."""
        self._ended = True
        if self._polling:
            self._meter_empty_receive()
        self.runtime.remove_receiver(self)
        if self.session is not None and self.queue.sessions is not None:
            self.queue.sessions.release(self.session, self, self.runtime.now_ms())
            self.session = None
        self.runtime.schedule_turn()


def _may_be_settled(delivery: OutgoingDelivery, now_ms: int) -> bool:
    """Return False for a message whose lock is gone."""
    receiver = delivery.link.context
    if not isinstance(receiver, OutgoingLink) or delivery.tag is None:
        return True
    return receiver.queue.has_lock(delivery.tag, now_ms)


def _text_keys(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        return {}
    return {str(key): value for key, value in values.items() if isinstance(key, str)}
