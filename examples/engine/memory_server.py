"""A small AMQP 1.0 server on the engine: queues in memory, one thread, one event loop.

    with MemoryServer() as server:
        ...any AMQP client sends to an address at 127.0.0.1, server.port, and receives from it...
        server.wait_for(lambda: server.received)

It shows how a program drives `pairbus.amqp`: bytes from a socket go into a Connection, each event
is answered by a call on a link or session, and what the engine has to say goes to the socket. The
tests put clients that others wrote against it, so it has knobs for faults and keeps what it saw.
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
from pairbus.amqp.connection import Connection, ConnectionSettings
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
from pairbus.amqp.types import Int32, Symbol, ULong
from pairbus.errors import AmqpError, DecodeError

T = TypeVar("T")
DEADLINE_S = 20.0
BATCH_LIMIT = Symbol("com.microsoft:max-message-batch-size")
OUTCOMES = (Accepted, Rejected, Released, Modified)


@dataclass(eq=False, slots=True)
class Entry:
    """What lies in a queue: the bytes of one delivery."""

    payload: bytes
    message_format: int = 0
    attempts: int = 0


class Received(NamedTuple):
    """A delivery that a peer sent to an address."""

    address: str
    payload: bytes
    message_format: int
    settled: bool


class Settlement(NamedTuple):
    """What a peer said of a delivery that we sent; `settled`: without waiting for our answer."""

    address: str
    payload: bytes
    state: Any
    settled: bool


class Request(NamedTuple):
    """A message that was sent to a `$cbs` or `$management` node."""

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
    said = f"{request.operation} is not implemented"
    return Response(501, said, error_condition="amqp:not-implemented")


def offer(*mechanisms: str, users: Mapping[str, str] | None = None) -> SaslServer:
    """SASL with these mechanisms; PLAIN lets in `users`, names with their passwords."""

    def check_plain(response: bytes) -> str | None:
        name, password = parse_plain_response(response) or ("", "")
        return name if users and users.get(name) == password else None

    return SaslServer({m: check_plain if m == "PLAIN" else lambda _: "peer" for m in mechanisms})


class MemoryServer:
    """The server. Its fields change in its own thread: read them with `wait_for`, and change them
    before the start or with `call`."""

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
        unbatch: bool = False,
        **settings: Any,
    ) -> None:
        """`settings` are those of the engine: idle_timeout_s, max_frame_size, incoming_window..."""
        self.settings = ConnectionSettings(container_id="memory-server", **settings)
        self.sasl = sasl
        self.max_message_size = max_message_size
        self.outgoing_frame_size = outgoing_frame_size
        """Send frames of this size at most, also to a peer that takes larger ones."""
        self.ignore_limits = ignore_limits
        """Send messages that are larger than the peer says it takes: the Azure SDK takes them."""
        self.credit = credit
        self.unbatch = unbatch
        """Whether a Service Bus batch is put into the queue as single messages."""
        self.handlers: dict[str, Handler] = {"$cbs": grant_token, "$management": not_implemented}
        self.refuse: dict[str, AmqpError] = {}
        """Addresses at which no link may attach."""
        self.reject: dict[str, AmqpError] = {}
        """Addresses at which every message is rejected."""
        self.outcomes: dict[str, Any] = {}
        """Addresses at which every message has this outcome instead of being kept."""
        self.deny: dict[str, AmqpError] = {}
        """Addresses at which no settlement is granted to a peer that waits for it."""
        self.drop_after: int | None = None
        """Count down deliveries, either way; at the last one its connection is cut instead."""
        self.tap: Callable[[int, str, bytes], None] | None = None
        """Is shown all bytes, TLS taken off: number of the connection, "in" or "out", bytes."""
        self.intercept: Callable[[Peer, ev.Event], bool] | None = None
        """Is shown every event first; where it gives True, it has dealt with it."""

        self.queues: dict[str, deque[Entry]] = defaultdict(deque)
        self.dead: dict[str, list[Entry]] = defaultdict(list)
        self.aside: dict[str, list[Entry]] = defaultdict(list)
        """What a peer did not want to see again: the Azure SDK's way to defer."""

        self.authenticated: list[ev.Authenticated] = []
        self.opens: list[Open] = []
        self.attaches: list[Attach] = []
        self.received: list[Received] = []
        self.settlements: list[Settlement] = []
        self.requests: list[Request] = []
        self.drains = self.drops = 0
        self.errors: list[AmqpError] = []
        """Why peers ended links, sessions and connections, where they said, or hung up."""
        self.violations: list[AmqpError] = []
        """Why the engine did, because a peer broke the protocol."""
        self.failures: list[dict[str, Any]] = []
        """Bugs of this server."""

        self.changed = threading.Condition()
        self.numbers = itertools.count()
        self.peers: set[Peer] = set()
        self.ends: set[LinkEnd] = set()
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
        """Cut all connections and stop. May be called again."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(DEADLINE_S)
        self._listener.close()
        self._loop.close()

    def wait_for(self, condition: Callable[[], T], timeout: float = DEADLINE_S) -> T:
        """Wait until the condition holds, and give what it gave; TimeoutError if it does not."""
        with self.changed:
            result = self.changed.wait_for(condition, timeout)
            if not result:
                raise TimeoutError(f"the server did not come to that in {timeout:g} seconds")
            return result  # type: ignore[return-value]

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the server's thread, and send what it gave the engine to send."""

        async def run() -> T:
            with self.changed:
                result = function()
                self.flush()
                return result

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(DEADLINE_S)

    def put(self, address: str, *payloads: bytes, message_format: int = 0) -> None:
        """Put messages into a queue."""
        entries = [Entry(payload, message_format) for payload in payloads]
        self.call(lambda: self.store(address, entries))

    def cut(self) -> None:
        """Cut all connections, without a word."""
        self.call(lambda: [peer.cut() for peer in self.peers])

    # What follows runs in the server's thread.

    def store(self, address: str, entries: Iterable[Entry]) -> None:
        self.queues[address].extend(entries)
        self.pump(self.queues[address])

    def pump(self, queue: deque[Entry]) -> None:
        for end in list(self.ends):
            if end.queue is queue:
                end.pump()

    def flush(self) -> None:
        for peer in list(self.peers):
            peer.flush()
        self.changed.notify_all()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await self._loop.create_server(
            lambda: Peer(self, self._loop), sock=self._listener, ssl=self._tls
        )
        await self._stop.wait()
        server.close()
        gone = [peer.gone for peer in self.peers]
        for peer in list(self.peers):
            peer.transport.abort()
        if gone:
            await asyncio.wait(gone, timeout=DEADLINE_S)


