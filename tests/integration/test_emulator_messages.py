"""Messages of a queue in a local namespace, with the sync and the async SDK over real sockets."""

import asyncio
import datetime
from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
)
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from pairbus.amqp.client import Management, Receiver, Sender
from pairbus.amqp.performatives import Modified, Released
from pairbus.amqp.types import Symbol
from pairbus.emulator.entities.descriptions import EntityStatus
from pairbus.errors import EntityNotFound
from pairbus.servicebus.entity_paths import DEAD_LETTER_QUEUE
from tests.integration.sdk_flavours import (
    SDK_MARKS,
    Flavour,
    bodies,
    eventually,
    is_empty,
    take,
    take_one,
)

pytestmark = SDK_MARKS


def in_(seconds: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)


def locked_count(sdk: Flavour, queue: str) -> int:
    return sdk.namespace.call(lambda core: len(core.entities.get(queue).queue._locks))


class TestSendingAndReceiving:
    @pytest.mark.rule("N6")
    async def test_received_message_is_locked_and_completed_message_is_removed(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages(ServiceBusMessage("hello", message_id="m1", subject="greeting"))
        message = await take_one(receiver)
        assert (str(message), message.message_id, message.subject) == ("hello", "m1", "greeting")
        assert message.sequence_number == 1
        assert message.delivery_count == 0
        assert message.enqueued_time_utc is not None
        assert message.locked_until_utc > message.enqueued_time_utc
        assert sdk.stored_count(queue) == 1
        assert await is_empty(receiver)
        await receiver.complete_message(message)
        assert sdk.stored_count(queue) == 0

    async def test_lists_and_batches_are_delivered_completely_and_in_order(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages([ServiceBusMessage(f"{i}") for i in range(10)])
        batch = await sender.create_message_batch()
        for i in range(10, 300):
            batch.add_message(ServiceBusMessage(f"{i}"))
        await sender.send_messages(batch)
        await sender.send_messages(ServiceBusMessage("300"))
        messages = await take(receiver, 301)
        assert bodies(messages) == [f"{i}" for i in range(301)]
        assert [message.sequence_number for message in messages] == list(range(1, 302))

    async def test_receive_and_delete_removes_messages_at_once(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        )
        await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        messages = await take(receiver, 2)
        assert bodies(messages) == ["a", "b"]
        assert sdk.stored_count(queue) == 0
        assert messages[0].lock_token is None

    async def test_receiver_that_found_nothing_gets_later_messages(self, sdk: Flavour) -> None:
        """Without prefetch, each call grants credit and drains it."""
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        assert await is_empty(receiver)
        assert await is_empty(receiver)
        waiting = asyncio.ensure_future(receiver.receive_messages(5, max_wait_time=20))
        await sender.send_messages(ServiceBusMessage("late"))
        (message,) = await waiting
        await receiver.complete_message(message)
        assert str(message) == "late"
        assert sdk.stored_count(queue) == 0
        await sender.send_messages([ServiceBusMessage(f"{i}") for i in range(5)])
        assert bodies(await take(receiver, 5)) == ["0", "1", "2", "3", "4"]
        assert sdk.stored_count(queue) == 5

    async def test_receiver_with_prefetch_gets_every_message_once(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue, prefetch_count=20)
        await sender.send_messages([ServiceBusMessage(f"{i}") for i in range(50)])
        received = []
        for message in await take(receiver, 50):
            received.append(str(message))
            await receiver.complete_message(message)
        assert received == [f"{i}" for i in range(50)]
        await eventually(lambda: sdk.stored_count(queue) == 0)

    async def test_receiver_can_be_iterated_until_no_message_is_left(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue, max_wait_time=2.5)
        await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        received = []
        async for message in receiver:
            received.append(str(message))
            await receiver.complete_message(message)
        assert received == ["a", "b"]

    async def test_two_receivers_share_the_messages(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, first_receiver, second_receiver = await sdk.open(
            sdk.sender(queue), sdk.receiver(queue), sdk.receiver(queue)
        )
        await sender.send_messages([ServiceBusMessage(f"{i}") for i in range(4)])
        first, second = await take(first_receiver, 2), await take(second_receiver, 2)
        assert sorted(bodies(first + second)) == ["0", "1", "2", "3"]

    async def test_paths_can_have_slashes_and_are_case_insensitive(self, sdk: Flavour) -> None:
        path = f"Deep/er/Queue-{sdk.name}"
        sdk.namespace.create_queue(path)
        sender, receiver = await sdk.open(sdk.sender(path.lower()), sdk.receiver(path.upper()))
        await sender.send_messages(ServiceBusMessage("found"))
        message = await take_one(receiver)
        (peeked,) = await receiver.peek_messages(1, sequence_number=1)
        assert str(message) == str(peeked) == "found"
        await receiver.dead_letter_message(message)
        dead = sdk.dead_letters(path.swapcase())
        assert str(await take_one(dead)) == "found"

    async def test_token_for_a_missing_entity_is_refused(self, sdk: Flavour) -> None:
        """The service answers the token with status 404, and the SDK raises its error of 401."""
        for call in (
            lambda: sdk.sender("nowhere").send_messages(ServiceBusMessage("x")),
            lambda: sdk.receiver("nowhere").receive_messages(1, max_wait_time=5),
        ):
            with pytest.raises(ServiceBusAuthenticationError) as raised:
                await call()
            assert raised.value.inner_exception.status_code == 404

    async def test_missing_entity_is_not_found_by_our_own_client(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        client = sdk.raw()
        for path in ("nowhere", f"{queue}/Subscriptions/s", f"nowhere/{DEAD_LETTER_QUEUE}"):
            with pytest.raises(EntityNotFound, match="could not be found"):
                Sender(client, path).open()
            with pytest.raises(EntityNotFound, match="could not be found"):
                Receiver(client, path).open()
            with pytest.raises(EntityNotFound, match="could not be found"):
                Management(client, path).peek(1, 1)
        Receiver(client, f"{queue}/{DEAD_LETTER_QUEUE}").open()
        assert client.generation == 1


class TestSettling:
    async def test_abandoned_message_is_redelivered_with_a_higher_delivery_count(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages(ServiceBusMessage("again"))
        for deliveries in range(3):
            message = await take_one(receiver)
            assert message.delivery_count == deliveries
            await receiver.abandon_message(message)
        assert sdk.stored_count(queue) == 1

    async def test_message_that_a_receiver_releases_keeps_its_delivery_count(
        self, sdk: Flavour
    ) -> None:
        """The SDK releases messages that it has prefetched when a receiver is closed."""
        queue = sdk.queue(max_delivery_count=2)
        sender, closed, receiver = await sdk.open(
            sdk.sender(queue), sdk.receiver(queue, prefetch_count=3), sdk.receiver(queue)
        )
        await sender.send_messages([ServiceBusMessage(f"{i}") for i in range(3)])
        first = await take_one(closed)
        await eventually(lambda: locked_count(sdk, queue) == 3)
        await closed.close()
        await eventually(lambda: locked_count(sdk, queue) == 1)
        assert sdk.namespace.meter()[queue, "abandon"].operations == 2
        released = await take(receiver, 2)
        assert {str(first), *bodies(released)} == {"0", "1", "2"}
        assert [message.delivery_count for message in released] == [0, 0]

    async def test_released_message_is_never_dead_lettered(self, sdk: Flavour) -> None:
        queue = sdk.queue(max_delivery_count=1)
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages(ServiceBusMessage("x"))
        raw = Receiver(sdk.raw(), queue)
        for _ in range(3):
            raw.settle(raw.receive(1), Released())
        raw.close()
        assert (await take_one(receiver)).delivery_count == 0

    async def test_message_beyond_the_maximum_delivery_count_is_dead_lettered(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue(max_delivery_count=2)
        sender, receiver, dead = await sdk.open(
            sdk.sender(queue), sdk.receiver(queue), sdk.dead_letters(queue)
        )
        await sender.send_messages(ServiceBusMessage("poison"))
        await receiver.abandon_message(await take_one(receiver))
        await receiver.abandon_message(await take_one(receiver))
        message = await take_one(dead)
        assert str(message) == "poison"
        assert message.dead_letter_reason == "MaxDeliveryCountExceeded"
        assert message.dead_letter_error_description
        assert message.delivery_count == 2
        assert message.dead_letter_source == queue
        assert sdk.runtime(queue).counts.dead_letter == 1
        await dead.complete_message(message)
        assert sdk.stored_count(queue) == 0

    async def test_dead_letter_keeps_its_reason_and_its_properties(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, receiver, dead = await sdk.open(
            sdk.sender(queue), sdk.receiver(queue), sdk.dead_letters(queue)
        )
        await sender.send_messages(ServiceBusMessage("bad", application_properties={"kept": 1}))
        message = await take_one(receiver)
        await receiver.dead_letter_message(message, reason="no good", error_description="at all")
        assert await is_empty(receiver)
        letter = await take_one(dead)
        assert letter.dead_letter_reason == "no good"
        assert letter.dead_letter_error_description == "at all"
        assert letter.application_properties[b"kept"] == 1
        assert letter.sequence_number == message.sequence_number
        with pytest.raises(ServiceBusError):
            await dead.dead_letter_message(letter)
        assert sdk.runtime(queue).counts.dead_letter == 1

    async def test_deferred_message_is_received_only_by_its_sequence_number(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        first, second = await take(receiver, 2)
        await receiver.defer_message(first)
        await receiver.defer_message(second)
        assert await is_empty(receiver)
        numbers = [first.sequence_number, second.sequence_number]
        states = [message.state for message in await receiver.peek_messages(5, sequence_number=1)]
        assert states == [ServiceBusMessageState.DEFERRED] * 2
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages([*numbers, 99])
        again = await receiver.receive_deferred_messages(numbers)
        assert bodies(again) == ["a", "b"]
        assert [message.delivery_count for message in again] == [1, 1]
        assert [message.state for message in again] == [ServiceBusMessageState.DEFERRED] * 2
        await receiver.complete_message(again[0])
        await receiver.abandon_message(again[1])
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages(numbers[0])
        (last,) = await receiver.receive_deferred_messages(numbers[1])
        assert last.delivery_count == 2
        await receiver.dead_letter_message(last, reason="enough")
        assert sdk.runtime(queue).counts.dead_letter == 1

    async def test_deferred_message_can_be_received_and_deleted(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, receiver, deleting = await sdk.open(
            sdk.sender(queue),
            sdk.receiver(queue),
            sdk.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE),
        )
        await sender.send_messages(ServiceBusMessage("a"))
        await eventually(lambda: sdk.stored_count(queue) == 1)
        message = await take_one(receiver)
        await receiver.defer_message(message)
        (again,) = await deleting.receive_deferred_messages(message.sequence_number)
        assert (str(again), again.state) == ("a", ServiceBusMessageState.DEFERRED)
        assert sdk.stored_count(queue) == 0

    async def test_settling_can_change_properties(self, sdk: Flavour) -> None:
        """Use our own client, because the SDK has no parameter for it."""
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages(
            ServiceBusMessage("x", application_properties={"old": 1, "kept": 2})
        )
        raw = Receiver(sdk.raw(), queue)
        raw.settle(
            raw.receive(1),
            Modified(
                delivery_failed=True, message_annotations={Symbol("old"): 3, Symbol("new"): "n"}
            ),
        )
        raw.close()
        message = await take_one(receiver)
        assert message.application_properties == {b"old": 3, b"kept": 2, b"new": b"n"}
        assert message.delivery_count == 1


class TestPeeking:
    async def test_peek_shows_messages_of_every_state_and_locks_none(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages([ServiceBusMessage(f"{i}") for i in range(3)])
        await sender.schedule_messages(ServiceBusMessage("later"), in_(3600))
        await receiver.defer_message(await take_one(receiver))
        locked = await take_one(receiver)
        received = await receiver.peek_messages(10, sequence_number=1)
        assert [(str(item), item.state) for item in received] == [
            ("0", ServiceBusMessageState.DEFERRED),
            ("1", ServiceBusMessageState.ACTIVE),
            ("2", ServiceBusMessageState.ACTIVE),
            ("later", ServiceBusMessageState.SCHEDULED),
        ]
        assert bodies(await receiver.peek_messages(1, sequence_number=3)) == ["2"]
        await receiver.complete_message(locked)
        assert str(await take_one(receiver)) == "2"

    async def test_peek_does_not_show_that_a_message_is_locked(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages(ServiceBusMessage("x"))
        assert (await take_one(receiver)).locked_until_utc is not None
        (peeked,) = await receiver.peek_messages(1, sequence_number=1)
        assert peeked.locked_until_utc is None
        assert peeked.lock_token is None

    async def test_peek_continues_after_the_last_message_and_ends_empty(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        assert await receiver.peek_messages(5) == []
        await sender.send_messages([ServiceBusMessage(f"{i}") for i in range(3)])
        assert bodies(await receiver.peek_messages(2)) == ["0", "1"]
        assert bodies(await receiver.peek_messages(2)) == ["2"]
        assert await receiver.peek_messages(2) == []


class TestScheduling:
    async def test_scheduled_message_is_delivered_when_it_is_due(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        due = in_(2)
        numbers = await sender.schedule_messages(
            [ServiceBusMessage("a"), ServiceBusMessage("b")], due
        )
        assert len(set(numbers)) == 2
        await sender.send_messages(ServiceBusMessage("c", scheduled_enqueue_time_utc=due))
        assert sdk.runtime(queue).counts.scheduled == 3
        messages = await take(receiver, 3)
        assert sorted(bodies(messages)) == ["a", "b", "c"]
        assert in_(0) >= messages[0].scheduled_enqueue_time_utc
        assert all(
            message.enqueued_time_utc >= message.scheduled_enqueue_time_utc for message in messages
        )

    async def test_cancelled_message_is_never_delivered(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        numbers = await sender.schedule_messages(
            [ServiceBusMessage("a"), ServiceBusMessage("b")], in_(60)
        )
        await sender.cancel_scheduled_messages(numbers[0])
        assert sdk.runtime(queue).counts.scheduled == 1
        (kept,) = await receiver.peek_messages(10, sequence_number=1)
        assert (str(kept), kept.sequence_number) == ("b", numbers[1])
        assert kept.scheduled_enqueue_time_utc is not None
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages(numbers)
        assert sdk.stored_count(queue) == 1
        await sender.cancel_scheduled_messages(numbers[1])
        assert sdk.stored_count(queue) == 0


class TestLimits:
    async def test_duplicate_is_accepted_and_dropped(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_duplicate_detection=True)
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages(ServiceBusMessage("first", message_id="same"))
        await sender.send_messages(ServiceBusMessage("second", message_id="same"))
        await sender.send_messages(
            [ServiceBusMessage("third", message_id=item) for item in ("same", "other", "other")]
        )
        await sender.schedule_messages(ServiceBusMessage("fourth", message_id="same"), in_(60))
        messages = await take(receiver, 2)
        assert bodies(messages) == ["first", "third"]
        for message in messages:
            await receiver.complete_message(message)
        await sender.send_messages(ServiceBusMessage("fifth", message_id="same"))
        assert sdk.stored_count(queue) == 0

    async def test_too_large_message_is_rejected(self, sdk: Flavour) -> None:
        queue = sdk.queue(max_message_size_in_kilobytes=10)
        sender = sdk.sender(queue)
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages(ServiceBusMessage(b"x" * 11 * 1024))
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages([ServiceBusMessage(b"x" * 6 * 1024) for _ in range(2)])
        batch = await sender.create_message_batch()
        assert batch.max_size_in_bytes == 10 * 1024
        await sender.send_messages(ServiceBusMessage(b"x" * 9 * 1024))
        assert sdk.stored_count(queue) == 1

    async def test_full_queue_accepts_nothing_until_a_message_is_removed(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue(max_size_in_megabytes=1)
        sender, receiver = await sdk.pair(queue)
        for _ in range(5):
            await sender.send_messages(ServiceBusMessage(b"x" * 200 * 1024))
        with pytest.raises(ServiceBusQuotaExceededError):
            await sender.send_messages(ServiceBusMessage(b"x" * 200 * 1024))
        assert sdk.stored_count(queue) == 5
        await receiver.complete_message(await take_one(receiver))
        await sender.send_messages(ServiceBusMessage(b"x" * 200 * 1024))

    async def test_disabled_entity_cannot_be_sent_to(self, sdk: Flavour) -> None:
        queue = sdk.queue(status=EntityStatus.SEND_DISABLED)
        sender = sdk.sender(queue)
        with pytest.raises(MessagingEntityDisabledError):
            await sender.send_messages(ServiceBusMessage("x"))
        sdk.update(queue, status=EntityStatus.ACTIVE)
        await sender.send_messages(ServiceBusMessage("x"))
        for status in (EntityStatus.SEND_DISABLED, EntityStatus.DISABLED):
            sdk.update(queue, status=status)
            with pytest.raises(MessagingEntityDisabledError):
                await sender.send_messages(ServiceBusMessage("x"))
        sdk.update(queue, status=EntityStatus.RECEIVE_DISABLED)
        await sender.send_messages(ServiceBusMessage("x"))
        assert sdk.stored_count(queue) == 2

    async def test_disabled_entity_cannot_be_received_from(self, sdk: Flavour) -> None:
        queue = sdk.queue(status=EntityStatus.DISABLED)
        receiver = sdk.receiver(queue)
        with pytest.raises(MessagingEntityDisabledError):
            await receiver.receive_messages(1, max_wait_time=5)
        sdk.update(queue, status=EntityStatus.ACTIVE)
        await sdk.open(receiver)
        assert await is_empty(receiver)
        sdk.update(queue, status=EntityStatus.RECEIVE_DISABLED)
        for each in (receiver, sdk.receiver(queue)):
            with pytest.raises(MessagingEntityDisabledError):
                await each.receive_messages(1, max_wait_time=5)


class TestFidelity:
    async def test_lock_token_is_a_delivery_annotation(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        message = ServiceBusMessage("x")
        message.raw_amqp_message.delivery_annotations = {"own": 1}
        await sender.send_messages([ServiceBusMessage("x"), message])
        first, second = await take(receiver, 2)
        assert first.raw_amqp_message.delivery_annotations == {
            b"x-opt-lock-token": first.lock_token
        }
        assert second.raw_amqp_message.delivery_annotations == {
            b"own": 1,
            b"x-opt-lock-token": second.lock_token,
        }
        for message in (first, second):
            await receiver.complete_message(message)

    async def test_delivery_annotations_are_empty_without_a_lock(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        )
        await sender.send_messages(ServiceBusMessage("x"))
        message = await take_one(receiver)
        assert message.raw_amqp_message.delivery_annotations == {}
        assert message._delivery_tag == b""

    async def test_decimal_properties_are_delivered_as_the_sdk_decodes_them(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        sent = {"price": Decimal("-1.2345"), "name": "x", "whole": Decimal(7)}
        await sender.send_messages(ServiceBusMessage("x", application_properties=sent))
        message = await take_one(receiver)
        assert message.application_properties == {
            b"price": Decimal("-1.2345"),
            b"name": b"x",
            b"whole": Decimal(7),
        }

    async def test_message_without_an_id_gets_one(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_duplicate_detection=True)
        sender, receiver = await sdk.pair(queue)
        messages = [ServiceBusMessage(f"{i}") for i in range(3)]
        for message in messages:
            message.message_id = None
        await sender.send_messages(messages[:2])
        await sender.send_messages(messages[2])
        received = await take(receiver, 3)
        assert bodies(received) == ["0", "1", "2"]
        ids = {message.message_id for message in received}
        assert len(ids) == 3
        assert all(len(bytes.fromhex(text)) == 16 for text in ids)

    async def test_copies_of_subscriptions_have_the_same_id(self, sdk: Flavour) -> None:
        topic = sdk.topic()
        for name in ("a", "b"):
            sdk.namespace.create_subscription(topic, name)
        message = ServiceBusMessage("x")
        message.message_id = None
        await sdk.topic_sender(topic).send_messages(message)
        first = await take_one(sdk.receiver(topic, "a"))
        second = await take_one(sdk.receiver(topic, "b"))
        assert first.message_id == second.message_id
        assert first.message_id

    async def test_properties_are_delivered_unchanged(self, sdk: Flavour) -> None:
        sender, receiver = await sdk.pair(sdk.queue())
        properties: dict[str, Any] = {
            "message_id": "id",
            "subject": "subject",
            "content_type": "text/plain",
            "correlation_id": "correlation",
            "to": "to",
            "reply_to": "reply",
            "time_to_live": datetime.timedelta(hours=1),
        }
        await sender.send_messages(
            ServiceBusMessage(
                b"\x00\xff", application_properties={"n": 1, "text": "žluť"}, **properties
            )
        )
        message = await take_one(receiver)
        assert b"".join(message.body) == b"\x00\xff"
        assert {name: getattr(message, name) for name in properties} == properties
        assert message.application_properties == {b"n": 1, b"text": "žluť".encode()}
