"""One AMQP connection of a client: passes engine events to link handlers, and writes replies."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import (
    AttachReceived,
    Authenticated,
    Begun,
    Closed,
    Delivery,
    Detached,
    Ended,
    Event,
    FlowReceived,
    OutgoingDeliveriesUpdated,
    OutgoingDelivery,
)
from pairbus.amqp.link import Link, ReceiverLink, SenderLink
from pairbus.amqp.performatives import Accepted, Modified, Rejected, Released
from pairbus.amqp.sasl import SaslServer, parse_plain_response
from pairbus.amqp.settings import ConnectionSettings
from pairbus.emulator.auth import Claims, Right
from pairbus.emulator.connections import attach
from pairbus.emulator.connections.handlers import LinkHandler, ReceivingHandler, SendingHandler
from pairbus.emulator.connections.idle import IdleTimeouts
from pairbus.emulator.connections.incoming_links import IncomingLink
from pairbus.emulator.connections.management import error_for_status
from pairbus.emulator.connections.outgoing_links import OutgoingLink
from pairbus.emulator.connections.transports import CLOSE_TIMEOUT_S, close_transport
from pairbus.emulator.faults import Fault
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.emulator.storage.database import StoreFailed
from pairbus.errors import (
    AmqpError,
    Busy,
    ConfigurationError,
    ConnectionLost,
    EncodeError,
    LinkLost,
    NotAuthorized,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from pairbus.servicebus.limits import KB

logger = logging.getLogger(__name__)

MAX_FRAME_SIZE = 65536
IDLE_TIMEOUT_S = 240.0
CHANNEL_MAX, HANDLE_MAX, MAX_LINKS = 4999, 4999, 5000
"""As in the service. The JavaScript SDK uses a session for each link."""
MAX_ATTACH_SIZE = 8 * KB
"""Every link keeps its attach: a client should not be able to fill the memory."""
MAX_ENDPOINTS_WITHOUT_TOKEN = 32
"""Sessions and links of a client that has not sent a valid token."""
OPEN_TIMEOUT_S = 30.0
"""Time for a client to open its connection."""
CLAIMS_CHECK_S = 1.0
HIGH_WATER = 1024 * 1024
"""Unread bytes of a client above which no more messages are delivered to it."""
_OUTCOMES = Accepted | Rejected | Released | Modified


class AmqpConnection:
    """A connection on which a client speaks AMQP."""

    def __init__(
        self,
        runtime: NamespaceRuntime,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        on_token: Callable[[], None],
    ) -> None:
        """`on_token` is called when the client has shown a valid token or key."""
        self.runtime = runtime
        self.on_token = on_token
        self.claims: dict[str, Claims] = {}
        """The rights that the client has proved, by the path that each token is for."""
        self._transport = transport
        self._loop = loop
        self._created_at = self._claims_checked_at = loop.time()
        self._receiving: dict[Link, ReceivingHandler] = {}
        self._sending: dict[Link, SendingHandler] = {}
        self._unwritten = 0
        """Bytes that are written at the end of the turn."""
        self._delivery_paused = False
        """True if a message was not delivered because too many bytes are unread."""
        self._discards_input = False
        """True if a fault discards everything that the client sends."""
        self._idle = IdleTimeouts(runtime.tier, runtime.now_ms())
        self._abort_at: float | None = None
        """Time at which the connection is aborted, if the client does not close it before."""
        self.engine = Connection(
            ConnectionSettings(
                container_id=runtime.name,
                max_frame_size=MAX_FRAME_SIZE,
                channel_max=CHANNEL_MAX,
                handle_max=HANDLE_MAX,
                max_links=MAX_LINKS,
                max_attach_size=MAX_ATTACH_SIZE,
                idle_timeout_s=IDLE_TIMEOUT_S,
            ),
            sasl=SaslServer(
                {
                    "MSSBCBS": _anonymous,
                    "ANONYMOUS": _anonymous,
                    "EXTERNAL": _anonymous,
                    "PLAIN": self._authenticate_plain,
                }
            ),
            client=False,
            now=loop.time(),
        )

    # Input and output.

    def receive(self, data: bytes) -> None:
        self._handle(self.engine.receive(data, self._loop.time()))

    def lost(self, reason: str) -> None:
        """End all links: the connection was lost."""
        self._handle(self.engine.connection_lost(reason))
        self.runtime.forget(self)

    def tick(self) -> None:
        """Let time pass: send heartbeats, and end what has timed out or expired."""
        now = self._loop.time()
        if self.engine.remote is None and now - self._created_at > OPEN_TIMEOUT_S:
            close_transport(self._transport)
            return
        if self._abort_at is not None and now >= self._abort_at:
            self._transport.abort()
            return
        deadline = self.engine.deadline
        if deadline is not None and now >= deadline:
            self._handle(self.engine.tick(now))
        if self.runtime.faults:
            self._expire_tokens_by_fault()
        if self._idle.is_enabled and self._abort_at is None:
            handlers = (*self._receiving.values(), *self._sending.values())
            if (error := self._idle.check(handlers, self.runtime.now_ms())) is not None:
                self._close(error)
        if now - self._claims_checked_at > CLAIMS_CHECK_S:
            self._claims_checked_at = now
            self._detach_unauthorized()

    def flush_after_turn(self) -> None:
        """Write pending output at the end of the turn."""
        self.runtime.flush_after_turn(self)

    def flush(self) -> None:
        self._unwritten = 0
        data = self.engine.data_to_send(self._loop.time())
        if data:
            self._transport.write(data)
        if self.engine.closed:
            close_transport(self._transport)
        elif self._delivery_paused and self.writable_bytes >= 0:
            self._resume_delivery()

    @property
    def writable_bytes(self) -> int:
        """Bytes that may still be written before the client has read what it was sent."""
        return HIGH_WATER - self._transport.get_write_buffer_size() - self._unwritten

    def add_unwritten(self, size: int) -> None:
        """Count bytes that are written at the end of the turn."""
        self._unwritten += size

    def can_deliver(self) -> bool:
        """Return True if the client reads fast enough. If not, delivery resumes by itself later."""
        if self.writable_bytes >= 0:
            return True
        self._delivery_paused = True
        return False

    def resume(self) -> None:
        """Continue, because the client has read its output."""
        if not self._discards_input:
            self._transport.resume_reading()
        self._resume_delivery()

    def _resume_delivery(self) -> None:
        self._delivery_paused = False
        for handler in self._entity_links():
            if isinstance(handler, OutgoingLink):
                self.runtime.messages_available(handler.queue)

    # Faults.

    def cut(self) -> None:
        """Abort the connection, and discard what the client still sends."""
        self._discards_input = True
        self._transport.abort()

    def apply_fault(self, fault: Fault, link: Link) -> bool:
        """Apply a fault to an arrived message or request, and return True if that discards it.

        Raises the error to reply with, if the fault is an error.
        """
        if fault.kind == "cut":
            self.cut()
        elif fault.kind == "stop-reading":
            self._discards_input = True
            self._transport.pause_reading()
        elif fault.kind == "detach":
            link.detach(LinkLost("The link was detached by an injected fault."))
        elif fault.kind == "throttle":
            raise Busy("The namespace is busy: an injected fault throttles it.")
        elif fault.kind == "internal-error":
            raise Unavailable("An internal error was injected as a fault.")
        elif fault.kind == "refuse-tokens":
            raise error_for_status(fault.status, "The token was refused by an injected fault.")
        return fault.kind in ("cut", "stop-reading", "detach", "ignore-tokens")

    def reply_after_commit(self, reply: Callable[[], None], fault: Fault | None = None) -> None:
        """Send a reply after the commit, unless a fault loses or delays it."""
        if fault is not None and fault.kind == "lose-answer":
            self.runtime.after_commit(self.cut)
        elif fault is not None and fault.kind == "answer-late":
            self.runtime.after_commit(partial(self._loop.call_later, fault.seconds, reply))
        else:
            self.runtime.after_commit(reply)

    # Rights.

    def _authenticate_plain(self, response: bytes) -> Claims | None:
        credentials = parse_plain_response(response)
        if credentials is None:
            return None
        try:
            return self.runtime.authority.claims_of_key(*credentials)
        except NotAuthorized as exc:
            logger.info("SASL PLAIN failed: %s", exc)
            return None

    def authorize(self, path: str, right: Right) -> None:
        """Raise NotAuthorized unless a token or key of the client grants the right."""
        now = self.runtime.clock.machine_ms() / 1000
        for claims in self.claims.values():
            if claims.allows(path, right) and not claims.expired(now):
                return
        raise NotAuthorized(
            f"Unauthorized access. '{right}' claim(s) are required to perform this operation on "
            f"{path!r}."
        )

    def _entity_links(self) -> list[IncomingLink | OutgoingLink]:
        """Return the attached links to entities, for which tokens are checked."""
        return [
            handler
            for handler in (*self._receiving.values(), *self._sending.values())
            if isinstance(handler, IncomingLink | OutgoingLink) and handler.link.alive
        ]

    def _detach_unauthorized(self) -> None:
        for handler in self._entity_links():
            try:
                self.authorize(handler.path, handler.right)
            except NotAuthorized as exc:
                handler.link.detach(exc)
                handler.on_end()
                self.flush_after_turn()

    def _expire_tokens_by_fault(self) -> None:
        """Remove the claims of links that an injected fault is for, and so detach these links."""
        for handler in self._entity_links():
            if handler.link.alive and self.runtime.faults.fire(("expire-tokens",), handler.path):
                for path, claims in list(self.claims.items()):
                    if claims.allows(handler.path, handler.right):
                        del self.claims[path]
                self._detach_unauthorized()

    # Events.

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            try:
                self._handle_event(event)
            except StoreFailed:  # the namespace stops, and aborts all connections
                return
            except Exception:  # a defect of the emulator costs this connection, and no other
                logger.exception("%s could not be handled.", type(event).__name__)
                self.fail()
                break
        self.flush_after_turn()

    def fail(self) -> None:
        """Close the connection with an error, because of a defect of the emulator."""
        self._close(Unavailable("The emulator failed to process a request."))

    def refuse(self, reason: str) -> None:
        """Close the connection with an error, because the client showed no token in time."""
        logger.info("The connection of a client was closed: %s", reason)
        self._close(ConnectionLost(reason))

    def _close(self, error: AmqpError) -> None:
        self._end_all()
        self.engine.close(error)
        self._abort_at = self._loop.time() + CLOSE_TIMEOUT_S
        self.flush_after_turn()

    def _handle_event(self, event: Event) -> None:
        if type(event) is Delivery:
            receiving = self._receiving.get(event.link)
            if receiving is not None and not self._discards_input:
                receiving.on_delivery(event)
        elif isinstance(event, OutgoingDeliveriesUpdated):
            if event.settled or isinstance(event.state, _OUTCOMES):
                for sender, deliveries in _by_link(event.deliveries).items():
                    if (sending := self._sending.get(sender)) is not None:
                        sending.on_outcome(deliveries, event.state, event.settled)
        elif isinstance(event, FlowReceived):
            # Without a link it is the session's window that has opened, for all its links.
            for link in event.session.links if event.link is None else (event.link,):
                if (sending := self._sending.get(link)) is not None:
                    sending.on_flow()
        elif isinstance(event, AttachReceived):
            if self._allows_endpoint():
                self._attach(event.link)
        elif isinstance(event, Begun):
            self._allows_endpoint()
        elif isinstance(event, Detached):
            if event.error is not None and not event.by_peer:
                logger.warning("The link of a client was detached: %s", event.error)
            self._end(event.link)
        elif isinstance(event, Ended):
            if event.error is not None and not event.by_peer:
                logger.warning("The session of a client was ended: %s", event.error)
            for link in event.session.links:
                self._end(link)
        elif isinstance(event, Closed):
            if event.error is not None and not event.by_peer:
                logger.warning("The connection of a client was closed: %s", event.error)
            self._end_all()
        elif isinstance(event, Authenticated) and isinstance(event.identity, Claims):
            self.claims["SASL"] = event.identity
            self.on_token()

    def _allows_endpoint(self) -> bool:
        """Return True if the client may have all of its sessions and links, or else close the
        connection."""
        if self.claims:
            return True
        engine = self.engine
        if engine.link_count + len(engine.sessions) <= MAX_ENDPOINTS_WITHOUT_TOKEN:
            return True
        error = QuotaExceeded("The client has too many sessions and links for one without a token.")
        logger.warning("The connection of a client was closed: %s", error)
        self._close(error)
        return False

    def _attach(self, link: Link) -> None:
        handler: LinkHandler
        try:
            if isinstance(link, ReceiverLink):
                handler = self._receiving[link] = attach.receiving_handler(self, link)
            else:
                assert isinstance(link, SenderLink)
                handler = self._sending[link] = attach.sending_handler(self, link)
            handler.accept()
        except (AmqpError, ConfigurationError, EncodeError) as exc:
            self._remove(link)
            link.refuse(exc if isinstance(exc, AmqpError) else Refused(str(exc)))

    def _remove(self, link: Link) -> LinkHandler | None:
        return self._receiving.pop(link, None) or self._sending.pop(link, None)

    def _end(self, link: Link) -> None:
        handler = self._remove(link)
        if handler is not None:
            handler.on_end()

    def _end_all(self) -> None:
        for link in (*self._receiving, *self._sending):
            self._end(link)

    def sending_handlers(self) -> list[SendingHandler]:
        return list(self._sending.values())


def _by_link(deliveries: list[OutgoingDelivery]) -> dict[SenderLink, list[OutgoingDelivery]]:
    result: dict[SenderLink, list[OutgoingDelivery]] = {}
    for delivery in deliveries:
        result.setdefault(delivery.link, []).append(delivery)
    return result


def _anonymous(response: bytes) -> str:
    return "anonymous"
