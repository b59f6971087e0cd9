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

from pairbus.amqp.client.options import ClientOptions
from pairbus.amqp.client.tokens import Token
from pairbus.amqp.client.translate import translate
from pairbus.amqp.client.wire import Clock, Wire
from pairbus.amqp.connection import Connection, Settings
from pairbus.amqp.events import (
    Closed,
    Delivery,
    Detached,
    Ended,
    Event,
    Resolved,
    Updated,
)
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.session import Session
from pairbus.errors import AmqpError, ConnectionLost, NotAuthorized, OperationTimeout, StateError

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
RENEW_AT = 0.9
"""A token is renewed when this much of its life is over."""


class Client:
    """A connection to a namespace that is made when it is first needed, and again when it is lost."""

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
        self._wire: Wire | None = None
        self._engine: Connection | None = None
        self._session: Session | None = None
        self._lost: AmqpError | None = None
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
        if self._engine is not None and not self._engine.closed:
            return
        self._hang_up()
        options = self.options
        wait = options.connect_timeout_s if timeout_s is None else timeout_s
        deadline = self._clock() + wait
        host, port = options.address
        self._wire = Wire.connect(
            host,
            port,
            tls=self._tls,
            server_name=options.host,
            deadline=deadline,
            clock=self._clock,
        )
        self._lost = None
        self._renewals.clear()
        self._cbs = None
        self.generation += 1
        self._engine = Connection(
            Settings(
                container_id=self._container_id,
                hostname=options.host,
                max_frame_size=options.max_frame_size,
                idle_timeout_s=options.idle_timeout_s,
                properties={"product": "pairbus"},
            ),
            sasl=SaslClient.anonymous() if options.sasl is None else options.sasl,
            now=self._clock(),
        )
        try:
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
            self.run(lambda: engine.remote is not None, deadline, f"{where} to open")
            session = self._session = engine.begin()
            self.run(lambda: session.begun, deadline, f"{where} to begin a session")
        return self._session

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Say good-bye if the other side listens, and hang up. Can be called again."""
        self._closed = True
        engine = self._engine
        if engine is not None and not engine.closed:
            engine.close()
            try:
                self.run(lambda: engine.closed, self._clock() + timeout_s, "a close to be answered")
            except AmqpError as exc:
                logger.debug("closing: %s", exc)
        self._hang_up()

    def _hang_up(self) -> None:
        if self._wire is not None:
            if self._engine is not None:
                self._wire.flush(self._engine.data_to_send(), self._clock() + 1)
            self._wire.close()
        self._wire = self._engine = self._session = None

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
        source = self.options.tokens
        if source is None or self._clock() < self._renewals.get(path, float("-inf")):
            return
        if self._cbs is None:
            from pairbus.amqp.client.requests import Cbs  # made of links, which need a client

            self._cbs = Cbs(self)
        audience = self.options.audience(path)
        try:
            token: Token = source.token(audience, self._wall_clock())
        except AmqpError:
            raise
        except Exception as exc:
            raise NotAuthorized(f"no token for {audience} could be had: {exc}") from exc
        self._cbs.put(token, audience, deadline)
        life = token.expires_at - self._wall_clock()
        self._renewals[path] = self._clock() + life * RENEW_AT
        logger.debug("a token for %s is valid for %.0f s", audience, life)

    def run(self, done: Callable[[], bool], deadline: float, what: str) -> None:
        """Exchange frames until `done`. Raises OperationTimeout at the deadline, and the reason when
        the connection ends before."""
        while not done():
            if self._lost is not None:
                raise self._lost
            if not self.step(deadline) and self._clock() >= deadline and not done():
                raise OperationTimeout(f"waited in vain for {what}")

    def step(self, deadline: float) -> bool:
        """Write what is to be written, wait for input until the deadline, deliver what came.

        False: nothing came.
        """
        engine, wire = self._engine, self._wire
        if engine is None or wire is None:
            raise self._lost or ConnectionLost("there is no connection")
        now = self._clock()
        events = engine.tick(now)
        if not events:
            due = engine.deadline
            until = deadline if due is None else min(deadline, due)
            try:
                data = wire.exchange(engine.data_to_send(now), until)
            except ConnectionLost as exc:
                events = engine.lost(exc.description)
            else:
                if not data:
                    return False
                events = engine.receive(data, self._clock())
        for event in events:
            self._deliver(event)
        return True

    def _deliver(self, event: Event) -> None:
        if type(event) is Delivery:
            event.link.context.on_delivery(event)
        elif isinstance(event, Updated):
            for sent in event.sent:
                sent.link.context.on_updated(sent, event.state, event.settled)
        elif isinstance(event, Resolved):
            for delivery in event.received:
                delivery.link.context.on_resolved(delivery, event.state, event.settled)
        elif isinstance(event, Detached):
            error = translate(event.error, f"link {event.link.name!r} was detached", link=True)
            event.link.context.on_lost(event.link, error)
        elif isinstance(event, Ended):
            self._lose_all(translate(event.error, "the session was ended", link=True))
        elif isinstance(event, Closed):
            self._lost = translate(event.error, "the connection was closed")
            self._lose_all(self._lost)

    def _lose_all(self, error: AmqpError) -> None:
        if self._session is not None:
            for link in self._session.links:
                link.context.on_lost(link, error)
