"""A small AMQP 1.0 server on `pairbus.amqp`: queues in memory, one thread, one event loop.

    with MemoryServer() as server:
        ...any AMQP client connects to 127.0.0.1, server.port, and sends and receives...
        server.wait_for(lambda: server.received)

It shows how an application drives the engine: data from a socket goes into a Connection, the
application answers each event with a call on a link or session, and the output of the engine goes
to the socket. The interoperability tests run other AMQP clients against it, so it can inject faults
and records what it received.
"""

import asyncio
import itertools
import socket
import ssl
import threading
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from pairbus.amqp import events as ev
from pairbus.amqp.batch import BATCH_FORMAT, split_batch
from pairbus.amqp.connection import Connection
from pairbus.amqp.link import Link, SenderLink
from pairbus.amqp.performatives import (
    SETTLE_FIRST,
    SETTLE_SETTLED,
    Accepted,
    Attach,
    Error,
    Modified,
    Open,
    Rejected,
    Released,
    Source,
    Target,
)
from pairbus.amqp.sasl import SaslServer, parse_plain_response
from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.settings import ConnectionSettings
from pairbus.amqp.types import Int32, Symbol, ULong
from pairbus.errors import AmqpError, ConnectionLost, DecodeError

T = TypeVar("T")
DEADLINE_S = 20.0
BATCH_LIMIT = Symbol("com.microsoft:max-message-batch-size")
OUTCOMES = (Accepted, Rejected, Released, Modified)


@dataclass(eq=False, slots=True)
class Entry:
    """An entry of a queue: the payload of one delivery."""

    payload: bytes
    message_format: int = 0
    attempts: int = 0


class Received(NamedTuple):
    """A delivery that a client sent to an address."""

    address: str
    payload: bytes
    message_format: int
    settled: bool


class Settlement(NamedTuple):
    """The state that a client reported for a delivery that we sent.

    `settled` is False if the client waits for us to settle.
    """

    address: str
    payload: bytes
    state: Any
    settled: bool


class Request(NamedTuple):
    """A request to a `$cbs` or `$management` node."""

    address: str
    operation: Any
    application_properties: Mapping[Any, Any]
    body: Any


class Response(NamedTuple):
    status: int
    description: str = ""
    body: Any = None
    error_condition: str | None = None


Handler = Callable[[Request], Response]


def grant_token(request: Request) -> Response:
    return Response(200, "OK")


def not_implemented(request: Request) -> Response:
    description = f"{request.operation} is not implemented"
    return Response(501, description, error_condition="amqp:not-implemented")


def offer(*mechanisms: str, users: Mapping[str, str] | None = None) -> SaslServer:
    """Return a SASL server with these mechanisms. `users` maps the names of PLAIN to passwords."""

    def check_plain(response: bytes) -> str | None:
        name, password = parse_plain_response(response) or ("", "")
        return name if users and users.get(name) == password else None

    return SaslServer({m: check_plain if m == "PLAIN" else lambda _: "peer" for m in mechanisms})


