"""What a session receives: the window it grants, the order of deliveries, their frames put
together."""

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


class PartialDelivery:
    """A delivery of which frames are still to come."""

    __slots__ = ("data", "flags", "id", "message_format", "tag")

    def __init__(self, id: int, tag: bytes, message_format: int, flags: TransferFlags) -> None:
        self.id = id
        self.tag = tag
        self.message_format = message_format
        self.flags = flags
        # Not a list of parts: a peer may make them so small that the list outweighs its content.
        self.data = bytearray()


class IncomingTransfers:
    """The receiving half of a session."""

    def __init__(self, session: "Session", links: dict[int, Link], window: int) -> None:
        self.next_id = 0
        """The transfer id that the peer's next frame has."""
        self.window = window
        """How many more frames the peer may send."""
        self.unsettled: dict[int, Delivery] = {}
        self._session = session
        self._links = links
        self._full_window = window
        self._low_window = window >> 1
        self._expected: int | None = None
        self._partials: dict[Link, PartialDelivery] = {}

    def take(self, data: bytes, pos: int, end: int, events: list[Event]) -> None:
        """Take a transfer frame whose performative's list starts at `pos`."""
        handle, delivery_id, tag, message_format, flags, start = decode_transfer(data, pos, end)
        self.next_id = (self.next_id + 1) & SERIAL_MASK
        window = self.window = self.window - 1
        if window <= self._low_window:
            self._refill(window)
        link = self._links.get(handle)
        if flags is not DEFAULT_FLAGS or self._partials or type(link) is not ReceiverLink:
            self._take_any(
                link, handle, delivery_id, tag, message_format, flags, data[start:end], events
            )
            return
        # One frame, one delivery, not settled: what nearly every transfer is.
        if delivery_id != self._expected or delivery_id is None or tag is None:
            if link.state is not LinkState.ATTACHED:
                self._pass(delivery_id)
                return
            self._check_start(delivery_id, tag)
        # Before what may end the link: deliveries of other links come next, and must find it right.
        self._expected = (delivery_id + 1) & SERIAL_MASK  # type: ignore[operator]
        if link.credit <= 0:
            if link.state is not LinkState.ATTACHED:
                return
            _use_taken_back(link)
        if end - start > link.max_message_size:
            raise _too_large(link)
        link.delivery_count = (link.delivery_count + 1) & SERIAL_MASK
        link.credit -= 1
        payload = data[start:end]
        presettled = link.presettled
        delivery = Delivery(link, delivery_id, tag, payload, message_format, presettled)  # type: ignore[arg-type]
        if not presettled:
            self.unsettled[delivery_id] = delivery  # type: ignore[index]
        events.append(delivery)

    def settle(self, first: int, last: int) -> None:
        for delivery_id in numbers_in_range(self.unsettled, first, last):
            del self.unsettled[delivery_id]

    def resolved(self, first: int, last: int, settled: bool) -> list[Delivery]:
        """What a disposition of the sender speaks of."""
        get = self.unsettled.pop if settled else self.unsettled.__getitem__
        return [get(delivery_id) for delivery_id in numbers_in_range(self.unsettled, first, last)]

    def forget(self, link: ReceiverLink) -> None:
        """Drop what an ended link has left behind."""
        self.drop_partial(link)
        if self.unsettled:
            self.unsettled = {
                key: delivery
                for key, delivery in self.unsettled.items()
                if delivery.link is not link
            }

    def forget_all(self) -> None:
        for link in list(self._partials):
            self.drop_partial(link)
        self.unsettled.clear()

    def _refill(self, window: int) -> None:
        if window < 0:
            raise SessionError(conditions.WINDOW_VIOLATION, "more frames than the window allows")
        self.window = self._full_window
        self._session.write(self._session.flow())

    def _check_start(self, delivery_id: int | None, tag: bytes | None) -> None:
        if delivery_id is None or tag is None:
            raise SessionError(conditions.INVALID_FIELD, "a delivery starts without an id or a tag")
        if self._expected is not None and delivery_id != self._expected:
            raise SessionError(
                conditions.INVALID_FIELD,
                f"delivery {delivery_id} came where {self._expected} was due",
            )

    def _pass(self, delivery_id: int | None) -> None:
        """A transfer that was under way when its link was detached: it counts, and is dropped."""
        if delivery_id is not None and self._expected in (None, delivery_id):
            self._expected = (delivery_id + 1) & SERIAL_MASK

    def _take_any(
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
            raise SessionError(conditions.ERRANT_LINK, "a transfer came on a link that sends")
        if link.state is not LinkState.ATTACHED:
            self._pass(delivery_id)
            return
        partial = self._partials.get(link)
        if partial is None:
            if flags.aborted:
                raise SessionError(
                    conditions.INVALID_FIELD, "a delivery is aborted that had not begun"
                )
            self._check_start(delivery_id, tag)
            assert delivery_id is not None
            assert tag is not None
            self._expected = (delivery_id + 1) & SERIAL_MASK
            if flags.resume:
                raise LinkError(
                    link, conditions.NOT_IMPLEMENTED, "resuming a delivery is not supported"
                )
            if link.credit <= 0:
                _use_taken_back(link)
            link.delivery_count = (link.delivery_count + 1) & SERIAL_MASK
            link.credit -= 1
            partial = PartialDelivery(delivery_id, tag, message_format, flags)
            if flags.more:
                self._partials[link] = partial
        elif delivery_id is not None and delivery_id != partial.id:
            raise SessionError(conditions.INVALID_FIELD, "a delivery goes on with another id")
        if flags.aborted:
            self.drop_partial(link)
            events.append(DeliveryAborted(link, partial.id))
            return
        if len(partial.data) + len(payload) > link.max_message_size:
            raise _too_large(link)
        if flags.more:
            self._keep(partial, payload)
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

    def _keep(self, partial: PartialDelivery, payload: bytes) -> None:
        partial.data += payload
        connection = self._session.connection
        connection.buffered += len(payload)
        if connection.buffered > connection.settings.max_buffered:
            raise ProtocolError(
                f"unfinished messages hold more than {connection.settings.max_buffered} bytes",
                condition=conditions.RESOURCE_LIMIT_EXCEEDED,
            )

    def drop_partial(self, link: Link) -> None:
        """Give up a delivery whose last frame is still to come."""
        partial = self._partials.pop(link, None)
        if partial is not None:
            self._session.connection.buffered -= len(partial.data)


def _use_taken_back(link: ReceiverLink) -> None:
    """No credit is left, but the delivery may have been under way when it was taken back."""
    if link.revoked_credit <= 0:
        raise _over_credit(link)
    link.revoked_credit -= 1
    link.credit += 1


def _over_credit(link: Link) -> LinkError:
    return LinkError(
        link, conditions.TRANSFER_LIMIT_EXCEEDED, "a delivery came that no credit allows"
    )


def _too_large(link: ReceiverLink) -> LinkError:
    return LinkError(
        link,
        conditions.MESSAGE_SIZE_EXCEEDED,
        f"a message is larger than {link.max_message_size} bytes",
    )
