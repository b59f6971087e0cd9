"""Messages of a queue in a local namespace, with the azure-servicebus SDK over real sockets."""

import datetime
import uuid
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
)
from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from pairbus.amqp.client import Receiver, Sender
from pairbus.amqp.performatives import Modified
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Symbol
from pairbus.emulator.entities.descriptions import EntityStatus
from tests.integration.emulator_fixtures import (
    Bench,
    bench,
    bodies,
    eventually,
    is_empty,
    module_bench,
    take,
    take_one,
)

__all__ = ["bench", "module_bench"]

# The SDK does not close its socket when a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")


def in_(seconds: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)


class TestSendingAndReceiving:
    @pytest.mark.rule("N6")
    def test_received_message_is_locked_and_completed_message_is_removed(
        self, bench: Bench
    ) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue)
        sender.send_messages(ServiceBusMessage("hello", message_id="m1", subject="greeting"))
        message = take_one(receiver)
        assert (str(message), message.message_id, message.subject) == ("hello", "m1", "greeting")
        assert message.sequence_number == 1
        assert message.delivery_count == 0
        assert message.enqueued_time_utc is not None
        assert message.locked_until_utc > message.enqueued_time_utc
        assert bench.held(queue) == 1
        assert is_empty(receiver)
        receiver.complete_message(message)
        assert bench.held(queue) == 0

    def test_lists_and_batches_are_delivered_completely_and_in_order(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue)
        sender.send_messages([ServiceBusMessage(f"{i}") for i in range(10)])
        batch = sender.create_message_batch()
        for i in range(10, 300):
            batch.add_message(ServiceBusMessage(f"{i}"))
        sender.send_messages(batch)
        sender.send_messages(ServiceBusMessage("300"))
        messages = take(receiver, 301)
        assert bodies(messages) == [f"{i}" for i in range(301)]
        assert [message.sequence_number for message in messages] == list(range(1, 302))

    def test_receive_and_delete_removes_messages_at_once(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
        sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        messages = take(receiver, 2)
        assert bodies(messages) == ["a", "b"]
        assert bench.held(queue) == 0
        assert messages[0].lock_token is None

    def test_receiver_that_found_nothing_gets_later_messages(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue)
        assert is_empty(receiver)
        assert is_empty(receiver)
        waiting = bench.beside(receiver.receive_messages, 5, max_wait_time=20)
        sender.send_messages(ServiceBusMessage("late"))
        (message,) = waiting.result()
        receiver.complete_message(message)
        assert str(message) == "late"
        assert bench.held(queue) == 0

    def test_receiver_with_prefetch_gets_every_message_once(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue, prefetch_count=20)
        sender.send_messages([ServiceBusMessage(f"{i}") for i in range(50)])
        received = []
        for message in take(receiver, 50):
            received.append(str(message))
            receiver.complete_message(message)
        assert received == [f"{i}" for i in range(50)]
        eventually(lambda: bench.held(queue) == 0)

    def test_receiver_can_be_iterated_until_no_message_is_left(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue, max_wait_time=2.5)
        sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        received = []
        for message in receiver:
            received.append(str(message))
            receiver.complete_message(message)
        assert received == ["a", "b"]

    def test_two_receivers_share_the_messages(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, one, other = bench.open(
            bench.sender(queue), bench.receiver(queue), bench.receiver(queue)
        )
        sender.send_messages([ServiceBusMessage(f"{i}") for i in range(4)])
        first, second = take(one, 2), take(other, 2)
        assert sorted(bodies(first + second)) == ["0", "1", "2", "3"]

    def test_paths_can_have_slashes_and_are_case_insensitive(self, bench: Bench) -> None:
        bench.namespace.create_queue("Deep/er/Queue")
        sender, receiver = bench.open(
            bench.sender("deep/ER/queue"), bench.receiver("DEEP/er/QUEUE")
        )
        sender.send_messages(ServiceBusMessage("found"))
        message = take_one(receiver)
        (peeked,) = receiver.peek_messages(1, sequence_number=1)
        assert str(message) == str(peeked) == "found"
        receiver.dead_letter_message(message)
        dead = bench.dead_letters("Deep/er/QUEUE")
        assert str(take_one(dead)) == "found"

    def test_missing_entity_is_not_found(self, bench: Bench) -> None:
        with pytest.raises(MessagingEntityNotFoundError):
            bench.sender("nowhere").send_messages(ServiceBusMessage("x"))
        with pytest.raises(MessagingEntityNotFoundError):
            bench.receiver("nowhere").receive_messages(1, max_wait_time=5)


class TestSettling:
    def test_abandoned_message_is_redelivered_with_a_higher_delivery_count(
        self, bench: Bench
    ) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue)
        sender.send_messages(ServiceBusMessage("again"))
        for deliveries in range(3):
            message = take_one(receiver)
            assert message.delivery_count == deliveries
            receiver.abandon_message(message)
        assert bench.held(queue) == 1

    def test_message_beyond_the_maximum_delivery_count_is_dead_lettered(self, bench: Bench) -> None:
        queue = bench.queue(max_delivery_count=2)
        sender, receiver, dead = bench.open(
            bench.sender(queue), bench.receiver(queue), bench.dead_letters(queue)
        )
        sender.send_messages(ServiceBusMessage("poison"))
        receiver.abandon_message(take_one(receiver))
        receiver.abandon_message(take_one(receiver))
        message = take_one(dead)
        assert str(message) == "poison"
        assert message.dead_letter_reason == "MaxDeliveryCountExceeded"
        assert message.dead_letter_error_description
        assert message.delivery_count == 2
        assert message.dead_letter_source == queue
        assert bench.runtime(queue).counts.dead_letter == 1
        dead.complete_message(message)
        assert bench.held(queue) == 0

    def test_dead_letter_keeps_its_reason_and_its_properties(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver, dead = bench.open(
            bench.sender(queue), bench.receiver(queue), bench.dead_letters(queue)
        )
        sender.send_messages(ServiceBusMessage("bad", application_properties={"kept": 1}))
        message = take_one(receiver)
        receiver.dead_letter_message(message, reason="no good", error_description="at all")
        assert is_empty(receiver)
        letter = take_one(dead)
        assert letter.dead_letter_reason == "no good"
        assert letter.dead_letter_error_description == "at all"
        assert letter.application_properties[b"kept"] == 1
        assert letter.sequence_number == message.sequence_number
        with pytest.raises(ServiceBusError):
            dead.dead_letter_message(letter)
        assert bench.runtime(queue).counts.dead_letter == 1

    def test_deferred_message_is_received_only_by_its_sequence_number(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue)
        sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        first, second = take(receiver, 2)
        receiver.defer_message(first)
        receiver.defer_message(second)
        assert is_empty(receiver)
        numbers = [first.sequence_number, second.sequence_number]
        states = [message.state for message in receiver.peek_messages(5, sequence_number=1)]
        assert states == [ServiceBusMessageState.DEFERRED] * 2
        again = receiver.receive_deferred_messages(numbers)
        assert bodies(again) == ["a", "b"]
        assert [message.delivery_count for message in again] == [1, 1]
        receiver.complete_message(again[0])
        receiver.abandon_message(again[1])
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(numbers[0])
        (last,) = receiver.receive_deferred_messages(numbers[1])
        receiver.dead_letter_message(last, reason="enough")
        assert bench.runtime(queue).counts.dead_letter == 1

    def test_deferred_message_can_be_received_and_deleted(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver, deleting = bench.open(
            bench.sender(queue),
            bench.receiver(queue),
            bench.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE),
        )
        sender.send_messages(ServiceBusMessage("a"))
        eventually(lambda: bench.held(queue) == 1)
        message = take_one(receiver)
        receiver.defer_message(message)
        (again,) = deleting.receive_deferred_messages(message.sequence_number)
        assert str(again) == "a"
        assert bench.held(queue) == 0

    def test_settling_can_change_properties(self, bench: Bench) -> None:
        """Use our own client, because the SDK has no parameter for it."""
        queue = bench.queue()
        sender, receiver = bench.pair(queue)
        sender.send_messages(ServiceBusMessage("x", application_properties={"old": 1, "kept": 2}))
        raw = Receiver(bench.raw(), queue)
        raw.settle(
            raw.receive(1),
            Modified(
                delivery_failed=True, message_annotations={Symbol("old"): 3, Symbol("new"): "n"}
            ),
        )
        raw.close()
        message = take_one(receiver)
        assert message.application_properties == {b"old": 3, b"kept": 2, b"new": b"n"}
        assert message.delivery_count == 1


class TestPeeking:
    def test_peek_shows_messages_of_every_state_and_locks_none(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue)
        sender.send_messages([ServiceBusMessage(f"{i}") for i in range(3)])
        sender.schedule_messages(ServiceBusMessage("later"), in_(3600))
        receiver.defer_message(take_one(receiver))
        locked = take_one(receiver)
        received = receiver.peek_messages(10, sequence_number=1)
        assert [(str(one), one.state) for one in received] == [
            ("0", ServiceBusMessageState.DEFERRED),
            ("1", ServiceBusMessageState.ACTIVE),
            ("2", ServiceBusMessageState.ACTIVE),
            ("later", ServiceBusMessageState.SCHEDULED),
        ]
        assert bodies(receiver.peek_messages(1, sequence_number=3)) == ["2"]
        receiver.complete_message(locked)
        assert str(take_one(receiver)) == "2"

    def test_peek_continues_after_the_last_message_and_ends_empty(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue)
        assert receiver.peek_messages(5) == []
        sender.send_messages([ServiceBusMessage(f"{i}") for i in range(3)])
        assert bodies(receiver.peek_messages(2)) == ["0", "1"]
        assert bodies(receiver.peek_messages(2)) == ["2"]
        assert receiver.peek_messages(2) == []


class TestScheduling:
    def test_scheduled_message_is_delivered_when_it_is_due(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue)
        due = in_(2)
        numbers = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], due)
        assert len(set(numbers)) == 2
        sender.send_messages(ServiceBusMessage("c", scheduled_enqueue_time_utc=due))
        assert bench.runtime(queue).counts.scheduled == 3
        messages = take(receiver, 3)
        assert sorted(bodies(messages)) == ["a", "b", "c"]
        assert in_(0) >= messages[0].scheduled_enqueue_time_utc
        assert all(
            message.enqueued_time_utc >= message.scheduled_enqueue_time_utc for message in messages
        )

    def test_cancelled_message_is_never_delivered(self, bench: Bench) -> None:
        queue = bench.queue()
        sender = bench.sender(queue)
        numbers = sender.schedule_messages(
            [ServiceBusMessage("a"), ServiceBusMessage("b")], in_(60)
        )
        sender.cancel_scheduled_messages(numbers[0])
        assert bench.runtime(queue).counts.scheduled == 1
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers)
        assert bench.held(queue) == 1
        sender.cancel_scheduled_messages(numbers[1])
        assert bench.held(queue) == 0


