"""Apache Qpid proton as a client."""

import itertools
import time
from collections.abc import Callable
from typing import Any, TypeVar

from proton import (
    Connection,
    Delivery,
    Endpoint,
    Link,
    Receiver,
    Sender,
    Session,
    SSLDomain,
)
from proton.reactor import AtLeastOnce, AtMostOnce, LinkOption

from pairbus.amqp.performatives import Accepted, Error, Modified, Rejected, Released
from pairbus.amqp.types import Symbol
from tests.interop.messages import PeerMessage
from tests.interop.peers import (
    DEADLINE_S,
    ConnectOptions,
    PeerClient,
    PeerError,
    PeerReceiver,
    PeerSender,
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


class ProtonSender(PeerSender):
    def __init__(self, client: "ProtonClient", link: Sender) -> None:
        self.client = client
        self.link = link
        self.outcomes: list[tuple[Any, bool]] = []
        client.senders[link.name] = self

    def send(self, message: PeerMessage | bytes) -> Any:
        self.client.until(lambda: self.link.credit > 0)
        if self.link.snd_settle_mode == Link.SND_SETTLED:
            send(self.link, encode(message))
            return None
        before = len(self.outcomes)
        send(self.link, encode(message))
        self.client.until(lambda: len(self.outcomes) > before)
        return self.outcomes[before][0]

    def post(self, message: PeerMessage) -> None:
        send(self.link, encode(message))  # Proton queues it if there is no credit.

    def wait_for_outcomes(self, count: int) -> list[tuple[Any, bool]]:
        self.client.until(lambda: len(self.outcomes) >= count)
        taken, self.outcomes[:] = self.outcomes[:count], self.outcomes[count:]
        return taken

    def wait_for_new_connection(self) -> None:
        """Wait until the link has credit on a new connection."""
        self.client.until(lambda: len(self.client.transports) > 1 and self.link.credit > 0)

    def abort(self, size: int) -> None:
        """Send a part of a message, and abort it."""
        delivery = self.link.delivery("aborted")
        self.link.stream(b"x" * size)
        self.client.container.process()
        delivery.abort()

    def close(self, error: Error | None = None) -> None:
        self.client.close_endpoint(self.link, error)

    def detach(self) -> None:
        self.link.detach()

    def end_session(self, error: Error | None = None) -> None:
        self.client.close_endpoint(self.link.session, error)


class ProtonReceiver(PeerReceiver):
    def __init__(self, client: "ProtonClient", link: Receiver, second: bool) -> None:
        self.client = client
        self.link = link
        self.second = second
        self.messages: list[PeerMessage] = []
        client.receivers[link.name] = self

    def receive(self, count: int = 1) -> list[PeerMessage]:
        self.grant(max(count - len(self.messages) - self.link.credit, 0))
        return self.take(count)

    def grant(self, credit: int) -> None:
        self.link.flow(credit)

    def take(self, count: int) -> list[PeerMessage]:
        self.client.until(lambda: len(self.messages) >= count)
        taken, self.messages[:] = self.messages[:count], self.messages[count:]
        return taken

    def arrived(self) -> list[PeerMessage]:
        taken, self.messages[:] = self.messages[:], []
        return taken

    def settle(self, message: PeerMessage, state: Any = None) -> None:
        settle(message.handle, state or Accepted(), settled=not self.second)
        if self.second:
            self.client.until(lambda: message.handle in self.client.confirmed)

    def drain(self) -> None:
        self.link.drain(0)
        self.client.until(lambda: self.link.credit == 0 and not self.link.draining())
        self.link.drained()
        self.link.drain_mode = False

    def close(self, error: Error | None = None) -> None:
        self.client.close_endpoint(self.link, error)


class _LinkFields(LinkOption):
    """Link fields that the attach test expects."""

    def apply(self, link: Link) -> None:
        link.properties = {"a": to_proton(1)}
        link.max_message_size = 12345


class ProtonClient(ProtonHandler, PeerClient):
    """A client. Its loop runs only while the test waits, so that it is frozen in between."""

    name = "proton"
    heartbeats_s = 2.25
    outcomes = (
        Accepted(),
        Released(),
        Rejected(),
        Rejected(Error(Symbol("test:error"), "test error", {Symbol("detail"): "test"})),
        Modified(),
        Modified(delivery_failed=True),
        Modified(undeliverable_here=True),
        Modified(True, True, {Symbol("x-opt-why"): "because"}),
    )

    def __init__(self, port: int, options: ConnectOptions) -> None:
        super().__init__()
        self.senders: dict[str, ProtonSender] = {}
        self.receivers: dict[str, ProtonReceiver] = {}
        self.confirmed: list[Delivery] = []
        self.window = options.window
        self.max_frame_size = options.max_frame_size
        # By default, proton gives all links to one address on a connection the same name.
        self._names = map("link-{}".format, itertools.count())
        self._sessions: dict[int, Session] = {}
        self.container.start()
        scheme = "amqp" if options.tls is None else "amqps"
        url = f"{scheme}://127.0.0.1:{port}"
        self.connection: Connection = self.container.connect(url, **_native_options(options))

    def until(self, condition: Callable[[], T], timeout: float = DEADLINE_S) -> T:
        deadline = time.monotonic() + timeout
        while not (result := condition()):
            assert time.monotonic() < deadline, "the condition was not met in time"
            self.container.process()
        return result

    def encode(self, message: PeerMessage) -> bytes:
        return encode(message)

    def sender(
        self, address: str, *, settled: bool | None = None, session: int = 0
    ) -> ProtonSender:
        options = None
        if settled is not None:
            options = AtMostOnce() if settled else AtLeastOnce()
        link = self.container.create_sender(
            self._session(session), address, name=next(self._names), options=options
        )
        sender = ProtonSender(self, link)
        self._wait_for_attach(link, lambda: link.credit > 0)
        return sender

    def receiver(
        self,
        address: str,
        *,
        settled: bool = False,
        second: bool = False,
        session: int = 0,
        accept: bool = False,
    ) -> ProtonReceiver:
        link = self.container.create_receiver(
            self._session(session),
            address,
            name=next(self._names),
            options=_ReceiverModes(settled, second),
        )
        receiver = ProtonReceiver(self, link, second)
        self._wait_for_attach(link, lambda: True)
        return receiver

    def receiver_with_fields(self, address: str, options: list[Any]) -> Receiver:
        link = self.container.create_receiver(
            self.connection, address, name=next(self._names), options=[*options, _LinkFields()]
        )
        self._wait_for_attach(link, lambda: True)
        return link

    def reattach(self, sender: ProtonSender, address: str) -> ProtonSender:
        """Attach a link again under the name of a link that was detached."""
        link = self.container.create_sender(self.connection, address, name=sender.link.name)
        again = ProtonSender(self, link)
        self._wait_for_attach(link, lambda: link.credit > 0)
        return again

    def _wait_for_attach(self, link: Link, ready: Callable[[], bool]) -> None:
        known = len(self.errors)
        self.until(
            lambda: (link.state & Endpoint.REMOTE_ACTIVE and ready()) or len(self.errors) > known
        )
        if len(self.errors) > known:
            raise self.errors.pop()

    def _session(self, number: int) -> Connection | Session:
        if number == 0 and self.window is None:
            return self.connection
        if number not in self._sessions:
            session = self._sessions[number] = self.connection.session()
            if self.window is not None:
                session.incoming_capacity = self.window * (self.max_frame_size or 1024)
            session.open()
        return self._sessions[number]

    def close_endpoint(self, endpoint: Any, error: Error | None) -> None:
        if error is not None:
            endpoint.condition = condition_to_proton(error)
        endpoint.close()
        self.until(lambda: endpoint.state & Endpoint.REMOTE_CLOSED)

    def end_session(self, number: int, error: Error | None = None) -> None:
        self.close_endpoint(self._sessions[number], error)

    def close_with_error(self, error: Error) -> None:
        self.close_endpoint(self.connection, error)

    def next_error(self) -> PeerError:
        return self.until(lambda: self.errors and self.errors.pop(0))

    def freeze(self) -> None:
        """Do nothing: the loop does not run while the test does not wait."""

    def thaw(self) -> None:
        """Do nothing."""

    def cut(self) -> None:
        cut(self.transports)
        self.until(lambda: not self.container.process() or True)

    def close(self) -> None:
        connection = self.connection
        if connection.state & Endpoint.LOCAL_ACTIVE:
            connection.close()
        if connection.state & Endpoint.REMOTE_ACTIVE:
            self.until(lambda: connection.state & Endpoint.REMOTE_CLOSED or self._all_closed)
        if connection.state & Endpoint.REMOTE_CLOSED:
            self.until(lambda: self._all_closed)
        cut(self.transports)
        self.until(lambda: not self.container.process())

    @property
    def _all_closed(self) -> bool:
        return all(transport.closed for transport in self.transports)

    def on_payload(self, payload: bytes, settled: bool, delivery: Delivery, link: Link) -> None:
        message = message_from_proton(payload, settled, delivery)
        self.receivers[link.name].messages.append(message)

    def on_outcome(self, delivery: Delivery, link: Sender) -> None:
        self.senders[link.name].outcomes.append((state_from_proton(delivery), delivery.settled))
        if delivery.settled:
            delivery.settle()

    def on_confirmed(self, delivery: Delivery) -> None:
        self.confirmed.append(delivery)
        delivery.settle()


class _ReceiverModes(LinkOption):
    def __init__(self, settled: bool, second: bool) -> None:
        self.settled = settled
        self.second = second

    def apply(self, link: Link) -> None:
        link.snd_settle_mode = Link.SND_SETTLED if self.settled else Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_SECOND if self.second else Link.RCV_FIRST


def _native_options(options: ConnectOptions) -> dict[str, Any]:
    native: dict[str, Any] = {"reconnect": None if options.reconnect else False}
    if options.user is not None:
        native |= {
            "user": options.user,
            "password": options.password,
            "allowed_mechs": "PLAIN",
        }
    if not options.sasl:
        native["sasl_enabled"] = False
    if options.max_frame_size is not None:
        native["max_frame_size"] = options.max_frame_size
    if options.idle_timeout_s is not None:
        native["heartbeat"] = options.idle_timeout_s
    if options.container_id is not None:
        native["container_id"] = options.container_id
    if options.hostname is not None:
        native["virtual_host"] = options.hostname
    if options.desired_capabilities:
        native["desired_capabilities"] = list(options.desired_capabilities)
    if options.properties is not None:
        native["properties"] = options.properties
    if options.tls is not None:
        native |= {"ssl_domain": _client_tls(options), "sni": "localhost"}
        if options.certificate:
            native["allowed_mechs"] = "EXTERNAL"
    return native


def _client_tls(options: ConnectOptions) -> SSLDomain:
    files = options.tls
    assert files is not None
    trusted = str(files.ca if options.trusted else files.client_certificate)
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(trusted)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME, trusted)
    if options.certificate:
        domain.set_credentials(str(files.client_certificate), str(files.client_key), None)
    return domain