class MemoryServer:
    """The server. Its attributes change in its own thread: read them with `wait_for`, and change
    them before the start or with `call`."""

    def __init__(
        self,
        *,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        sasl: SaslServer | None = offer("MSSBCBS", "ANONYMOUS"),  # noqa: B008
        max_message_size: int | None = None,
        outgoing_frame_size: int | None = None,
        ignore_limits: bool = False,
        credit: int = 1000,
        split_batches: bool = False,
        **settings: Any,
    ) -> None:
        """Create a server. `settings` are fields of ConnectionSettings."""
        self.settings = ConnectionSettings(container_id="memory-server", **settings)
        self.sasl = sasl
        self.max_message_size = max_message_size
        self.outgoing_frame_size = outgoing_frame_size
        """The maximum size of the frames that we send, if it is less than the client's maximum."""
        self.ignore_limits = ignore_limits
        """Send messages above the client's maximum size, which the Azure SDK does not enforce."""
        self.credit = credit
        self.split_batches = split_batches
        """Store a Service Bus batch as single messages."""
        self.handlers: dict[str, Handler] = {"$cbs": grant_token, "$management": not_implemented}
        self.attach_errors: dict[str, AmqpError] = {}
        """Errors that refuse all links, by address."""
        self.rejections: dict[str, AmqpError] = {}
        """Errors that reject all messages, by address."""
        self.outcomes: dict[str, Any] = {}
        """Outcomes of all messages, which are then not stored, by address."""
        self.settlement_errors: dict[str, AmqpError] = {}
        """Errors that answer settlements of clients that wait for an answer, by address."""
        self.cut_after: int | None = None
        """Counts deliveries in both directions down. At the last one the connection is cut."""
        self.on_data: Callable[[int, str, bytes], None] | None = None
        """Called with all data, without TLS: number of the connection, "in" or "out", data."""
        self.intercept: Callable[[ServerConnection, ev.Event], bool] | None = None
        """Called with every event first. Returns True if the server must not handle the event."""

        self.queues: dict[str, deque[Entry]] = defaultdict(deque)
        self.dead_lettered: dict[str, list[Entry]] = defaultdict(list)
        self.deferred: dict[str, list[Entry]] = defaultdict(list)
        """Messages with the outcome Modified(undeliverable_here), with which the SDK defers."""

        self.authenticated: list[ev.Authenticated] = []
        self.opens: list[Open] = []
        self.attaches: list[Attach] = []
        self.received: list[Received] = []
        self.settlements: list[Settlement] = []
        self.requests: list[Request] = []
        self.drains = self.cuts = 0
        self.errors: list[AmqpError] = []
        """Errors with which clients ended links, sessions and connections."""
        self.violations: list[AmqpError] = []
        """Errors with which the engine ended them because a client violated the protocol."""
        self.failures: list[dict[str, Any]] = []
        """Exceptions in the event loop, which are bugs of this server."""

        self.changed = threading.Condition()
        self.numbers = itertools.count()
        self.connections: set[ServerConnection] = set()
        self.endpoints: set[LinkEndpoint] = set()
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _, context: self.failures.append(context))
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"memory-server-{self.port}")

    def __enter__(self) -> "MemoryServer":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Cut all connections and stop. Idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(DEADLINE_S)
        self._listener.close()
        self._loop.close()

    def wait_for(self, condition: Callable[[], T], timeout: float = DEADLINE_S) -> T:
        """Wait until the condition returns a true value, and return it. Raises TimeoutError."""
        with self.changed:
            result = self.changed.wait_for(condition, timeout)
            if not result:
                raise TimeoutError(f"the condition was not met within {timeout:g} seconds")
            return result  # type: ignore[return-value]

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the server's thread, and write the output of the engine."""

        async def run() -> T:
            with self.changed:
                result = function()
                self.flush()
                return result

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(DEADLINE_S)

    def put(self, address: str, *payloads: bytes, message_format: int = 0) -> None:
        """Add messages to a queue."""
        entries = [Entry(payload, message_format) for payload in payloads]
        self.call(lambda: self.store(address, entries))

    def cut(self) -> None:
        """Close the sockets of all connections without a close frame."""
        self.call(lambda: [connection.cut() for connection in self.connections])

    # The following methods run in the server's thread.

    def store(self, address: str, entries: Iterable[Entry]) -> None:
        self.queues[address].extend(entries)
        self.send_queued(self.queues[address])

    def send_queued(self, queue: deque[Entry]) -> None:
        for endpoint in list(self.endpoints):
            if endpoint.queue is queue:
                endpoint.send_queued()

    def flush(self) -> None:
        for connection in list(self.connections):
            connection.flush()
        self.changed.notify_all()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await self._loop.create_server(
            lambda: ServerConnection(self, self._loop), sock=self._listener, ssl=self._tls
        )
        await self._stop.wait()
        server.close()
        closed = [connection.closed for connection in self.connections]
        for connection in list(self.connections):
            connection.transport.abort()
        if closed:
            await asyncio.wait(closed, timeout=DEADLINE_S)


@dataclass(eq=False)
class LinkEndpoint:
    """A link endpoint of the server, with its queue and its unsettled entries."""

    connection: "ServerConnection"
    link: Any  # a SenderLink or a ReceiverLink
    address: str
    queue: deque[Entry]
    unsettled: dict[ev.OutgoingDelivery, Entry] = field(default_factory=dict)

    @property
    def is_node(self) -> bool:
        return self.address == "$cbs" or self.address.endswith("$management")

    def send_queued(self) -> None:
        """Send entries of the queue while there is credit, and answer a drain."""
        link = self.link
        if not isinstance(link, SenderLink):
            return
        settled = link.settle_mode == SETTLE_SETTLED
        while self.queue and link.credit > 0:
            if not self.is_node and self.connection.is_cut_at_this_delivery():
                return
            entry = self.queue.popleft()
            # The Azure SDK uses the delivery tag as the lock token.
            tag = uuid.uuid4().bytes_le
            delivery = link.send(
                entry.payload, tag=tag, message_format=entry.message_format, settled=settled
            )
            if not settled:
                self.unsettled[delivery] = entry
        if link.drain:
            link.drained()

    def requeue_unsettled(self) -> None:
        """Return the unsettled entries of a link that ended to the queue, in order."""
        self.queue.extendleft(reversed(self.unsettled.values()))
        self.unsettled.clear()


