"""Links to request-response nodes: `$cbs`, which accepts tokens, and `$management` of an entity.

A client attaches two links to a node: it sends requests on one, and receives responses on the
other.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pairbus.amqp.events import Delivery, OutgoingDelivery
from pairbus.amqp.link import Link, ReceiverLink, SenderLink
from pairbus.amqp.performatives import Accepted, Error, Rejected, Source, Target
from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.types import Int32, Symbol
from pairbus.emulator.auth import MAX_TOKEN
from pairbus.emulator.connections import management
from pairbus.emulator.entities.entity import Entity
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.faults import ON_SEND, ON_TOKEN, Fault
from pairbus.errors import (
    AmqpError,
    DecodeError,
    EntityNotFound,
    NotAuthorized,
    PairbusError,
    QuotaExceeded,
)
from pairbus.servicebus import management as protocol
from pairbus.servicebus.entity_paths import CBS_NODE, covers, path_from_address

if TYPE_CHECKING:
    from pairbus.emulator.connections.amqp_connection import AmqpConnection

logger = logging.getLogger(__name__)

CREDIT = 100


class RequestNode(Protocol):
    """A node that executes requests. A request is the application properties of a message."""

    path: str
    status_code: str
    """Application property of a response that holds the status."""
    status_description: str
    max_request_size: int

    @property
    def entity(self) -> Entity | None:
        """The entity to which the node belongs. Links to the node end with it."""

    def fault(self, request: dict[Any, Any]) -> Fault | None:
        """Return the injected fault that this request triggers, if any."""

    def execute(self, request: dict[Any, Any], body: Any) -> tuple[int, Any]:
        """Return the status and the body of the response. Raises PairbusError."""


class CbsNode:
    """The node `$cbs`: a token that a client puts here grants rights to its connection."""

    path = CBS_NODE
    entity = None
    status_code = protocol.CBS_STATUS_CODE
    status_description = protocol.CBS_STATUS_DESCRIPTION
    max_request_size = 2 * MAX_TOKEN

    def __init__(self, connection: "AmqpConnection") -> None:
        self._connection = connection

    def fault(self, request: dict[Any, Any]) -> Fault | None:
        audience = request.get("name")
        path = path_from_address(audience) if isinstance(audience, str) else None
        return self._connection.runtime.faults.fire(ON_TOKEN, path)

    def execute(self, request: dict[Any, Any], body: Any) -> tuple[int, Any]:
        audience = request.get("name")
        if str(request.get("operation")) != protocol.PUT_TOKEN:
            raise NotAuthorized(f"{CBS_NODE} supports only {protocol.PUT_TOKEN}.")
        if not isinstance(audience, str) or not isinstance(body, str | bytes):
            raise NotAuthorized("put-token needs a name and a token.")
        token = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        runtime = self._connection.runtime
        claims = runtime.authority.claims_of_token(token, runtime.clock.machine_ms() / 1000)
        self._connection.on_token()
        path = path_from_address(audience)
        # As in the service. A client without rights over the path does not learn that it is free.
        if path and covers(claims.path, path) and not runtime.entities.has_address(path):
            raise EntityNotFound(f"The messaging entity {audience!r} could not be found.")
        self._connection.claims[path] = claims
        return 200, None


class ManagementNode:
    """The node `$management` of a queue, topic or subscription."""

    status_code = protocol.STATUS_CODE
    status_description = protocol.STATUS_DESCRIPTION

    def __init__(
        self, connection: "AmqpConnection", path: str, entity: Entity, queue: MessageQueue
    ) -> None:
        self._connection = connection
        self.path = path
        self.entity = entity
        self._queue = queue
        # A request has at most one batch of messages, and one that is too large gets an answer.
        tier = connection.runtime.tier
        self.max_request_size = 4 * tier.message_limit(entity.description)

    def fault(self, request: dict[Any, Any]) -> Fault | None:
        if management.carries_messages(str(request.get("operation", ""))):
            return self._connection.runtime.faults.fire(ON_SEND, self._queue.path)
        return None

    def execute(self, request: dict[Any, Any], body: Any) -> tuple[int, Any]:
        operation = str(request.get("operation", ""))
        return management.execute(self._connection, self.entity, self._queue, operation, body)


class RequestLink:
    """The link on which a client sends requests to a node."""

    def __init__(self, connection: "AmqpConnection", link: ReceiverLink, node: RequestNode) -> None:
        self.connection = connection
        self.link = link
        self.node = node
        self._detached = False
        """True if the link was detached while requests may still arrive on it."""

    def accept(self) -> None:
        self.link.accept()
        self.link.max_message_size = self.node.max_request_size
        self.link.flow(CREDIT)
        self.connection.runtime.add_request_link(self)

    def on_delivery(self, delivery: Delivery) -> None:
        if self._detached:
            return
        state: Accepted | Rejected = Accepted()
        try:
            message = Message.parse(delivery.payload)
            request = message.read_application_properties()
            properties = message.read_properties()
            body = message.read_value()
        except DecodeError as exc:
            state = Rejected(Error.of(exc))
        else:
            if not self._execute(request, properties, body):
                return
        if not delivery.settled:
            delivery.link.session.settle(delivery.id, delivery.id, state)
        if self.link.credit <= CREDIT // 2:
            self.link.flow(CREDIT)

    def _execute(self, request: dict[Any, Any], properties: Properties, body: Any) -> bool:
        """Execute a request, and return False if a fault discards it."""
        fault = self.node.fault(request) if self.connection.runtime.faults else None
        condition: str | None
        try:
            if fault is not None and self.connection.apply_fault(fault, self.link):
                self._detached = fault.kind == "detach"
                return False
            status, response_body = self.node.execute(request, body)
            description, condition = "OK", None
        except PairbusError as exc:
            error = exc if isinstance(exc, AmqpError) else AmqpError(str(exc))
            status, response_body = management.status_of(exc), None
            description, condition = error.description, error.condition
            if fault is not None and fault.kind == "refuse-tokens":
                status = fault.status
            fault = None
        result: dict[str, Any] = {
            self.node.status_code: Int32(status),
            self.node.status_description: description,
        }
        if condition is not None:
            result[protocol.ERROR_CONDITION] = Symbol(condition)
        correlation_id = properties.message_id
        if correlation_id is None:
            correlation_id = properties.correlation_id
        response = Message.build(
            properties=Properties(correlation_id=correlation_id),
            application_properties=result,
            value=response_body,
        ).encode()
        self.connection.add_unwritten(len(response))
        reply_to = properties.reply_to
        self.connection.reply_after_commit(lambda: self._respond(reply_to, response), fault)
        return True

    def _respond(self, reply_to: Any, response: bytes) -> None:
        """Send a response on the link that the request names, or else on any of this node."""
        links = [
            handler
            for handler in self.connection.sending_handlers()
            if isinstance(handler, ResponseLink)
            and handler.node.path == self.node.path
            and handler.link.alive
        ]
        named = [link for link in links if reply_to in _addresses(link.link)]
        if links:
            (named or links)[0].send(response)
        else:
            logger.info("A response of %s was dropped: there is no link for it.", self.node.path)

    def on_entity_deleted(self) -> None:
        self._detached = True
        self.link.detach(_deleted(self.node))
        self.on_end()
        self.connection.flush_after_turn()

    def on_end(self) -> None:
        self.connection.runtime.remove_request_link(self)


class ResponseLink:
    """The link on which a client receives the responses of a node."""

    def __init__(self, connection: "AmqpConnection", link: SenderLink, node: RequestNode) -> None:
        self._connection = connection
        self.link = link
        self.node = node
        self._waiting: list[bytes] = []
        """Responses that wait for credit."""

    def accept(self) -> None:
        self.link.accept()
        self._connection.runtime.add_request_link(self)

    def send(self, response: bytes) -> None:
        if len(self._waiting) >= 2 * CREDIT:
            self._waiting.clear()
            self.link.detach(QuotaExceeded("Too many responses wait for credit."))
            self._connection.flush_after_turn()
            return
        self._waiting.append(response)
        self.on_flow()

    def on_flow(self) -> None:
        link = self.link
        while self._waiting and link.credit > 0:
            link.send(self._waiting.pop(0), tag=self._connection.runtime.new_token())
        if link.drain:
            link.drained()
        self._connection.flush_after_turn()

    def on_outcome(
        self, deliveries: Sequence[OutgoingDelivery], outcome: Any, settled: bool
    ) -> None:
        if not settled:
            for delivery in deliveries:
                if delivery.id is not None:
                    self.link.session.confirm(delivery.id, delivery.id, outcome)

    def on_entity_deleted(self) -> None:
        self.link.detach(_deleted(self.node))
        self.on_end()
        self._connection.flush_after_turn()

    def on_end(self) -> None:
        self._waiting.clear()
        self._connection.runtime.remove_request_link(self)


def _deleted(node: RequestNode) -> EntityNotFound:
    return EntityNotFound(f"The messaging entity of {node.path!r} was deleted.")


def _addresses(link: Link) -> set[Any]:
    termini = (link.remote.source, link.remote.target) if link.remote is not None else ()
    return {terminus.address for terminus in termini if isinstance(terminus, Source | Target)}
