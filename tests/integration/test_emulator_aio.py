"""The async SDK against a local namespace: each operation once. Details are in the sync tests."""

import gc
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    SessionCannotBeLockedError,
)

from pairbus.emulator.namespace import LocalNamespace
from tests.integration.emulator_bench import BRISK, QUICK

PREFETCHING = BRISK | {"prefetch_count": 1}
"""A receiver without prefetch has a task that wakes up once a second, and closes after that."""

pytestmark = [
    # The SDK does not close its transport when a connection fails.
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:loop is closed:ResourceWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def _collect_sockets() -> Iterator[None]:
    """Collect sockets of the SDK before a module that does not ignore their warnings."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def running() -> Iterator[LocalNamespace]:
    with LocalNamespace() as namespace:
        yield namespace


@pytest.fixture
def namespace(running: LocalNamespace) -> LocalNamespace:
    running.reset()
    running.create_queue("orders")
    running.create_queue("sessions", requires_session=True)
    running.create_topic("news")
    running.create_subscription("news", "all")
    return running


@pytest.fixture
async def client(namespace: LocalNamespace) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(
        namespace.connection_string, **QUICK
    ) as client:
        yield client


def open_receiver(client: ServiceBusClient, **options: Any) -> ServiceBusReceiver:
    return client.get_queue_receiver("orders", **(PREFETCHING | options))


async def send(client: ServiceBusClient, *messages: Any, queue: str = "orders") -> None:
    async with client.get_queue_sender(queue, **BRISK) as sender:
        for message in messages:
            await sender.send_messages(message)


async def receive(receiver: ServiceBusReceiver, count: int = 1) -> list[Any]:
    """Receive this many messages, in as many calls as needed."""
    messages: list[Any] = []
    while len(messages) < count:
        some = await receiver.receive_messages(count - len(messages), max_wait_time=10)
        assert some, f"only {len(messages)} of {count} messages came"
        messages += some
    return messages


async def bodies_left(client: ServiceBusClient, **options: Any) -> list[str]:
    async with open_receiver(client, **options) as receiver:
        return [str(message) for message in await receiver.peek_messages(100)]


async def test_single_messages_lists_and_batches_arrive_in_order(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("orders", **BRISK) as sender:
        await sender.send_messages(ServiceBusMessage("a"))
        await sender.send_messages([ServiceBusMessage("b"), ServiceBusMessage("c")])
        batch = await sender.create_message_batch()
        for n in range(20):
            batch.add_message(ServiceBusMessage(f"{n}"))
        await sender.send_messages(batch)

    async with open_receiver(client, prefetch_count=23) as receiver:
        messages = await receive(receiver, 23)
        for message in messages:
            await receiver.complete_message(message)

    assert [str(m) for m in messages] == ["a", "b", "c", *[f"{n}" for n in range(20)]]
    assert await bodies_left(client) == []


async def test_message_properties_are_preserved(client: ServiceBusClient) -> None:
    sent = ServiceBusMessage(
        b"\x00\xff",
        message_id="id",
        subject="subject",
        content_type="text/plain",
        correlation_id="correlation",
        to="to",
        reply_to="reply",
        application_properties={"n": 1, "text": "žluť"},
        time_to_live=timedelta(hours=1),
    )
    await send(client, sent)

    async with open_receiver(client) as receiver:
        [message] = await receive(receiver)
        await receiver.complete_message(message)

    assert b"".join(message.body) == b"\x00\xff"
    assert message.message_id == "id"
    assert message.subject == "subject"
    assert message.content_type == "text/plain"
    assert message.correlation_id == "correlation"
    assert (message.to, message.reply_to) == ("to", "reply")
    assert message.application_properties == {b"n": 1, b"text": "žluť".encode()}
    assert message.time_to_live == timedelta(hours=1)
    assert message.sequence_number is not None
    assert message.enqueued_time_utc is not None


async def test_receive_and_delete_removes_messages(client: ServiceBusClient) -> None:
    await send(client, ServiceBusMessage("a"), ServiceBusMessage("b"))

    async with open_receiver(
        client, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as receiver:
        messages = await receive(receiver, 2)

    assert [str(m) for m in messages] == ["a", "b"]
    assert await bodies_left(client) == []


async def test_receiver_can_be_iterated(client: ServiceBusClient) -> None:
    await send(client, *[ServiceBusMessage(f"{n}") for n in range(3)])
    seen = []

    async with open_receiver(client, max_wait_time=10) as receiver:
        async for message in receiver:
            seen.append(str(message))
            await receiver.complete_message(message)
            if len(seen) == 3:
                break

    assert seen == ["0", "1", "2"]


async def test_messages_are_settled_in_every_way(client: ServiceBusClient) -> None:
    await send(client, *[ServiceBusMessage(name) for name in ("done", "again", "later", "dead")])

    async with open_receiver(client, prefetch_count=4) as receiver:
        done, again, later, dead = await receive(receiver, 4)
        await receiver.complete_message(done)
        await receiver.abandon_message(again)
        await receiver.defer_message(later)
        await receiver.dead_letter_message(dead, reason="why", error_description="because")
        [retried] = await receive(receiver)
        assert (str(retried), retried.delivery_count) == ("again", 1)
        await receiver.renew_message_lock(retried)
        await receiver.complete_message(retried)
        [deferred] = await receiver.receive_deferred_messages([later.sequence_number])
        assert str(deferred) == "later"
        await receiver.complete_message(deferred)

    async with open_receiver(client, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        [letter] = await receive(receiver)
        await receiver.complete_message(letter)
    assert str(letter) == "dead"
    assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("why", "because")
    assert await bodies_left(client) == []
    assert await bodies_left(client, sub_queue=ServiceBusSubQueue.DEAD_LETTER) == []


async def test_peeking_changes_nothing(client: ServiceBusClient) -> None:
    await send(client, *[ServiceBusMessage(f"{n}") for n in range(3)])

    async with open_receiver(client) as receiver:
        first = await receiver.peek_messages(2)
        rest = await receiver.peek_messages(5, sequence_number=first[-1].sequence_number + 1)

    assert [str(m) for m in first] == ["0", "1"]
    assert [str(m) for m in rest] == ["2"]
    assert await bodies_left(client) == ["0", "1", "2"]


async def test_messages_are_scheduled_and_cancelled(client: ServiceBusClient) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    async with client.get_queue_sender("orders", **BRISK) as sender:
        numbers = await sender.schedule_messages(
            [ServiceBusMessage("a"), ServiceBusMessage("b")], tomorrow
        )
        await sender.cancel_scheduled_messages(numbers[0])
        await sender.schedule_messages(ServiceBusMessage("now"), datetime.now(UTC))

    async with open_receiver(client) as receiver:
        [due] = await receive(receiver)
        await receiver.complete_message(due)
        [waiting] = await receiver.peek_messages(10, sequence_number=1)

    assert str(due) == "now"
    assert str(waiting) == "b"
    assert waiting.sequence_number == numbers[1]
    assert waiting.scheduled_enqueue_time_utc is not None


async def test_session_has_its_messages_and_a_state(client: ServiceBusClient) -> None:
    await send(
        client,
        ServiceBusMessage("a1", session_id="a"),
        ServiceBusMessage("b1", session_id="b"),
        ServiceBusMessage("a2", session_id="a"),
        queue="sessions",
    )

    async with client.get_queue_receiver("sessions", session_id="a", **PREFETCHING) as receiver:
        assert receiver.session.session_id == "a"
        assert await receiver.session.get_state() is None
        await receiver.session.set_state(b"half way")
        await receiver.session.renew_lock()
        messages = await receive(receiver, 2)
        for message in messages:
            await receiver.complete_message(message)
        with pytest.raises(SessionCannotBeLockedError):
            async with client.get_queue_receiver("sessions", session_id="a", **PREFETCHING):
                pass
    async with client.get_queue_receiver("sessions", session_id="a", **PREFETCHING) as receiver:
        assert await receiver.session.get_state() == b"half way"

    assert [str(m) for m in messages] == ["a1", "a2"]


async def test_next_available_session_is_accepted_or_times_out(client: ServiceBusClient) -> None:
    await send(client, ServiceBusMessage("x", session_id="only"), queue="sessions")

    async with client.get_queue_receiver(
        "sessions", session_id=NEXT_AVAILABLE_SESSION, **PREFETCHING
    ) as receiver:
        assert receiver.session.session_id == "only"
        [message] = await receive(receiver)
        await receiver.complete_message(message)
    with pytest.raises(OperationTimeoutError):
        async with client.get_queue_receiver(
            "sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.3, **PREFETCHING
        ):
            pass


async def test_each_subscription_gets_a_copy(
    namespace: LocalNamespace, client: ServiceBusClient
) -> None:
    namespace.create_subscription("news", "more")
    async with client.get_topic_sender("news", **BRISK) as sender:
        await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])

    for name in ("all", "more"):
        async with client.get_subscription_receiver("news", name, **PREFETCHING) as receiver:
            messages = await receive(receiver, 2)
            for message in messages:
                await receiver.complete_message(message)
        assert [str(m) for m in messages] == ["a", "b"]


async def test_missing_entity_raises(client: ServiceBusClient) -> None:
    with pytest.raises(MessagingEntityNotFoundError):
        await send(client, ServiceBusMessage("a"), queue="nowhere")


async def test_entities_are_administered(namespace: LocalNamespace) -> None:
    async with ServiceBusAdministrationClient.from_connection_string(
        namespace.connection_string, connection_verify=namespace.ca_file
    ) as admin:
        made = await admin.create_queue("fresh", max_delivery_count=3)
        made.max_delivery_count = 4
        await admin.update_queue(made)
        assert (await admin.get_queue("fresh")).max_delivery_count == 4
        with pytest.raises(ResourceExistsError):
            await admin.create_queue("fresh")
        assert [queue.name async for queue in admin.list_queues()] == [
            "fresh",
            "orders",
            "sessions",
        ]
        await admin.create_topic("papers")
        await admin.create_subscription("papers", "mine")
        await admin.create_rule("papers", "mine", "urgent")
        rules = [rule.name async for rule in admin.list_rules("papers", "mine")]
        assert sorted(rules) == ["$Default", "urgent"]
        runtime = await admin.get_queue_runtime_properties("orders")
        assert runtime.total_message_count == 0
        await admin.delete_topic("papers")
        await admin.delete_queue("fresh")
        with pytest.raises(ResourceNotFoundError):
            await admin.get_queue("fresh")
