"""A backlog in two emulated namespaces."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage

from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.amqp.sections import Message
from pairbus.emulator.entities.message_codec import encode_original
from pairbus.emulator.namespace import LocalNamespace
from pairbus.servicebus.backlog_paths import backlog_path, backlog_paths
from pairbus.syphon.options import SyphonOptions
from pairbus.transfer import to_backlog
from tests.messages import id_of


class LockedMessages:
    """Messages that a receiver of the SDK has locked. A thread renews their locks."""

    def __init__(self, receiver: Any, messages: list[ServiceBusReceivedMessage]) -> None:
        self._receiver = receiver
        self._messages = messages
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._renew)
        self._thread.start()

    def _renew(self) -> None:
        while not self._stopped.wait(1):
            for message in self._messages:
                self._receiver.renew_message_lock(message)

    def stop_renewing(self) -> None:
        """Let the locks expire. Idempotent."""
        self._stopped.set()
        self._thread.join()

    def complete(self) -> None:
        self.stop_renewing()
        for message in self._messages:
            self._receiver.complete_message(message)

    def defer(self) -> None:
        self.stop_renewing()
        for message in self._messages:
            self._receiver.defer_message(message)

    def dead_letter(self, reason: str, description: str) -> None:
        self.stop_renewing()
        for message in self._messages:
            self._receiver.dead_letter_message(message, reason, description)


class Backlog:
    """Two backlog queues in a secondary, and queues in a primary as destinations. Several of them
    can share the namespaces: the name of the primary is unique."""

    def __init__(
        self,
        primary: LocalNamespace,
        secondary: LocalNamespace,
        name: str | None = None,
        **settings: Any,
    ) -> None:
        self.primary = primary
        self.secondary = secondary
        self.name = name or f"p{uuid4().hex[:8]}"
        self.queues = backlog_paths(self.name, 2)
        self.arguments: tuple[str, ...] = ("--primary-name", self.name, "--backlog-queues", "2")
        """The arguments of commands."""
        for queue in self.queues:
            secondary.create_queue(queue, max_delivery_count=2147483647, **settings)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of commands."""
        return {
            "PAIRBUS_PRIMARY": self.primary.connection_string,
            "PAIRBUS_SECONDARY": self.secondary.connection_string,
        }

    def options(self, **changes: Any) -> SyphonOptions:
        """Return options of a syphon for this backlog."""
        primary, secondary = (
            ClientOptions.from_connection_string(
                namespace.connection_string, operation_timeout_s=20
            )
            for namespace in (self.primary, self.secondary)
        )
        return SyphonOptions(
            primary=primary,
            secondary=secondary,
            primary_name=self.name,
            backlog_queue_count=2,
            **changes,
        )

    def path(self, name: str, **settings: Any) -> str:
        """Create a queue in the primary, and return its path."""
        path = f"{self.name}-{name}"
        self.primary.create_queue(path, **settings)
        return path

    def add_queue(self, index: int, **settings: Any) -> int:
        """Create another backlog queue. Return its position for `put` and `locked`."""
        path = backlog_path(self.name, index)
        self.secondary.create_queue(path, **settings)
        self.queues.append(path)
        return len(self.queues) - 1

    def put(self, path: str, payloads: list[bytes], queue: int = 0) -> None:
        """Store messages for a path, as a paired sender would."""
        self.put_raw([to_backlog(payload, path) for payload in payloads], queue)

    def put_raw(self, payloads: list[bytes], queue: int = 0) -> None:
        """Send messages to a backlog queue without changing them."""
        options = ClientOptions.from_connection_string(self.secondary.connection_string)
        with Client(options) as client, Sender(client, self.queues[queue]) as sender:
            for start in range(0, len(payloads), 200):
                sender.send_batch(payloads[start : start + 200])

    @contextmanager
    def locked(self, count: int, queue: int = 0) -> Iterator[LockedMessages]:
        """Lock messages with a receiver of the SDK, and renew their locks until
        `stop_renewing`."""
        with (
            ServiceBusClient.from_connection_string(self.secondary.connection_string) as client,
            client.get_queue_receiver(self.queues[queue]) as receiver,
        ):
            messages: list[ServiceBusReceivedMessage] = []
            while len(messages) < count:
                received = receiver.receive_messages(count - len(messages), max_wait_time=20)
                assert received, f"only {len(messages)} messages could be locked"
                messages += received
            locked = LockedMessages(receiver, messages)
            try:
                yield locked
            finally:
                locked.stop_renewing()

    def dead_letter(self, count: int, reason: str, description: str, queue: int = 0) -> None:
        """Dead-letter the first messages of a queue."""
        with self.locked(count, queue) as locked:
            locked.dead_letter(reason, description)

    def peeks(self) -> int:
        """Return the number of peeks at the backlog queues, as the meter counts them."""
        return self._operations("peek")

    def receives(self) -> int:
        """Return the number of messages that were received from the backlog queues."""
        return self._operations("receive")

    def _operations(self, wanted: str) -> int:
        return sum(
            reading.operations
            for (entity, kind), reading in self.secondary.meter().items()
            if kind == wanted and entity.lower().startswith(f"{self.name}/")
        )

    def left(self) -> int:
        """Return the number of messages in the backlog queues, without dead letters."""
        return self._count(slice(1))

    def message_count(self) -> int:
        """Return the number of messages in the backlog queues, dead letters included."""
        return self._count(slice(None))

    def _count(self, part: slice) -> int:
        return self.secondary.call(
            lambda core: sum(
                len(queue) for path in self.queues for queue in core.entities.get(path).queues[part]
            )
        )

    def dead_letters(self) -> list[tuple[str, str]]:
        """Return reason and description of each dead letter."""
        dead_letters = []
        for queue in self.queues:
            for payload in _stored(self.secondary, f"{queue}/$deadletterqueue"):
                properties = Message.parse(payload).read_application_properties()
                dead_letters.append(
                    (properties["DeadLetterReason"], properties["DeadLetterErrorDescription"])
                )
        return dead_letters

    def arrived(self, path: str) -> list[bytes]:
        """Return the messages that a path of the primary holds, in their order."""
        return _stored(self.primary, path)

    def ids(self, path: str) -> list[str]:
        """Return the message ids that a path of the primary holds, in their order."""
        return [id_of(payload) for payload in self.arrived(path)]


def _stored(namespace: LocalNamespace, path: str) -> list[bytes]:
    return namespace.call(
        lambda core: [
            encode_original(message) for message in core.entities.source(path)[1].peek(0, 100_000)
        ]
    )
