"""What a session sends: the peer's window, the ids of deliveries, and which are not settled yet."""

from collections import deque
from typing import TYPE_CHECKING

from pairbus.amqp.events import Sent
from pairbus.amqp.link import Link, SenderLink
from pairbus.amqp.performatives import Flow
from pairbus.amqp.serial import SERIAL, ahead, among

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
        self.waiting: deque[tuple[SenderLink, bytes]] = deque()
        """Frames that wait for the window to open."""
        self._session = session

    def start(self, link: SenderLink, tag: bytes | None, settled: bool) -> tuple[int, bytes]:
        """Give the next delivery its id, and a tag where it has none."""
        delivery_id = self.next_delivery_id
        self.next_delivery_id = (delivery_id + 1) & SERIAL
        if tag is None:
            tag = delivery_id.to_bytes(4, "big")
        if not settled:
            self.unsettled[delivery_id] = Sent(link, delivery_id, tag)
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
        self.window = ahead(seen + flow.incoming_window, self.next_id)
        waiting, connection = self.waiting, self._session.connection
        while waiting and self.window > 0:
            self.window -= 1
            self.next_id = (self.next_id + 1) & SERIAL
            connection.write_frame(waiting.popleft()[1])

    def updated(self, first: int, last: int, settled: bool) -> list[Sent]:
        """What a disposition of the receiver speaks of."""
        get = self.unsettled.pop if settled else self.unsettled.__getitem__
        return [get(delivery_id) for delivery_id in among(self.unsettled, first, last)]

    def drop_waiting(self, link: Link) -> None:
        """No transfer of a link may follow its detach."""
        if self.waiting:
            self.waiting = deque(entry for entry in self.waiting if entry[0] is not link)

    def forget(self, link: Link) -> None:
        """Drop what an ended link has left behind."""
        self.drop_waiting(link)
        if self.unsettled:
            self.unsettled = {key: sent for key, sent in self.unsettled.items() if sent.link is not link}
