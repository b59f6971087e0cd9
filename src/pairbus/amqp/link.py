"""Link endpoints: a link carries messages in one direction between two endpoints.

Calls on a link that ended do nothing, so that an application can process a list of events without
checking after each of them whether the link still exists. Only `send` raises, because it would
lose a message.
"""

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from pairbus.amqp.encode import encode_uint
from pairbus.amqp.events import OutgoingDelivery
from pairbus.amqp.frames import (
    MAX_TAG_SIZE,
    encode_next_transfer,
)
from pairbus.amqp.performatives import (
    RECEIVER,
    SENDER,
    SETTLE_MIXED,
    SETTLE_SETTLED,
    Attach,
    Detach,
    Error,
    Flow,
    Source,
    Target,
)
from pairbus.amqp.serial import SERIAL_MASK, serial_distance
from pairbus.errors import AmqpError, EncodeError, ProtocolError, StateError
from pairbus.servicebus import conditions

if TYPE_CHECKING:
    from pairbus.amqp.session import Session

_TRANSFER_OVERHEAD = 96
"""An upper bound for the size of a frame header and a transfer performative."""

_UNLIMITED = 1 << 64


class LinkState(Enum):
    ATTACH_SENT = "we sent an attach, the peer has not answered"
    ATTACH_RECEIVED = "the peer sent an attach, we have not answered"
    ATTACHED = "both sides have attached"
    DETACH_SENT = "we sent a detach, the peer has not answered"
    DETACHED = "ended"


class Link:
    """A link endpoint of either role."""

    role: ClassVar[bool]

    def __init__(self, session: "Session", name: str, handle: int, state: LinkState) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.remote_handle: int | None = None
        self.state = state
        self.local: Attach | None = None
        """The attach that we sent."""
        self.remote: Attach | None = None
        """The attach that the peer sent."""
        self.remote_max_message_size: int | None = None
        """The largest message that the peer accepts, or None if it sets no limit."""
        self.refused = False
        """True if the peer's attach had no terminus: a detach with the error follows."""
        self.credit = 0
        self.delivery_count = 0
        self.drain = False
        self.available = 0
        self.properties: dict[Any, Any] | None = None
        """The properties of the peer's last flow."""
        self.context: Any = None
        """Free for use by the application."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.state.name.lower()})"

    @property
    def alive(self) -> bool:
        """True if both sides have attached, and neither has detached or refused the link."""
        return self.state is LinkState.ATTACHED and not self.refused

    def accept(
        self,
        *,
        source: Source | None = None,
        target: Target | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        initial_delivery_count: int = 0,
        max_message_size: int | None = None,
        properties: dict[Any, Any] | None = None,
        offered_capabilities: tuple[Any, ...] = (),
    ) -> None:
        """Answer the peer's attach with ours. Fields that are None are as the peer requested.

        Raises EncodeError if the attach does not fit into the peer's frames. The link can then
        still be refused.
        """
        requested = self.remote
        if self.state is not LinkState.ATTACH_RECEIVED or requested is None:
            return
        self._answer(
            Attach(
                self.name,
                self.handle,
                self.role,
                requested.snd_settle_mode if snd_settle_mode is None else snd_settle_mode,
                requested.rcv_settle_mode if rcv_settle_mode is None else rcv_settle_mode,
                requested.source if source is None else source,
                requested.target if target is None else target,
                initial_delivery_count=initial_delivery_count if self.role == SENDER else None,
                max_message_size=max_message_size,
                properties=properties,
                offered_capabilities=offered_capabilities,
            )
        )

    def refuse(self, error: AmqpError) -> None:
        """Answer the peer's attach with a null terminus, then detach with the error.

        Part 2, 2.6.3 requires this order, and the Azure SDK fails the connection without it.
        """
        requested = self.remote
        if self.state is not LinkState.ATTACH_RECEIVED or requested is None:
            return
        sender = self.role == SENDER
        try:
            self._answer(
                Attach(
                    self.name,
                    self.handle,
                    self.role,
                    requested.snd_settle_mode,
                    requested.rcv_settle_mode,
                    source=None if sender else requested.source,
                    target=requested.target if sender else None,
                    initial_delivery_count=0 if sender else None,
                )
            )
        except EncodeError as exc:
            self.session.end(ProtocolError(str(exc), condition=conditions.FRAME_SIZE_TOO_SMALL))
            return
        self.detach(error)

    def _answer(self, attach: Attach) -> None:
        self.session.write(attach)
        self.state = LinkState.ATTACHED
        self.on_attach_sent(attach)

    def on_attach_sent(self, attach: Attach) -> None:
        """Record the attach that we sent."""
        self.local = attach

    def on_attach_received(self, attach: Attach) -> None:
        """Record the attach that the peer sent."""
        self.remote = attach
        self.remote_max_message_size = attach.max_message_size or None  # 0 means no limit, too.

    def detach(self, error: AmqpError | None = None, *, closed: bool = True) -> None:
        """Detach the link. A Detached event reports the peer's answer."""
        if self.state not in (LinkState.ATTACHED, LinkState.ATTACH_SENT):
            return
        self.session.outgoing.drop_queued(self)
        self.session.incoming.drop_partial(self)
        self.session.write_last(
            Detach(self.handle, closed, None if error is None else Error.of(error))
        )
        self.state = LinkState.DETACH_SENT
        self.credit = 0

    def write_flow(self, *, echo: bool = False, properties: dict[Any, Any] | None = None) -> None:
        """Send the flow state of this endpoint to the peer."""
        if self.state not in (LinkState.ATTACHED, LinkState.ATTACH_SENT):
            return
        has_delivery_count = self.role == SENDER or self.remote is not None
        self._send_flow(
            {
                "handle": self.handle,
                "delivery_count": self.delivery_count if has_delivery_count else None,
                "link_credit": self.credit,
                "available": self.available if self.role == SENDER else None,
                "drain": self.drain,
                "echo": echo,
                "properties": properties,
            }
        )

    def _send_flow(self, fields: dict[str, Any]) -> None:
        self.session.write(self.session.flow(**fields))

    def on_flow(self, flow: Flow) -> None:
        """Update the flow state from the peer's flow."""
        self.properties = flow.properties

    def mark_ended(self) -> None:
        """Record that the link ended."""
        self.state = LinkState.DETACHED
        self.credit = 0


