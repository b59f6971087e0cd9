"""One AMQP connection to a namespace: links are let in or refused, events go where they belong."""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pairbus.amqp.connection import Connection, ConnectionSettings
from pairbus.amqp.events import (
    AttachReceived,
    Authenticated,
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
from pairbus.amqp.performatives import Accepted, Modified, Rejected, Released, Source, Target
from pairbus.amqp.sasl import SaslServer, parse_plain_response
from pairbus.emulator.auth import Claims, Right
from pairbus.emulator.connections.links import IncomingLink, OutgoingLink
from pairbus.emulator.connections.management import error_for_status
from pairbus.emulator.connections.request_nodes import RequestNode
from pairbus.emulator.entities.descriptions import TopicDescription
from pairbus.emulator.faults import Fault
from pairbus.emulator.storage.store import StoreFailed
from pairbus.errors import (
    AmqpError,
    Busy,
    ConfigurationError,
    EncodeError,
    EntityDisabled,
    LinkLost,
    NotAuthorized,
    Refused,
    Unavailable,
)
from pairbus.servicebus import conditions
from pairbus.servicebus.entity_paths import (
    CBS_NODE,
    MANAGEMENT_NODE,
    normalize_path,
    path_from_address,
)

if TYPE_CHECKING:
    from pairbus.emulator.runtime import NamespaceRuntime

logger = logging.getLogger(__name__)

IDLE_TIMEOUT_S = 240.0
CHANNEL_MAX, HANDLE_MAX = 63, 127
"""Each link can hold the attach that asked for it: a peer should not hold gigabytes with them."""
OPEN_S = 30.0
"""How long a client may take until it has opened its connection."""
CLAIMS_S = 1.0
HIGH_WATER = 1024 * 1024
"""Bytes waiting for a peer to read them, above which it is sent nothing more."""
_OUTCOMES = Accepted | Rejected | Released | Modified

End = IncomingLink | OutgoingLink | RequestNode


class AmqpConnection:
    """A connection without its socket. `send` takes bytes for it, `pending` says how many wait."""

    def __init__(
        self,
        core: "NamespaceRuntime",
        *,
        now: Callable[[], float],
        send: Callable[[bytes], None],
        pending: Callable[[], int],
        touched: Callable[["AmqpConnection"], None],
        hang_up: Callable[[], None],
        cut: Callable[[], None],
        stop_reading: Callable[[], None],
        later: Callable[[float, Callable[[], None]], object],
        max_frame_size: int = 65536,
    ) -> None:
        self.core = core
        self._since = self._looked_at_claims = now()
        self.claims: dict[str, Claims] = {}
        """What the peer has shown, by the path that it was for."""
        self._now = now
        self._send = send
        self._pending = pending
        self._touched = touched
        self._hang_up = hang_up
        self._cut = cut
        self._stop_reading = stop_reading
        self._owed = 0
        """Bytes for the peer that wait for the end of the turn."""
        self._held_back = False
        """A link had something for the peer, which had enough."""
        self._deaf = False
        """A fault keeps what still comes from being heard."""
        self.later = later
        self.connection = Connection(
            ConnectionSettings(
                container_id=core.name,
                max_frame_size=max_frame_size,
                channel_max=CHANNEL_MAX,
                handle_max=HANDLE_MAX,
                idle_timeout_s=IDLE_TIMEOUT_S,
            ),
            sasl=SaslServer(
                {
                    "MSSBCBS": _anybody,
                    "ANONYMOUS": _anybody,
                    "EXTERNAL": _anybody,
                    "PLAIN": self._check_plain,
                }
            ),
            client=False,
            now=now(),
        )

    # Bytes.

    def receive(self, data: bytes) -> None:
        self._handle(self.connection.receive(data, self._now()))

    def lost(self, reason: str) -> None:
        self._handle(self.connection.connection_lost(reason))

    def tick_if_due(self) -> None:
        """Let time pass: heartbeats, silence, tokens that expire, clients that never get on."""
        now = self._now()
        if self.connection.remote is None and now - self._since > OPEN_S:
            self._hang_up()
            return
        due = self.connection.deadline
        if due is not None and now >= due:
            self._handle(self.connection.tick(now))
        if self.core.faults:
            self._expire_on_demand()
        if now - self._looked_at_claims > CLAIMS_S:
            self._looked_at_claims = now
            self._end_expired()

    def touch(self) -> None:
        """There is something to write, once the turn is over."""
        self._touched(self)

    def flush(self) -> None:
        self._owed = 0
        data = self.connection.data_to_send(self._now())
        if data:
            self._send(data)
        if self.connection.closed:
            self._hang_up()
        elif self._held_back and self.room >= 0:
            self.on_writable()

    @property
    def room(self) -> int:
        """How many bytes more the peer may be given, for now."""
        return HIGH_WATER - self._pending() - self._owed

    def owe(self, size: int) -> None:
        """So many bytes will be written when the turn is over."""
        self._owed += size

    def may_write(self) -> bool:
        """Whether there is room for a message. If not, `on_writable` comes when there is."""
        if self.room >= 0:
            return True
        self._held_back = True
        return False

    def on_writable(self) -> None:
        """The peer has read what waited for it: links that held back go on."""
        self._held_back = False
        for end in self._live_ends():
            if isinstance(end, OutgoingLink):
                self.core.arrived(end.queue)

    # Faults.

    def cut(self) -> None:
        self._deaf = True
        self._cut()

    def stop_reading(self) -> None:
        self._deaf = True
        self._stop_reading()

    def suffer(self, fault: Fault, link: Link) -> bool:
        """Let a fault happen that keeps what arrived on a link from being taken in. False: it is
        not of that kind. Raises what the sender is told where it is told something."""
        if fault.kind == "cut":
            self.cut()
        elif fault.kind == "stop-reading":
            self.stop_reading()
        elif fault.kind == "detach":
            link.detach(LinkLost("The link was detached, as a fault asks for."))
        elif fault.kind == "throttle":
            raise Busy("The namespace is busy, as a fault asks for.")
        elif fault.kind == "internal-error":
            raise Unavailable("An internal error, as a fault asks for.")
        elif fault.kind == "refuse-tokens":
            raise error_for_status(fault.status, "The token was refused, as a fault asks for.")
        return fault.kind in ("cut", "stop-reading", "detach", "ignore-tokens")

    def answer(self, answer: Callable[[], None], fault: Fault | None = None) -> None:
        """Give an answer after the commit, but for what a fault does to it."""
        if fault is not None and fault.kind == "lose-answer":
            self.core.after_commit(self.cut)
        elif fault is not None and fault.kind == "answer-late":
            self.core.after_commit(partial(self.later, fault.seconds, answer))
        else:
            self.core.after_commit(answer)

    # Rights.

    def _check_plain(self, response: bytes) -> Claims | None:
        given = parse_plain_response(response)
        if given is None:
            return None
        try:
            return self.core.authority.claims_of_key(*given)
        except NotAuthorized as exc:
            logger.info("SASL PLAIN: %s", exc)
            return None

    def check(self, path: str, right: Right) -> None:
        """Raises NotAuthorized unless something that the peer has shown gives it this right."""
        now = self.core.now_ms() / 1000
        for claims in self.claims.values():
            if claims.allows(path, right) and not claims.expired(now):
                return
        raise NotAuthorized(
            f"Unauthorized access. '{right}' claim(s) are required to perform this operation on "
            f"{path!r}."
        )

    def _live_ends(self) -> list[IncomingLink | OutgoingLink]:
        return [
            link.context
            for session in self.connection.sessions
            for link in session.links
            if isinstance(link.context, IncomingLink | OutgoingLink) and link.alive
        ]

    def _end_expired(self) -> None:
        for end in self._live_ends():
            try:
                self.check(end.path, end.right)
            except NotAuthorized as exc:
                end.link.detach(exc)
                end.on_end()
                self.touch()

    def _expire_on_demand(self) -> None:
        """Take away what gives a right to links that a fault is for, and with it the links."""
        for end in self._live_ends():
            if end.link.alive and self.core.faults.fire(("expire-tokens",), end.path):
                for path, claims in list(self.claims.items()):
                    if claims.allows(end.path, end.right):
                        del self.claims[path]
                self._end_expired()

    # Events.

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            try:
                self._on_event(event)
            except StoreFailed:  # the server knows, and cuts everybody off
                return
            except Exception:  # a fault of ours: it costs this peer its connection, nobody else
                logger.exception("%s of a peer failed", type(event).__name__)
                self.fail()
                break
        self.touch()

    def fail(self) -> None:
        """Give the connection up: something went wrong that should not have."""
        self._leave()
        self.connection.close(Unavailable("The namespace failed to do what it was asked for."))
        self.touch()

    def _leave(self) -> None:
        for session in self.connection.sessions:
            for link in session.links:
                _end(link)

    def _on_event(self, event: Event) -> None:
        if type(event) is Delivery:
            if not self._deaf:
                event.link.context.on_delivery(event)
        elif isinstance(event, OutgoingDeliveriesUpdated):
            if event.settled or isinstance(event.state, _OUTCOMES):
                for end, sent in _by_end(event.deliveries).items():
                    end.settle(sent, event.state, event.settled)
        elif isinstance(event, FlowReceived):
            # Without a link, the session's window has opened: for all links that send on it.
            for link in event.session.links if event.link is None else (event.link,):
                if isinstance(link, SenderLink) and link.context is not None:
                    link.context.on_flow()
        elif isinstance(event, AttachReceived):
            self._on_attaching(event.link)
        elif isinstance(event, Detached):
            if event.error is not None and not event.by_peer:
                logger.warning("a link of a peer was ended: %s", event.error)
            _end(event.link)
        elif isinstance(event, Ended):
            if event.error is not None and not event.by_peer:
                logger.warning("a session of a peer was ended: %s", event.error)
            for link in event.session.links:
                _end(link)
        elif isinstance(event, Closed):
            if event.error is not None and not event.by_peer:
                logger.warning("a peer was hung up on: %s", event.error)
            self._leave()
        elif isinstance(event, Authenticated) and isinstance(event.identity, Claims):
            self.claims["SASL"] = event.identity

    def _on_attaching(self, link: Link) -> None:
        try:
            end = self._end_of(link)
            link.context = end
            end.accept()
        except (AmqpError, ConfigurationError, EncodeError) as exc:
            link.context = None
            error = exc if isinstance(exc, AmqpError) else Refused(str(exc))
            link.refuse(error)

    def _end_of(self, link: Link) -> End:
        asked = link.remote
        assert asked is not None
        terminus = asked.source if isinstance(link, SenderLink) else asked.target
        address = terminus.address if isinstance(terminus, Source | Target) else None
        if not isinstance(address, str):
            raise Refused("A link needs an address.", condition=conditions.INVALID_FIELD)
        path = path_from_address(address)
        if normalize_path(path) == CBS_NODE:
            return RequestNode(self, link, CBS_NODE, None)
        if normalize_path(path).endswith(f"/{MANAGEMENT_NODE}"):
            entity, queue = self.core.entities.source(path[: -len(MANAGEMENT_NODE) - 1])
            return RequestNode(self, link, normalize_path(path), (entity, queue))
        if self.core.faults and self.core.faults.fire(("disable",), path):
            raise EntityDisabled(f"{path!r} is disabled, as a fault asks for.")
        if isinstance(link, ReceiverLink):
            self.check(path, Right.SEND)
            entity = self.core.entities.get(path)
            if not entity.description.status.allows_sending:
                raise EntityDisabled(f"{path!r} is disabled for sending.")
            return IncomingLink(self, link, entity)
        assert isinstance(link, SenderLink)
        self.check(path, Right.LISTEN)
        entity, queue = self.core.entities.source(path)
        if isinstance(entity.description, TopicDescription):
            raise Refused(f"{path!r} is a topic: it is received from through its subscriptions.")
        if not entity.description.status.allows_receiving:
            raise EntityDisabled(f"{path!r} is disabled for receiving.")
        return OutgoingLink(self, link, entity, queue)


def _by_end(sent: list[OutgoingDelivery]) -> dict[Any, list[OutgoingDelivery]]:
    result: dict[Any, list[OutgoingDelivery]] = {}
    for one in sent:
        if one.link.context is not None:
            result.setdefault(one.link.context, []).append(one)
    return result


def _end(link: Link) -> None:
    end, link.context = link.context, None
    if end is not None:
        end.on_end()


def _anybody(response: bytes) -> str:
    return "anonymous"
