"""Consumers: a process that receives from all queues of the primary, and settles."""

from pairbus.amqp.client import Client, ClientOptions, Receiver
from pairbus.amqp.sections import Message
from pairbus.errors import AmqpError, Busy
from pairbus.servicebus import annotations
from tests.simulation.checks import StoredCopy
from tests.simulation.journal import Journal
from tests.simulation.scheduler import Process
from tests.simulation.world import World

MAX_MESSAGES = 5
WAIT_S = 30.0
PAUSE_S = 2.0
THROTTLED_S = 10.0
"""The longest time for which a receiver may be throttled beside a drain."""


class Consumer:
    """Receives messages under locks, and records each once, by queue and sequence number."""

    def __init__(
        self,
        world: World,
        journal: Journal,
        options: ClientOptions,
        paths: int,
        *,
        is_live: bool = False,
    ) -> None:
        """`is_live`: it shares the credits of the namespace with a drain, and must get some."""
        self.world = world
        self._is_live = is_live
        self.journal = journal
        self.delivered: dict[str, dict[int, StoredCopy]] = {}
        self._options = options
        self._paths = [f"queue{number}" for number in range(paths)]
        self.process: Process

    def start(self) -> None:
        self.process = self.world.process("consumer")
        for path in self._paths:
            self.delivered[path] = {}
            self.process.spawn(lambda path=path: self._receive(path), path)  # type: ignore[misc]

    def _receive(self, path: str) -> None:
        receiver = Receiver(Client(self._options), path)
        throttled_at: float | None = None
        while True:
            try:
                deliveries = receiver.receive(MAX_MESSAGES, timeout_s=WAIT_S)
                for delivery in deliveries:
                    self._record(path, delivery.payload)
                if self.world.random.random() < 0.9:  # the others come back after their locks
                    receiver.settle(deliveries)
                throttled_at = None
            except AmqpError as exc:
                now = self.world.scheduler.now
                if not isinstance(exc, Busy):
                    throttled_at = None
                elif throttled_at is None:
                    throttled_at = now
                elif self._is_live and now - throttled_at > THROTTLED_S:
                    self.journal.violate("Y9", f"the receiver of {path} is throttled all the time")
                self.world.scheduler.current_task().wait(PAUSE_S)

    def _record(self, path: str, payload: bytes) -> None:
        message = Message.parse(payload)
        properties = message.read_properties()
        values = message.read_message_annotations()
        copy = StoredCopy(
            str(properties.message_id),
            int(values[annotations.SEQUENCE_NUMBER]),
            properties.group_id,
            bytes(message.body),
            int(values[annotations.ENQUEUED_TIME]),
        )
        before = self.delivered[path].setdefault(copy.sequence, copy)
        self.world.trace("consumer", f"receives {copy.id} ({copy.sequence}) from {path}")
        if before.id != copy.id:
            self.journal.violate(
                "N6", f"{before.id} and {copy.id} have the same sequence number in {path}"
            )
