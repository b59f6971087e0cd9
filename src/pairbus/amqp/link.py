"""Links: one end of a way for messages in one direction.

Calls on a link that has ended do nothing, so that a program may work through a list of events
without asking before each step whether a later one has ended the link. `send` alone raises: it
would lose a message.
"""

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

_HEAD_ROOM = 96
"""More than the header of a frame and the performative of a transfer ever take."""

_ALL = 1 << 64


class LinkState(Enum):
    ATTACH_SENT = "we sent an attach, the peer has not answered"
    ATTACH_RECEIVED = "the peer sent an attach, we have not answered"
    ATTACHED = "both sides have attached"
    DETACH_SENT = "we sent a detach, the peer has not answered"
    DETACHED = "ended"


class Link:
    """What both ends have in common."""

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
        """What the peer takes at most; None: it sets no limit."""
        self.refused = False
        """The peer's attach had no terminus: a detach that says why is on its way."""
        self.credit = 0
        self.delivery_count = 0
        self.drain = False
        self.available = 0
        self.properties: dict[Any, Any] | None = None
        """Properties of the peer's last flow."""
        self.context: Any = None
        """Free for the program that uses the engine."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.state.name.lower()})"

    @property
    def alive(self) -> bool:
        """Attached, and not on its way out."""
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
        """Answer the peer's attach with ours. What is not given is as the peer asked.

        Raises EncodeError where that does not fit the peer's frames; the link can still be refused.
        """
        asked = self.remote
        if self.state is not LinkState.ATTACH_RECEIVED or asked is None:
            return
        self._answer(
            Attach(
                self.name,
                self.handle,
                self.role,
                asked.snd_settle_mode if snd_settle_mode is None else snd_settle_mode,
                asked.rcv_settle_mode if rcv_settle_mode is None else rcv_settle_mode,
                asked.source if source is None else source,
                asked.target if target is None else target,
                initial_delivery_count=initial_delivery_count if self.role == SENDER else None,
                max_message_size=max_message_size,
                properties=properties,
                offered_capabilities=offered_capabilities,
            )
        )

    def refuse(self, error: AmqpError) -> None:
        """Answer the peer's attach with a null terminus, then detach with the error (part 2,
        2.6.3).

        The order matters: the Azure SDK takes anything else for a broken connection.
        """
        asked = self.remote
        if self.state is not LinkState.ATTACH_RECEIVED or asked is None:
            return
        sender = self.role == SENDER
        try:
            self._answer(
                Attach(
                    self.name,
                    self.handle,
                    self.role,
                    asked.snd_settle_mode,
                    asked.rcv_settle_mode,
                    source=None if sender else asked.source,
                    target=asked.target if sender else None,
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
        """Our attach is sent."""
        self.local = attach

    def on_attach_received(self, attach: Attach) -> None:
        """The peer's attach is here."""
        self.remote = attach
        self.remote_max_message_size = attach.max_message_size or None  # 0 is no limit too

    def detach(self, error: AmqpError | None = None, *, closed: bool = True) -> None:
        """End the link. The peer's answer comes as a Detached event."""
        if self.state not in (LinkState.ATTACHED, LinkState.ATTACH_SENT):
            return
        self.session.outgoing.drop_waiting(self)
        self.session.incoming.drop_partial(self)
        self.session.write_last(
            Detach(self.handle, closed, None if error is None else Error.of(error))
        )
        self.state = LinkState.DETACH_SENT
        self.credit = 0

    def write_flow(self, *, echo: bool = False, properties: dict[Any, Any] | None = None) -> None:
        """Tell the peer how this end stands."""
        if self.state not in (LinkState.ATTACHED, LinkState.ATTACH_SENT):
            return
        known = self.role == SENDER or self.remote is not None
        self._send_flow(
            {
                "handle": self.handle,
                "delivery_count": self.delivery_count if known else None,
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
        """The peer's flow is here."""
        self.properties = flow.properties

    def mark_ended(self) -> None:
        """It is over, for whatever reason."""
        self.state = LinkState.DETACHED
        self.credit = 0


class SenderLink(Link):
    """Our end sends. `credit` says how many deliveries the peer takes now."""

    role = SENDER

    def __init__(self, session: "Session", name: str, handle: int, state: LinkState) -> None:
        super().__init__(session, name, handle, state)
        self.settle_mode = SETTLE_MIXED
        self._initial_count = 0
        self.handle_bytes = encode_uint(handle)
        self._unfinished: tuple[OutgoingDelivery, int] | None = None
        """A delivery whose last frame is still to come, and its size so far."""

    def on_attach_sent(self, attach: Attach) -> None:
        super().on_attach_sent(attach)
        self.settle_mode = attach.snd_settle_mode
        if attach.initial_delivery_count is not None:
            self.delivery_count = self._initial_count = attach.initial_delivery_count

    def on_flow(self, flow: Flow) -> None:
        if flow.link_credit is not None:
            # A receiver that has not seen our attach yet counts from where it starts.
            seen = self._initial_count if flow.delivery_count is None else flow.delivery_count
            under_way = (self.delivery_count - seen) & SERIAL_MASK
            self.credit = max(flow.link_credit - under_way, 0)
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
        """Send a delivery, or a part of one where `more` is set.

        It goes out in as many frames as the peer's frame size asks for, as soon as the session's
        window allows. Raises StateError without credit, EncodeError for a tag or size out of
        bounds.
        """
        if self._unfinished is not None:
            return self._continue(*self._unfinished, payload, more)
        if self.credit <= 0 or self.state is not LinkState.ATTACHED:
            raise StateError(f"{self} has no credit")
        if settled is None:
            settled = self.settle_mode == SETTLE_SETTLED
        elif self.settle_mode != SETTLE_MIXED and settled != (self.settle_mode == SETTLE_SETTLED):
            raise StateError(f"{self} has settle mode {self.settle_mode}, not settled={settled}")
        limit = self.remote_max_message_size
        if limit is not None and len(payload) > limit:
            raise EncodeError(f"{len(payload)} bytes exceed the link's limit of {limit}")
        if tag is not None and not 0 < len(tag) <= MAX_TAG_SIZE:
            raise EncodeError(f"a delivery tag has 1 to {MAX_TAG_SIZE} bytes, not {len(tag)}")
        if message_format and not 0 < message_format <= SERIAL_MASK:
            raise EncodeError(f"a message format is 0 to 4294967295, not {message_format}")
        sent = OutgoingDelivery(self, tag, settled)
        self.delivery_count = (self.delivery_count + 1) & SERIAL_MASK
        self.credit -= 1
        session = self.session
        room = session.connection.remote_max_frame_size - _HEAD_ROOM
        if len(payload) <= room:
            session.outgoing.write_first(sent, message_format, more, payload)
            if more:
                self._unfinished = sent, len(payload)
        else:
            session.outgoing.write_first(sent, message_format, True, payload[:room])
            self._continue(sent, room, payload[room:], more)
        return sent

    def _continue(
        self, sent: OutgoingDelivery, size: int, payload: bytes, more: bool
    ) -> OutgoingDelivery:
        if self.state is not LinkState.ATTACHED:
            raise StateError(f"{self} cannot send")
        session = self.session
        size += len(payload)
        limit = self.remote_max_message_size
        if limit is not None and size > limit:
            raise EncodeError(
                f"{size} bytes exceed the link's limit of {limit}; abort the delivery"
            )
        room = session.connection.remote_max_frame_size - _HEAD_ROOM
        for start in range(0, max(len(payload), 1), room):
            last = start + room >= len(payload) and not more
            head = encode_next_transfer(self.handle_bytes, sent.settled, not last)
            session.outgoing.write_next(sent, head, payload[start : start + room])
        self._unfinished = (sent, size) if more else None
        return sent

    def abort(self) -> None:
        """Take back the delivery whose last frame is still to come."""
        if self._unfinished is None or self.state is not LinkState.ATTACHED:
            return
        self.session.outgoing.abort(self._unfinished[0])
        self._unfinished = None

    def drained(self) -> None:
        """Answer a drain: there is nothing more to send, and the credit is used up."""
        if not self.drain:
            return
        self.delivery_count = (self.delivery_count + self.credit) & SERIAL_MASK
        self.credit = 0
        self.write_flow()
        self.drain = False

    def _send_flow(self, fields: dict[str, Any]) -> None:
        self.session.outgoing.write_flow(self, fields)


class ReceiverLink(Link):
    """Our end receives. `credit` says how many deliveries the peer may still send."""

    role = RECEIVER

    def __init__(self, session: "Session", name: str, handle: int, state: LinkState) -> None:
        super().__init__(session, name, handle, state)
        self.max_message_size = _ALL
        """What we take at most."""
        self.presettled = False
        """Whether the sender settles everything as it sends."""
        self.revoked_credit = 0
        """Credit that was taken back, but which the peer may have used before it knew."""

    def on_attach_sent(self, attach: Attach) -> None:
        super().on_attach_sent(attach)
        if attach.max_message_size:  # 0 and null: no limit
            self.max_message_size = attach.max_message_size

    def on_attach_received(self, attach: Attach) -> None:
        super().on_attach_received(attach)
        self.presettled = attach.snd_settle_mode == SETTLE_SETTLED
        if attach.initial_delivery_count is not None:
            self.delivery_count = attach.initial_delivery_count

    def on_flow(self, flow: Flow) -> None:
        if flow.delivery_count is not None:
            # The sender's count is ahead of ours where it has given up credit to a drain.
            given_up = serial_distance(flow.delivery_count, self.delivery_count)
            if 0 < given_up <= self.credit + self.revoked_credit:
                self.revoked_credit -= max(given_up - self.credit, 0)
                self.credit = max(self.credit - given_up, 0)
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
        """Let the peer send this many more deliveries. With `drain` it uses the credit at once or
        gives it up: a Flowed event with no credit left says that it has. Less credit than before
        takes the rest back, but deliveries that were under way by then still arrive."""
        if self.state not in (LinkState.ATTACHED, LinkState.ATTACH_SENT):
            return
        self.revoked_credit = max(self.credit + self.revoked_credit - credit, 0)
        self.credit = credit
        self.drain = drain
        self.write_flow(echo=echo, properties=properties)