@dataclass(eq=False)
class LinkEnd:
    """Our end of a link: which queue it is for, and what is in the peer's hands."""

    peer: "Peer"
    link: Any  # a SenderLink or a ReceiverLink
    address: str
    queue: deque[Entry]
    unsettled: dict[ev.OutgoingDelivery, Entry] = field(default_factory=dict)

    @property
    def is_node(self) -> bool:
        return self.address == "$cbs" or self.address.endswith("$management")

    def pump(self) -> None:
        """Send what the queue has and the credit allows; answer a drain."""
        link = self.link
        if not isinstance(link, SenderLink):
            return
        settled = link.settle_mode == SETTLE_SETTLED
        while self.queue and link.credit > 0:
            if not self.is_node and self.peer.is_cut_at_this_delivery():
                return
            entry = self.queue.popleft()
            # The Azure SDK takes a tag for the token of the message's lock.
            tag = uuid.uuid4().bytes_le
            sent = link.send(
                entry.payload, tag=tag, message_format=entry.message_format, settled=settled
            )
            if not settled:
                self.unsettled[sent] = entry
        if link.drain:
            link.drained()

    def give_back(self) -> None:
        """Return what the peer held when the link ended, in order."""
        self.queue.extendleft(reversed(self.unsettled.values()))
        self.unsettled.clear()


