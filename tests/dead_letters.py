"""Dead letters in an emulated namespace."""

from collections.abc import Sequence

from pairbus.amqp.client import Client, ClientOptions, Management, Receiver, Sender
from pairbus.amqp.events import Delivery
from pairbus.emulator.entities.message_codec import encode_original
from pairbus.emulator.namespace import LocalNamespace
from pairbus.servicebus.entity_paths import dead_letter_path
from pairbus.servicebus.management import DEAD_LETTERED
from tests.messages import id_of


class DeadLetters:
    """The dead letters of one queue or subscription without sessions, over one connection."""

    def __init__(self, namespace: LocalNamespace, entity: str, send_to: str | None = None) -> None:
        self.namespace = namespace
        self.entity = entity
        self.options = ClientOptions.from_connection_string(namespace.connection_string)
        self._client = Client(self.options)
        self._sender = Sender(self._client, send_to or entity)
        self._receiver = Receiver(self._client, entity, confirm=False)
        self._management = Management(self._client, entity)

    def close(self) -> None:
        self._client.close()

    def send(self, payloads: Sequence[bytes]) -> list[Delivery]:
        """Send messages, receive them, and return the deliveries in the order of the queue."""
        for start in range(0, len(payloads), 500):
            self._sender.send_batch(payloads[start : start + 500])
        deliveries: list[Delivery] = []
        while len(deliveries) < len(payloads):
            deliveries += self._receiver.receive(len(payloads) - len(deliveries))
        return deliveries

    def dead_letter(
        self, deliveries: Sequence[Delivery], reason: str = "Broken", description: str = "because"
    ) -> None:
        for start in range(0, len(deliveries), 500):
            tokens = [delivery.tag for delivery in deliveries[start : start + 500]]
            self._management.settle(tokens, DEAD_LETTERED, reason=reason, description=description)

    def put(
        self, payloads: Sequence[bytes], reason: str = "Broken", description: str = "because"
    ) -> None:
        """Send messages and dead-letter them."""
        self.dead_letter(self.send(payloads), reason, description)

    def stored(self, path: str) -> list[bytes]:
        """Return the messages of a queue, as they were sent."""
        return self.namespace.call(
            lambda core: [
                encode_original(message)
                for message in core.entities.source(path)[1].peek(0, 1_000_000)
            ]
        )

    def ids(self) -> list[str]:
        """Return the ids of the dead letters."""
        return [id_of(payload) for payload in self.stored(dead_letter_path(self.entity))]
