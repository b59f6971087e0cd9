"""A blocking client: one connection, one session, any number of links.

The client is not thread-safe. Every call has a timeout and raises an error of `pairbus.errors`.
When the connection ends, calls on its links fail with ConnectionLost. The next call on a link or on
the client connects and attaches again. The client never resends a message by itself.
"""

import itertools
import logging
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from pairbus.amqp.client.connect import ClientTransport, open_transport
from pairbus.amqp.client.error_translation import translate_error
from pairbus.amqp.client.options import ClientOptions
from pairbus.amqp.connection import Connection
from pairbus.amqp.events import (
    AttachReceived,
    Closed,
    Delivery,
    Detached,
    Ended,
    Event,
    FlowReceived,
    IncomingDeliveriesUpdated,
    OutgoingDeliveriesUpdated,
)
from pairbus.amqp.link import Link, SenderLink
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.session import Session
from pairbus.amqp.settings import ConnectionSettings
from pairbus.amqp.types import Symbol
from pairbus.errors import (
    AmqpError,
    ConnectionLost,
    LinkLost,
    OperationTimeout,
    Refused,
    StateError,
    Unavailable,
)
from pairbus.servicebus.entity_paths import without_management_node
from pairbus.servicebus.sockets import Clock
from pairbus.servicebus.tokens import acquire_token

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
RENEW_AT = 0.9
"""The fraction of its lifetime after which a token is renewed."""
RENEW_RETRY_S = 10.0
"""The pause after a renewal that failed, while the current token may still be valid."""
SILENT_S = 5.0
"""The time after which a peer that owes an answer, and sends nothing at all, is taken for gone."""