class TestLimits:
    def test_duplicate_is_accepted_and_dropped(self, bench: Bench) -> None:
        queue = bench.queue(requires_duplicate_detection=True)
        sender, receiver = bench.pair(queue)
        sender.send_messages(ServiceBusMessage("first", message_id="same"))
        sender.send_messages(ServiceBusMessage("second", message_id="same"))
        sender.send_messages(
            [ServiceBusMessage("third", message_id=one) for one in ("same", "other")]
        )
        sender.schedule_messages(ServiceBusMessage("fourth", message_id="same"), in_(60))
        messages = take(receiver, 2)
        assert bodies(messages) == ["first", "third"]
        for message in messages:
            receiver.complete_message(message)
        sender.send_messages(ServiceBusMessage("fifth", message_id="same"))
        assert bench.held(queue) == 0

    def test_too_large_message_is_rejected(self, bench: Bench) -> None:
        queue = bench.queue(max_message_size_in_kilobytes=10)
        sender = bench.sender(queue)
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(ServiceBusMessage(b"x" * 11 * 1024))
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages([ServiceBusMessage(b"x" * 6 * 1024) for _ in range(2)])
        batch = sender.create_message_batch()
        assert batch.max_size_in_bytes == 10 * 1024
        sender.send_messages(ServiceBusMessage(b"x" * 9 * 1024))
        assert bench.held(queue) == 1

    def test_full_queue_accepts_nothing_until_a_message_is_removed(self, bench: Bench) -> None:
        queue = bench.queue(max_size_in_megabytes=1)
        sender, receiver = bench.pair(queue)
        for _ in range(5):
            sender.send_messages(ServiceBusMessage(b"x" * 200 * 1024))
        with pytest.raises(ServiceBusQuotaExceededError):
            sender.send_messages(ServiceBusMessage(b"x" * 200 * 1024))
        assert bench.held(queue) == 5
        receiver.complete_message(take_one(receiver))
        sender.send_messages(ServiceBusMessage(b"x" * 200 * 1024))

    def test_disabled_entity_cannot_be_sent_to(self, bench: Bench) -> None:
        queue = bench.queue(status=EntityStatus.SEND_DISABLED)
        sender = bench.sender(queue)
        with pytest.raises(MessagingEntityDisabledError):
            sender.send_messages(ServiceBusMessage("x"))
        bench.update(queue, status=EntityStatus.ACTIVE)
        sender.send_messages(ServiceBusMessage("x"))
        for status in (EntityStatus.SEND_DISABLED, EntityStatus.DISABLED):
            bench.update(queue, status=status)
            with pytest.raises(MessagingEntityDisabledError):
                sender.send_messages(ServiceBusMessage("x"))
        bench.update(queue, status=EntityStatus.RECEIVE_DISABLED)
        sender.send_messages(ServiceBusMessage("x"))
        assert bench.held(queue) == 2

    def test_disabled_entity_cannot_be_received_from(self, bench: Bench) -> None:
        queue = bench.queue(status=EntityStatus.DISABLED)
        receiver = bench.receiver(queue)
        with pytest.raises(MessagingEntityDisabledError):
            receiver.receive_messages(1, max_wait_time=5)
        bench.update(queue, status=EntityStatus.ACTIVE)
        bench.open(receiver)
        assert is_empty(receiver)
        bench.update(queue, status=EntityStatus.RECEIVE_DISABLED)
        with pytest.raises(MessagingEntityDisabledError):
            receiver.receive_messages(1, max_wait_time=5)