class SenderLink(Link):
    """An endpoint that sends. `credit` is the number of deliveries that the peer accepts."""

    role = SENDER

    def __init__(self, session: "Session", name: str, handle: int, state: LinkState) -> None:
        super().__init__(session, name, handle, state)
        self.settle_mode = SETTLE_MIXED
        self._initial_count = 0
        self.handle_bytes = encode_uint(handle)
        self._unfinished: tuple[OutgoingDelivery, int] | None = None
        """The delivery whose last frame was not sent, and its size so far."""

    def on_attach_sent(self, attach: Attach) -> None:
        super().on_attach_sent(attach)
        self.settle_mode = attach.snd_settle_mode
        if attach.initial_delivery_count is not None:
            self.delivery_count = self._initial_count = attach.initial_delivery_count

    def on_flow(self, flow: Flow) -> None:
        if flow.link_credit is not None:
            # A receiver without a delivery count has not received our attach.
            received = self._initial_count if flow.delivery_count is None else flow.delivery_count
            in_transit = (self.delivery_count - received) & SERIAL_MASK
            self.credit = max(flow.link_credit - in_transit, 0)
        self.drain = flow.drain
        super().on_flow(flow)

    def send(
        self,
        payload: bytes,
        *,
        tag: bytes | None = None,
        message_format: int = 0,
        settled: bool | None = None,
        more: bool = False,
    ) -> OutgoingDelivery:
        """Send a delivery, or a part of one if `more` is set.

        It is split into frames of the size that the peer accepts, which are written as soon as the
        window of the session permits. Raises StateError if there is no credit, and EncodeError if
        the tag or the message is too large.
        """
        if self._unfinished is not None:
            return self._continue(*self._unfinished, payload, more)
        if self.credit <= 0 or self.state is not LinkState.ATTACHED:
            raise StateError(f"{self} has no credit")
        if settled is None:
            settled = self.settle_mode == SETTLE_SETTLED
        elif self.settle_mode != SETTLE_MIXED and settled != (self.settle_mode == SETTLE_SETTLED):
            raise StateError(
                f"{self} has sender settle mode {self.settle_mode}, which forbids settled={settled}"
            )
        limit = self.remote_max_message_size
        if limit is not None and len(payload) > limit:
            raise EncodeError(f"a message of {len(payload)} bytes exceeds the limit of {limit}")
        # The tag of a settled delivery identifies nothing, and may be empty.
        if tag is not None and not (0 if settled else 1) <= len(tag) <= MAX_TAG_SIZE:
            raise EncodeError(f"a delivery tag must have 1 to {MAX_TAG_SIZE} bytes, not {len(tag)}")
        if message_format and not 0 < message_format <= SERIAL_MASK:
            raise EncodeError(f"a message format must be 0 to 4294967295, not {message_format}")
        delivery = OutgoingDelivery(self, tag, settled)
        self.delivery_count = (self.delivery_count + 1) & SERIAL_MASK
        self.credit -= 1
        session = self.session
        max_payload = self._max_payload
        if len(payload) <= max_payload:
            session.outgoing.write_first(delivery, message_format, more, payload)
            if more:
                self._unfinished = delivery, len(payload)
        else:
            session.outgoing.write_first(delivery, message_format, True, payload[:max_payload])
            self._continue(delivery, max_payload, payload[max_payload:], more)
        return delivery

    def send_all(self, payloads: Sequence[bytes], tags: Sequence[bytes]) -> None:
        """Send unsettled deliveries with these tags. Raises as `send` does."""
        session, count = self.session, len(payloads)
        if (
            0 < count <= self.credit
            and count <= session.outgoing.window
            and not session.outgoing.queued
            and self._unfinished is None
            and self.state is LinkState.ATTACHED
            and self.settle_mode != SETTLE_SETTLED
            and self.remote_max_message_size is None
            and len(max(payloads, key=len)) <= self._max_payload
            and len({len(tag) for tag in tags}) == 1
            and 0 < len(tags[0]) <= MAX_TAG_SIZE
        ):
            self.delivery_count = (self.delivery_count + count) & SERIAL_MASK
            self.credit -= count
            session.outgoing.write_all(self, payloads, tags)
            return
        for payload, tag in zip(payloads, tags, strict=True):
            self.send(payload, tag=tag, settled=False)

    @property
    def _max_payload(self) -> int:
        """The size of the largest payload that surely fits into a frame."""
        return self.session.connection.remote_max_frame_size - _TRANSFER_OVERHEAD

    def _continue(
        self, delivery: OutgoingDelivery, size: int, payload: bytes, more: bool
    ) -> OutgoingDelivery:
        if self.state is not LinkState.ATTACHED:
            raise StateError(f"{self} is not attached")
        session = self.session
        size += len(payload)
        limit = self.remote_max_message_size
        if limit is not None and size > limit:
            raise EncodeError(
                f"a message of {size} bytes exceeds the limit of {limit}. Abort the delivery."
            )
        max_payload = self._max_payload
        for start in range(0, max(len(payload), 1), max_payload):
            end = start + max_payload
            last = end >= len(payload) and not more
            performative = encode_next_transfer(self.handle_bytes, delivery.settled, not last)
            session.outgoing.write_next(delivery, performative, payload[start:end])
        self._unfinished = (delivery, size) if more else None
        return delivery

    def abort(self) -> None:
        """Abort the delivery whose last frame was not sent."""
        if self._unfinished is None or self.state is not LinkState.ATTACHED:
            return
        self.session.outgoing.abort(self._unfinished[0])
        self._unfinished = None

    def drained(self) -> None:
        """Answer a drain: there is nothing to send, and all credit is given back."""
        if not self.drain:
            return
        self.delivery_count = (self.delivery_count + self.credit) & SERIAL_MASK
        self.credit = 0
        self.write_flow()
        self.drain = False

    def _send_flow(self, fields: dict[str, Any]) -> None:
        self.session.outgoing.write_flow(self, fields)