class Client:
    """A connection to a namespace, opened by the first call that needs it and after its loss."""

    def __init__(
        self,
        options: ClientOptions,
        *,
        clock: Clock = time.monotonic,
        wall_clock: Clock = time.time,
    ) -> None:
        self.options = options
        self._clock = clock
        self._wall_clock = wall_clock
        self._tls = options.ssl_context()
        self._container_id = f"pairbus-{uuid4()}"
        self._names = itertools.count(1)
        self._transport: ClientTransport | None = None
        self._engine: Connection | None = None
        self._session: Session | None = None
        self._lost: AmqpError | None = None
        self._ended: AmqpError | None = None
        self._renewals: dict[str, float] = {}
        self._cbs: Any = None
        self._closed = False
        self.generation = 0
        """The number of connections so far."""

    def __enter__(self) -> "Client":
        self.connect()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def connect(self, timeout_s: float | None = None) -> None:
        """Connect unless connected. Raises NotAuthorized, ConnectionLost or OperationTimeout."""
        if self._closed:
            raise StateError("the client is closed")
        if self._engine is not None:
            self.step(self._clock())  # The connection may have ended since the last call.
        if self._engine is not None:
            return
        options = self.options
        wait = options.connect_timeout_s if timeout_s is None else timeout_s
        deadline = self._clock() + wait
        host, port = options.address
        self._transport = open_transport(options, self._tls, deadline, self._clock)
        self._lost = self._ended = None
        self._renewals.clear()
        self._cbs = None
        self.generation += 1
        try:
            self._engine = Connection(
                ConnectionSettings(
                    container_id=self._container_id,
                    hostname=options.host,
                    max_frame_size=options.max_frame_size,
                    idle_timeout_s=options.idle_timeout_s,
                    properties={Symbol("product"): "pairbus"},
                ),
                sasl=SaslClient.anonymous() if options.sasl is None else options.sasl,
                now=self._clock(),
            )
            self.session(deadline)
        except BaseException:
            self._disconnect()
            raise
        logger.debug("Connected to %s:%d.", host, port)

    def session(self, deadline: float) -> Session:
        """Return the session of the links. Begin a new one if the previous one ended."""
        engine = self._engine
        if engine is None:
            raise self._lost or ConnectionLost("there is no connection")
        if self._session is None or self._session.ended:
            host, port = self.options.address
            server = f"{host}:{port}"
            self.run_until(lambda: engine.remote is not None, deadline, f"the open of {server}")
            if self._lost is not None:  # A server that refuses a connection sends open and close.
                raise self._lost
            session = self._session = engine.begin()
            self.run_until(lambda: session.begun, deadline, f"the begin of {server}")
            if session.ended:
                raise self._session_error()
        return self._session

    def _session_error(self) -> AmqpError:
        return self._lost or self._ended or LinkLost("the session was ended")

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Close the connection, and wait at most `timeout_s` for the peer. Idempotent. Return
        whether the peer has answered."""
        self._closed = True
        engine = self._engine
        if engine is not None and not engine.closed:
            engine.close()
            try:
                self.run_until(
                    lambda: engine.closed,
                    self._clock() + timeout_s,
                    "the close of the peer",
                    may_be_silent=True,
                )
            except AmqpError as exc:
                logger.debug("The peer did not answer the close: %s", exc)
        self._disconnect()
        return engine is not None and engine.closed_by_peer

    def _disconnect(self) -> None:
        transport, engine = self._transport, self._engine
        self._transport = self._engine = None
        if engine is not None:
            for event in engine.connection_lost("the client closed the connection"):
                self._dispatch(event)
        if transport is not None:
            if engine is not None:
                transport.flush(engine.data_to_send(), self._clock() + 1)
            transport.close()
        self._session = None

    # The following methods are for senders, receivers and request-response links.

    def deadline(self, timeout_s: float | None) -> float:
        wait = self.options.operation_timeout_s if timeout_s is None else timeout_s
        return self._clock() + wait

    def now(self) -> float:
        return self._clock()

    def link_name(self, prefix: str) -> str:
        return f"{prefix}-{next(self._names)}-{self._container_id[-12:]}"

    def authorize(self, path: str, deadline: float) -> None:
        """Send a token for an entity path over CBS, unless the current token is still valid."""
        path = without_management_node(path)  # The token of the entity is valid for it.
        source = self.options.tokens
        if source is None or self._clock() < self._renewals.get(path, float("-inf")):
            return
        if self._cbs is None:
            from pairbus.amqp.client.request_response import Cbs  # It imports this module.

            self._cbs = Cbs(self)
        audience = self.options.audience(path)
        token = acquire_token(source, audience, self._wall_clock())
        self._cbs.put_token(token, audience, deadline)
        lifetime = token.expires_at - self._wall_clock()
        self._renewals[path] = self._clock() + lifetime * RENEW_AT
        logger.debug("The token for %s is valid for %.0f s.", audience, lifetime)

    def token_renewal(self, path: str) -> float:
        """Return the time at which the token for a path is due for renewal."""
        return self._renewals.get(without_management_node(path), float("inf"))

    def renew_token(self, path: str) -> None:
        """Send a new token for the path of a link that waits, if it is due. Other calls do so by
        themselves. If no token can be acquired now, it is tried again later."""
        if self._clock() < self.token_renewal(path):
            return
        try:
            self.authorize(path, self.deadline(None))
        except Unavailable as exc:
            logger.warning("The token for %r could not be renewed yet: %s", path, exc)
            self._renewals[without_management_node(path)] = self._clock() + RENEW_RETRY_S

    def forget_token(self, path: str) -> None:
        """Send a new token for a path next time, because the namespace rejected the current one."""
        self._renewals.pop(without_management_node(path), None)

    def run_until(
        self,
        done: Callable[[], bool],
        deadline: float,
        expected: str,
        *,
        may_be_silent: bool = False,
    ) -> None:
        """Exchange frames until `done()` is true.

        Raises OperationTimeout at the deadline, and the error of the connection if it ends first.
        `expected` names what the client waits for. At a timeout, the connection is given up if the
        peer sent nothing for `SILENT_S`, unless it may be silent: its host may be gone, which TCP
        notices after many minutes.
        """
        began = self._clock()
        timed_out = False
        while not done():
            if self._lost is not None:
                raise self._lost
            if timed_out:
                error = OperationTimeout(f"timed out waiting for {expected}")
                if not may_be_silent and self._is_silent_since(began):
                    self._give_up(error)
                raise error
            self.step(deadline)
            timed_out = self._clock() >= deadline  # Also if the peer sends without pause.

    def _is_silent_since(self, when: float) -> bool:
        engine = self._engine
        if engine is None or self._clock() - when < SILENT_S:
            return False
        return engine.last_received <= when

    def _give_up(self, error: AmqpError) -> None:
        """End the connection, so that the next call connects again."""
        self._lost = error
        self._fail_links(error)
        self._disconnect()

    def step(self, deadline: float) -> bool:
        """Write pending output, wait for input until the deadline, and dispatch its events.

        Return False if nothing arrived.
        """
        engine, transport = self._engine, self._transport
        if engine is None or transport is None:
            raise self._lost or ConnectionLost("there is no connection")
        now = self._clock()
        data = b""
        events: list[Event] = []
        try:
            if engine.deadline is not None and engine.deadline <= now:
                # The client reads only during calls. Data that arrived since the last call shows
                # that the peer is alive.
                data = transport.exchange(b"", now)
                if not data and engine.tick(now):
                    raise ConnectionLost(
                        f"the peer sent nothing for {self.options.idle_timeout_s:g} s"
                    )
            if not data:
                output, due = engine.data_to_send(now), engine.deadline
                data = transport.exchange(output, deadline if due is None else min(deadline, due))
            events = engine.receive(data, self._clock())
        except ConnectionLost as exc:
            engine.connection_lost(exc.description)
            events = [Closed(exc)]
        for event in events:
            self._dispatch(event)
        return bool(data or events)

    def _dispatch(self, event: Event) -> None:
        if type(event) is Delivery:
            event.link.context.on_delivery(event)
        elif isinstance(event, OutgoingDeliveriesUpdated):
            for outgoing in event.deliveries:
                outgoing.link.context.on_outcome(outgoing, event.state, event.settled)
        elif isinstance(event, IncomingDeliveriesUpdated):
            for delivery in event.deliveries:
                delivery.link.context.on_settled(delivery, event.state, event.settled)
        elif isinstance(event, FlowReceived):
            link = event.link
            if isinstance(link, SenderLink) and link.drain and link.context is not None:
                link.context.on_drain(link)
        elif isinstance(event, Detached):
            error = translate_error(
                event.error, f"link {event.link.name!r} was detached", link=True
            )
            _fail_link(event.link, error)
        elif isinstance(event, Ended):
            if event.session is self._session:  # Not a session that was replaced.
                self._ended = translate_error(event.error, "the session was ended", link=True)
                self._fail_links(self._ended)
        elif isinstance(event, Closed):
            self._give_up(
                translate_error(event.error, "the connection was closed", connection=True)
            )
        elif isinstance(event, AttachReceived):
            event.link.refuse(Refused("only the client may attach links"))

    def _fail_links(self, error: AmqpError) -> None:
        if self._session is not None:
            for link in self._session.links:
                _fail_link(link, error)


def _fail_link(link: Link, error: AmqpError) -> None:
    if link.context is not None:  # None for a link that the peer attached and we refused.
        link.context.on_lost(link, error)
