"""Requests and responses over a pair of links: CBS, and what management is made of."""

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


class Response:
    """A response: its status, what it says of it, and its body. Filled in when it arrives."""

    __slots__ = ("body", "condition", "description", "error", "id", "status")

    def __init__(self, id: str) -> None:
        self.id = id
        self.status: int | None = None
        self.description = ""
        self.condition: str | None = None
        self.body: Any = None
        self.error: AmqpError | None = None
        """Why there is none: the link is lost, the request was refused, it is not readable."""

    @property
    def done(self) -> bool:
        return self.status is not None or self.error is not None

    def raise_for_status(self, what: str) -> None:
        """Raise the error that the status means, unless it is a success."""
        if self.error is not None:
            raise self.error
        if self.status is None or not 200 <= self.status < 300:
            raise error_from_status(self.status or 0, self.description, self.condition, what)


class RequestResponseLinks:
    """Posts requests to a node and matches the responses; several may be on their way."""

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
        self._reply_to = f"{node}-{uuid4()}"
        self._waiting: dict[str, tuple[Response, PendingDelivery]] = {}
        self._replies = _ResponseReceiver(self, authorize)
        self._sender = Sender(client, node, authorize=authorize)

    def post(
        self,
        application_properties: dict[str, Any],
        body: Any,
        deadline: float,
    ) -> Response:
        """Send a request without waiting for its response."""
        self._replies.ready(deadline)
        response = Response(str(uuid4()))
        message = Message.build(
            properties=Properties(message_id=response.id, reply_to=self._reply_to),
            application_properties=application_properties,
            value=body,
        )
        posted = self._sender.enqueue(message.encode(), 0, deadline)
        if self._replies.error is not None:  # lost meanwhile: no response can come
            response.error = self._replies.error
        else:
            self._waiting[response.id] = response, posted
        self.client.step(self.client.now())  # on its way now, not when somebody waits
        return response

    def wait(self, responses: list[Response], deadline: float) -> None:
        """Wait until each is done. What has no answer by then ends with OperationTimeout."""
        try:
            self.client.run_until(
                lambda: all(self._is_done(one) for one in responses), deadline, f"{self.node!r}"
            )
        except OperationTimeout as exc:
            for response in responses:
                if not response.done:
                    response.error = exc
                self._waiting.pop(response.id, None)

    def close(self) -> None:
        self._sender.close()
        self._replies.close()

    def _is_done(self, response: Response) -> bool:
        if response.done:
            return True
        posted = self._waiting[response.id][1]
        if posted.error is not None:  # the request itself was refused
            response.error = posted.error
            del self._waiting[response.id]
        return response.done

    def on_response(self, delivery: Delivery) -> None:
        try:
            message = Message.parse(delivery.payload)
            properties = message.read_application_properties()
            waiting = self._waiting.pop(str(message.read_properties().correlation_id), None)
        except DecodeError:
            return  # not an answer to anything; who waits for one gets a timeout
        if waiting is None:
            return
        response = waiting[0]
        status = properties.get(self._status_key)
        if not isinstance(status, int):
            response.error = ProtocolError(f"{self.node!r} answered without a status")
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

    @property
    def reply_to(self) -> str:
        return self._reply_to


class _ResponseReceiver(Receiver):
    """The link that responses come on."""

    CREDIT = 100

    def __init__(self, requests: RequestResponseLinks, authorize: bool) -> None:
        super().__init__(requests.client, requests.node, confirm=False, authorize=authorize)
        self._requests = requests

    def ready(self, deadline: float) -> None:
        self._top_up(self.ensure_attached(deadline))

    def _top_up(self, link: ReceiverLink) -> None:
        if link.credit <= self.CREDIT // 2:
            link.flow(self.CREDIT)

    def attach_link(self, session: Session) -> ReceiverLink:
        return session.attach_receiver(
            self.client.link_name("replies"),
            source=Source(self.path),
            target=Target(self._requests.reply_to),
        )

    def on_delivery(self, delivery: Delivery) -> None:
        if not delivery.settled:
            delivery.link.session.settle(delivery.id, delivery.id, Accepted())
        self._top_up(delivery.link)
        self._requests.on_response(delivery)

    def on_lost(self, link: Link, error: AmqpError) -> None:
        super().on_lost(link, error)
        if link is self._link:
            self._requests.on_lost(error)


class Cbs:
    """Puts tokens on a connection (claims based security)."""

    def __init__(self, client: Client) -> None:
        self._requests = RequestResponseLinks(
            client,
            CBS_NODE,
            status_key=management.CBS_STATUS_CODE,
            description_key=management.CBS_STATUS_DESCRIPTION,
            authorize=False,
        )

    def put_token(self, token: Token, audience: str, deadline: float) -> None:
        """Raises NotAuthorized or what else the namespace says against it."""
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