class Peer(asyncio.Protocol):
    """One connection: a socket, an engine, and the answers to the engine's events."""

    transport: asyncio.Transport

    def __init__(self, server: MemoryServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.loop = loop
        self.connection = Connection(
            server.settings, sasl=server.sasl, client=False, now=loop.time()
        )
        self.number = next(server.numbers)
        self.gone = loop.create_future()
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.peers.add(self)

    def data_received(self, data: bytes) -> None:
        if self.server.tap is not None:
            self.server.tap(self.number, "in", data)
        self.handle(self.connection.receive(data, self.loop.time()))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.server.peers.discard(self)
        self.handle(self.connection.connection_lost(str(exc) if exc else "the peer hung up"))
        self.gone.set_result(None)

    def tick(self) -> None:
        self.handle(self.connection.tick(self.loop.time()))

    def handle(self, events: list[ev.Event]) -> None:
        with self.server.changed:
            for event in events:
                if not self.transport.is_closing() or isinstance(event, ev.Closed):
                    self.on_event(event)
            self.server.flush()  # a message from one peer may have become a delivery to another

    def flush(self) -> None:
        """Write what the engine has to say, and set the clock for what it will say of itself."""
        if self.transport.is_closing():
            return
        data = self.connection.data_to_send(self.loop.time())
        if data:
            if self.server.tap is not None:
                self.server.tap(self.number, "out", data)
            self.transport.write(data)
        if self.timer is not None:
            self.timer.cancel()
        deadline = self.connection.deadline
        self.timer = None if deadline is None else self.loop.call_at(deadline, self.tick)
        if self.connection.closed:
            self.transport.close()

    def cut(self) -> None:
        self.server.drops += 1
        self.transport.abort()

    def is_cut_at_this_delivery(self) -> bool:
        if self.server.drop_after is not None:
            self.server.drop_after -= 1
            if self.server.drop_after <= 0:
                self.server.drop_after = None
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
                    self.connection.remote_max_frame_size = limit
            case ev.AttachReceived(link=link):
                self.on_attaching(link)
            case ev.Delivery():
                self.on_delivery(event)
            case ev.FlowReceived(link=SenderLink(context=LinkEnd() as end) as link):
                server.drains += link.drain
                end.pump()
            case ev.OutgoingDeliveriesUpdated():
                self.on_outcome(event)
            case ev.Detached(link=link):
                self.on_end(event, lambda end: end.link is link)
            case ev.Ended(session=session):
                self.on_end(event, lambda end: end.link.session is session)
            case ev.Closed():
                self.on_end(event, lambda end: True)

    def on_attaching(self, link: Link) -> None:
        server, asked = self.server, link.remote
        assert asked is not None
        server.attaches.append(asked)
        sends = isinstance(link, SenderLink)
        terminus = asked.source if sends else asked.target
        if isinstance(terminus, Source | Target) and terminus.dynamic:
            terminus = replace(terminus, address=f"dynamic-{uuid.uuid4()}")
        address = path_of(terminus)
        if address is None:
            link.refuse(AmqpError("an address is needed", condition="amqp:invalid-field"))
        elif address in server.refuse:
            link.refuse(server.refuse[address])
        else:
            link.context = end = LinkEnd(self, link, address, server.queues[address])
            server.ends.add(end)
            if sends:
                if end.is_node:
                    end.queue = deque()  # answers are for this link alone
                if server.ignore_limits:
                    link.remote_max_message_size = None
                link.accept(source=terminus)
            else:
                limit = server.max_message_size
                link.accept(
                    target=terminus,
                    # The Azure SDK asks to settle second, and then waits for us to settle first.
                    rcv_settle_mode=SETTLE_FIRST,
                    max_message_size=limit,
                    # By this, and not by the field above, the Azure SDK knows how large a batch is.
                    properties=None if limit is None else {BATCH_LIMIT: ULong(limit)},
                )
                end.link.flow(server.credit)

    def on_delivery(self, delivery: ev.Delivery) -> None:
        server, end = self.server, delivery.link.context
        state: Any = Accepted()
        try:
            if end.is_node:
                self.answer(end, Message.parse(delivery.payload))
            elif not self.take(end.address, delivery):
                return
        except DecodeError as exc:
            state = Rejected(Error.of(exc))
        if end.address in server.reject:
            state = Rejected(Error.of(server.reject[end.address]))
        state = server.outcomes.get(end.address, state)
        if not delivery.settled:
            delivery.link.session.settle(delivery.id, delivery.id, state)
        if delivery.link.credit <= server.credit // 2:
            delivery.link.flow(server.credit)

    def take(self, address: str, delivery: ev.Delivery) -> bool:
        """Put a delivery into its queue; False where the connection is cut instead."""
        server, payload, message_format = self.server, delivery.payload, delivery.message_format
        server.received.append(Received(address, payload, message_format, delivery.settled))
        if self.is_cut_at_this_delivery():
            return False
        if address not in server.reject and address not in server.outcomes:
            if server.unbatch and message_format == BATCH_FORMAT:
                server.store(address, map(Entry, split_batch(payload)))
            else:
                server.store(address, [Entry(payload, message_format)])
        return True

    def answer(self, node: LinkEnd, message: Message) -> None:
        """Let a handler answer a request, on the link that the peer receives answers on."""
        server, asked = self.server, message.read_application_properties()
        properties = message.read_properties()
        # Proton gives its requests a correlation id alone.
        asked_id = properties.message_id
        if asked_id is None:
            asked_id = properties.correlation_id
        request = Request(node.address, asked.get("operation"), asked, message.read_value())
        server.requests.append(request)
        name = node.address.rpartition("/")[2]
        response = server.handlers[name](request)
        code, text = ("status-code", "status-description")
        if name == "$management":
            code, text = ("statusCode", "statusDescription")
        result: dict[str, Any] = {code: Int32(response.status), text: response.description}
        if response.error_condition is not None:
            result["errorCondition"] = Symbol(response.error_condition)
        reply = Message.build(
            properties=Properties(correlation_id=asked_id),
            application_properties=result,
            value=response.body,
        )
        ends = [end for end in server.ends if end.peer is self and isinstance(end.link, SenderLink)]
        named = [end for end in ends if properties.reply_to in addresses_of(end.link)]
        # The Azure SDK's CBS gives no reply-to: the answer belongs to the link from the same node.
        for end in (named or [end for end in ends if end.address == node.address])[:1]:
            end.queue.append(Entry(reply.encode()))
            end.pump()

    def on_outcome(self, event: ev.OutgoingDeliveriesUpdated) -> None:
        """Do with our deliveries as the peer says, and confirm it where the peer waits for that."""
        server, state = self.server, event.state
        again = []
        if not event.settled and not isinstance(state, OUTCOMES):
            return  # still under way
        for sent in event.deliveries:
            end = sent.link.context
            entry = end.unsettled.pop(sent)
            server.settlements.append(Settlement(end.address, entry.payload, state, event.settled))
            if isinstance(state, Rejected):
                server.dead[end.address].append(entry)
            elif isinstance(state, Modified) and state.undeliverable_here:
                server.aside[end.address].append(entry)
            elif not isinstance(state, Accepted):
                entry.attempts += isinstance(state, Modified) and state.delivery_failed
                again.append((end.queue, entry))
        if not event.settled:
            # An error in the echo says to the Azure SDK that its settlement has failed.
            echo = Rejected() if isinstance(state, Rejected) else state
            denied = server.deny.get(event.deliveries[0].link.context.address)
            if denied is not None:
                echo = Rejected(Error.of(denied))
            event.session.confirm(event.deliveries[0].id, event.deliveries[-1].id, echo)
        for queue, entry in reversed(again):
            queue.appendleft(entry)
        for queue, _ in again:
            server.pump(queue)

    def on_end(self, event: Any, concerned: Callable[[LinkEnd], bool]) -> None:
        server = self.server
        if event.error is not None:
            (server.errors if event.by_peer else server.violations).append(event.error)
        ended = [end for end in server.ends if end.peer is self and concerned(end)]
        server.ends.difference_update(ended)
        for end in ended:
            end.give_back()
            server.pump(end.queue)


def path_of(terminus: Any) -> str | None:
    """The entity's path: the Azure SDK gives addresses as `amqps://host:port/path`."""
    address = getattr(terminus, "address", None)
    if not isinstance(address, str):
        return None
    return address.split("/", 3)[3] if "://" in address else address


def addresses_of(link: Link) -> set[Any]:
    """Where the peer's receiving link comes from and goes to, as we agreed."""
    assert link.local is not None
    assert link.remote is not None
    termini = (link.local.source, link.remote.source, link.remote.target)
    return {getattr(terminus, "address", None) for terminus in termini} - {None}
