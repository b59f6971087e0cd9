"""A client on a blocking socket: one connection, one session, any number of links.

For Spark workers and tools: not for several threads at once. Every call waits a bounded time and
raises an error of our tree. When the connection ends, links fail with ConnectionLost, and the next
call on them, or on the client, connects and attaches anew; nothing is ever sent a second time by
itself.
"""

import itertools
import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any
from uuid import uuid4

from pairbus.amqp.client.error_translation import translate_error
from pairbus.amqp.client.options import ClientOptions
from pairbus.amqp.client.transport import Clock, Transport
from pairbus.amqp.connection import Connection, ConnectionSettings
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
from pairbus.amqp.types import Symbol
from pairbus.errors import (
    AmqpError,
    ConnectionLost,
    LinkLost,
    OperationTimeout,
    Refused,
    StateError,
)
from pairbus.servicebus.entity_paths import without_management_node
from pairbus.servicebus.tokens import acquire_token

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
RENEW_AT = 0.9
"""A token is renewed when this much of its life is over."""


class Client:
    """A connection to a namespace, made when it is first needed, and again when it is lost."""

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
        self._wire: Transport | None = None
        self._engine: Connection | None = None
        self._session: Session | None = None
        self._lost: AmqpError | None = None
        self._ended: AmqpError | None = None
        self._renewals: dict[str, float] = {}
        self._cbs: Any = None
        self._closed = False
        self.generation = 0
        """How many connections there have been."""

    def __enter__(self) -> "Client":
        self.connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def connect(self, timeout_s: float | None = None) -> None:
        """Make sure of a connection. Raises NotAuthorized, ConnectionLost or OperationTimeout."""
        if self._closed:
            raise StateError("the client is closed")
        if self._engine is not None:
            self.step(self._clock())  # it may have ended since somebody looked
        if self._engine is not None:
            return
        options = self.options
        wait = options.connect_timeout_s if timeout_s is None else timeout_s
        deadline = self._clock() + wait
        host, port = options.address
        self._wire = Transport.connect(
            host,
            port,
            tls=self._tls,
            server_name=options.host,
            deadline=deadline,
            clock=self._clock,
        )
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
            self._hang_up()
            raise
        logger.debug("connected to %s:%d", host, port)

    def session(self, deadline: float) -> Session:
        """The session that links are attached to; a new one where the old one was ended."""
        engine = self._engine
        if engine is None:
            raise self._lost or ConnectionLost("there is no connection")
        if self._session is None or self._session.ended:
            host, port = self.options.address
            where = f"{host}:{port}"
            self.run_until(lambda: engine.remote is not None, deadline, f"{where} to open")
            if self._lost is not None:  # who is not welcome gets an open and a close in one
                raise self._lost
            session = self._session = engine.begin()
            self.run_until(lambda: session.begun, deadline, f"{where} to begin a session")
            if session.ended:
                raise self._why_ended()
        return self._session

    def _why_ended(self) -> AmqpError:
        return self._lost or self._ended or LinkLost("the session was ended")

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Say good-bye if the other side listens, and hang up. Can be called again."""
        self._closed = True
        engine = self._engine
        if engine is not None and not engine.closed:
            engine.close()
            try:
                self.run_until(
                    lambda: engine.closed, self._clock() + timeout_s, "a close to be answered"
                )
            except AmqpError as exc:
                logger.debug("closing: %s", exc)
        self._hang_up()

    def _hang_up(self) -> None:
        wire, engine = self._wire, self._engine
        self._wire = self._engine = None
        if engine is not None:
            for event in engine.connection_lost("the connection was given up"):
                self._deliver(event)
        if wire is not None:
            if engine is not None:
                wire.flush(engine.data_to_send(), self._clock() + 1)
            wire.close()
        self._session = None

    # What follows is for senders, receivers and requests.

    def deadline(self, timeout_s: float | None) -> float:
        wait = self.options.operation_timeout_s if timeout_s is None else timeout_s
        return self._clock() + wait

    def now(self) -> float:
        return self._clock()

    def wall_now(self) -> float:
        return self._wall_clock()

    def link_name(self, what: str) -> str:
        return f"{what}-{next(self._names)}-{self._container_id[-12:]}"

    def authorize(self, path: str, deadline: float) -> None:
        """Put a token for the path, if one is due."""
        path = without_management_node(path)  # the token of the entity covers it
        source = self.options.tokens
        if source is None or self._clock() < self._renewals.get(path, float("-inf")):
            return
        if self._cbs is None:
            from pairbus.amqp.client.request_response import (
                Cbs,  # made of links, which need a client
            )

            self._cbs = Cbs(self)
        audience = self.options.audience(path)
        token = acquire_token(source, audience, self._wall_clock())
        self._cbs.put_token(token, audience, deadline)
        life = token.expires_at - self._wall_clock()
        self._renewals[path] = self._clock() + life * RENEW_AT
        logger.debug("a token for %s is valid for %.0f s", audience, life)

    def forget_token(self, path: str) -> None:
        """The namespace does not accept the token for a path, whatever it says of its life."""
        self._renewals.pop(without_management_node(path), None)

    def run_until(self, done: Callable[[], bool], deadline: float, what: str) -> None:
        """Exchange frames until `done`. Raises OperationTimeout at the deadline, and the reason
        when the connection ends before."""
        timed_out = False
        while not done():
            if self._lost is not None:
                raise self._lost
            if timed_out:
                raise OperationTimeout(f"waited in vain for {what}")
            self.step(deadline)
            timed_out = self._clock() >= deadline  # also where a peer never stops talking

    def step(self, deadline: float) -> bool:
        """Write what is to be written, wait for input until the deadline, deliver what came.

        False: nothing came.
        """
        engine, wire = self._engine, self._wire
        if engine is None or wire is None:
            raise self._lost or ConnectionLost("there is no connection")
        now = self._clock()
        data = b""
        events: list[Event] = []
        try:
            if engine.deadline is not None and engine.deadline <= now:
                # Nobody has read while nobody called: what came meanwhile shows a peer that lives.
                data = wire.exchange(b"", now)
                if not data and engine.tick(now):
                    raise ConnectionLost(f"nothing was heard for {self.options.idle_timeout_s:g} s")
            if not data:
                output, due = engine.data_to_send(now), engine.deadline
                data = wire.exchange(output, deadline if due is None else min(deadline, due))
            events = engine.receive(data, self._clock())
        except ConnectionLost as exc:
            engine.connection_lost(exc.description)
            events = [Closed(exc)]
        for event in events:
            self._deliver(event)
        return bool(data or events)

    def _deliver(self, event: Event) -> None:
        if type(event) is Delivery:
            event.link.context.on_delivery(event)
        elif isinstance(event, OutgoingDeliveriesUpdated):
            for sent in event.deliveries:
                sent.link.context.on_outcome(sent, event.state, event.settled)
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
            _lose(event.link, error)
        elif isinstance(event, Ended):
            if event.session is self._session:  # not one that was given up before
                self._ended = translate_error(event.error, "the session was ended", link=True)
                self._lose_all(self._ended)
        elif isinstance(event, Closed):
            self._lost = translate_error(event.error, "the connection was closed", connection=True)
            self._lose_all(self._lost)
            self._hang_up()
        elif isinstance(event, AttachReceived):
            event.link.refuse(Refused("links are asked for by the client"))

    def _lose_all(self, error: AmqpError) -> None:
        if self._session is not None:
            for link in self._session.links:
                _lose(link, error)


def _lose(link: Link, error: AmqpError) -> None:
    if link.context is not None:  # None: the peer asked for it, and was refused
        link.context.on_lost(link, error)
