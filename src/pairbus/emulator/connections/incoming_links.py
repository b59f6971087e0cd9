"""Links on which clients send to queues and topics."""

from typing import TYPE_CHECKING

from pairbus.amqp.batch import BATCH_FORMAT, split_batch
from pairbus.amqp.events import Delivery
from pairbus.amqp.link import ReceiverLink
from pairbus.amqp.performatives import SETTLE_FIRST, Accepted, Error, Rejected
from pairbus.amqp.serial import contiguous_ranges
from pairbus.amqp.types import Symbol, ULong
from pairbus.emulator.auth import Right
from pairbus.emulator.connections.partitions import check_partition
from pairbus.emulator.entities.descriptions import TopicDescription
from pairbus.emulator.entities.entity import Entity
from pairbus.emulator.entities.message_codec import parse_message
from pairbus.emulator.faults import ON_SEND, Fault
from pairbus.errors import AmqpError, EntityNotFound, MessageTooLarge, Refused
from pairbus.servicebus import conditions, links

if TYPE_CHECKING:
    from pairbus.emulator.connections.amqp_connection import AmqpConnection

CREDIT = 1000
BATCH_LIMIT = Symbol(links.MAX_MESSAGE_BATCH_SIZE)


class OversizedBatch(Refused):
    """A batch that is larger than the tier allows. The service detaches the link."""


class IncomingLink:
    """A link on which a client sends to a queue or topic."""

    right = Right.SEND

    def __init__(self, connection: "AmqpConnection", link: ReceiverLink, entity: Entity) -> None:
        self.connection = connection
        self.runtime = connection.runtime
        self.link = link
        self.entity = entity
        self.path = entity.path
        self._accepted: list[int] = []
        self._detached = False
        """True if the link was detached while deliveries may still arrive on it."""
        self._max_message_size = 0
        self._max_batch_size = 0
        self.active_ms = self.runtime.now_ms()
        """Time of the last delivery."""

    def accept(self) -> None:
        tier = self.runtime.tier
        limit = self._max_message_size = tier.message_limit(self.entity.description)
        self._max_batch_size = tier.batch_limit(self.entity.description)
        self.link.accept(
            # The Azure SDK requests settlement by the receiver second, but waits for it first.
            rcv_settle_mode=SETTLE_FIRST,
            max_message_size=limit,
            # The Azure SDK reads the largest size of a batch from here, not from the field above.
            properties={BATCH_LIMIT: ULong(self._max_batch_size)},
        )
        # A message that is too large is rejected. The Azure SDK takes a detach for an outage.
        self.link.max_message_size = 4 * limit
        self.link.flow(CREDIT)
        self.runtime.incoming_links.add(self)

    def on_delivery(self, delivery: Delivery) -> None:
        if self._detached:
            return
        faults = self.runtime.faults
        fault = faults.fire(ON_SEND, self.path) if faults else None
        try:
            if fault is not None and self.connection.apply_fault(fault, self.link):
                self._detached = fault.kind == "detach"
                return
            self._store(delivery)
        except OversizedBatch as exc:
            self.detach(exc)
            return
        except AmqpError as exc:
            # Nothing was stored, so the reply does not wait for a commit.
            if not delivery.settled:
                delivery.link.session.settle(delivery.id, delivery.id, Rejected(Error.of(exc)))
        else:
            if fault is not None:
                self._accept_with_fault(delivery, fault)
            elif not delivery.settled:
                if not self._accepted:
                    self.runtime.after_commit(self._settle_accepted)
                self._accepted.append(delivery.id)
        if self.link.credit <= CREDIT // 2:
            self.link.flow(CREDIT)

    def _accept_with_fault(self, delivery: Delivery, fault: Fault) -> None:
        """Accept a delivery after the commit, as far as the fault lets the reply through."""

        def reply() -> None:
            if not delivery.settled:
                delivery.link.session.settle(delivery.id, delivery.id, Accepted())
                self.connection.flush_after_turn()

        self.connection.reply_after_commit(reply, fault)

    def _store(self, delivery: Delivery) -> None:
        """Store the messages of a delivery, all or none. Raises AmqpError."""
        if delivery.state is not None:
            raise Refused("Transactions are not supported.", condition=conditions.NOT_IMPLEMENTED)
        self.connection.authorize(self.path, Right.SEND)
        runtime = self.runtime
        if runtime.faults:
            runtime.faults.check_disabled(self.path)
        if runtime.entities.find(self.path) is not self.entity:
            raise EntityNotFound(f"The messaging entity {self.path!r} could not be found.")
        self.active_ms = now_ms = runtime.now_ms()
        is_batch = delivery.message_format == BATCH_FORMAT
        if len(delivery.payload) > self._max_batch_size:
            self._check_size(len(delivery.payload), is_batch)
        if runtime.throttle is not None:
            runtime.throttle.admit("send")
        payloads = split_batch(delivery.payload) if is_batch else [delivery.payload]
        messages = [parse_message(payload) for payload in payloads]
        if is_batch and runtime.tier.is_strict:
            check_partition(self.entity.description, delivery.payload, messages)
        stored = [message for message in messages if not message.is_ping]
        runtime.entities.router.send(self.entity, stored, now_ms)
        runtime.meter.add_messages(self.path, "send", [message.size for message in messages])
        if runtime.throttle is not None and isinstance(self.entity.description, TopicDescription):
            subscriptions = runtime.entities.subscriptions(self.entity)
            filters = sum(len(subscription.rules) for subscription in subscriptions)
            runtime.throttle.count_filters(filters * len(stored))

    def _check_size(self, size: int, is_batch: bool) -> None:
        """Raise OversizedBatch or MessageTooLarge for a delivery of this size."""
        tier = self.runtime.tier
        if is_batch and tier.max_batch_size is not None and size > tier.max_batch_size:
            # In the words of the service, which does not read such a batch.
            raise OversizedBatch(
                f"The link '{self.link.name}' is force detached by the broker because publisher "
                "received a batch message with no data in it. Detach origin: Publisher."
            )
        if tier.is_strict and size > self._max_message_size:
            raise MessageTooLarge(
                f"The received message (size:{size} bytes) exceeds the limit "
                f"({self._max_message_size} bytes) currently allowed on the link."
            )

    def _settle_accepted(self) -> None:
        accepted, self._accepted = sorted(self._accepted), []
        for first, last in contiguous_ranges(accepted):
            self.link.session.settle(first, last, Accepted())
        self.connection.flush_after_turn()

    def detach(self, error: AmqpError) -> None:
        """Detach the link with an error, and ignore deliveries that still arrive on it."""
        self._detached = True
        self.link.detach(error)
        self.on_end()
        self.connection.flush_after_turn()

    def on_end(self) -> None:
        """Stop counting the link as access to the entity. Messages that were sent stay stored."""
        self.runtime.incoming_links.discard(self)
