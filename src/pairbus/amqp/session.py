"""Sessions: they map names and handles to links, and consist of a receiving and a sending half."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from pairbus.amqp.events import (
    Attached,
    AttachReceived,
    Begun,
    Detached,
    Ended,
    Event,
    FlowReceived,
    IncomingDeliveriesUpdated,
    OutgoingDeliveriesUpdated,
)
from pairbus.amqp.incoming import IncomingTransfers
from pairbus.amqp.link import Link, LinkState, ReceiverLink, SenderLink
from pairbus.amqp.outgoing import OutgoingTransfers
from pairbus.amqp.performatives import (
    RECEIVER,
    SENDER,
    SETTLE_MIXED,
    SETTLE_SECOND,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Source,
    Target,
)
from pairbus.amqp.serial import SERIAL_MASK
from pairbus.amqp.violations import LinkError, SessionError
from pairbus.errors import AmqpError, EncodeError, ProtocolError, StateError
from pairbus.servicebus import conditions

if TYPE_CHECKING:
    from pairbus.amqp.connection import Connection


class AttachOptions(TypedDict, total=False):
    """Optional fields of the attach of a link."""

    snd_settle_mode: int
    rcv_settle_mode: int
    max_message_size: int | None
    properties: dict[Any, Any] | None
    desired_capabilities: tuple[Any, ...]


class Session:
    """A session, created by `Connection.begin` or when the peer begins one."""

    def __init__(self, connection: "Connection", channel: int) -> None:
        self.connection = connection
        self.channel = channel
        self.remote_channel: int | None = None
        self.begun = False
        """True once the peer has sent its begin."""
        self.ended = False
        """True once we have sent an end: all frames that still arrive are dropped."""
        self.context: Any = None
        """Free for use by the application."""
        self._by_handle: dict[int, Link] = {}
        self._by_remote_handle: dict[int, Link] = {}
        self._by_name: dict[tuple[str, bool], Link] = {}
        self._handle_max = 0xFF
        self.incoming = IncomingTransfers(
            self, self._by_remote_handle, connection.settings.incoming_window
        )
        self.outgoing = OutgoingTransfers(self)

    def __repr__(self) -> str:
        return f"Session(channel={self.channel}, {len(self._by_handle)} links)"

    @property
    def links(self) -> list[Link]:
        return list(self._by_handle.values())

    def attach_sender(
        self,
        name: str,
        *,
        target: Target,
        source: Source | None = None,
        **options: Unpack[AttachOptions],
    ) -> SenderLink:
        """Attach a link to send on. An Attached or Detached event reports the peer's answer."""
        link = SenderLink(self, name, self._handle_for(name, SENDER), LinkState.ATTACH_SENT)
        self._send_attach(
            link,
            Attach(
                name,
                link.handle,
                SENDER,
                source=Source() if source is None else source,
                target=target,
                initial_delivery_count=0,
                **options,
            ),
        )
        return link

    def attach_receiver(
        self,
        name: str,
        *,
        source: Source,
        target: Target | None = None,
        **options: Unpack[AttachOptions],
    ) -> ReceiverLink:
        """Attach a link to receive on. An Attached or Detached event reports the peer's answer."""
        link = ReceiverLink(self, name, self._handle_for(name, RECEIVER), LinkState.ATTACH_SENT)
        target = Target() if target is None else target
        self._send_attach(
            link,
            Attach(name, link.handle, RECEIVER, source=source, target=target, **options),
        )
        return link

    def settle(self, first: int, last: int, state: Any, *, settled: bool = True) -> None:
        """Send the state of the deliveries that we received with the ids `first` to `last`."""
        if not self.ended:
            if settled:
                self.incoming.settle(first, last)
            self._dispose(RECEIVER, first, last, state, settled)

    def confirm(self, first: int, last: int, state: Any) -> None:
        """Settle deliveries that we sent to a receiver that waits for it (settle mode second)."""
        if not self.ended:
            self.outgoing.updated(first, last, settled=True)
            self._dispose(SENDER, first, last, state, True)

    def end(self, error: AmqpError | None = None) -> None:
        """End the session and its links. An Ended event reports the peer's answer."""
        if self.ended:
            return
        self.write_last(End(None if error is None else Error.of(error)))
        self.mark_ended()

    # The following methods are internal to the engine.

    def write(self, performative: Any) -> None:
        self.connection.write(self.channel, performative)

    def write_last(self, performative: Detach | End) -> None:
        """Write a detach or end, without the error's description if it does not fit a frame."""
        try:
            self.write(performative)
        except EncodeError:
            if performative.error is None:
                raise
            self.write(replace(performative, error=performative.error.without_description()))

    def flow(self, **link_fields: Any) -> Flow:
        """Return a flow performative with the windows of the session."""
        return Flow(
            self.incoming.next_id if self.begun else None,
            self.incoming.window,
            self.outgoing.next_id,
            self.connection.settings.outgoing_window,
            **link_fields,
        )

    def mark_ended(self) -> None:
        """Record that the session and its links ended."""
        self.ended = True
        for link in {*self._by_handle.values(), *self._by_remote_handle.values()}:
            link.mark_ended()
        self.incoming.forget_all()
        self.outgoing.queued.clear()

    def fail(self, error: AmqpError, events: list[Event]) -> None:
        """End the session because the peer violated the protocol."""
        self.end(error)
        events.append(Ended(self, error, by_peer=False))

    def fail_link(self, violation: LinkError, events: list[Event]) -> None:
        """Detach a link because the peer violated the protocol."""
        violation.link.detach(violation)
        events.append(Detached(violation.link, violation, closed=True, by_peer=False))

    def begin(self, remote_channel: int | None = None) -> None:
        """Write our begin."""
        settings = self.connection.settings
        self.write(
            Begin(
                remote_channel,
                self.outgoing.next_id,
                settings.incoming_window,
                settings.outgoing_window,
                settings.handle_max,
            )
        )

    def on_begin(self, begin: Begin, remote_channel: int, events: list[Event]) -> None:
        self.begun = True
        self.remote_channel = remote_channel
        self._handle_max = begin.handle_max
        self.incoming.next_id = begin.next_outgoing_id
        self.outgoing.window = begin.incoming_window
        if not self.ended:
            events.append(Begun(self))

    def on_performative(self, performative: Any, events: list[Event]) -> None:
        """Process any frame of this session except a transfer."""
        if isinstance(performative, End):
            if not self.ended:
                self.write(End())
                self.mark_ended()
            self.connection.forget(self)
            events.append(Ended(self, exception_from(performative.error)))
        elif self.ended:
            pass
        elif isinstance(performative, Disposition):
            self._on_disposition(performative, events)
        elif isinstance(performative, Flow):
            self._on_flow(performative, events)
        elif isinstance(performative, Attach):
            self._on_attach(performative, events)
        elif isinstance(performative, Detach):
            self._on_detach(performative, events)
        else:
            raise ProtocolError(f"{type(performative).__name__} is not valid on a session")

    def _handle_for(self, name: str, role: bool) -> int:
        if self.ended:
            raise StateError(f"{self} has ended")
        if (name, role) in self._by_name:
            raise StateError(f"a link named {name!r} is already attached")
        handle = self._free_handle()
        if handle is None:
            raise StateError(f"all {self._handle_max + 1} links that the peer allows are in use")
        return handle

    def _free_handle(self) -> int | None:
        handle = len(self._by_handle)
        if handle in self._by_handle:
            handle = next(n for n in range(handle + 1) if n not in self._by_handle)
        return handle if handle <= self._handle_max else None

    def _send_attach(self, link: Link, attach: Attach) -> None:
        self.write(attach)
        link.on_attach_sent(attach)
        self.connection.link_count += 1
        self._by_handle[link.handle] = link
        self._by_name[link.name, link.role] = link

    def _dispose(self, role: bool, first: int, last: int, state: Any, settled: bool) -> None:
        self.write(Disposition(role, first, None if last == first else last, settled, state))

    def _on_attach(self, attach: Attach, events: list[Event]) -> None:
        if attach.handle > self.connection.settings.handle_max:
            raise ProtocolError(
                f"handle {attach.handle} exceeds the maximum",
                condition=conditions.FRAMING_ERROR,
            )
        if attach.handle in self._by_remote_handle:
            raise SessionError(conditions.HANDLE_IN_USE, f"handle {attach.handle} is in use")
        if isinstance(attach.source, Target) or isinstance(attach.target, Source):
            raise SessionError(
                conditions.INVALID_FIELD, "source and target of an attach are swapped"
            )
        if attach.snd_settle_mode > SETTLE_MIXED or attach.rcv_settle_mode > SETTLE_SECOND:
            raise SessionError(conditions.INVALID_FIELD, "an attach has an unknown settle mode")
        if attach.role == SENDER and attach.initial_delivery_count is None:
            raise SessionError(
                conditions.INVALID_FIELD, "the attach of a sender has no initial delivery count"
            )
        role = not attach.role
        link = self._by_name.get((attach.name, role))
        if link is None:
            self._on_new_link(attach, role, events)
            return
        if link.remote is not None:
            raise SessionError(conditions.ERRANT_LINK, f"{attach.name!r} is already attached")
        link.remote_handle = attach.handle
        self._by_remote_handle[attach.handle] = link
        link.on_attach_received(attach)
        if link.state is not LinkState.ATTACH_SENT:
            return  # We sent a detach in the meantime. The peer's detach follows.
        link.state = LinkState.ATTACHED
        link.refused = (attach.target if role == SENDER else attach.source) is None
        if not link.refused:
            events.append(Attached(link))

    def _on_new_link(self, attach: Attach, role: bool, events: list[Event]) -> None:
        handle = self._free_handle()
        connection = self.connection
        if handle is None or connection.link_count >= connection.settings.max_links:
            owner = "session" if handle is None else "connection"
            raise SessionError(
                conditions.RESOURCE_LIMIT_EXCEEDED, f"the {owner} has too many links"
            )
        kind = SenderLink if role == SENDER else ReceiverLink
        link = kind(self, attach.name, handle, LinkState.ATTACH_RECEIVED)
        link.remote_handle = attach.handle
        link.on_attach_received(attach)
        connection.link_count += 1
        self._by_handle[handle] = link
        self._by_remote_handle[attach.handle] = link
        self._by_name[attach.name, role] = link
        events.append(AttachReceived(link))

    def _link(self, handle: int) -> Link:
        link = self._by_remote_handle.get(handle)
        if link is None:
            raise SessionError(conditions.UNATTACHED_HANDLE, f"no link has handle {handle}")
        return link

    def _on_detach(self, detach: Detach, events: list[Event]) -> None:
        link = self._link(detach.handle)
        if link.state is LinkState.ATTACH_RECEIVED:
            link.refuse(ProtocolError("the link was detached before its attach was answered"))
        elif link.state is LinkState.ATTACHED:
            self.write(Detach(link.handle, detach.closed))
        self.connection.link_count -= 1
        del self._by_handle[link.handle]
        del self._by_remote_handle[detach.handle]
        del self._by_name[link.name, link.role]
        link.mark_ended()
        if isinstance(link, ReceiverLink):
            self.incoming.forget(link)
        else:
            self.outgoing.forget(link)
        events.append(Detached(link, exception_from(detach.error), detach.closed))

    def _on_flow(self, flow: Flow, events: list[Event]) -> None:
        link = None if flow.handle is None else self._link(flow.handle)
        self.outgoing.on_flow(flow)
        if link is not None:
            if link.state in (LinkState.DETACH_SENT, LinkState.DETACHED):
                return
            link.on_flow(flow)
        if flow.echo:
            if link is None or link.state is LinkState.ATTACH_RECEIVED:
                self.write(self.flow())
            else:
                link.write_flow()
        events.append(FlowReceived(self, link))

    def _on_disposition(self, disposition: Disposition, events: list[Event]) -> None:
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        if (last - first) & SERIAL_MASK > SERIAL_MASK >> 1:
            raise SessionError(
                conditions.INVALID_FIELD, f"a disposition has the invalid range {first} to {last}"
            )
        state, settled = disposition.state, disposition.settled
        if disposition.role == RECEIVER:
            sent = self.outgoing.updated(first, last, settled)
            if sent:
                events.append(OutgoingDeliveriesUpdated(self, sent, state, settled))
        else:
            received = self.incoming.updated(first, last, settled)
            if received:
                events.append(IncomingDeliveriesUpdated(self, received, state, settled))


def exception_from(error: Error | None) -> AmqpError | None:
    """Return the error field of a detach, end or close as an exception."""
    if error is None:
        return None
    return AmqpError(error.description or "", condition=error.condition, info=error.info)
