"""A backlog queue in an emulated namespace, and the forwarding of its messages without Spark."""

from datetime import timedelta
from itertools import count
from typing import Any

from pairbus.amqp.client import Client, ClientOptions, Receiver
from pairbus.amqp.events import Delivery
from pairbus.amqp.sections import Message, Properties
from pairbus.emulator.namespace import LocalNamespace
from pairbus.spark import connections
from pairbus.spark.forwarder import Forwarder
from pairbus.spark.messages import ReceivedMessage, RestoredMessage, locked_until_of
from pairbus.spark.outcome import Outcome
from pairbus.syphon.restore import restore
from pairbus.transfer import to_backlog
from tests.messages import peek_all

numbers = count(1)


class BacklogQueue:
    """A backlog queue, and a forwarder for its messages."""

    def __init__(self, namespace: LocalNamespace) -> None:
        self.namespace = namespace
        self.options = ClientOptions.from_connection_string(
            namespace.connection_string, operation_timeout_s=20
        )
        self.path = self.create_queue(
            max_message_size_in_kilobytes=min(2048, namespace.tier.max_message_kb)
        )

    def create_queue(self, **settings: object) -> str:
        name = f"q{next(numbers)}"
        self.namespace.create_queue(name, lock_duration=timedelta(seconds=60), **settings)
        return name

    def locked(
        self, destination: str, bodies: list[str], session: str | None = None
    ) -> list[RestoredMessage]:
        """Store messages for a destination, receive them under locks, and restore them."""
        payloads = [
            to_backlog(
                Message.build(
                    properties=Properties(message_id=body[:99], group_id=session),
                    data=body.encode(),
                ).encode(),
                destination,
            )
            for body in bodies
        ]
        sender = connections.sender_for(self.options, self.path)
        for start in range(0, len(payloads), 200):
            sender.send_batch(payloads[start : start + 200])
        deliveries: list[Delivery] = []
        with Client(self.options) as client:
            receiver = Receiver(client, self.path, confirm=False)
            while len(deliveries) < len(payloads):
                deliveries += receiver.receive(len(payloads) - len(deliveries))
        return [
            restore(ReceivedMessage(self.path, d.payload, d.tag, locked_until_of(d.payload)), None)
            for d in deliveries
        ]

    def receive(self, max_count: int) -> list[Delivery]:
        with Client(self.options) as client:
            receiver = Receiver(client, self.path, confirm=False)
            return [
                delivery for batch in receiver.receive_available(max_count) for delivery in batch
            ]

    def forward(
        self, messages: list[RestoredMessage], *, settle: bool = True, **settings: Any
    ) -> Outcome:
        forwarder = Forwarder(self.options, self.options if settle else None, **settings)
        forwarder.forward(messages)
        return forwarder.finish()

    def message_count(self) -> int:
        return self.namespace.call(lambda core: len(core.entities.get(self.path).queue))

    def dead_letters(self) -> list[tuple[str, str]]:
        """Return reason and description of each dead letter."""
        payloads = peek_all(self.namespace.connection_string, f"{self.path}/$deadletterqueue")
        properties = [Message.parse(payload).read_application_properties() for payload in payloads]
        return [
            (each["DeadLetterReason"], each["DeadLetterErrorDescription"]) for each in properties
        ]
