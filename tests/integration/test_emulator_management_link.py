"""Operations of an entity's management node, with our own client.

The SDK settles over the management link after its own link is detached.
"""

import datetime

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState

from pairbus.amqp.client import Management, Receiver, lock_token
from pairbus.amqp.events import Delivery
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.errors import LinkLost, LockLost, MessageNotFound, Refused
from pairbus.servicebus.management import ABANDONED, DEAD_LETTERED, DEFERRED
from tests.integration.sdk_flavours import (
    SDK_MARKS,
    Flavour,
    bodies,
    take,
    take_one,
)

pytestmark = SDK_MARKS

SECOND = datetime.timedelta(seconds=1)
SETTLEMENTS = ("complete", "abandon", "defer", "dead_letter")


def numbered(count: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"{i}") for i in range(count)]


class TestSettling:
    async def test_many_messages_are_completed_at_once_by_another_connection(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages(numbered(300))
        tokens = [message.lock_token for message in await take(receiver, 300)]
        Management(sdk.raw(), queue).settle(tokens)
        assert sdk.stored_count(queue) == 0
        readings = sdk.namespace.meter()
        assert readings[queue, "complete"].operations == 300

    async def test_messages_are_abandoned_deferred_and_dead_lettered_with_changes(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue()
        sender, receiver, dead = await sdk.open(
            sdk.sender(queue), sdk.receiver(queue), sdk.dead_letters(queue)
        )
        await sender.send_messages(numbered(3))
        abandoned, deferred, dead_lettered = await take(receiver, 3)
        management = Management(sdk.raw(), queue)
        changes = {"properties_to_modify": {"seen": "yes"}}
        management.settle([abandoned.lock_token], ABANDONED, **changes)
        management.settle([deferred.lock_token], DEFERRED, **changes)
        management.settle(
            [dead_lettered.lock_token], DEAD_LETTERED, reason="r", description="d", **changes
        )
        abandoned = await take_one(receiver)
        assert (str(abandoned), abandoned.delivery_count) == ("0", 1)
        (deferred,) = await receiver.receive_deferred_messages(deferred.sequence_number)
        dead_lettered = await take_one(dead)
        assert (dead_lettered.dead_letter_reason, dead_lettered.dead_letter_error_description) == (
            "r",
            "d",
        )
        for message in (abandoned, deferred, dead_lettered):
            assert message.application_properties[b"seen"] == b"yes"

    async def test_one_lost_lock_prevents_settling_all(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        await sdk.sender(queue).send_messages(numbered(2))
        client = sdk.raw()
        receiver, management = Receiver(client, queue), Management(client, queue)
        first, second = [lock_token(delivery) for delivery in receive(receiver, 2)]
        management.settle([first])
        with pytest.raises(LockLost) as refused:
            management.settle([second, first])
        assert refused.value.condition == "com.microsoft:message-lock-lost"
        assert sdk.stored_count(queue) == 1
        management.settle([second])
        assert sdk.stored_count(queue) == 0

    async def test_unknown_disposition_changes_nothing(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        await sdk.sender(queue).send_messages(numbered(1))
        client = sdk.raw()
        tokens = [lock_token(delivery) for delivery in receive(Receiver(client, queue), 1)]
        management = Management(client, queue)
        with pytest.raises(Refused):
            management.settle(tokens, "eaten")
        management.settle(tokens)
        assert sdk.stored_count(queue) == 0

    async def test_sdk_settles_over_the_management_link_after_its_link_is_detached(
        self, sdk: Flavour
    ) -> None:
        """After the link of a message is lost, the SDK settles it over the management link."""
        queue = sdk.queue()
        sender, dead, *receivers = await sdk.open(
            sdk.sender(queue), sdk.dead_letters(queue), *(sdk.receiver(queue) for _ in SETTLEMENTS)
        )
        await sender.send_messages(numbered(4))
        messages = [await take_one(receiver) for receiver in receivers]
        sdk.namespace.call(lambda core: detach_all(core, queue))
        settled = {}
        for settle, receiver, message in zip(SETTLEMENTS, receivers, messages, strict=True):
            options = {"reason": "r", "error_description": "d"} if settle == "dead_letter" else {}
            await getattr(receiver, f"{settle}_message")(message, **options)
            settled[settle] = str(message)
        letter = await take_one(dead)
        assert str(letter) == settled["dead_letter"]
        assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("r", "d")
        peeked = await sdk.receiver(queue).peek_messages(9)
        assert {str(message): message.state for message in peeked} == {
            settled["abandon"]: ServiceBusMessageState.ACTIVE,
            settled["defer"]: ServiceBusMessageState.DEFERRED,
        }


class TestOthers:
    async def test_many_locks_are_renewed_at_once(self, sdk: Flavour) -> None:
        queue = sdk.queue(lock_duration=60 * SECOND)
        await sdk.sender(queue).send_messages(numbered(3))
        client = sdk.raw()
        deliveries = receive(Receiver(client, queue), 3)
        before = max(locked_until(bytes(delivery.payload)) for delivery in deliveries)
        until = Management(client, queue).renew_locks(
            lock_token(delivery) for delivery in deliveries
        )
        assert len(until) == 3
        assert min(until) >= before

    async def test_messages_are_peeked_from_a_sequence_number(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        await sdk.sender(queue).send_messages(numbered(5))
        messages = Management(sdk.raw(), queue).peek(3, 2)
        assert [Message.parse(delivery).read_body()[1][0] for delivery in messages] == [b"2", b"3"]

    async def test_message_is_scheduled_and_cancelled(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        due = datetime.datetime.now(datetime.UTC) + 60 * SECOND
        payload = Message.build(
            message_annotations={
                Symbol("x-opt-scheduled-enqueue-time"): Timestamp.from_datetime(due)
            },
            data=b"later",
        ).encode()
        management = Management(sdk.raw(), queue)
        (number,) = management.schedule([payload])
        assert sdk.runtime(queue).counts.scheduled == 1
        management.cancel([number])
        with pytest.raises(MessageNotFound):
            management.cancel([number])
        assert sdk.stored_count(queue) == 0

    async def test_dead_letter_queue_has_a_management_node(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, receiver, dead = await sdk.open(
            sdk.sender(queue), sdk.receiver(queue), sdk.dead_letters(queue)
        )
        await sender.send_messages(numbered(2))
        for message in await take(receiver, 2):
            await receiver.dead_letter_message(message)
        assert bodies(await dead.peek_messages(5)) == ["0", "1"]
        first = await take_one(dead)
        assert await dead.renew_message_lock(first) >= first.locked_until_utc
        await dead.defer_message(first)
        (again,) = await dead.receive_deferred_messages(first.sequence_number)
        await dead.complete_message(again)
        assert sdk.runtime(queue).counts.dead_letter == 1


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
