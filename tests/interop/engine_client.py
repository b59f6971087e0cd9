"""Our engine on a blocking socket, for features that `pairbus.amqp.client` does not use."""

import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pairbus.amqp.client.transport import Transport
from pairbus.amqp.connection import Connection
from pairbus.amqp.events import Begun, Event, Opened
from pairbus.amqp.link import ReceiverLink, SenderLink
from pairbus.amqp.performatives import Source, Target
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.session import Session
from pairbus.amqp.settings import ConnectionSettings
from pairbus.errors import ConnectionLost
from tests.interop.peers import DEADLINE_S

T = TypeVar("T")
ANONYMOUS = SaslClient.anonymous()


class EngineClient:
    """A client connection. `events` holds the events that no test has waited for."""

    def __init__(self, port: int, *, sasl: SaslClient | None = ANONYMOUS, **settings: Any) -> None:
        sock = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        self.events: list[Event] = []
        self._transport = Transport(sock, time.monotonic)
        self.connection = Connection(
            ConnectionSettings(container_id="engine", **settings),
            sasl=sasl,
            client=True,
            now=time.monotonic(),
        )

    def __enter__(self) -> "EngineClient":
        self.next(Opened)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._transport.close()

    def begin(self) -> Session:
        session = self.connection.begin()
        self.next(Begun)
        return session

    def sender(self, session: Session, address: str, name: str = "", **fields: Any) -> SenderLink:
        """Attach a link, and wait for credit."""
        name = name or f"to {address}"
        link = session.attach_sender(name, target=Target(address), **fields)
        self.until(lambda: link.credit > 0)
        return link

    def receiver(self, session: Session, address: str, **fields: Any) -> ReceiverLink:
        """Attach a link."""
        fields = {"source": Source(address)} | fields
        link = session.attach_receiver(f"from {address}", **fields)
        self.until(lambda: link.alive)
        return link

    def next(self, event_type: type[T], condition: Callable[[T], bool] = lambda _: True) -> T:
        """Exchange frames until such an event arrives, and remove it."""

        def find() -> T | None:
            for index, event in enumerate(self.events):
                if isinstance(event, event_type) and condition(event):
                    del self.events[index]
                    return event
            return None

        return self.until(find)

    def until(self, condition: Callable[[], T | None]) -> T:
        """Exchange frames until the condition returns a true value, and return it."""
        deadline = time.monotonic() + DEADLINE_S
        while not (result := condition()):
            over = time.monotonic() > deadline or self.connection.closed
            assert not over, f"the condition was not met; events: {self.events}"
            self._exchange(deadline)
        return result

    def flush(self) -> None:
        """Write all output."""
        now = time.monotonic()
        self._transport.flush(self.connection.data_to_send(now), now + DEADLINE_S)

    def _exchange(self, deadline: float) -> None:
        connection = self.connection
        now = time.monotonic()
        self.events += connection.tick(now)
        if connection.closed:
            return
        due = now + 0.05 if connection.deadline is None else min(connection.deadline, now + 0.05)
        try:
            data = self._transport.exchange(connection.data_to_send(now), min(deadline, due))
        except ConnectionLost as exc:
            self.events += connection.connection_lost(exc.description)
        else:
            self.events += connection.receive(data, time.monotonic())
