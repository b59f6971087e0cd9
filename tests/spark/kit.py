"""A backlog in two emulated namespaces, and messages for it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage

from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.amqp.section_edit import read_fields
from pairbus.amqp.sections import Header, Message, Properties
from pairbus.amqp.types import UInt
from pairbus.emulator.entities.message_codec import encode_original
from pairbus.emulator.namespace import LocalNamespace
from pairbus.servicebus.backlog_paths import backlog_paths
from pairbus.syphon.options import SyphonOptions
from pairbus.transfer import to_backlog

DEADLINE_S = 200.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition. `what` completes the sentence "timed out waiting for"."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.05)


def message(
    id: str, *, session: str | None = None, ttl_ms: int | None = None, body: bytes = b"body"
) -> bytes:
    """Return an encoded message with the parts that the SDK sends."""
    return Message.build(
        header=None if ttl_ms is None else Header(ttl=UInt(ttl_ms)),
        properties=Properties(message_id=id, group_id=session, subject="s"),
        application_properties={"n": 1, "text": "é"},
        data=body,
    ).encode()


def meaning(payload: bytes) -> tuple[Any, ...]:
    """Return the content of a message. Encodings of the same content may differ: trailing nulls
    of a header can be left out."""
    parsed = Message.parse(payload)
    return (
        parsed.read_properties().message_id,
        parsed.read_header(),
        parsed.read_properties(),
        parsed.read_message_annotations(),
        parsed.read_application_properties(),
        parsed.read_body(),
    )


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


class Backlog:
    """Two backlog queues in a secondary, and queues in a primary as destinations."""

    def __init__(
        self, primary: LocalNamespace, secondary: LocalNamespace, *, name: str, **settings: Any
    ) -> None:
        self.primary = primary
        self.secondary = secondary
        self.name = name
        self.queues = backlog_paths(name, 2)
        for queue in self.queues:
            secondary.create_queue(queue, max_delivery_count=2147483647, **settings)

    def path(self, name: str, **settings: Any) -> str:
        """Create a queue in the primary, and return its path."""
        path = f"{self.name}-{name}"
        self.primary.create_queue(path, **settings)
        return path

    def options(self, **changes: Any) -> SyphonOptions:
        """Return options of a syphon for this backlog."""
        return SyphonOptions(
            primary=ClientOptions.from_connection_string(
                self.primary.connection_string, operation_timeout_s=20
            ),
            secondary=ClientOptions.from_connection_string(
                self.secondary.connection_string, operation_timeout_s=20
            ),
            primary_name=self.name,
            backlog_queue_count=2,
            **changes,
        )

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

    def peeks(self) -> int:
        """Return the number of peeks at the backlog queues, as the meter counts them."""
        meter = self.secondary.meter()
        keys = [(queue, "peek") for queue in self.queues]
        return sum(meter[key].operations for key in keys if key in meter)

    def left(self) -> int:
        """Return the number of messages in the backlog queues, without dead letters."""
        return sum(len(self._queue(self.secondary, queue)) for queue in self.queues)

    def dead_letters(self) -> list[tuple[str, str]]:
        """Return reason and description of each dead letter."""
        dead_letters = []
        for queue in self.queues:
            for payload in self._payloads(self.secondary, f"{queue}/$deadletterqueue"):
                properties = Message.parse(payload).read_application_properties()
                dead_letters.append(
                    (properties["DeadLetterReason"], properties["DeadLetterErrorDescription"])
                )
        return dead_letters

    def arrived(self, path: str) -> list[bytes]:
        """Return the messages that a path of the primary holds, in their order."""
        return self._payloads(self.primary, path)

    def ids(self, path: str) -> list[str]:
        """Return the message ids that a path of the primary holds, in their order."""
        return [
            read_fields(Message.parse(payload).properties, (0,))[0]
            for payload in self.arrived(path)
        ]

    def _queue(self, namespace: LocalNamespace, path: str) -> Any:
        return namespace.call(lambda core: core.entities.source(path)[1])

    def _payloads(self, namespace: LocalNamespace, path: str) -> list[bytes]:
        return namespace.call(
            lambda core: [
                encode_original(message)
                for message in core.entities.source(path)[1].peek(0, 100_000)
            ]
        )
