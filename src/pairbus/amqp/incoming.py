"""The receiving half of a session: its window, its unsettled deliveries, and their frames."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pairbus.amqp.events import Delivery, DeliveryAborted, Event
from pairbus.amqp.frames import DEFAULT_FLAGS, TransferFlags, decode_transfer
from pairbus.amqp.link import Link, LinkState, ReceiverLink
from pairbus.amqp.serial import SERIAL_MASK, numbers_in_range
from pairbus.amqp.violations import LinkError, SessionError
from pairbus.errors import ProtocolError
from pairbus.servicebus import conditions

if TYPE_CHECKING:
    from pairbus.amqp.session import Session


@dataclass(slots=True, eq=False)
class PartialDelivery:
    """A delivery whose last frame has not arrived."""

    id: int
    tag: bytes
    message_format: int
    flags: TransferFlags
    # Not a list of payloads: a peer could send them so small that the list outweighs them.
    data: bytearray = field(default_factory=bytearray)


class IncomingTransfers:
    """The receiving half of a session.

    Delivery ids should count up from frame to frame. As in the service this is not checked, because
    the Azure SDK takes an id and writes its frame without a lock: several threads that send at once
    write ids out of order, or one id for two deliveries.
    """

    def __init__(self, session: "Session", links: dict[int, Link], window: int) -> None:
        self.next_id = 0
        """The transfer id of the peer's next frame."""
        self.window = window
        """The number of frames that the peer may still send."""
        self.unsettled: dict[int, Delivery] = {}
        self._session = session
        self._links = links
        self._full_window = window
        self._low_window = window >> 1
        self._partials: dict[Link, PartialDelivery] = {}

    def on_transfer(self, data: bytes, pos: int, end: int, events: list[Event]) -> None:
        """Process a transfer frame. The list of the performative starts at `pos`."""
        handle, delivery_id, tag, message_format, flags, start = decode_transfer(data, pos, end)
        self.next_id = (self.next_id + 1) & SERIAL_MASK
        window = self.window = self.window - 1
        if window <= self._low_window:
            self._refill(window)
        link = self._links.get(handle)
        if flags is not DEFAULT_FLAGS or self._partials or type(link) is not ReceiverLink:
            self._on_any_transfer(
                link, handle, delivery_id, tag, message_format, flags, data[start:end], events
            )
            return
        # Fast path for nearly all transfers: an unsettled delivery in one frame.
        if link.state is not LinkState.ATTACHED:
            return  # The peer sent it before it received our detach.
        if delivery_id is None or tag is None:
            raise _no_id_or_tag()
        if link.credit <= 0:
            _use_revoked_credit(link)
        if end - start > link.max_message_size:
            raise _too_large(link)
        link.delivery_count = (link.delivery_count + 1) & SERIAL_MASK
        link.credit -= 1
        payload = data[start:end]
        presettled = link.presettled
        delivery = Delivery(link, delivery_id, tag, payload, message_format, presettled)
        if not presettled:
            self.unsettled[delivery_id] = delivery
        events.append(delivery)

    def settle(self, first: int, last: int) -> None:
        """Stop tracking a range of deliveries, which our side settled."""
        for delivery_id in numbers_in_range(self.unsettled, first, last):
            del self.unsettled[delivery_id]

    def updated(self, first: int, last: int, settled: bool) -> list[Delivery]:
        """Return the unsettled deliveries of a disposition, and remove them if it settles them."""
        get = self.unsettled.pop if settled else self.unsettled.__getitem__
        return [get(delivery_id) for delivery_id in numbers_in_range(self.unsettled, first, last)]

    def forget(self, link: ReceiverLink) -> None:
        """Drop the partial and unsettled deliveries of a link that ended."""
        self.drop_partial(link)
        if self.unsettled:
            self.unsettled = {
                delivery_id: delivery
                for delivery_id, delivery in self.unsettled.items()
                if delivery.link is not link
            }

    def forget_all(self) -> None:
        """Drop the partial and unsettled deliveries of all links."""
        for link in list(self._partials):
            self.drop_partial(link)
        self.unsettled.clear()

    def is_partial(self, link: Link) -> bool:
        """Return whether a delivery of a link has begun, but is not complete."""
        return link in self._partials

    def drop_partial(self, link: Link) -> None:
        """Drop the partial delivery of a link, if there is one."""
        partial = self._partials.pop(link, None)
        if partial is not None:
            self._session.connection.buffered -= len(partial.data)

    def _refill(self, window: int) -> None:
        if window < 0:
            raise SessionError(
                conditions.WINDOW_VIOLATION, "the peer sent more frames than the window allows"
            )
        self.window = self._full_window
        self._session.write(self._session.flow())

    def _on_any_transfer(
        self,
        link: Link | None,
        handle: int,
        delivery_id: int | None,
        tag: bytes | None,
        message_format: int,
        flags: TransferFlags,
        payload: bytes,
        events: list[Event],
    ) -> None:
        if link is None:
            raise SessionError(conditions.UNATTACHED_HANDLE, f"no link has handle {handle}")
        if not isinstance(link, ReceiverLink):
            raise SessionError(
                conditions.ERRANT_LINK, "a transfer arrived on a link on which we send"
            )
        if link.state is not LinkState.ATTACHED:
            return  # The peer sent it before it received our detach.
        partial = self._partials.get(link)
        if partial is None:
            if flags.aborted:
                raise SessionError(
                    conditions.INVALID_FIELD, "the first frame of a delivery aborts the delivery"
                )
            if delivery_id is None or tag is None:
                raise _no_id_or_tag()
            if flags.resume:
                raise LinkError(
                    link, conditions.NOT_IMPLEMENTED, "resuming a delivery is not supported"
                )
            if link.credit <= 0:
                _use_revoked_credit(link)
            link.delivery_count = (link.delivery_count + 1) & SERIAL_MASK
            link.credit -= 1
            partial = PartialDelivery(delivery_id, tag, message_format, flags)
            if flags.more:
                self._partials[link] = partial
        elif delivery_id is not None and delivery_id != partial.id:
            raise SessionError(
                conditions.INVALID_FIELD,
                f"delivery {delivery_id} started before delivery {partial.id} was complete",
            )
        if flags.aborted:
            self.drop_partial(link)
            events.append(DeliveryAborted(link, partial.id))
            return
        if len(partial.data) + len(payload) > link.max_message_size:
            raise _too_large(link)
        if flags.more:
            self._buffer(partial, payload)
            return
        if partial.data:
            payload = bytes(partial.data) + payload
        self.drop_partial(link)
        settled = partial.flags.settled or flags.settled or link.presettled
        delivery = Delivery(
            link,
            partial.id,
            partial.tag,
            payload,
            partial.message_format,
            settled,
            partial.flags.state if flags.state is None else flags.state,
        )
        if not settled:
            self.unsettled[partial.id] = delivery
        events.append(delivery)

    def _buffer(self, partial: PartialDelivery, payload: bytes) -> None:
        partial.data += payload
        connection = self._session.connection
        connection.buffered += len(payload)
        if connection.buffered > connection.settings.max_buffered:
            raise ProtocolError(
                f"incomplete messages exceed the limit of {connection.settings.max_buffered} bytes",
                condition=conditions.RESOURCE_LIMIT_EXCEEDED,
            )


def _no_id_or_tag() -> SessionError:
    return SessionError(
        conditions.INVALID_FIELD, "the first frame of a delivery has no delivery id or tag"
    )


def _use_revoked_credit(link: ReceiverLink) -> None:
    """Admit a delivery without credit if the peer may have sent it before we reduced the credit."""
    if link.revoked_credit <= 0:
        raise LinkError(
            link, conditions.TRANSFER_LIMIT_EXCEEDED, "the peer sent a delivery without credit"
        )
    link.revoked_credit -= 1
    link.credit += 1


def _too_large(link: ReceiverLink) -> LinkError:
    return LinkError(
        link,
        conditions.MESSAGE_SIZE_EXCEEDED,
        f"a message is larger than the maximum of {link.max_message_size} bytes",
    )
