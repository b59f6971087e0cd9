"""The engine on a blocking socket with nothing in between, for what the client does not do."""

import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pairbus.amqp.client.transport import Transport
from pairbus.amqp.connection import Connection, ConnectionSettings
from pairbus.amqp.events import Event
from pairbus.amqp.sasl import SaslClient, SaslServer
from pairbus.errors import ConnectionLost

T = TypeVar("T")
DEADLINE_S = 20.0
ANONYMOUS = SaslClient.anonymous()


class BareEngine:
    """One end of a connection. `events` holds what has happened and was not waited for yet."""

    def __init__(
        self,
        sock: socket.socket,
        sasl: SaslClient | SaslServer | None,
        *,
        client: bool,
        **settings: Any,
    ) -> None:
        self.events: list[Event] = []
        self._wire = Transport(sock, time.monotonic)
        self.connection = Connection(
            ConnectionSettings(container_id="bare", **settings),
            sasl=sasl,
            client=client,
            now=time.monotonic(),
        )

    @classmethod
    def dial(
        cls, port: int, *, sasl: SaslClient | None = ANONYMOUS, **settings: Any
    ) -> "BareEngine":
        sock = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        return cls(sock, sasl, client=True, **settings)

    @classmethod
    def accept(cls, listener: socket.socket, **settings: Any) -> "BareEngine":
        listener.settimeout(DEADLINE_S)
        sock, _ = listener.accept()
        return cls(sock, SaslServer.anonymous(), client=False, **settings)

    def __enter__(self) -> "BareEngine":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._wire.close()

    def next(self, kind: type[T], condition: Callable[[T], bool] = lambda event: True) -> T:
        """Exchange bytes until such an event comes that was not waited for yet."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            for place, event in enumerate(self.events):
                if isinstance(event, kind) and condition(event):
                    del self.events[place]
                    return event
            over = self.connection.closed or time.monotonic() >= deadline
            assert not over, f"no {kind.__name__}, but {self.events}"
            self.step(deadline)

    def flush(self) -> None:
        """Write what there is to write."""
        now = time.monotonic()
        self._wire.flush(self.connection.data_to_send(now), now + DEADLINE_S)

    def step(self, deadline: float) -> None:
        connection = self.connection
        now = time.monotonic()
        self.events += connection.tick(now)
        if connection.closed:
            return
        due = connection.deadline
        try:
            data = self._wire.exchange(
                connection.data_to_send(now), deadline if due is None else min(deadline, due)
            )
        except ConnectionLost as exc:
            self.events += connection.connection_lost(exc.description)
        else:
            self.events += connection.receive(data, time.monotonic())
