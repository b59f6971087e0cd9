"""The interfaces of AMQP peers as clients and as servers.

Adapters (`proton_client.py`, `rhea_server.py` and so on) implement the interfaces. Each test is
written once, against the interfaces. `limitations.py` lists what a peer cannot do.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pairbus.amqp.performatives import Accepted, Error
from tests.interop.messages import PeerMessage
from tests.interop.tls import TlsFiles

T = TypeVar("T")
DEADLINE_S = 20.0


class PeerError(Exception):
    """An error that a peer reports: for its transport, connection, session or link."""

    def __init__(self, endpoint: str, error: Error | None) -> None:
        super().__init__(endpoint, error)
        self.endpoint = endpoint
        self.error = error


@dataclass(frozen=True, kw_only=True)
class ConnectOptions:
    """Options of a peer as a client."""

    sasl: bool = True
    user: str | None = None
    password: str | None = None
    tls: TlsFiles | None = None
    trusted: bool = True
    """Whether the client trusts the authority of the server's certificate."""
    certificate: bool = False
    """Whether the client authenticates with its certificate (SASL EXTERNAL)."""
    max_frame_size: int | None = None
    idle_timeout_s: float | None = None
    """The connection is closed if nothing arrives for so long."""
    window: int | None = None
    """The number of frames that the client accepts before it renews the window of the session."""
    reconnect: bool = False
    container_id: str | None = None
    hostname: str | None = None
    desired_capabilities: tuple[str, ...] = ()
    properties: dict[str, Any] | None = None


class PeerSender(ABC):
    """A link on which a peer sends."""

    @abstractmethod
    def send(self, message: PeerMessage | bytes) -> Any:
        """Send a message, and wait for its outcome. Return the state that the server reported."""

    def send_batch(self, messages: list[PeerMessage]) -> Any:
        """Send messages as one Service Bus batch."""
        raise NotImplementedError

    def post(self, message: PeerMessage) -> None:
        """Send a message as soon as there is credit, without waiting."""
        raise NotImplementedError

    def wait_for_outcomes(self, count: int) -> list[tuple[Any, bool]]:
        """Wait for the outcomes of posted messages: the state, and whether it is settled."""
        raise NotImplementedError

    def close(self, error: Error | None = None) -> None:
        """Close the link, and wait for the server."""
        raise NotImplementedError


class PeerReceiver(ABC):
    """A link on which a peer receives."""

    @abstractmethod
    def receive(self, count: int = 1) -> list[PeerMessage]:
        """Grant credit for `count` messages, and wait for them."""

    @abstractmethod
    def settle(self, message: PeerMessage, state: Any = None) -> None:
        """Settle a message, by default as Accepted, and wait for the server in mode second."""

    def grant(self, credit: int) -> None:
        """Grant more credit, without waiting."""
        raise NotImplementedError

    def take(self, count: int) -> list[PeerMessage]:
        """Wait for `count` messages, without granting credit."""
        raise NotImplementedError

    def arrived(self) -> list[PeerMessage]:
        """Return the messages that have arrived."""
        raise NotImplementedError

    def drain(self) -> None:
        """Drain the link, and wait until its credit is 0."""
        raise NotImplementedError

    def close(self, error: Error | None = None) -> None:
        """Close the link, and wait for the server."""
        raise NotImplementedError


class PeerClient(ABC):
    """A peer that connects to our server."""

    name: str
    heartbeats_s: float
    """The interval of heartbeats for an idle timeout of 4.5 s at the server."""
    outcomes: tuple[Any, ...]
    """States with which the peer can settle a message."""

    @abstractmethod
    def __init__(self, port: int, options: ConnectOptions) -> None:
        """Start to connect, without waiting."""

    @abstractmethod
    def sender(self, address: str, *, settled: bool | None = None, session: int = 0) -> PeerSender:
        """Attach a link, and wait for credit. Raises PeerError if the server refuses the link."""

    @abstractmethod
    def receiver(
        self, address: str, *, settled: bool = False, second: bool = False, session: int = 0
    ) -> PeerReceiver:
        """Attach a link. Raises PeerError if the server refuses it."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def next_error(self) -> PeerError:
        """Wait for an error of an endpoint or of the transport."""
        raise NotImplementedError

    def encode(self, message: PeerMessage) -> bytes:
        """Return the message as the peer encodes it."""
        raise NotImplementedError

    def as_read(self, value: Any) -> Any:
        """Return a value of ours as the adapter returns it after the peer decoded it."""
        return value

    def until(self, condition: Callable[[], T], timeout: float = DEADLINE_S) -> T:
        """Wait until the condition returns a true value, and return it."""
        return wait_until(condition, timeout)


class PeerServer(ABC):
    """A peer as a server for our client."""

    name: str
    port: int

    @abstractmethod
    def put(self, address: str, *messages: PeerMessage) -> None:
        """Add messages to a queue, which the server sends to a link with credit."""

    @abstractmethod
    def receive(self, count: int) -> list[PeerMessage]:
        """Wait for `count` messages that our client sent, and return them."""

    @abstractmethod
    def outcomes(self, count: int) -> list[tuple[Any, bool]]:
        """Wait for the states of `count` messages that the server sent, and whether settled."""

    @abstractmethod
    def close(self) -> None:
        """Stop the server, and close its sockets."""


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Options of a peer as a server."""

    port: int = 0
    credit: int = 100
    """The credit of each link on which the server receives; 0 means that tests grant it."""
    users: dict[str, str] | None = None
    """Names and passwords for SASL PLAIN. None means SASL ANONYMOUS."""
    mechanisms: str | None = None
    tls: TlsFiles | None = None
    request_certificate: bool = False
    max_frame_size: int | None = None
    max_message_size: int | None = None
    idle_timeout_s: float | None = None
    window: int | None = None


def wait_until(condition: Callable[[], T], timeout: float = DEADLINE_S) -> T:
    pause = threading.Event()
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        assert time.monotonic() < deadline, "the condition was not met in time"
        pause.wait(0.01)
    return result


ACCEPTED = Accepted()


def certificate_with_key(files: TlsFiles, folder: Path) -> str:
    """Return a file with the client certificate and its key."""
    path = folder / "client-with-key.pem"
    path.write_bytes(files.client_certificate.read_bytes() + files.client_key.read_bytes())
    return str(path)
