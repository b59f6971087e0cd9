"""Request and response nodes: `$cbs`, where tokens are put, and an entity's `$management`."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pairbus.amqp.events import Delivery, OutgoingDelivery
from pairbus.amqp.link import Link, ReceiverLink, SenderLink
from pairbus.amqp.performatives import Accepted, Error, Rejected, Source, Target
from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.types import Int32, Symbol
from pairbus.emulator.connections import management
from pairbus.emulator.entities.entity import Entity
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.faults import ON_SEND, ON_TOKEN, Fault
from pairbus.errors import AmqpError, DecodeError, NotAuthorized, PairbusError, QuotaExceeded
from pairbus.servicebus import management as protocol
from pairbus.servicebus.entity_paths import path_from_address

if TYPE_CHECKING:
    from pairbus.emulator.connections.amqp_connection import AmqpConnection

logger = logging.getLogger(__name__)

CREDIT = 100


class RequestNode:
    """One of the two links of a node: requests come in on one, responses go out on the other."""

    def __init__(
        self, peer: "AmqpConnection", link: Link, path: str, of: tuple[Entity, MessageQueue] | None
    ) -> None:
        self.peer = peer
        self.link = link
        self.path = path
        self.of = of
        self._waiting: list[bytes] = []
        self._cut_off = False
        """A fault has detached the link: what came behind is not taken."""

    def accept(self) -> None:
        self.link.accept()
        if isinstance(self.link, ReceiverLink):
            self.link.flow(CREDIT)

    def on_delivery(self, delivery: Delivery) -> None:
        if self._cut_off:
            return
        state: Any = Accepted()
        try:
            message = Message.parse(delivery.payload)
            asked = message.read_application_properties()
            properties = message.read_properties()
            body = message.read_value()
        except DecodeError as exc:
            state = Rejected(Error.of(exc))
        else:
            if not self._carry_out(asked, properties, body):
                return
        if not delivery.settled:
            delivery.link.session.settle(delivery.id, delivery.id, state)
        link = self.link
        if isinstance(link, ReceiverLink) and link.credit <= CREDIT // 2:
            link.flow(CREDIT)

    def _carry_out(self, asked: dict[Any, Any], properties: Properties, body: Any) -> bool:
        """False: a fault has kept the request from being heard."""
        fault = self._fault(asked)
        try:
            if fault is not None and self.peer.suffer(fault, self.link):
                self._cut_off = fault.kind == "detach"
                return False
            status, answer = self._answer(asked, body)
            described, condition = "OK", None
        except PairbusError as exc:
            error = exc if isinstance(exc, AmqpError) else AmqpError(str(exc))
            status, answer = management.status_of(exc), None
            described, condition = error.description, error.condition
            if fault is not None and fault.kind == "refuse-tokens":
                status = fault.status
            fault = None
        code, text = (protocol.CBS_STATUS_CODE, protocol.CBS_STATUS_DESCRIPTION)
        if self.of is not None:
            code, text = (protocol.STATUS_CODE, protocol.STATUS_DESCRIPTION)
        told: dict[str, Any] = {code: Int32(status), text: described}
        if condition is not None:
            told[protocol.ERROR_CONDITION] = Symbol(condition)
        correlation = properties.message_id
        if correlation is None:
            correlation = properties.correlation_id
        response = Message.build(
            properties=Properties(correlation_id=correlation),
            application_properties=told,
            value=answer,
        ).encode()
        self.peer.owe(len(response))
        # What was asked for may have changed something: no answer before the commit.
        reply_to = properties.reply_to
        self.peer.answer(lambda: self._respond(reply_to, response), fault)
        return True

    def _fault(self, asked: dict[Any, Any]) -> Fault | None:
        """The fault that happens to a request, if one does."""
        faults = self.peer.core.faults
        if not faults:
            return None
        if self.of is None:
            audience = asked.get("name")
            return faults.fire(
                ON_TOKEN, path_from_address(audience) if isinstance(audience, str) else None
            )
        if management.carries_messages(str(asked.get("operation", ""))):
            return faults.fire(ON_SEND, self.of[1].path)
        return None

    def _answer(self, asked: dict[Any, Any], body: Any) -> tuple[int, Any]:
        peer = self.peer
        if self.of is None:
            self._put_token(asked, body)
            return 200, None
        entity, queue = self.of
        operation = str(asked.get("operation", ""))
        return management.execute(peer, entity, queue, operation, body)

    def _put_token(self, asked: dict[Any, Any], body: Any) -> None:
        peer, audience = self.peer, asked.get("name")
        if str(asked.get("operation")) != protocol.PUT_TOKEN:
            raise NotAuthorized("$cbs knows put-token only.")
        if not isinstance(audience, str) or not isinstance(body, str | bytes):
            raise NotAuthorized("put-token needs a name and a token.")
        token = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        claims = peer.core.authority.claims_of_token(token, peer.core.now_ms() / 1000)
        peer.claims[path_from_address(audience)] = claims

    def _respond(self, reply_to: Any, response: bytes) -> None:
        """Send a response on the link that the request names, or else on this node's other one."""
        ends = [
            link.context
            for session in self.peer.connection.sessions
            for link in session.links
            if isinstance(link, SenderLink) and isinstance(link.context, RequestNode)
        ]
        mine = [end for end in ends if end.path == self.path]
        for end in [one for one in mine if reply_to in _addresses(one.link)] or mine:
            end.send(response)
            return
        logger.info("a response of %s has no link to go out on", self.path)

    def send(self, response: bytes) -> None:
        if len(self._waiting) >= 2 * CREDIT:
            self._waiting.clear()
            self.link.detach(QuotaExceeded("Too many responses wait for credit."))
            self.peer.touch()
            return
        self._waiting.append(response)
        self.on_flow()

    def on_flow(self) -> None:
        link = self.link
        if not isinstance(link, SenderLink):
            return
        while self._waiting and link.credit > 0:
            link.send(self._waiting.pop(0), tag=self.peer.core.new_token())
        if link.drain:
            link.drained()
        self.peer.touch()

    def settle(self, sent: Sequence[OutgoingDelivery], state: Any, settled: bool) -> None:
        """A response has arrived."""
        if not settled:
            for one in sent:
                if one.id is not None:
                    self.link.session.confirm(one.id, one.id, state)

    def on_end(self) -> None:
        self._waiting.clear()


def _addresses(link: Link) -> set[Any]:
    termini = (link.remote.source, link.remote.target) if link.remote is not None else ()
    return {one.address for one in termini if isinstance(one, Source | Target)}
