"""One AMQP connection to a namespace: links are let in or refused, events go where they belong."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pairbus.amqp.connection import Connection, Settings
from pairbus.amqp.events import (
    Attaching,
    Authenticated,
    Closed,
    Delivery,
    Detached,
    Ended,
    Event,
    Flowed,
    Sent,
    Updated,
)
from pairbus.amqp.link import Link, ReceiverLink, SenderLink
from pairbus.amqp.performatives import Accepted, Modified, Rejected, Released, Source, Target
from pairbus.amqp.sasl import SaslServer, read_plain
from pairbus.broker.auth import Claims, Right
from pairbus.broker.links import Inlet, Outlet
from pairbus.broker.names import path_of, same_path
from pairbus.broker.nodes import CBS, MANAGEMENT, Node
from pairbus.errors import AmqpError, ConfigurationError, EntityDisabled, NotAuthorized, Refused

if TYPE_CHECKING:
    from pairbus.broker.core import Core

logger = logging.getLogger(__name__)

IDLE_TIMEOUT_S = 240.0
OPEN_S = 30.0
"""How long a client may take until it has opened its connection."""
CLAIMS_S = 1.0
HIGH_WATER = 1024 * 1024
"""Bytes waiting for a peer to read them, above which it is sent nothing more."""
_OUTCOMES = Accepted | Rejected | Released | Modified

End = Inlet | Outlet | Node


class Peer:
    """A connection without its socket. `send` takes bytes for it, `pending` says how many wait."""

    def __init__(
        self,
        core: "Core",
        *,
        now: Callable[[], float],
        send: Callable[[bytes], None],
        pending: Callable[[], int],
        touched: Callable[["Peer"], None],
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
        self.cut = cut
        self.stop_reading = stop_reading
        self.later = later
        self.connection = Connection(
            Settings(
                container_id=core.name,
                max_frame_size=max_frame_size,
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
        self._handle(self.connection.lost(reason))

    def tick_if_due(self) -> None:
        """Let time pass: heartbeats, silence, tokens that expire, clients that never get on."""
        now = self._now()
        if self.connection.remote is None and now - self._since > OPEN_S:
            self._hang_up()
            return
        due = self.connection.deadline
        if due is not None and now >= due:
            self._handle(self.connection.tick(now))
        if self.core.faults and self.core.faults.fire(("expire-tokens",)):
            self.expire_tokens()
        if now - self._looked_at_claims > CLAIMS_S:
            self._looked_at_claims = now
            self._end_expired()

    def touch(self) -> None:
        """There is something to write, once the turn is over."""
        self._touched(self)

    def flush(self) -> None:
        data = self.connection.data_to_send(self._now())
        if data:
            self._send(data)
        if self.connection.closed:
            self._hang_up()

    @property
    def writable(self) -> bool:
        return self._pending() < HIGH_WATER

    # Rights.

    def _check_plain(self, response: bytes) -> Claims | None:
        given = read_plain(response)
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

    def _end_expired(self) -> None:
        for session in self.connection.sessions:
            for link in session.links:
                end = link.context
                if isinstance(end, Inlet | Outlet) and link.alive:
                    try:
                        self.check(end.path, end.right)
                    except NotAuthorized as exc:
                        link.detach(exc)
                        end.on_end()

    # Events.

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            self._on_event(event)
        self.touch()

    def _on_event(self, event: Event) -> None:
        if type(event) is Delivery:
            event.link.context.on_delivery(event)
        elif isinstance(event, Updated):
            if event.settled or isinstance(event.state, _OUTCOMES):
                for end, sent in _by_end(event.sent).items():
                    end.settle(sent, event.state, event.settled)
        elif isinstance(event, Flowed):
            if isinstance(event.link, SenderLink) and event.link.context is not None:
                event.link.context.on_flow()
        elif isinstance(event, Attaching):
            self._on_attaching(event.link)
        elif isinstance(event, Detached):
            if event.error is not None and not event.by_peer:
                logger.warning("a link of a peer was ended: %s", event.error)
            _end(event.link)
        elif isinstance(event, Ended):
            for link in event.session.links:
                _end(link)
        elif isinstance(event, Closed):
            if event.error is not None and not event.by_peer:
                logger.warning("a peer was hung up on: %s", event.error)
            for session in self.connection.sessions:
                for link in session.links:
                    _end(link)
        elif isinstance(event, Authenticated) and isinstance(event.identity, Claims):
            self.claims["SASL"] = event.identity

    def expire_tokens(self) -> None:
        """Take away all that the peer has shown, and with it its links."""
        self.claims.clear()
        self._end_expired()

    def _on_attaching(self, link: Link) -> None:
        try:
            end = self._end_of(link)
            link.context = end
            end.accept()
        except (AmqpError, ConfigurationError) as exc:
            link.context = None
            error = exc if isinstance(exc, AmqpError) else Refused(str(exc))
            link.refuse(error)

    def _end_of(self, link: Link) -> End:
        asked = link.remote
        assert asked is not None
        terminus = asked.source if isinstance(link, SenderLink) else asked.target
        address = terminus.address if isinstance(terminus, Source | Target) else None
        if not isinstance(address, str):
            raise Refused("A link needs an address.", condition="amqp:invalid-field")
        path = path_of(address)
        if same_path(path) == CBS:
            return Node(self, link, CBS, None)
        if same_path(path).endswith(MANAGEMENT):
            entity, queue = self.core.entities.source(path[: -len(MANAGEMENT)])
            return Node(self, link, same_path(path), (entity, queue))
        if self.core.faults and self.core.faults.fire(("disable",), path):
            raise EntityDisabled(f"{path!r} is disabled, as a fault asks for.")
        if isinstance(link, ReceiverLink):
            self.check(path, Right.SEND)
            entity = self.core.entities.get(path)
            if not getattr(entity.description.status, "sends", True):
                raise EntityDisabled(f"{path!r} is disabled for sending.")
            return Inlet(self, link, entity)
        assert isinstance(link, SenderLink)
        self.check(path, Right.LISTEN)
        entity, queue = self.core.entities.source(path)
        if not entity.description.status.receives:
            raise EntityDisabled(f"{path!r} is disabled for receiving.")
        return Outlet(self, link, entity, queue)


def _by_end(sent: list[Sent]) -> dict[Any, list[Sent]]:
    result: dict[Any, list[Sent]] = {}
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