class ServerConnection(asyncio.Protocol):
    """A connection: a socket, an engine, and the handlers of the engine's events."""

    transport: asyncio.Transport

    def __init__(self, server: MemoryServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.loop = loop
        self.engine = Connection(server.settings, sasl=server.sasl, client=False, now=loop.time())
        self.number = next(server.numbers)
        self.closed = loop.create_future()
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self.server.on_data is not None:
            self.server.on_data(self.number, "in", data)
        self.handle(self.engine.receive(data, self.loop.time()))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.server.connections.discard(self)
        reason = str(exc) if exc else "the client closed the socket"
        self.handle(self.engine.connection_lost(reason))
        self.closed.set_result(None)

    def tick(self) -> None:
        self.handle(self.engine.tick(self.loop.time()))

    def handle(self, events: list[ev.Event]) -> None:
        with self.server.changed:
            for event in events:
                if not self.transport.is_closing() or isinstance(event, ev.Closed):
                    self.on_event(event)
            self.server.flush()  # A message of one client can become a delivery to another.

    def flush(self) -> None:
        """Write the output of the engine, and schedule its next tick."""
        if self.transport.is_closing():
            return
        data = self.engine.data_to_send(self.loop.time())
        if data:
            if self.server.on_data is not None:
                self.server.on_data(self.number, "out", data)
            self.transport.write(data)
        if self.timer is not None:
            self.timer.cancel()
        deadline = self.engine.deadline
        self.timer = None if deadline is None else self.loop.call_at(deadline, self.tick)
        if self.engine.closed:
            self.transport.close()

    def cut(self) -> None:
        self.server.cuts += 1
        self.transport.abort()

    def is_cut_at_this_delivery(self) -> bool:
        if self.server.cut_after is not None:
            self.server.cut_after -= 1
            if self.server.cut_after <= 0:
                self.server.cut_after = None
                self.cut()
        return self.transport.is_closing()

    def on_event(self, event: ev.Event) -> None:
        server = self.server
        if server.intercept is not None and server.intercept(self, event):
            return
        match event:
            case ev.Authenticated():
                server.authenticated.append(event)
            case ev.Opened(open=open_):
                server.opens.append(open_)
                limit = server.outgoing_frame_size
                if limit is not None and limit < open_.max_frame_size:
                    self.engine.remote_max_frame_size = limit
            case ev.AttachReceived(link=link):
                self.on_attach(link)
            case ev.Delivery():
                self.on_delivery(event)
            case ev.FlowReceived(link=SenderLink(context=LinkEndpoint() as endpoint) as link):
                server.drains += link.drain
                endpoint.send_queued()
            case ev.OutgoingDeliveriesUpdated():
                self.on_outgoing_updated(event)
            case ev.Detached(link=link):
                self.on_end(event, lambda endpoint: endpoint.link is link)
            case ev.Ended(session=session):
                self.on_end(event, lambda endpoint: endpoint.link.session is session)
            case ev.Closed():
                self.on_end(event, lambda endpoint: True)

    def on_attach(self, link: Link) -> None:
        server, attach = self.server, link.remote
        assert attach is not None
        server.attaches.append(attach)
        sends = isinstance(link, SenderLink)
        terminus = attach.source if sends else attach.target
        if isinstance(terminus, Source | Target) and terminus.dynamic:
            terminus = replace(terminus, address=f"dynamic-{uuid.uuid4()}")
        address = path_of(terminus)
        if address is None:
            link.refuse(AmqpError("the address is missing", condition="amqp:invalid-field"))
        elif address in server.attach_errors:
            link.refuse(server.attach_errors[address])
        else:
            link.context = endpoint = LinkEndpoint(self, link, address, server.queues[address])
            server.endpoints.add(endpoint)
            if sends:
                if endpoint.is_node:
                    endpoint.queue = deque()  # Responses are only for this link.
                if server.ignore_limits:
                    link.remote_max_message_size = None
                link.accept(source=terminus)
            else:
                limit = server.max_message_size
                link.accept(
                    target=terminus,
                    # The Azure SDK requests settle mode second, but waits for us to settle first.
                    rcv_settle_mode=SETTLE_FIRST,
                    max_message_size=limit,
                    # The Azure SDK limits batches by this property, not by max_message_size.
                    properties=None if limit is None else {BATCH_LIMIT: ULong(limit)},
                )
                endpoint.link.flow(server.credit)

    def on_delivery(self, delivery: ev.Delivery) -> None:
        server, endpoint = self.server, delivery.link.context
        state: Any = Accepted()
        try:
            if endpoint.is_node:
                self.respond(endpoint, Message.parse(delivery.payload))
            elif not self.store(endpoint.address, delivery):
                return
        except DecodeError as exc:
            state = Rejected(Error.of(exc))
        if endpoint.address in server.rejections:
            state = Rejected(Error.of(server.rejections[endpoint.address]))
        state = server.outcomes.get(endpoint.address, state)
        if not delivery.settled:
            delivery.link.session.settle(delivery.id, delivery.id, state)
        if delivery.link.credit <= server.credit // 2:
            delivery.link.flow(server.credit)

    def store(self, address: str, delivery: ev.Delivery) -> bool:
        """Store a delivery in its queue. Return False if the connection is cut instead."""
        server, payload, message_format = self.server, delivery.payload, delivery.message_format
        server.received.append(Received(address, payload, message_format, delivery.settled))
        if self.is_cut_at_this_delivery():
            return False
        if address not in server.rejections and address not in server.outcomes:
            if server.split_batches and message_format == BATCH_FORMAT:
                server.store(address, map(Entry, split_batch(payload)))
            else:
                server.store(address, [Entry(payload, message_format)])
        return True

    def respond(self, node: LinkEndpoint, message: Message) -> None:
        """Send the response of a handler on the link on which the client receives responses."""
        server, arguments = self.server, message.read_application_properties()
        properties = message.read_properties()
        # Requests of proton have a correlation id, but no message id.
        request_id = properties.message_id
        if request_id is None:
            request_id = properties.correlation_id
        operation = arguments.get("operation")
        request = Request(node.address, operation, arguments, message.read_value())
        server.requests.append(request)
        name = node.address.rpartition("/")[2]
        response = server.handlers[name](request)
        status, description = "status-code", "status-description"
        if name == "$management":
            status, description = "statusCode", "statusDescription"
        result: dict[str, Any] = {
            status: Int32(response.status),
            description: response.description,
        }
        if response.error_condition is not None:
            result["errorCondition"] = Symbol(response.error_condition)
        reply = Message.build(
            properties=Properties(correlation_id=request_id),
            application_properties=result,
            value=response.body,
        )
        senders = [
            endpoint
            for endpoint in server.endpoints
            if endpoint.connection is self and isinstance(endpoint.link, SenderLink)
        ]
        matching = [
            sender for sender in senders if properties.reply_to in addresses_of(sender.link)
        ]
        if not matching:  # CBS requests of the Azure SDK have no reply-to.
            matching = [sender for sender in senders if sender.address == node.address]
        for sender in matching[:1]:
            sender.queue.append(Entry(reply.encode()))
            sender.send_queued()

    def on_outgoing_updated(self, event: ev.OutgoingDeliveriesUpdated) -> None:
        """Apply the outcome of deliveries that we sent, and settle them if the client waits."""
        server, state = self.server, event.state
        requeued = []
        if not event.settled and not isinstance(state, OUTCOMES):
            return  # Not a final outcome.
        for delivery in event.deliveries:
            endpoint = delivery.link.context
            entry = endpoint.unsettled.pop(delivery)
            address = endpoint.address
            server.settlements.append(Settlement(address, entry.payload, state, event.settled))
            if isinstance(state, Rejected):
                server.dead_lettered[address].append(entry)
            elif isinstance(state, Modified) and state.undeliverable_here:
                server.deferred[address].append(entry)
            elif not isinstance(state, Accepted):
                entry.attempts += isinstance(state, Modified) and state.delivery_failed
                requeued.append((endpoint.queue, entry))
        if not event.settled:
            # For the Azure SDK, an error in the answer means that its settlement failed.
            answer = Rejected() if isinstance(state, Rejected) else state
            error = server.settlement_errors.get(event.deliveries[0].link.context.address)
            if error is not None:
                answer = Rejected(Error.of(error))
            event.session.confirm(event.deliveries[0].id, event.deliveries[-1].id, answer)
        for queue, entry in reversed(requeued):
            queue.appendleft(entry)
        for queue, _ in requeued:
            server.send_queued(queue)

    def on_end(self, event: Any, affects: Callable[[LinkEndpoint], bool]) -> None:
        server = self.server
        if event.error is not None:
            # A client may close its socket instead of answering our close.
            by_client = event.by_peer or isinstance(event.error, ConnectionLost)
            (server.errors if by_client else server.violations).append(event.error)
        ended = [
            endpoint
            for endpoint in server.endpoints
            if endpoint.connection is self and affects(endpoint)
        ]
        server.endpoints.difference_update(ended)
        for endpoint in ended:
            endpoint.requeue_unsettled()
            server.send_queued(endpoint.queue)


def path_of(terminus: Any) -> str | None:
    """Return the path of an entity. The Azure SDK sends addresses as `amqps://host:port/path`."""
    address = getattr(terminus, "address", None)
    if not isinstance(address, str):
        return None
    return address.split("/", 3)[3] if "://" in address else address


def addresses_of(link: Link) -> set[Any]:
    """Return the source and target addresses of a link on which the client receives."""
    assert link.local is not None
    assert link.remote is not None
    termini = (link.local.source, link.remote.source, link.remote.target)
    return {getattr(terminus, "address", None) for terminus in termini} - {None}
