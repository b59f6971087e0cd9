"""Apache Qpid proton as a server with queues in memory."""

import queue
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from proton import (
    Connection,
    Delivery,
    Event,
    Link,
    Message,
    Sender,
    Session,
    SSLDomain,
    Terminus,
)

from pairbus.amqp.performatives import Accepted, Error, Rejected
from tests.interop.messages import PeerMessage
from tests.interop.peers import (
    DEADLINE_S,
    PeerError,
    PeerServer,
    ServerOptions,
)
from tests.interop.proton_handler import ProtonHandler, cut, encode, send
from tests.interop.proton_values import (
    condition_to_proton,
    message_from_proton,
    settle,
    state_from_proton,
    to_proton,
)

T = TypeVar("T")
FINAL = (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED)


class ProtonServer(ProtonHandler, PeerServer):
    """A server in a thread of its own. Change its attributes with `call`."""

    name = "proton"

    def __init__(self, options: ServerOptions) -> None:
        super().__init__()
        self.options = options
        self.attach_errors: dict[str, Error] = {}
        self.states: dict[str, Any] = {}
        """The states with which messages are settled, by address. The default is Accepted."""
        self.handlers_by_address: dict[str, Callable[[PeerMessage, Delivery], None]] = {}
        self.settlement_error: Error | None = None
        """The error that answers the next settlement of a client that waits for it."""
        self.connection_error: Error | None = None
        self.cut_on: set[str] = set()
        """Addresses at which the connection is cut when a message arrives."""
        self.cuts = self.closed_connections = 0
        self.queues: dict[str, deque[bytes]] = defaultdict(deque)
        self.connections: list[Connection] = []
        self.sessions: list[Session] = []
        self.links: list[Link] = []
        self.attached: list[tuple[str, int, int]] = []
        """The address, sender settle mode and receiver settle mode of each attach."""
        self.received: list[PeerMessage] = []
        self.sent_states: list[tuple[Any, bool]] = []
        self.returned_credit: list[int] = []
        self.users: list[str] = []
        self._acceptor = self.container.acceptor("127.0.0.1", options.port)
        if options.tls is not None:
            self._acceptor.set_ssl_domain(_server_tls(options))
        self.port = self._acceptor._selectable.getsockname()[1]  # There is no public access.
        self._failure: BaseException | None = None
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._stopping = False
        self._thawed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"proton-server-{self.port}")
        self._thread.start()

    # Methods for tests.

    def close(self) -> None:
        self._stopping = True
        self._thawed.set()
        self._thread.join(DEADLINE_S)
        if self._failure is not None:
            raise self._failure

    def wait_for(self, condition: Callable[[], T], timeout: float = DEADLINE_S) -> T:
        with self._changed:
            result = self._changed.wait_for(lambda: condition() or self._failure, timeout)
        if self._failure is not None:
            raise self._failure
        assert result, "the condition was not met in time"
        return result  # type: ignore[return-value]

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the server's thread."""
        return self._submit(function).result(DEADLINE_S)

    def put(self, address: str, *messages: PeerMessage) -> None:
        def add() -> None:
            self.queues[address].extend(map(encode, messages))
            self._send_queued(address)

        self.call(add)

    def receive(self, count: int) -> list[PeerMessage]:
        self.wait_for(lambda: len(self.received) >= count)
        taken, self.received[:] = self.received[:count], self.received[count:]
        return taken

    def outcomes(self, count: int) -> list[tuple[Any, bool]]:
        self.wait_for(lambda: len(self.sent_states) >= count)
        taken, self.sent_states[:] = self.sent_states[:count], self.sent_states[count:]
        return taken

    def next_error(self) -> PeerError:
        self.wait_for(lambda: self.errors)
        return self.errors.pop(0)

    def refuse(self, address: str, error: Error) -> None:
        self.call(lambda: self.attach_errors.update({address: error}))

    def settle_with(self, address: str, state: Any) -> None:
        """Settle the messages to an address with this state, or with Accepted for None."""
        change = self.states.pop if state is None else self.states.__setitem__
        self.call(lambda: change(address, state))

    def fail_settlements(self, error: Error) -> None:
        self.call(lambda: setattr(self, "settlement_error", error))

    def refuse_connections(self, error: Error | None) -> None:
        self.call(lambda: setattr(self, "connection_error", error))

    def cut_on_message(self, address: str, enabled: bool = True) -> None:
        change = self.cut_on.add if enabled else self.cut_on.discard
        self.call(lambda: change(address))

    def cut(self) -> None:
        self.call(self._cut)
        self.call(lambda: None)  # The loop closes the sockets before it runs this call.

    def grant(self, address: str, credit: int) -> None:
        self.call(lambda: self._link(address).flow(credit))

    def drain_sender(self, address: str) -> None:
        self.call(lambda: self._link(address).drain(0))

    def credit_of(self, address: str) -> int:
        return self.call(lambda: self._link(address).credit)

    def close_link(self, address: str, error: Error | None) -> None:
        self.call(lambda: _close(self._link(address), error))

    def detach_link(self, address: str) -> None:
        self.call(lambda: self._link(address).detach())

    def end_session(self, address: str, error: Error | None) -> None:
        self.call(lambda: _close(self._link(address).session, error))

    def close_connections(self, error: Error | None) -> None:
        self.call(lambda: [_close(connection, error) for connection in self.connections])

    def freeze(self) -> None:
        frozen = threading.Event()
        self._thawed.clear()
        self._submit(lambda: (frozen.set(), self._thawed.wait(DEADLINE_S)))
        assert frozen.wait(DEADLINE_S)

    def thaw(self) -> None:
        self._thawed.set()

    def settle_modes(self, address: str) -> tuple[int, int]:
        """Return sender and receiver settle mode of the attach for an address."""
        return next(modes for attached, *modes in self.attached if attached == address)  # type: ignore[return-value]

    @property
    def frames_in(self) -> int:
        return self.call(lambda: self.transports[-1].frames_input)

    @property
    def frames_out(self) -> int:
        return self.call(lambda: self.transports[-1].frames_output)

    @property
    def link_count(self) -> int:
        return self.call(lambda: len(self.links))

    # The following methods run in the server's thread.

    def _submit(self, function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except Exception as exc:  # noqa: BLE001 - the test's thread raises it
                future.set_exception(exc)

        self._calls.put(run)
        return future

    def _run(self) -> None:
        try:
            self.container.start()
            while not self._stopping:
                self.container.process()
                while not self._calls.empty():
                    self._calls.get()()
                with self._changed:
                    self._changed.notify_all()
            self._acceptor.close()
            cut(self.transports)
            while self.container.process():
                pass
        except BaseException as exc:  # noqa: BLE001 - the test's thread raises it
            self._failure = exc
        with self._changed:
            self._changed.notify_all()

    def _cut(self) -> None:
        self.cuts += 1
        cut(self.transports)

    def _link(self, address: str) -> Link:
        return next(link for link in self.links if address_of(link) == address)

    def on_connection_bound(self, event: Event) -> None:
        super().on_connection_bound(event)
        transport, options = event.transport, self.options
        if options.max_frame_size is not None:
            transport.max_frame_size = options.max_frame_size
        if options.idle_timeout_s is not None:
            transport.idle_timeout = options.idle_timeout_s
        sasl = transport.sasl()
        sasl.allow_insecure_mechs = True
        if options.mechanisms is not None:
            sasl.allowed_mechs(options.mechanisms)
        elif options.request_certificate:
            sasl.allowed_mechs("EXTERNAL")
        transport.require_auth(True)

    def on_connection_opened(self, event: Event) -> None:
        self.connections.append(event.connection)
        self.users.append(event.transport.user)
        if self.connection_error is not None:
            _close(event.connection, self.connection_error)

    def on_session_opening(self, event: Event) -> None:
        self.sessions.append(event.session)
        if self.options.window is not None:
            size = self.options.window * (self.options.max_frame_size or 1024)
            event.session.incoming_capacity = size

    def on_link_opening(self, event: Event) -> None:
        link = event.link
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        self.attached.append((address_of(link), link.snd_settle_mode, link.rcv_settle_mode))
        if address_of(link) in self.attach_errors:
            return  # The attach has no terminus.
        if self.options.max_message_size is not None:
            link.max_message_size = self.options.max_message_size
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)

    def on_link_opened(self, event: Event) -> None:
        link = event.link
        self.links.append(link)
        error = self.attach_errors.get(address_of(link))
        if error is not None:
            _close(link, error)
        elif link.is_receiver:
            link.flow(self.options.credit)

    def on_link_flow(self, event: Event) -> None:
        if event.link.is_sender:
            self._send_queued(address_of(event.link))

    def on_link_closed(self, event: Event) -> None:
        self.links = [link for link in self.links if link != event.link]

    def on_session_closed(self, event: Event) -> None:
        self.links = [link for link in self.links if link.session != event.session]

    def on_transport_closed(self, event: Event) -> None:
        self.links = [link for link in self.links if link.connection != event.connection]
        self.connections = [item for item in self.connections if item != event.connection]
        count = self.closed_connections + 1
        self._submit(lambda: setattr(self, "closed_connections", count))

    def on_payload(self, payload: bytes, settled: bool, delivery: Delivery, link: Link) -> None:
        address = address_of(link)
        message = message_from_proton(payload, settled, delivery)
        self.received.append(message)
        if address in self.cut_on:
            self._cut()
            return
        if address in self.handlers_by_address:
            self.handlers_by_address[address](message, delivery)
        else:
            state = self.states.get(address, Accepted())
            settle(delivery, state)
            if isinstance(state, Accepted):
                self.queues[address].append(payload)
                self._send_queued(address)
        if self.options.credit and link.credit <= self.options.credit // 2:
            link.flow(self.options.credit - link.credit)

    def on_outcome(self, delivery: Delivery, link: Sender) -> None:
        if delivery.remote_state not in FINAL:
            return
        state = state_from_proton(delivery)
        self.sent_states.append((state, delivery.settled))
        if delivery.settled:
            delivery.settle()
            return
        error, self.settlement_error = self.settlement_error, None
        settle(delivery, state if error is None else Rejected(error))

    def _send_queued(self, address: str) -> None:
        """Send messages of a queue to links with credit, and answer drains."""
        messages = self.queues[address]
        for link in list(self.links):
            if not link.is_sender or address_of(link) != address:
                continue
            while messages and link.credit > 0:
                send(link, messages.popleft())
            if link.drain_mode and link.credit > 0:
                self.returned_credit.append(link.drained())

    def respond(self, node: str, properties: dict[str, Any], body: Any = None) -> None:
        """Answer requests to a node on the link whose target is their reply-to address."""

        def answer(message: PeerMessage, delivery: Delivery) -> None:
            settle(delivery, Accepted())
            request = message.properties
            response = Message(properties=to_proton(properties), body=to_proton(body))
            response.correlation_id = request.message_id
            for link in self.links:
                if link.is_sender and link.remote_target.address == request.reply_to:
                    send(link, response.encode())

        self.call(lambda: self.handlers_by_address.update({node: answer}))


def address_of(link: Link) -> str:
    terminus: Terminus = link.remote_source if link.is_sender else link.remote_target
    return terminus.address or ""


def _close(endpoint: Any, error: Error | None) -> None:
    if error is not None:
        endpoint.condition = condition_to_proton(error)
    endpoint.close()


def _server_tls(options: ServerOptions) -> SSLDomain:
    files = options.tls
    assert files is not None
    domain = SSLDomain(SSLDomain.MODE_SERVER)
    domain.set_credentials(str(files.certificate), str(files.key), None)
    if options.request_certificate:
        domain.set_trusted_ca_db(str(files.ca))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER, str(files.ca))
    return domain
