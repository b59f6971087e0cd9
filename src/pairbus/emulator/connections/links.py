"""Links of a peer: inlets, on which it sends, and outlets, on which it receives."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pairbus.amqp.batch import BATCH_FORMAT, split_batch
from pairbus.amqp.events import Delivery, OutgoingDelivery
from pairbus.amqp.link import ReceiverLink, SenderLink
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
from pairbus.amqp.types import Described, Symbol, ULong
from pairbus.emulator.auth import Right
from pairbus.emulator.entities.entity import Entity
from pairbus.emulator.entities.message_codec import encode_delivery, parse_message
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.faults import ON_SEND, Fault
from pairbus.errors import (
    AmqpError,
    DecodeError,
    EntityDisabled,
    EntityNotFound,
    LockLost,
    OperationTimeout,
    Refused,
)
from pairbus.servicebus import conditions, links
from pairbus.servicebus.application_properties import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from pairbus.servicebus.limits import KB, MAX_MESSAGE_KB_STANDARD

if TYPE_CHECKING:
    from pairbus.emulator.connections.amqp_connection import AmqpConnection
    from pairbus.emulator.runtime import NamespaceRuntime

CREDIT = 1000
ROUND = 500
"""Messages that one outlet gets before others have their turn."""
ROUND_BYTES = 1024 * 1024
"""How many bytes of messages are enough for that."""
SESSION_FILTER = Symbol(links.SESSION_FILTER)
LOCKED_UNTIL = Symbol(links.LOCKED_UNTIL)
BATCH_LIMIT = Symbol(links.MAX_MESSAGE_BATCH_SIZE)
TIMEOUT = Symbol(links.TIMEOUT)
_TICKS_1970 = 621355968000000000
DEFAULT_WAIT_MS = 60_000


class IncomingLink:
    """A link on which a peer sends to a queue or topic."""

    right = Right.SEND

    def __init__(self, peer: "AmqpConnection", link: ReceiverLink, entity: Entity) -> None:
        self.peer = peer
        self.core: NamespaceRuntime = peer.core
        self.link = link
        self.entity = entity
        self.path = entity.path
        self._accepted: list[int] = []
        self._cut_off = False
        """A fault has detached the link: what came behind is not taken."""

    def accept(self) -> None:
        limit = KB * getattr(
            self.entity.description, "max_message_size_in_kilobytes", MAX_MESSAGE_KB_STANDARD
        )
        self.link.accept(
            # The Azure SDK asks to settle second, and then waits for us to settle first.
            rcv_settle_mode=SETTLE_FIRST,
            max_message_size=limit,
            # By this, and not by the field above, the Azure SDK knows how large a batch may be.
            properties={BATCH_LIMIT: ULong(limit)},
        )
        # What is too large is rejected, not cut off: the Azure SDK takes a detach for an outage.
        self.link.max_message_size = 4 * limit
        self.link.flow(CREDIT)
        self.core.inlets.add(self)

    def on_delivery(self, delivery: Delivery) -> None:
        if self._cut_off:
            return
        fault = self.core.faults.fire(ON_SEND, self.path) if self.core.faults else None
        try:
            if fault is not None and self.peer.suffer(fault, self.link):
                self._cut_off = fault.kind == "detach"
                return
            self._take(delivery)
        except AmqpError as exc:
            # It stands for itself, so it need not wait for a commit.
            self._reject(delivery, exc)
        else:
            if fault is not None:
                self._answer_badly(fault, delivery)
            elif not delivery.settled:
                if not self._accepted:
                    self.core.after_commit(self._answer)
                self._accepted.append(delivery.id)
        if self.link.credit <= CREDIT // 2:
            self.link.flow(CREDIT)

    def _reject(self, delivery: Delivery, error: AmqpError) -> None:
        if not delivery.settled:
            delivery.link.session.settle(delivery.id, delivery.id, Rejected(Error.of(error)))

    def _answer_badly(self, fault: Fault, delivery: Delivery) -> None:
        link, id_ = delivery.link, delivery.id

        def answer() -> None:
            if not delivery.settled:
                link.session.settle(id_, id_, Accepted())
                self.peer.touch()

        self.peer.answer(answer, fault)

    def _take(self, delivery: Delivery) -> None:
        if delivery.state is not None:
            raise Refused("Transactions are not supported.", condition=conditions.NOT_IMPLEMENTED)
        self.peer.check(self.path, Right.SEND)
        core = self.core
        if core.faults and core.faults.fire(("disable",), self.path):
            raise EntityDisabled(f"{self.path!r} is disabled, as a fault asks for.")
        if core.entities.find(self.path) is not self.entity:
            raise EntityNotFound(f"The messaging entity {self.path!r} could not be found.")
        if delivery.message_format == BATCH_FORMAT:
            payloads = split_batch(delivery.payload)
        else:
            payloads = [delivery.payload]
        messages = [parse_message(payload) for payload in payloads]
        kept = [message for message in messages if not message.is_ping]
        core.entities.router.send(self.entity, kept, core.now_ms())
        for message in messages:
            core.meter.add(self.path, "send", message.size)

    def _answer(self) -> None:
        accepted, self._accepted = sorted(self._accepted), []
        for first, last in contiguous_ranges(accepted):
            self.link.session.settle(first, last, Accepted())
        self.peer.touch()

    def on_end(self) -> None:
        """The link is gone; what it brought is taken all the same."""
        self.core.inlets.discard(self)


class OutgoingLink:
    """A link on which a peer receives from a queue, subscription or dead-letter queue."""

    right = Right.LISTEN

    def __init__(
        self, peer: "AmqpConnection", link: SenderLink, entity: Entity, queue: MessageQueue
    ) -> None:
        self.peer = peer
        self.core: NamespaceRuntime = peer.core
        self.link = link
        self.entity = entity
        self.queue = queue
        self.path = queue.path
        self.session: str | None = None
        self._locked = link.remote is not None and link.remote.snd_settle_mode != SETTLE_SETTLED
        self._granted = False
        """Credit was given and nothing has been delivered since."""
        self._over = False
        """The link has ended. Its state says so sooner, when what came before is still to do."""
        self._known_credit = 0
        """What is left of the credit that was given: flows may also say it again."""
        self._wait_until_ms = 0

    def accept(self) -> None:
        """Answer the attach, at once or when there is a session to give."""
        wanted, session = self._wanted_session()
        if self.queue.sessions is None:
            if wanted:
                raise Refused(f"{self.path!r} has no sessions.")
            self._attach()
            return
        if not wanted:
            raise Refused(f"{self.path!r} has sessions: a receiver must ask for one.")
        now_ms = self.core.now_ms()
        properties = self.link.remote.properties if self.link.remote is not None else None
        wait_ms = (properties or {}).get(TIMEOUT, DEFAULT_WAIT_MS)
        self._wait_until_ms = now_ms + int(wait_ms)
        self.session = self.queue.sessions.accept(session, self, now_ms)
        if self.session is not None:
            self._attach()
        self.core.add_outlet(self)

    def _wanted_session(self) -> tuple[bool, str | None]:
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
        asked = self.link.remote
        source = asked.source if asked is not None else None
        properties: dict[Any, Any] | None = None
        if self.session is not None and isinstance(source, Source):
            source = replace(source, filter={SESSION_FILTER: self.session})
            assert self.queue.sessions is not None
            until_ms = self.queue.sessions.locked_until(self.session, self)
            properties = {LOCKED_UNTIL: until_ms * 10000 + _TICKS_1970}
        # The Azure SDK announces a maximum that it does not mean.
        self.link.remote_max_message_size = None
        self.link.accept(
            source=source,
            rcv_settle_mode=SETTLE_SECOND if self._locked else SETTLE_FIRST,
            properties=properties,
        )
        if self.queue.sessions is None:
            self.core.add_outlet(self)
        self.peer.touch()

    @property
    def _waiting(self) -> bool:
        return self.queue.sessions is not None and self.session is None

    def on_flow(self) -> None:
        credit = self.link.credit
        if credit > self._known_credit:
            self._granted = True
        self._known_credit = credit
        if credit > 0:
            self.core.arrived(self.queue)
        elif self._granted:
            self._poll_ended()
        if self.link.drain:
            self.pump()

    def pump(self) -> None:
        """Hand out what there is, as far as the credit goes."""
        link, core = self.link, self.core
        if self._waiting:
            self._try_session()
            return
        if not self.peer.may_write() or link.session.outgoing.queued:
            return
        if link.credit > 0 and core.faults and core.faults.fire(("disable",), self.path):
            self.on_disabled()
            return
        more = False
        if link.credit > 0 and self.entity.description.status.allows_receiving:
            more = self._hand_out(min(link.credit, ROUND))
        if link.drain and not (more and link.credit > 0):
            if self._granted:
                self._poll_ended()
            link.drained()
            self._known_credit = 0
        self.peer.touch()

    def _hand_out(self, limit: int) -> bool:
        """True: there may be more, but the others first."""
        link, core = self.link, self.core
        try:
            taken = self.queue.receive(
                limit,
                core.now_ms(),
                locked=self._locked,
                session=self.session,
                max_bytes=ROUND_BYTES,
            )
        except LockLost as exc:
            self._detach(exc)
            return False
        handed_out = 0
        for stored, lock in taken:
            handed_out += stored.size
            if lock is None:
                payload, tag = encode_delivery(stored, stored.deliveries, None), core.new_token()
            else:
                payload, tag = encode_delivery(stored, stored.deliveries, lock.until_ms), lock.token
            link.send(payload, tag=tag, settled=lock is None)
            core.meter.add(self.path, "receive", stored.size)
        if taken:
            self._granted = False
            self._known_credit = link.credit
            self.peer.owe(handed_out)
        if len(taken) < limit and handed_out < ROUND_BYTES:
            return False
        core.arrived(self.queue)
        return True

    def _poll_ended(self) -> None:
        self._granted = False
        self.core.meter.add_without_message(self.path, "receive")

    def _try_session(self) -> bool:
        assert self.queue.sessions is not None
        self.session = self.queue.sessions.accept(None, self, self.core.now_ms())
        if self.session is None:
            return False
        self._attach()
        self.core.arrived(self.queue)
        return True

    def tick(self, now_ms: int) -> None:
        if not self.entity.description.status.allows_receiving:
            self.on_disabled()
        elif self._waiting:
            if not self._try_session() and now_ms >= self._wait_until_ms:
                self.core.remove_outlet(self)
                self.link.refuse(
                    OperationTimeout("The operation did not complete: no session is available.")
                )
                self.peer.touch()
        elif self.session is not None and self.queue.sessions is not None:
            try:
                self.queue.sessions.locked_until(self.session, self)
            except LockLost as exc:
                self._detach(exc)

    def settle(self, sent: Sequence[OutgoingDelivery], state: Any, settled: bool) -> None:
        """Do as the peer says with what it received, and confirm it after the commit."""
        if self._over:
            # We took the link away. The Azure SDK will not see our answer, and settles once more
            # over the management link: the second time must not fail because of the first.
            return
        now_ms = self.core.now_ms()
        done: list[int] = []
        for one in sent:
            if one.tag is None or one.id is None:
                continue
            try:
                self._settle(one.tag, state, now_ms)
            except AmqpError as exc:
                if not settled:
                    self.link.session.confirm(one.id, one.id, Rejected(Error.of(exc)))
            else:
                done.append(one.id)
        if done and not settled:
            # An error in the echo would say that the settlement has failed.
            echo = Rejected() if isinstance(state, Rejected) else state
            self.core.after_commit(lambda: self._confirm(done, echo))

    def _confirm(self, ids: list[int], echo: Any) -> None:
        for first, last in contiguous_ranges(sorted(ids)):
            self.link.session.confirm(first, last, echo)
        self.peer.touch()

    def _settle(self, token: bytes, state: Any, now_ms: int) -> None:
        meter = self.core.meter
        if isinstance(state, Accepted) or state is None:
            self.queue.complete(token, now_ms)
            meter.add(self.path, "complete")
        elif isinstance(state, Released):
            self.queue.abandon(token, {}, now_ms)
            meter.add(self.path, "abandon")
        elif isinstance(state, Modified):
            changes = _text_keys(state.message_annotations)
            if state.undeliverable_here:
                self.queue.defer(token, changes, now_ms)
                meter.add(self.path, "defer")
            else:
                self.queue.abandon(token, changes, now_ms)
                meter.add(self.path, "abandon")
        elif isinstance(state, Rejected):
            info = _text_keys(state.error.info if state.error is not None else None)
            reason = info.pop(DEAD_LETTER_REASON, None)
            description = info.pop(DEAD_LETTER_DESCRIPTION, None)
            self.queue.dead_letter(token, reason, description, info, now_ms)
            meter.add(self.path, "dead-letter")
        else:
            raise DecodeError(f"{type(state).__name__} is not an outcome")

    def on_entity_gone(self) -> None:
        self._detach(EntityNotFound(f"The messaging entity {self.path!r} was deleted."))

    def on_disabled(self) -> None:
        self._detach(EntityDisabled(f"{self.path!r} is disabled for receiving."))

    def _detach(self, error: AmqpError) -> None:
        if self.link.alive:
            self.link.detach(error)
        else:
            self.link.refuse(error)
        self.on_end()
        self.peer.touch()

    def on_end(self) -> None:
        """The link is gone. Locks stay until they expire; a session is let go."""
        self._over = True
        if self._granted:
            self._poll_ended()
        self.core.remove_outlet(self)
        if self.session is not None and self.queue.sessions is not None:
            self.queue.sessions.release(self.session, self, self.core.now_ms())
            self.session = None
        self.core.wake()


def _text_keys(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        return {}
    return {str(key): value for key, value in values.items() if isinstance(key, str)}