class ReceiverLink(Link):
    """An endpoint that receives. `credit` is the number of deliveries that the peer may send."""

    role = RECEIVER

    def __init__(self, session: "Session", name: str, handle: int, state: LinkState) -> None:
        super().__init__(session, name, handle, state)
        self.max_message_size = _UNLIMITED
        """The largest message that we accept."""
        self.presettled = False
        """True if the sender settles all deliveries when it sends them."""
        self.revoked_credit = 0
        """Credit that we revoked, but that the peer may have used before it received our flow."""

    @property
    def drained(self) -> bool:
        """True if nothing more can arrive: no credit is left, and no delivery is incomplete. The
        first frame of a delivery uses its credit."""
        return self.credit == 0 and not self.session.incoming.is_partial(self)

    def on_attach_sent(self, attach: Attach) -> None:
        super().on_attach_sent(attach)
        if attach.max_message_size:  # 0 and null mean no limit.
            self.max_message_size = attach.max_message_size

    def on_attach_received(self, attach: Attach) -> None:
        super().on_attach_received(attach)
        self.presettled = attach.snd_settle_mode == SETTLE_SETTLED
        if attach.initial_delivery_count is not None:
            self.delivery_count = attach.initial_delivery_count

    def on_flow(self, flow: Flow) -> None:
        if flow.delivery_count is not None:
            # The sender's count is ahead of ours if it gave credit back to answer a drain.
            returned = serial_distance(flow.delivery_count, self.delivery_count)
            if 0 < returned <= self.credit + self.revoked_credit:
                self.revoked_credit -= max(returned - self.credit, 0)
                self.credit = max(self.credit - returned, 0)
                self.delivery_count = flow.delivery_count
        if flow.available is not None:
            self.available = flow.available
        if self.credit == 0:
            self.drain = False
        super().on_flow(flow)

    def flow(
        self,
        credit: int,
        *,
        drain: bool = False,
        echo: bool = False,
        properties: dict[Any, Any] | None = None,
    ) -> None:
        """Set the credit: the number of deliveries that the peer may send from now on.

        With `drain` the peer uses the credit at once or gives it back. A FlowReceived event
        reports that the credit is 0. Less credit than before revokes the difference, but
        deliveries that are in transit still arrive.
        """
        if self.state not in (LinkState.ATTACHED, LinkState.ATTACH_SENT):
            return
        self.revoked_credit = max(self.credit + self.revoked_credit - credit, 0)
        self.credit = credit
        self.drain = drain
        self.write_flow(echo=echo, properties=properties)
