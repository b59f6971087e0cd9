"""Scheduling and cancelling messages, while the primary is healthy and in failover."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import pytest_asyncio
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessagingEntityDisabledError, ServiceBusServerBusyError

from pairbus import PartlyStored, SendUnavailable
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Timestamp
from pairbus.errors import CannotCancel
from pairbus.events import PathStatus
from pairbus.transfer import from_backlog
from tests.integration.deliveries import Deliveries
from tests.integration.pairs import Pair, id_of
from tests.unit.amqp.same import same
from tests.unit.test_transfer import SCHEDULE, aliases_of, check_same

pytestmark = pytest.mark.asyncio(loop_scope="module")

LATER = datetime(2999, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
LATER_MS = 32472187200250
TIMES = {
    "in UTC": LATER,
    "without a zone": LATER.replace(tzinfo=None),
    "in another zone": LATER.astimezone(timezone(timedelta(hours=5, minutes=30))),
    # As a float of seconds it would lose a millisecond.
    "awkward": datetime(2039, 7, 6, 10, 46, 8, 3000, tzinfo=UTC),
    "with microseconds": LATER.replace(microsecond=999_999),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(pair: Pair) -> Any:
    """A sender of the plain SDK."""
    return pair.sender(pair.queue(), client=pair.connect())


def scheduled(pair: Pair, sender: Any) -> list[int]:
    """Return the sequence numbers of the messages in a queue of the primary."""
    found = pair.primary.call(
        lambda core: core.entities.get(sender.entity_name).queue.peek(0, 1000)
    )
    return [item.sequence for item in found]


def kinds() -> list[Any]:
    return [
        ServiceBusMessage("one", message_id="1", session_id="s", time_to_live=timedelta(hours=1)),
        {"body": "two", "message_id": "2", "application_properties": {"a": b"b"}},
        AmqpAnnotatedMessage(value_body=[3]),
        ServiceBusMessage(
            "four", message_id="4", scheduled_enqueue_time_utc=LATER.replace(year=2998)
        ),
    ]


@pytest.mark.rule("S10")
async def test_messages_scheduled_at_the_primary_can_be_cancelled(pair: Pair, healthy: Any) -> None:
    sender = healthy

    (single,) = await sender.schedule_messages(kinds()[0], LATER)
    several = await sender.schedule_messages(kinds(), LATER)
    from_generator = await sender.schedule_messages((message for message in kinds()), LATER)

    assert scheduled(pair, sender) == [single, *several, *from_generator]
    assert all(type(number) is int for number in (single, *several))
    await sender.cancel_scheduled_messages(single)
    await sender.cancel_scheduled_messages(several)
    await sender.cancel_scheduled_messages(number for number in from_generator)
    assert scheduled(pair, sender) == []


@pytest.mark.rule("S10")
@pytest.mark.parametrize("at", TIMES.values(), ids=TIMES.keys())
async def test_schedule_is_stored_in_failover_and_restored(
    pair: Pair, failed: Any, plain: Any, at: datetime
) -> None:
    message = ServiceBusMessage("b", message_id="id", partition_key="p")
    before = deepcopy(vars(message.raw_amqp_message))

    assert await failed.schedule_messages(message, at) == [None]

    assert message.scheduled_enqueue_time_utc is None
    assert repr(vars(message.raw_amqp_message)) == repr(before)
    (stored,) = pair.new_in_backlog()
    (number,) = await plain.schedule_messages(message, at)
    (expected,) = pair.new_in(pair.primary, plain.entity_name)
    scheduled = Message.parse(expected).read_message_annotations()[SCHEDULE]
    assert same(aliases_of(stored)["x-ms-scheduledenqueuetimeutc"], scheduled)
    check_same(from_backlog(stored).payload, expected)
    await plain.cancel_scheduled_messages(number)


@pytest.mark.rule("S10")
async def test_list_scheduled_in_failover_returns_none_for_each_message(
    pair: Pair, failed: Any, deliveries: Deliveries
) -> None:
    deliveries.new(pair.secondary, pair.backlog_queues[0])

    assert await failed.schedule_messages(kinds(), LATER) == [None] * 4
    assert await failed.schedule_messages((item for item in kinds()), LATER) == [None] * 4
    assert await failed.schedule_messages([], LATER) == []

    assert len(deliveries.new(pair.secondary, pair.backlog_queues[0])) == 2
    stored = pair.new_in_backlog()
    assert len(stored) == 8
    for payload in stored:
        # The time of the call replaces that of the message.
        alias = aliases_of(payload)["x-ms-scheduledenqueuetimeutc"]
        assert same(alias, Timestamp(LATER_MS))
        assert SCHEDULE not in Message.parse(payload).read_message_annotations()
    first = from_backlog(stored[0])
    assert (first.session, first.ttl_ms, first.scheduled_ms) == ("s", 3_600_000, LATER_MS)


@pytest.mark.rule("S10")
async def test_batch_cannot_be_scheduled_in_any_state(
    pair: Pair, plain: Any, healthy: Any, failed: Any
) -> None:
    for sender in (plain, healthy, failed):
        batch = await sender.create_message_batch()
        batch.add_message(ServiceBusMessage("b"))
        with pytest.raises(TypeError, match="Received instead"):
            await sender.schedule_messages(batch, LATER)
    assert pair.new_in_backlog() == []


@pytest.mark.rule("S10", "S3")
async def test_call_that_fails_at_the_primary_continues_with_the_backlog(pair: Pair) -> None:
    sender = pair.sender(pair.queue())
    fault = pair.fault("internal-error", sender.entity_name)

    numbers = await sender.schedule_messages(kinds()[:2], LATER)

    assert fault.fired == 1
    assert numbers == [None, None]
    assert pair.state(sender.entity_name) is PathStatus.FAILOVER
    assert [from_backlog(item).scheduled_ms for item in pair.new_in_backlog()] == [LATER_MS] * 2


@pytest.mark.rule("S10")
async def test_schedule_of_a_message_is_kept_in_failover(pair: Pair, failed: Any) -> None:
    await failed.send_messages(ServiceBusMessage("b", scheduled_enqueue_time_utc=LATER))

    (stored,) = pair.new_in_backlog()
    assert same(aliases_of(stored)["x-ms-scheduledenqueuetimeutc"], Timestamp(LATER_MS))


@pytest.mark.unlimited
@pytest.mark.rule("S10", "S9")
async def test_partly_stored_names_the_scheduled_messages(pair: Pair, failed: Any) -> None:
    messages = [ServiceBusMessage(b"x" * 100_000, message_id=str(n)) for n in range(4)]
    fault = pair.secondary.add_fault("throttle", pair.backlog_queues[0], after=1, count=1)

    with pytest.raises(PartlyStored) as raised:
        await failed.schedule_messages(messages, LATER)

    assert fault.fired == 1
    assert (raised.value.stored, raised.value.not_sent) == ((0, 1), (2, 3))
    assert isinstance(raised.value.backlog_error, ServiceBusServerBusyError)
    assert [id_of(item) for item in pair.new_in_backlog()] == ["0", "1"]


@pytest.mark.rule("S10")
@pytest.mark.parametrize("numbers", [None, [None], [5, None], (None, 5)])
async def test_message_scheduled_in_failover_cannot_be_cancelled(
    healthy: Any, failed: Any, numbers: Any
) -> None:
    for sender in (healthy, failed):
        with pytest.raises(CannotCancel, match="is in the backlog and has no sequence number"):
            await sender.cancel_scheduled_messages(numbers)


@pytest.mark.rule("S10")
async def test_message_of_the_primary_cannot_be_cancelled_during_an_outage(pair: Pair) -> None:
    sender = pair.sender(pair.queue())
    (number,) = await sender.schedule_messages(ServiceBusMessage("b"), LATER)
    await pair.fail_over(sender)
    pair.new_in_backlog()

    with pytest.raises(SendUnavailable, match="is in failover") as raised:
        await sender.cancel_scheduled_messages(number)

    assert isinstance(raised.value.primary_error, MessagingEntityDisabledError)
    assert scheduled(pair, sender) == [number]
    # Mark the path healthy, because the next ping is in half an hour.
    pair.bus.mark_path_healthy(sender.entity_name)
    await sender.cancel_scheduled_messages(number)
    assert scheduled(pair, sender) == []


@pytest.mark.rule("S10", "S11")
async def test_scheduled_message_gets_an_id_in_every_state(
    pair: Pair, healthy: Any, failed: Any
) -> None:
    bare = AmqpAnnotatedMessage(data_body=b"b")

    (number,) = await healthy.schedule_messages(bare, LATER)
    await failed.schedule_messages(bare, LATER)

    assert bare.properties is None or bare.properties.message_id is None
    (in_primary,) = (
        item
        for item in pair.new_in(pair.primary, healthy.entity_name)
        if Message.parse(item).body.endswith(b"b")
    )
    (in_backlog,) = pair.new_in_backlog()
    given = [id_of(item) for item in (in_primary, in_backlog)]
    assert None not in given
    assert given[0] != given[1]
    await healthy.cancel_scheduled_messages(number)