def annotated(**body: Any) -> AmqpAnnotatedMessage:
    """A message with something in every section."""
    return AmqpAnnotatedMessage(
        header=AmqpMessageHeader(
            durable=True, priority=7, time_to_live=60_000, first_acquirer=True
        ),
        delivery_annotations={"x-delivery": "d"},
        annotations={"x-mine": "a", "x-number": 5},
        properties=AmqpMessageProperties(
            message_id=b"\x00\x01",
            user_id=b"me",
            to="there",
            subject="what",
            reply_to="here",
            correlation_id=uuid.UUID(int=5),
            content_type="text/plain",
            content_encoding="utf-8",
            group_id="group",
            group_sequence=3,
            reply_to_group_id="other",
        ),
        application_properties={"text": "ž", "number": 12, "real": 0.5, "yes": True},
        footer={"x-footer": "f"},
        **body,
    )


class TestFidelity:
    def test_every_section_is_delivered_unchanged(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue)
        sender.send_messages(annotated(data_body=[b"one", b"two"]))
        raw = take_one(receiver).raw_amqp_message
        assert raw.body_type == AmqpMessageBodyType.DATA
        assert list(raw.body) == [b"one", b"two"]
        header = raw.header
        assert (header.durable, header.priority, header.time_to_live) == (True, 7, 60_000)
        assert header.first_acquirer is True
        assert header.delivery_count == 0
        assert raw.delivery_annotations == {b"x-delivery": b"d"}
        assert raw.annotations[b"x-mine"] == b"a"
        assert raw.annotations[b"x-number"] == 5
        assert raw.footer == {b"x-footer": b"f"}
        assert raw.application_properties == {
            b"text": "ž".encode(),
            b"number": 12,
            b"real": 0.5,
            b"yes": True,
        }
        properties = raw.properties
        assert properties.message_id == b"\x00\x01"
        assert properties.user_id == b"me"
        assert (properties.to, properties.subject) == (b"there", b"what")
        assert (properties.reply_to, properties.content_type) == (b"here", b"text/plain")
        assert properties.correlation_id == uuid.UUID(int=5)
        assert properties.content_encoding == b"utf-8"
        assert (properties.group_id, properties.group_sequence) == (b"group", 3)
        assert properties.reply_to_group_id == b"other"

    def test_every_body_is_delivered_unchanged(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue)
        sender.send_messages(annotated(value_body={"a": [1, None, "b"]}))
        sender.send_messages(annotated(value_body=None))
        sender.send_messages(annotated(sequence_body=[[1, 2], ["three"]]))
        sender.send_messages(annotated(data_body=b""))
        value, null, sequence, nothing = [one.raw_amqp_message for one in take(receiver, 4)]
        assert value.body_type == null.body_type == AmqpMessageBodyType.VALUE
        assert value.body == {b"a": [1, None, b"b"]}
        assert null.body is None
        assert sequence.body_type == AmqpMessageBodyType.SEQUENCE
        assert list(sequence.body) == [[1, 2], [b"three"]]
        assert nothing.body_type == AmqpMessageBodyType.DATA
        assert list(nothing.body) == [b""]

    def test_payload_is_delivered_unchanged(self, bench: Bench) -> None:
        """A message of the SDK, read and sent again by our client, is unchanged."""
        queue, other = bench.queue(), bench.queue()
        bench.sender(queue).send_messages(annotated(value_body={"a": [1, None, "b"]}))
        client = bench.raw()
        first = Message.parse(receive_raw(client, queue))
        Sender(client, other).send(first.encode())
        second = Message.parse(receive_raw(client, other))
        assert second.delivery_annotations == first.delivery_annotations != b""
        assert second.properties == first.properties != b""
        assert second.application_properties == first.application_properties != b""
        assert second.body == first.body != b""
        assert second.footer == first.footer != b""
        assert second.header == first.header != b""
        ours = ("x-opt-enqueued-time", "x-opt-locked-until")
        assert without(second.read_message_annotations(), ours) == without(
            first.read_message_annotations(), ours
        )


def receive_raw(client: Any, path: str) -> bytes:
    (delivery,) = Receiver(client, path).receive(1)
    return bytes(delivery.payload)


def without(values: Any, keys: tuple[str, ...]) -> dict[Any, Any]:
    return {key: value for key, value in values.items() if key not in keys}
