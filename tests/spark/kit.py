"""A backlog in two local namespaces, and a syphon for it."""

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
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


def message(
    id: str, *, session: str | None = None, ttl_ms: int | None = None, body: bytes = b"body"
) -> bytes:
    """An encoded message as the plain SDK would send it, in essence."""
    return Message.build(
        header=None if ttl_ms is None else Header(ttl=UInt(ttl_ms)),
        properties=Properties(message_id=id, group_id=session, subject="s"),
        application_properties={"n": 1, "text": "é"},
        data=body,
    ).encode()


def meaning(payload: bytes) -> tuple[Any, ...]:
    """What a message says, however it is written: a header may have more nulls, or fewer."""
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
    """Messages that a receiver of the SDK has locked. A thread renews the locks."""

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
        """Let the locks expire. Can be called again."""
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
    """Queues of a primary, and the backlog queues for them."""

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
        """A queue of the primary, under a name of its own."""
        path = f"{self.name}-{name}"
        self.primary.create_queue(path, **settings)
        return path

    def options(self, **changes: Any) -> SyphonOptions:
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
        options = ClientOptions.from_connection_string(self.secondary.connection_string)
        with Client(options) as client, Sender(client, self.queues[queue]) as sender:
            for start in range(0, len(payloads), 200):
                sender.send_batch(payloads[start : start + 200])

    @contextmanager
    def locked(self, count: int, queue: int = 0) -> Iterator["LockedMessages"]:
        """Lock messages with a receiver of the SDK, and renew the locks until `stop_renewing`."""
        with (
            ServiceBusClient.from_connection_string(self.secondary.connection_string) as client,
            client.get_queue_receiver(self.queues[queue]) as receiver,
        ):
            messages: list[ServiceBusReceivedMessage] = []
            while len(messages) < count:
                received = receiver.receive_messages(count - len(messages), max_wait_time=20)
                assert received, f"only {len(messages)} messages can be locked"
                messages += received
            locked = LockedMessages(receiver, messages)
            try:
                yield locked
            finally:
                locked.stop_renewing()

    def peeks(self) -> int:
        """Peeks of the backlog queues so far, as the meter counts them."""
        meter = self.secondary.meter()
        keys = [(queue, "peek") for queue in self.queues]
        return sum(meter[key].operations for key in keys if key in meter)

    def left(self) -> int:
        """How many messages the backlog queues hold, dead letters not among them."""
        return sum(len(self._queue(self.secondary, queue)) for queue in self.queues)

    def dead_letters(self) -> list[tuple[str, str]]:
        """Reason and description of each dead letter."""
        found = []
        for queue in self.queues:
            for payload in self._payloads(self.secondary, f"{queue}/$deadletterqueue"):
                told = Message.parse(payload).read_application_properties()
                found.append((told["DeadLetterReason"], told["DeadLetterErrorDescription"]))
        return found

    def arrived(self, path: str) -> list[bytes]:
        """The messages of a path, as they came in, in their order."""
        return self._payloads(self.primary, path)

    def ids(self, path: str) -> list[str]:
        return [read_fields(Message.parse(one).properties, (0,))[0] for one in self.arrived(path)]

    def _queue(self, namespace: LocalNamespace, path: str) -> Any:
        return namespace.call(lambda core: core.entities.source(path)[1])

    def _payloads(self, namespace: LocalNamespace, path: str) -> list[bytes]:
        return namespace.call(
            lambda core: [
                encode_original(one) for one in core.entities.source(path)[1].peek(0, 100_000)
            ]
        )
