"""Apache Qpid proton as a small broker, in a thread of its own, for our client and our engine."""

import queue
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from proton import (
    Condition,
    Connection,
    Delivery,
    Event,
    Link,
    Receiver,
    Sender,
    Session,
    SSLDomain,
    Terminus,
)

from tests.interop.proton_peer import (
    DEADLINE_S,
    Arrived,
    ProtonPeer,
    hang_up,
    post,
    settle,
)

T = TypeVar("T")

OUTCOMES = (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED)


class Attached(NamedTuple):
    """A link that a peer asked for."""

    address: str
    snd_settle_mode: int
    rcv_settle_mode: int


class ProtonServer(ProtonPeer):
    """A broker with queues in memory. Fields change in its own thread: change them with `call`."""

    def __init__(
        self,
        *,
        credit: int = 100,
        mechanisms: str | None = None,
        tls: SSLDomain | None = None,
        max_frame_size: int | None = None,
        idle_timeout: float | None = None,
        incoming_capacity: int | None = None,
        port: int = 0,
    ) -> None:
        super().__init__()
        self.credit = credit
        """What each link that we receive on is given."""
        self.refill = True
        """Whether it is given again when half of it is used."""
        self.max_message_size: int | None = None
        self.refuse: dict[str, Condition] = {}
        """Addresses at which links get no terminus and are detached."""
        self.outcome: dict[str, Callable[[Delivery], None]] = {}
        """What is done instead of accepting, by address."""
        self.flowed: dict[str, Callable[[Sender], None]] = {}
        """What is done instead of sending when credit comes, by address."""
        self.deny: Condition | None = None
        """What is said against the next settlement of a peer that waits for our word."""
        self.refuse_connection: Condition | None = None
        self.cut_after: int | None = None
        """Count down deliveries that arrive; at the last one its connection is cut instead."""
        self.cuts = 0
        self.hung_up = 0
        """Connections that have ended, for whatever reason, and their sockets are closed."""
        self.queues: dict[str, deque[bytes]] = defaultdict(deque)
        self.connections: list[Connection] = []
        self.sessions: list[Session] = []
        self.links: list[Link] = []
        self.attached: list[Attached] = []
        self.drained: list[int] = []
        """Credit that was given up, drain by drain."""
        self.users: list[tuple[str, str]] = []
        """Mechanism and user of each connection."""
        self.max_frame_size = max_frame_size
        self.idle_timeout = idle_timeout
        self.mechanisms = mechanisms
        self.incoming_capacity = incoming_capacity
        self._tls = tls
        self._acceptor = self.container.acceptor("127.0.0.1", port)
        if tls is not None:
            self._acceptor.set_ssl_domain(tls)
        # The acceptor does not tell the port that it was given.
        self.port: int = self._acceptor._selectable.getsockname()[1]
        self.failure: BaseException | None = None
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"proton-server-{self.port}")

    def __enter__(self) -> "ProtonServer":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Cut all connections and stop. May be called again. Raises what failed in the thread."""
        self._stopping = True
        self._thread.join(DEADLINE_S)
        if self.failure is not None:
            raise self.failure

    def wait_for(self, condition: Callable[[], T], timeout: float = DEADLINE_S) -> T:
        """Wait until the condition holds, and give what it gave; TimeoutError if it does not."""
        with self._changed:
            result = self._changed.wait_for(lambda: condition() or self.failure, timeout)
        if self.failure is not None:
            raise self.failure
        if not result:
            raise TimeoutError(f"proton's server did not come to that in {timeout:g} seconds")
        return result  # type: ignore[return-value]

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the server's thread."""
        return self.post(function).result(DEADLINE_S)

    def post(self, function: Callable[[], T]) -> Future[T]:
        """Let the server's thread run a function some time soon."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except Exception as exc:  # noqa: BLE001 - the test's thread raises it
                future.set_exception(exc)

        self._calls.put(run)
        return future

    def put(self, address: str, *payloads: bytes) -> None:
        """Put messages into a queue."""

        def put() -> None:
            self.queues[address].extend(payloads)
            self.pump(address)

        self.call(put)

    def cut(self) -> None:
        """Cut all connections, without a word. The sockets are closed when this returns."""
        self.call(self.cut_now)
        self.call(lambda: None)  # a whole turn of the loop lies in between

    # What follows runs in the server's thread.

    def _run(self) -> None:
        try:
            self.container.start()
            while not self._stopping:
                self._turn()
            self._acceptor.close()
            hang_up(self.transports)
            while self.container.process():
                pass
        except BaseException as exc:  # noqa: BLE001 - the test's thread raises it
            self.failure = exc
        with self._changed:
            self._changed.notify_all()

    def _turn(self) -> None:
        self.container.process()
        while not self._calls.empty():
            self._calls.get()()
        with self._changed:
            self._changed.notify_all()

    def cut_now(self) -> None:
        self.cuts += 1
        hang_up(self.transports)

    def on_connection_bound(self, event: Event) -> None:
        super().on_connection_bound(event)
        transport = event.transport
        if self.max_frame_size is not None:
            transport.max_frame_size = self.max_frame_size
        if self.idle_timeout is not None:
            transport.idle_timeout = self.idle_timeout
        sasl = transport.sasl()
        sasl.allow_insecure_mechs = True
        if self.mechanisms is not None:
            sasl.allowed_mechs(self.mechanisms)
        transport.require_auth(True)

    def on_connection_opened(self, event: Event) -> None:
        transport = event.transport
        self.connections.append(event.connection)
        self.users.append((transport.sasl().mech, transport.user))
        if self.refuse_connection is not None:
            event.connection.condition = self.refuse_connection
            event.connection.close()

    def on_session_opening(self, event: Event) -> None:
        self.sessions.append(event.session)
        if self.incoming_capacity is not None:
            event.session.incoming_capacity = self.incoming_capacity

    def on_link_opening(self, event: Event) -> None:
        link = event.link
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        asked = Attached(self.address_of(link), link.snd_settle_mode, link.rcv_settle_mode)
        self.attached.append(asked)
        if self.address_of(link) in self.refuse:
            return  # it is opened without a terminus
        if self.max_message_size is not None:
            link.max_message_size = self.max_message_size
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)

    def on_link_opened(self, event: Event) -> None:
        link = event.link
        self.links.append(link)
        if self.address_of(link) in self.refuse:
            link.condition = self.refuse[self.address_of(link)]
            link.close()
        elif link.is_receiver:
            link.flow(self.credit)

    def on_link_flow(self, event: Event) -> None:
        link = event.link
        if link.is_sender:
            address = self.address_of(link)
            if address in self.flowed:
                self.flowed[address](link)
            else:
                self.pump(address)

    def on_link_closed(self, event: Event) -> None:
        self.links = [link for link in self.links if link != event.link]

    def on_session_closed(self, event: Event) -> None:
        self.links = [link for link in self.links if link.session != event.session]

    def on_transport_closed(self, event: Event) -> None:
        self.links = [link for link in self.links if link.connection != event.connection]
        self.post(lambda: setattr(self, "hung_up", self.hung_up + 1))

    def on_arrived(self, arrived: Arrived, link: Receiver) -> None:
        arrived = arrived._replace(address=self.address_of(link))
        self.arrived.append(arrived)
        if self.cut_after is not None:
            self.cut_after -= 1
            if self.cut_after <= 0:
                self.cut_after = None
                self.cut_now()
                return
        if arrived.address in self.outcome:
            self.outcome[arrived.address](arrived.delivery)
        else:
            self.queues[arrived.address].append(arrived.payload)
            settle(arrived.delivery)
            self.pump(arrived.address)
        if self.refill and link.credit <= self.credit // 2:
            link.flow(self.credit - link.credit)

    def on_outcome(self, delivery: Delivery, link: Sender) -> None:
        super().on_outcome(delivery, link)
        state = delivery.remote_state
        if not delivery.settled and state in OUTCOMES:  # the receiver waits for us to settle
            if self.deny is not None:
                delivery.local.condition, self.deny = self.deny, None
                state = Delivery.REJECTED
            settle(delivery, state)

    def pump(self, address: str) -> None:
        """Send what a queue has to whoever has credit; answer a drain."""
        waiting = self.queues[address]
        for link in list(self.links):
            if not link.is_sender or self.address_of(link) != address:
                continue
            while waiting and link.credit > 0:
                post(link, waiting.popleft())
            if link.drain_mode and link.credit > 0:
                self.drained.append(link.drained())

    @staticmethod
    def address_of(link: Link) -> str:
        terminus: Terminus = link.remote_source if link.is_sender else link.remote_target
        return terminus.address or ""
