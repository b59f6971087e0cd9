"""What a session sends: the peer's window, the ids of deliveries, and which are not settled yet."""

from collections import deque
from typing import TYPE_CHECKING, Any

from pairbus.amqp.encode import encode_uint
from pairbus.amqp.events import Sent
from pairbus.amqp.frames import TRANSFER, first_transfer, frame, frame_header, read_transfer
from pairbus.amqp.link import Link, SenderLink
from pairbus.amqp.performatives import Flow
from pairbus.amqp.serial import SERIAL, among

if TYPE_CHECKING:
    from pairbus.amqp.session import Session


class Outbound:
    """The sending half of a session."""

    def __init__(self, session: "Session") -> None:
        self.next_id = 0
        """The transfer id of our next frame."""
        self.window = 0
        """How many more frames the peer takes now."""
        self.next_delivery_id = 0
        self.unsettled: dict[int, Sent] = {}
        """By the id that the peer knows."""
        self.skipped = 0
        """How many deliveries were given an id but never went out: the peer's ids lag behind
        ours."""
        self.waiting: deque[tuple[SenderLink, bytes | dict[str, Any]]] = deque()
        """Transfers that wait for the window to open, and the link fields of flows behind them."""
        self._session = session

    def start(self, link: SenderLink, tag: bytes | None, settled: bool) -> tuple[int, bytes]:
        """Give the next delivery its id for the peer, and a tag where it has none."""
        delivery_id = self.next_delivery_id
        self.next_delivery_id = (delivery_id + 1) & SERIAL
        ours = (delivery_id + self.skipped) & SERIAL if self.skipped else delivery_id
        if tag is None:
            tag = ours.to_bytes(4, "big")
        if not settled:
            self.unsettled[delivery_id] = Sent(link, ours, tag)
        return delivery_id, tag

    def write(self, link: SenderLink, frame: bytes) -> None:
        """Send a transfer frame now, or when the window opens."""
        if self.window > 0 and not self.waiting:
            self.window -= 1
            self.next_id = (self.next_id + 1) & SERIAL
            self._session.connection.write_frame(frame)
        else:
            self.waiting.append((link, frame))

    def on_flow(self, flow: Flow) -> None:
        """Take the peer's window, and send what waited for it."""
        # Without next-incoming-id the peer has not seen our begin: it counts from our first id, 0.
        seen = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        self.window = max(flow.incoming_window - ((self.next_id - seen) & SERIAL), 0)
        self._write_waiting()

    def updated(self, first: int, last: int, settled: bool) -> list[Sent]:
        """What a disposition of the receiver speaks of."""
        get = self.unsettled.pop if settled else self.unsettled.__getitem__
        return [get(delivery_id) for delivery_id in among(self.unsettled, first, last)]

    def peer_ids(self, first: int, last: int) -> tuple[int, int] | None:
        """A range of our ids as the peer knows it; None where it knows of none that is not
        settled."""
        if not self.skipped:
            return first, last
        width = (last - first) & SERIAL
        known = [key for key, sent in self.unsettled.items() if (sent.id - first) & SERIAL <= width]
        if not known:
            return None
        known.sort(key=lambda key: (self.unsettled[key].id - first) & SERIAL)
        return known[0], known[-1]

    def drop_waiting(self, link: Link) -> None:
        """No transfer of a link may follow its detach.

        Peers end a session whose delivery ids have a gap, so deliveries behind those that are
        dropped before they began take over their ids.
        """
        if not self.waiting:
            return
        kept: deque[tuple[SenderLink, bytes | dict[str, Any]]] = deque()
        dropped = 0
        for owner, entry in self.waiting:
            delivery_id = _begins(entry)
            if owner is link:
                if delivery_id is not None:
                    dropped += 1
                    self.unsettled.pop(delivery_id, None)
                continue
            if dropped and isinstance(entry, bytes) and delivery_id is not None:
                new_id = (delivery_id - dropped) & SERIAL
                entry = _renumbered(entry, new_id)
                sent = self.unsettled.pop(delivery_id, None)
                if sent is not None:
                    self.unsettled[new_id] = sent
            kept.append((owner, entry))
        self.waiting = kept
        self.skipped = (self.skipped + dropped) & SERIAL
        self.next_delivery_id = (self.next_delivery_id - dropped) & SERIAL
        self._write_waiting()

    def forget(self, link: Link) -> None:
        """Drop what an ended link has left behind."""
        self.drop_waiting(link)
        if self.unsettled:
            self.unsettled = {
                key: sent for key, sent in self.unsettled.items() if sent.link is not link
            }

    def _write_waiting(self) -> None:
        waiting, session = self.waiting, self._session
        while waiting:
            entry = waiting[0][1]
            if isinstance(entry, bytes):
                if self.window <= 0:
                    return
                self.window -= 1
                self.next_id = (self.next_id + 1) & SERIAL
                session.connection.write_frame(entry)
            else:
                session.write(session.flow(**entry))
            waiting.popleft()


def _begins(entry: bytes | dict[str, Any]) -> int | None:
    """The id of the delivery whose first frame this is."""
    if not isinstance(entry, bytes):
        return None
    return read_transfer(entry, frame_header.size + len(TRANSFER), len(entry))[1]


def _renumbered(entry: bytes, delivery_id: int) -> bytes:
    """The first frame of a delivery, with another id."""
    channel = frame_header.unpack_from(entry)[3]
    handle, _, tag, message_format, flags, start = read_transfer(
        entry, frame_header.size + len(TRANSFER), len(entry)
    )
    head = first_transfer(
        encode_uint(handle), delivery_id, tag or b"", message_format, flags.settled, flags.more
    )
    return frame(channel, head + entry[start:])
