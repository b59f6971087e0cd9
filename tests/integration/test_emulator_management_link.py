"""Operations of an entity's management node, with our own client.

The SDK settles over the management link after its own link is detached.
"""

import datetime

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus.amqp.client import Management, Receiver, lock_token
from pairbus.amqp.events import Delivery
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.errors import LinkLost, LockLost, MessageNotFound, Refused
from pairbus.servicebus.management import ABANDONED, DEAD_LETTERED, DEFERRED
from tests.integration.emulator_fixtures import (
    Bench,
    bench,
    bodies,
    module_bench,
    take,
    take_one,
)

__all__ = ["bench", "module_bench"]

# The SDK does not close its socket when a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

SECOND = datetime.timedelta(seconds=1)


def numbered(count: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"{i}") for i in range(count)]


class TestSettling:
    def test_many_messages_are_completed_at_once_by_another_connection(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue)
        sender.send_messages(numbered(300))
        tokens = [message.lock_token for message in take(receiver, 300)]
        Management(bench.raw(), queue).settle(tokens)
        assert bench.held(queue) == 0
        readings = bench.namespace.meter()
        assert readings[queue, "complete"].operations == 300

    def test_messages_are_abandoned_deferred_and_dead_lettered_with_changes(
        self, bench: Bench
    ) -> None:
        queue = bench.queue()
        sender, receiver, dead = bench.open(
            bench.sender(queue), bench.receiver(queue), bench.dead_letters(queue)
        )
        sender.send_messages(numbered(3))
        back, deferred, buried = take(receiver, 3)
        management = Management(bench.raw(), queue)
        changes = {"properties_to_modify": {"seen": "yes"}}
        management.settle([back.lock_token], ABANDONED, **changes)
        management.settle([deferred.lock_token], DEFERRED, **changes)
        management.settle(
            [buried.lock_token], DEAD_LETTERED, reason="r", description="d", **changes
        )
        back = take_one(receiver)
        assert (str(back), back.delivery_count) == ("0", 1)
        (deferred,) = receiver.receive_deferred_messages(deferred.sequence_number)
        buried = take_one(dead)
        assert (buried.dead_letter_reason, buried.dead_letter_error_description) == ("r", "d")
        for message in (back, deferred, buried):
            assert message.application_properties[b"seen"] == b"yes"

    def test_one_lost_lock_prevents_settling_all(self, bench: Bench) -> None:
        queue = bench.queue()
        bench.sender(queue).send_messages(numbered(2))
        client = bench.raw()
        receiver, management = Receiver(client, queue), Management(client, queue)
        first, second = [lock_token(delivery) for delivery in receive(receiver, 2)]
        management.settle([first])
        with pytest.raises(LockLost) as refused:
            management.settle([second, first])
        assert refused.value.condition == "com.microsoft:message-lock-lost"
        assert bench.held(queue) == 1
        management.settle([second])
        assert bench.held(queue) == 0

    def test_unknown_disposition_changes_nothing(self, bench: Bench) -> None:
        queue = bench.queue()
        bench.sender(queue).send_messages(numbered(1))
        client = bench.raw()
        tokens = [lock_token(delivery) for delivery in receive(Receiver(client, queue), 1)]
        management = Management(client, queue)
        with pytest.raises(Refused):
            management.settle(tokens, "eaten")
        management.settle(tokens)
        assert bench.held(queue) == 0

    def test_sdk_settles_over_the_management_link_after_its_link_is_detached(
        self, bench: Bench
    ) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue)
        sender.send_messages(numbered(1))
        message = take_one(receiver)
        bench.namespace.call(lambda core: detach_all(core, queue))
        receiver.complete_message(message)
        assert bench.held(queue) == 0


class TestOthers:
    def test_many_locks_are_renewed_at_once(self, bench: Bench) -> None:
        queue = bench.queue(lock_duration=60 * SECOND)
        bench.sender(queue).send_messages(numbered(3))
        client = bench.raw()
        deliveries = receive(Receiver(client, queue), 3)
        before = max(locked_until(bytes(delivery.payload)) for delivery in deliveries)
        until = Management(client, queue).renew_locks(
            lock_token(delivery) for delivery in deliveries
        )
        assert len(until) == 3
        assert min(until) >= before

    def test_messages_are_peeked_from_a_sequence_number(self, bench: Bench) -> None:
        queue = bench.queue()
        bench.sender(queue).send_messages(numbered(5))
        messages = Management(bench.raw(), queue).peek(3, 2)
        assert [Message.parse(delivery).read_body()[1][0] for delivery in messages] == [b"2", b"3"]

    def test_message_is_scheduled_and_cancelled(self, bench: Bench) -> None:
        queue = bench.queue()
        due = datetime.datetime.now(datetime.UTC) + 60 * SECOND
        payload = Message.build(
            message_annotations={
                Symbol("x-opt-scheduled-enqueue-time"): Timestamp.from_datetime(due)
            },
            data=b"later",
        ).encode()
        management = Management(bench.raw(), queue)
        (number,) = management.schedule([payload])
        assert bench.runtime(queue).counts.scheduled == 1
        management.cancel([number])
        with pytest.raises(MessageNotFound):
            management.cancel([number])
        assert bench.held(queue) == 0

    def test_dead_letter_queue_has_a_management_node(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver, dead = bench.open(
            bench.sender(queue), bench.receiver(queue), bench.dead_letters(queue)
        )
        sender.send_messages(numbered(2))
        for message in take(receiver, 2):
            receiver.dead_letter_message(message)
        assert bodies(dead.peek_messages(5)) == ["0", "1"]
        first = take_one(dead)
        assert dead.renew_message_lock(first) >= first.locked_until_utc
        dead.defer_message(first)
        (again,) = dead.receive_deferred_messages(first.sequence_number)
        dead.complete_message(again)
        assert bench.runtime(queue).counts.dead_letter == 1


def detach_all(core: NamespaceRuntime, queue: str) -> None:
    """Detach the links of all receivers of a queue."""
    for outlet in core.outgoing_links.pop(core.entities.get(queue).queue.id):
        outlet._detach(LinkLost("The link was taken away."))


def receive(receiver: Receiver, count: int) -> list[Delivery]:
    messages: list[Delivery] = []
    while len(messages) < count:
        some = receiver.receive(count - len(messages))
        assert some
        messages += some
    return messages


def locked_until(payload: bytes) -> Timestamp:
    return Message.parse(payload).read_message_annotations()["x-opt-locked-until"]
