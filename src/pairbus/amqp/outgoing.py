"""What a session sends: the peer's window, the ids of deliveries, which are not settled yet."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pairbus.amqp.events import OutgoingDelivery
from pairbus.amqp.frames import encode_aborted_transfer, encode_first_transfer, encode_frame
from pairbus.amqp.link import Link, SenderLink
from pairbus.amqp.performatives import Flow
from pairbus.amqp.serial import SERIAL_MASK, numbers_in_range

if TYPE_CHECKING:
    from pairbus.amqp.session import Session


class QueuedFrame(NamedTuple):
    """A transfer that waits for the window, or the link's fields of a flow that must not overtake
    one."""

    link: SenderLink
    what: Callable[[], bytes] | dict[str, Any]


class OutgoingTransfers:
    """The sending half of a session.

    A delivery gets its id when its first frame is written: peers end a session whose ids have a
    gap, and what waits may never be written.
    """

    def __init__(self, session: "Session") -> None:
        self.next_id = 0
        """The transfer id of our next frame."""
        self.window = 0
        """How many more frames the peer takes now."""
        self.next_delivery_id = 0
        self.unsettled: dict[int, OutgoingDelivery] = {}
        self.queued: deque[QueuedFrame] = deque()
        self._session = session

    def write_first(
        self, sent: OutgoingDelivery, message_format: int, more: bool, part: bytes
    ) -> None:
        """Write the first frame of a delivery, now or when the window opens."""
        if self.window > 0 and not self.queued:
            self._write(self._first_frame(sent, message_format, more, part))
        else:
            make = partial(self._first_frame, sent, message_format, more, part)
            self.queued.append(QueuedFrame(sent.link, make))

    def write_next(self, sent: OutgoingDelivery, performative: bytes, part: bytes = b"") -> None:
        """Write a later frame of a delivery, now or when the window opens."""
        data = encode_frame(self._session.channel, performative + part)
        if self.window > 0 and not self.queued:
            self._write(data)
        else:
            self.queued.append(QueuedFrame(sent.link, lambda: data))

    def write_flow(self, link: SenderLink, fields: dict[str, Any]) -> None:
        """Write a flow: it counts the deliveries before it, so it stays behind those that wait."""
        self.queued.append(QueuedFrame(link, fields))
        self._write_waiting()

    def on_flow(self, flow: Flow) -> None:
        """Take the peer's window, and send what waited for it."""
        # Without next-incoming-id the peer has not seen our begin: it counts from our first id, 0.
        seen = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        self.window = max(flow.incoming_window - ((self.next_id - seen) & SERIAL_MASK), 0)
        self._write_waiting()

    def updated(self, first: int, last: int, settled: bool) -> list[OutgoingDelivery]:
        """What a disposition of the receiver speaks of."""
        get = self.unsettled.pop if settled else self.unsettled.__getitem__
        return [get(delivery_id) for delivery_id in numbers_in_range(self.unsettled, first, last)]

    def abort(self, sent: OutgoingDelivery) -> None:
        """Take back a delivery whose last frame is still to come."""
        sent.settled = True  # nobody will answer it
        if sent.id is not None:
            self.unsettled.pop(sent.id, None)
        self.write_next(sent, encode_aborted_transfer(sent.link.handle_bytes))

    def drop_waiting(self, link: Link) -> None:
        """No transfer of a link may follow its detach."""
        if self.queued:
            self.queued = deque(entry for entry in self.queued if entry.link is not link)
            self._write_waiting()

    def forget(self, link: Link) -> None:
        """Drop what an ended link has left behind."""
        self.drop_waiting(link)
        if self.unsettled:
            self.unsettled = {
                key: sent for key, sent in self.unsettled.items() if sent.link is not link
            }

    def _first_frame(
        self, sent: OutgoingDelivery, message_format: int, more: bool, part: bytes
    ) -> bytes:
        delivery_id = sent.id = self.next_delivery_id
        self.next_delivery_id = (delivery_id + 1) & SERIAL_MASK
        if sent.tag is None:
            sent.tag = delivery_id.to_bytes(4, "big")
        if not sent.settled:
            self.unsettled[delivery_id] = sent
        head = encode_first_transfer(
            sent.link.handle_bytes, delivery_id, sent.tag, message_format, sent.settled, more
        )
        return encode_frame(self._session.channel, head + part)

    def _write(self, data: bytes) -> None:
        self.window -= 1
        self.next_id = (self.next_id + 1) & SERIAL_MASK
        self._session.connection.write_frame(data)

    def _write_waiting(self) -> None:
        waiting, session = self.queued, self._session
        while waiting:
            what = waiting[0].what
            if isinstance(what, dict):
                session.write(session.flow(**what))
            elif self.window > 0:
                self._write(what())
            else:
                return
            waiting.popleft()
