"""The sending half of a session: the peer's window, delivery ids and unsettled deliveries."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pairbus.amqp.events import OutgoingDelivery
from pairbus.amqp.frames import (
    encode_aborted_transfer,
    encode_first_transfer,
    encode_frame,
    transfer_head,
)
from pairbus.amqp.link import Link, SenderLink
from pairbus.amqp.performatives import Flow
from pairbus.amqp.serial import SERIAL_MASK, numbers_in_range

if TYPE_CHECKING:
    from pairbus.amqp.session import Session


class QueuedFrame(NamedTuple):
    """A transfer that waits for the window, or the link fields of a flow that must follow one."""

    link: SenderLink
    content: Callable[[], bytes] | dict[str, Any]


class OutgoingTransfers:
    """The sending half of a session.

    A delivery gets its id when its first frame is written: peers end a session whose delivery ids
    have a gap, and a queued frame may never be written.
    """

    def __init__(self, session: "Session") -> None:
        self.next_id = 0
        """The transfer id of our next frame."""
        self.window = 0
        """The number of frames that the peer currently accepts."""
        self.next_delivery_id = 0
        self.unsettled: dict[int, OutgoingDelivery] = {}
        self.queued: deque[QueuedFrame] = deque()
        self._session = session

    def write_first(
        self, delivery: OutgoingDelivery, message_format: int, more: bool, payload: bytes
    ) -> None:
        """Write the first frame of a delivery, now or when the window opens."""
        if self.window > 0 and not self.queued:
            self._write(self._first_frame(delivery, message_format, more, payload))
        else:
            content = partial(self._first_frame, delivery, message_format, more, payload)
            self.queued.append(QueuedFrame(delivery.link, content))

    def write_all(self, link: SenderLink, payloads: Sequence[bytes], tags: Sequence[bytes]) -> None:
        """Write unsettled deliveries of one frame each, for which the window must suffice. Their
        tags have the same size."""
        encode_head = transfer_head(self._session.channel, link.handle_bytes, len(tags[0]))
        delivery_id, unsettled = self.next_delivery_id, self.unsettled
        parts = []
        for payload, tag in zip(payloads, tags, strict=True):
            unsettled[delivery_id] = OutgoingDelivery(link, tag, False, delivery_id)
            parts.append(encode_head(len(payload), delivery_id, tag))
            parts.append(payload)
            delivery_id = (delivery_id + 1) & SERIAL_MASK
        self.next_delivery_id = delivery_id
        self.window -= len(payloads)
        self.next_id = (self.next_id + len(payloads)) & SERIAL_MASK
        self._session.connection.write_parts(parts)

    def write_next(
        self, delivery: OutgoingDelivery, performative: bytes, payload: bytes = b""
    ) -> None:
        """Write a later frame of a delivery, now or when the window opens."""
        data = encode_frame(self._session.channel, performative + payload)
        if self.window > 0 and not self.queued:
            self._write(data)
        else:
            self.queued.append(QueuedFrame(delivery.link, lambda: data))

    def write_flow(self, link: SenderLink, fields: dict[str, Any]) -> None:
        """Write a flow after the queued transfers, which its delivery count includes."""
        self.queued.append(QueuedFrame(link, fields))
        self._write_queued()

    def on_flow(self, flow: Flow) -> None:
        """Update the peer's window, and write the queued frames that it permits."""
        # Without next-incoming-id the peer has not received our begin: it counts from our first id.
        next_incoming_id = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        in_transit = (self.next_id - next_incoming_id) & SERIAL_MASK
        self.window = max(flow.incoming_window - in_transit, 0)
        self._write_queued()

    def updated(self, first: int, last: int, settled: bool) -> list[OutgoingDelivery]:
        """Return the unsettled deliveries of a disposition, and remove them if it settles them."""
        get = self.unsettled.pop if settled else self.unsettled.__getitem__
        return [get(delivery_id) for delivery_id in numbers_in_range(self.unsettled, first, last)]

    def abort(self, delivery: OutgoingDelivery) -> None:
        """Abort a delivery whose last frame was not sent."""
        delivery.settled = True  # The peer does not answer an aborted delivery.
        if delivery.id is not None:
            self.unsettled.pop(delivery.id, None)
        self.write_next(delivery, encode_aborted_transfer(delivery.link.handle_bytes))

    def drop_queued(self, link: Link) -> None:
        """Drop the queued frames of a link: no transfer may follow its detach."""
        if self.queued:
            self.queued = deque(frame for frame in self.queued if frame.link is not link)
            self._write_queued()

    def forget(self, link: Link) -> None:
        """Drop the queued frames and unsettled deliveries of a link that ended."""
        self.drop_queued(link)
        if self.unsettled:
            self.unsettled = {
                delivery_id: delivery
                for delivery_id, delivery in self.unsettled.items()
                if delivery.link is not link
            }

    def forget_unless(self, keeps: Callable[[OutgoingDelivery], bool]) -> None:
        """Drop the unsettled deliveries that are not kept. The peer gets no answer if it settles
        one of them."""
        self.unsettled = {
            delivery_id: delivery
            for delivery_id, delivery in self.unsettled.items()
            if keeps(delivery)
        }

    def _first_frame(
        self, delivery: OutgoingDelivery, message_format: int, more: bool, payload: bytes
    ) -> bytes:
        delivery_id = delivery.id = self.next_delivery_id
        self.next_delivery_id = (delivery_id + 1) & SERIAL_MASK
        if delivery.tag is None:
            delivery.tag = delivery_id.to_bytes(4, "big")
        if not delivery.settled:
            self.unsettled[delivery_id] = delivery
        performative = encode_first_transfer(
            delivery.link.handle_bytes,
            delivery_id,
            delivery.tag,
            message_format,
            delivery.settled,
            more,
        )
        return encode_frame(self._session.channel, performative + payload)

    def _write(self, data: bytes) -> None:
        self.window -= 1
        self.next_id = (self.next_id + 1) & SERIAL_MASK
        self._session.connection.write_frame(data)

    def _write_queued(self) -> None:
        queued, session = self.queued, self._session
        while queued:
            content = queued[0].content
            if isinstance(content, dict):
                session.write(session.flow(**content))
            elif self.window > 0:
                self._write(content())
            else:
                return
            queued.popleft()
