"""A message that the backlog rejects fails its own call. No other sender of the pairing notices."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from pairbus import FailureKind, PartlyStored, SendUnavailable
from pairbus.events import BacklogQueuePulled, PathStatus
from pairbus.pairing.failures import classify_failure
from tests.integration.pairs import LISTENS, MINUTE, Make, Pair, error_of, message
from tests.integration.sdk_flavours import Awaited

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.rule("S4")]

KB = 1024
LATER = datetime(2999, 1, 1, tzinfo=UTC)


def bad() -> AmqpAnnotatedMessage:
    """A message that Service Bus rejects: its id may have 128 characters."""
    return AmqpAnnotatedMessage(
        data_body=b"bad", properties=AmqpMessageProperties(message_id="x" * 200)
    )


async def send_batch(sender: Any) -> None:
    batch = await sender.create_message_batch()
    batch.add_message(message("good"))
    batch.add_message(bad())
    await sender.send_messages(batch)


async def send_foreign_batch(sender: Any) -> None:
    batch = ServiceBusMessageBatch()
    batch.add_message(bad())
    await sender.send_messages(batch)


WAYS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "single": lambda sender: sender.send_messages(bad()),
    "list": lambda sender: sender.send_messages([message("good"), bad()]),
    "batch": send_batch,
    "foreign batch": send_foreign_batch,
    "schedule": lambda sender: sender.schedule_messages(bad(), LATER),
}


async def failed_over(pair: Pair) -> tuple[str, Any]:
    """Return a path in failover, and a sender of it that has stored one message."""
    path = pair.queue()
    fault = pair.fault("internal-error", path)
    sender = pair.sender(path)
    await sender.send_messages(message("first"))
    assert fault.fired == 1
    assert pair.state(path) is PathStatus.FAILOVER
    return path, sender


def assert_no_queue_was_pulled(pair: Pair) -> None:
    assert pair.of(BacklogQueuePulled) == []
    assert all(queue.in_rotation for queue in pair.bus.status().backlog.values())


@pytest.mark.rule("S1", "S4")
@pytest.mark.parametrize("way", WAYS)
async def test_rejected_message_raises_the_error_of_the_sdk_and_pulls_no_queue(
    make: Make, way: str
) -> None:
    pair = await make()
    healthy = pair.queue()
    by_primary = await error_of(pair.sender(healthy).send_messages(bad()))
    assert pair.state(healthy) is PathStatus.HEALTHY
    path, sender = await failed_over(pair)
    _, other = await failed_over(pair)
    stored = len(pair.backlog())

    error = await error_of(WAYS[way](sender))

    assert type(error) is type(by_primary) is ServiceBusError
    assert str(error) == str(by_primary)
    assert classify_failure(error) is FailureKind.CALLER
    assert_no_queue_was_pulled(pair)
    assert len(pair.bus.status().paths[path].backlog_queues) == 1  # no other queue was tried
    await other.send_messages(message("another path"))
    await sender.send_messages(message("the same sender"))
    assert len(pair.backlog()) == stored + 2
    assert_no_queue_was_pulled(pair)


async def test_rejected_message_of_the_call_that_fails_over_raises_too(make: Make) -> None:
    pair = await make()
    path = pair.queue()
    fault = pair.fault("internal-error", path)

    error = await error_of(pair.sender(path).send_messages(bad()))

    assert fault.fired == 1
    assert pair.state(path) is PathStatus.FAILOVER
    assert type(error) is ServiceBusError
    assert classify_failure(error) is FailureKind.CALLER
    assert pair.backlog() == []
    assert_no_queue_was_pulled(pair)


@pytest.mark.unlimited
@pytest.mark.rule("S4", "S9")
async def test_rejection_in_the_second_batch_names_the_stored_messages(make: Make) -> None:
    pair = await make()
    path, sender = await failed_over(pair)
    _, other = await failed_over(pair)
    large = [message("x" * 200 * KB) for _ in range(2)]  # one batch takes 256 KB

    error = await error_of(sender.send_messages([*large, bad()]))

    assert isinstance(error, PartlyStored)
    assert (error.stored, error.not_sent) == ((0,), (1, 2))
    assert type(error.backlog_error) is ServiceBusError
    assert classify_failure(error.backlog_error) is FailureKind.CALLER
    assert error.primary_error is not None
    assert len(pair.backlog(path)) == 2
    assert_no_queue_was_pulled(pair)
    await other.send_messages(message("another path"))
    assert_no_queue_was_pulled(pair)


async def test_full_queue_is_pulled_and_the_message_goes_to_another(make: Make) -> None:
    pair = await make(start=False)
    full = f"{pair.name}/x-servicebus-transfer/0"
    pair.secondary.create_queue(full, max_size_in_megabytes=1)
    await pair.start(backlog_queue_count=2, backlog_cool_down=MINUTE, random=Random(1))
    client = pair.connect(pair.secondary.connection_string)
    plain: Any = client.get_queue_sender(full)
    plain = Awaited(plain) if pair.sync else plain
    for _ in range(5):
        await plain.send_messages(message("x" * 200 * KB))
    await plain.close()
    path, _ = await failed_over(pair)

    for sender in [pair.sender(path) for _ in range(8)]:
        await sender.send_messages(message("x" * 100 * KB))

    (pulled,) = pair.of(BacklogQueuePulled)
    assert pulled.queue == full
    assert isinstance(pulled.cause, ServiceBusQuotaExceededError)
    assert len(pair.in_queue(pair.backlog_queues[1])) >= 8


async def test_deleted_queue_is_pulled_with_the_error_of_a_new_link(make: Make) -> None:
    pair = await make(backlog_queue_count=1, backlog_cool_down=MINUTE)
    path, sender = await failed_over(pair)
    (queue,) = pair.backlog_queues
    pair.secondary.call(lambda core: core.entities.delete(queue))

    error = await error_of(sender.send_messages(message()))

    assert isinstance(error, SendUnavailable)
    assert isinstance(error.backlog_error, MessagingEntityNotFoundError)
    (pulled,) = pair.of(BacklogQueuePulled)
    assert pulled.cause is error.backlog_error
    assert pair.state(path) is PathStatus.FAILOVER


async def test_missing_send_right_pulls_every_queue(make: Make) -> None:
    pair = await make(start=False)
    text = pair.secondary.connection_string_of(LISTENS.name, LISTENS.primary_key)
    for index in range(2):
        pair.secondary.create_queue(f"{pair.name}/x-servicebus-transfer/{index}")
    await pair.start(secondary=pair.connect(text), backlog_queue_count=2, create_backlog=False)
    path = pair.queue()
    fault = pair.fault("internal-error", path)

    error = await error_of(pair.sender(path).send_messages(message()))

    assert fault.fired == 1
    assert isinstance(error, SendUnavailable)
    assert isinstance(error.backlog_error, ServiceBusAuthorizationError)
    assert {event.queue for event in pair.of(BacklogQueuePulled)} == set(pair.backlog_queues)


async def test_link_that_is_detached_once_is_reopened(make: Make) -> None:
    pair = await make(backlog_queue_count=1, backlog_cool_down=MINUTE)
    path, sender = await failed_over(pair)
    fault = pair.secondary.add_fault("detach", pair.backlog_queues[0], count=1)

    await sender.send_messages(message("again"))

    assert fault.fired == 1
    assert len(pair.backlog(path)) == 2
    assert_no_queue_was_pulled(pair)


async def test_queue_that_detaches_every_link_is_pulled_after_another_accepts_the_message(
    make: Make,
) -> None:
    pair = await make(backlog_queue_count=2, backlog_cool_down=MINUTE)
    path, sender = await failed_over(pair)
    (mine,) = pair.bus.status().paths[path].backlog_queues
    (left,) = set(pair.backlog_queues) - {mine}
    fault = pair.secondary.add_fault("detach", mine)

    await sender.send_messages(message("moved"))

    assert fault.fired == 2
    (pulled,) = pair.of(BacklogQueuePulled)
    assert pulled.queue == mine
    assert isinstance(pulled.cause, ServiceBusConnectionError)
    assert len(pair.in_queue(left)) == 1


async def test_message_that_detaches_every_link_pulls_no_queue(make: Make) -> None:
    pair = await make(backlog_queue_count=2, backlog_cool_down=MINUTE)
    path, sender = await failed_over(pair)
    _, other = await failed_over(pair)
    faults = [pair.secondary.add_fault("detach", queue, count=2) for queue in pair.backlog_queues]

    error = await error_of(sender.send_messages(message("poison")))

    assert sorted(fault.fired for fault in faults) == [1, 2]
    pair.secondary.clear_faults()
    assert isinstance(error, SendUnavailable)
    assert isinstance(error.backlog_error, ServiceBusConnectionError)
    assert_no_queue_was_pulled(pair)
    await other.send_messages(message("another path"))
    assert len(pair.backlog(path)) == 1
