"""Requests and responses over a pair of links, and CBS (claims-based security)."""

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pairbus.amqp.client.client import Client
from pairbus.amqp.client.error_translation import error_from_status
from pairbus.amqp.client.receiver import Receiver
from pairbus.amqp.client.sender import PendingDelivery, Sender
from pairbus.amqp.events import Delivery
from pairbus.amqp.link import Link, ReceiverLink
from pairbus.amqp.performatives import Accepted, Source, Target
from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.session import Session
from pairbus.amqp.types import Timestamp
from pairbus.errors import AmqpError, DecodeError, OperationTimeout, ProtocolError
from pairbus.servicebus import management
from pairbus.servicebus.entity_paths import CBS_NODE
from pairbus.servicebus.tokens import Token


@dataclass(slots=True, eq=False)
class Response:
    """The response to a request. Its fields are set when it arrives."""

    id: str
    status: int | None = None
    description: str = ""
    condition: str | None = None
    body: Any = None
    error: AmqpError | None = None
    """The error if the link was lost, the request rejected or the response invalid."""

    @property
    def done(self) -> bool:
        return self.status is not None or self.error is not None

    def raise_for_status(self, failure: str) -> None:
        """Raise the error for a status that is not a success. `failure` starts its message."""
        if self.error is not None:
            raise self.error
        if self.status is None or not 200 <= self.status < 300:
            raise error_from_status(self.status or 0, self.description, self.condition, failure)


class RequestResponseLinks:
    """Sends requests to a node, and matches the responses. Several requests may be in flight."""

    def __init__(
        self,
        client: Client,
        node: str,
        *,
        status_key: str,
        description_key: str,
        authorize: bool = True,
    ) -> None:
        self.client = client
        self.node = node
        self._status_key = status_key
        self._description_key = description_key
        self.reply_to = f"{node}-{uuid4()}"
        self._waiting: dict[str, tuple[Response, PendingDelivery]] = {}
        self._receiver = _ResponseReceiver(self, authorize)
        self._sender = Sender(client, node, authorize=authorize)

    def post(
        self,
        application_properties: dict[str, Any],
        body: Any,
        deadline: float,
    ) -> Response:
        """Send a request without waiting for its response."""
        self._receiver.ensure_credit(deadline)
        response = Response(str(uuid4()))
        message = Message.build(
            properties=Properties(message_id=response.id, reply_to=self.reply_to),
            application_properties=application_properties,
            value=body,
        )
        request = self._sender.enqueue(message.encode(), 0, deadline)
        if self._receiver.error is not None:  # The link ended, so no response can arrive.
            response.error = self._receiver.error
        else:
            self._waiting[response.id] = response, request
        self.client.step(self.client.now())  # Write it now, not during the next call.
        return response

    def wait(self, responses: list[Response], deadline: float) -> None:
        """Wait until all responses are done. Those that time out fail with OperationTimeout."""
        try:
            self.client.run_until(
                lambda: all(self._is_done(response) for response in responses),
                deadline,
                f"a response of {self.node!r}",
            )
        except OperationTimeout as exc:
            for response in responses:
                if not response.done:
                    response.error = exc
                self._waiting.pop(response.id, None)

    def close(self) -> None:
        self._sender.close()
        self._receiver.close()

    def _is_done(self, response: Response) -> bool:
        if response.done:
            return True
        request = self._waiting[response.id][1]
        if request.error is not None:  # The namespace did not accept the request.
            response.error = request.error
            del self._waiting[response.id]
        return response.done

    def on_response(self, delivery: Delivery) -> None:
        try:
            message = Message.parse(delivery.payload)
            properties = message.read_application_properties()
            waiting = self._waiting.pop(str(message.read_properties().correlation_id), None)
        except DecodeError:
            return  # Not a response to a request. The request times out.
        if waiting is None:
            return
        response = waiting[0]
        status = properties.get(self._status_key)
        if not isinstance(status, int):
            response.error = ProtocolError(f"{self.node!r} sent a response without a status")
            return
        response.description = str(properties.get(self._description_key) or "")
        condition = properties.get(management.ERROR_CONDITION) or properties.get(
            management.CBS_ERROR_CONDITION
        )
        response.condition = None if condition is None else str(condition)
        try:
            response.body = message.read_value()
        except DecodeError as exc:
            response.error = exc
            return
        response.status = int(status)

    def on_lost(self, error: AmqpError) -> None:
        for response, _ in self._waiting.values():
            response.error = error
        self._waiting.clear()


class _ResponseReceiver(Receiver):
    """The link on which responses arrive."""

    CREDIT = 100

    def __init__(self, links: RequestResponseLinks, authorize: bool) -> None:
        super().__init__(links.client, links.node, confirm=False, authorize=authorize)
        self._links = links

    def ensure_credit(self, deadline: float) -> None:
        """Attach the link if necessary, and renew its credit."""
        self._renew_credit(self.ensure_attached(deadline))

    def _renew_credit(self, link: ReceiverLink) -> None:
        if link.credit <= self.CREDIT // 2:
            link.flow(self.CREDIT)

    def attach_link(self, session: Session) -> ReceiverLink:
        return session.attach_receiver(
            self.client.link_name("responses"),
            source=Source(self.path),
            target=Target(self._links.reply_to),
        )

    def on_delivery(self, delivery: Delivery) -> None:
        if not delivery.settled:
            delivery.link.session.settle(delivery.id, delivery.id, Accepted())
        self._renew_credit(delivery.link)
        self._links.on_response(delivery)

    def on_lost(self, link: Link, error: AmqpError) -> None:
        super().on_lost(link, error)
        if link is self._link:
            self._links.on_lost(error)


class Cbs:
    """Sends tokens for a connection to the `$cbs` node."""

    def __init__(self, client: Client) -> None:
        self._requests = RequestResponseLinks(
            client,
            CBS_NODE,
            status_key=management.CBS_STATUS_CODE,
            description_key=management.CBS_STATUS_DESCRIPTION,
            authorize=False,
        )

    def put_token(self, token: Token, audience: str, deadline: float) -> None:
        """Send a token for an audience. Raises NotAuthorized if the namespace rejects it."""
        response = self._requests.post(
            {
                "operation": management.PUT_TOKEN,
                "type": token.kind,
                "name": audience,
                "expiration": Timestamp(int(token.expires_at * 1000)),
            },
            token.text,
            deadline,
        )
        self._requests.wait([response], deadline)
        response.raise_for_status(f"the token for {audience} was refused")
