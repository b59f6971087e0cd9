"""Scheduling and cancelling messages, while the primary is healthy and in failover."""

from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessagingEntityDisabledError, ServiceBusServerBusyError

from pairbus import PartlyStored, SendUnavailable
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Timestamp
from pairbus.errors import CannotCancel
from pairbus.events import PathStatus
from pairbus.transfer import from_backlog
from tests.integration.pairing_kit import BACKLOG, World, quick_sender, state
from tests.unit.amqp.same import same
from tests.unit.test_transfer import SCHEDULE, aliases_of, check_same

pytestmark = [
    # The SDK does not close its sockets.
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:loop is closed:ResourceWarning"),
]

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


class Schedules(World):
    def __enter__(self) -> "Schedules":
        super().__enter__()
        self.bus = self.pair(backlog_cool_down=timedelta())
        self.plain = self.keep(quick_sender(self.client(), self.queue()))
        self.healthy = self.keep(quick_sender(self.bus, self.queue()))
        self.failed = self.keep(quick_sender(self.bus, self.queue()))
        self.fail_over(self.failed)
        self.in_backlog()
        return self

    def scheduled(self, sender: Any) -> list[int]:
        """Return the sequence numbers of the messages in a queue of the primary."""
        found = self.primary.call(
            lambda core: core.entities.get(sender.entity_name).queue.peek(0, 1000)
        )
        return [one.sequence for one in found]


@pytest.fixture(scope="module", params=["sync", "aio"])
def world(request: pytest.FixtureRequest) -> Iterator[Schedules]:
    with Schedules(request.param) as world:
        yield world


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
def test_messages_scheduled_at_the_primary_can_be_cancelled(world: Schedules):
    sender = world.healthy

    (one,) = sender.schedule_messages(kinds()[0], LATER)
    several = sender.schedule_messages(kinds(), LATER)
    from_generator = sender.schedule_messages((message for message in kinds()), LATER)

    assert world.scheduled(sender) == [one, *several, *from_generator]
    assert all(type(number) is int for number in (one, *several))
    sender.cancel_scheduled_messages(one)
    sender.cancel_scheduled_messages(several)
    sender.cancel_scheduled_messages(number for number in from_generator)
    assert world.scheduled(sender) == []


@pytest.mark.rule("S10")
@pytest.mark.parametrize("at", TIMES.values(), ids=TIMES.keys())
def test_schedule_is_stored_in_failover_and_restored(world: Schedules, at: datetime):
    message = ServiceBusMessage("b", message_id="id", partition_key="p")
    before = deepcopy(vars(message.raw_amqp_message))

    assert world.failed.schedule_messages(message, at) == [None]

    assert message.scheduled_enqueue_time_utc is None
    assert repr(vars(message.raw_amqp_message)) == repr(before)
    (stored,) = world.in_backlog()
    (number,) = world.plain.schedule_messages(message, at)
    (plain,) = world.stored(world.primary, world.plain.entity_name)
    scheduled = Message.parse(plain).read_message_annotations()[SCHEDULE]
    assert same(aliases_of(stored)["x-ms-scheduledenqueuetimeutc"], scheduled)
    check_same(from_backlog(stored).payload, plain)
    world.plain.cancel_scheduled_messages(number)


@pytest.mark.rule("S10")
def test_list_scheduled_in_failover_returns_none_for_each_message(world: Schedules):
    world.arrived(world.secondary, BACKLOG)

    assert world.failed.schedule_messages(kinds(), LATER) == [None] * 4
    assert world.failed.schedule_messages((one for one in kinds()), LATER) == [None] * 4
    assert world.failed.schedule_messages([], LATER) == []

    assert len(world.arrived(world.secondary, BACKLOG)) == 2
    stored = world.in_backlog()
    assert len(stored) == 8
    for payload in stored:
        # The time of the call replaces that of the message.
        alias = aliases_of(payload)["x-ms-scheduledenqueuetimeutc"]
        assert same(alias, Timestamp(LATER_MS))
        assert SCHEDULE not in Message.parse(payload).read_message_annotations()
    first = from_backlog(stored[0])
    assert (first.session, first.ttl_ms, first.scheduled_ms) == ("s", 3_600_000, LATER_MS)


@pytest.mark.rule("S10")
def test_batch_cannot_be_scheduled_in_any_state(world: Schedules):
    for sender in (world.plain, world.healthy, world.failed):
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("b"))
        with pytest.raises(TypeError, match="Received instead"):
            sender.schedule_messages(batch, LATER)
    assert world.in_backlog() == []


@pytest.mark.rule("S10", "S3")
def test_call_that_fails_at_the_primary_continues_with_the_backlog(world: Schedules):
    sender = world.keep(quick_sender(world.bus, world.queue()))
    fault = world.primary.add_fault("internal-error", sender.entity_name)

    numbers = sender.schedule_messages(kinds()[:2], LATER)

    assert fault.fired == 1
    assert numbers == [None, None]
    assert state(world.bus, sender.entity_name) is PathStatus.FAILOVER
    assert [from_backlog(one).scheduled_ms for one in world.in_backlog()] == [LATER_MS] * 2


@pytest.mark.rule("S10")
def test_schedule_of_a_message_is_kept_in_failover(world: Schedules):
    world.failed.send_messages(ServiceBusMessage("b", scheduled_enqueue_time_utc=LATER))

    (stored,) = world.in_backlog()
    assert same(aliases_of(stored)["x-ms-scheduledenqueuetimeutc"], Timestamp(LATER_MS))


@pytest.mark.rule("S10", "S9")
def test_partly_stored_names_the_scheduled_messages(world: Schedules):
    messages = [ServiceBusMessage(b"x" * 100_000, message_id=str(n)) for n in range(4)]
    fault = world.secondary.add_fault("throttle", BACKLOG, after=1, count=1)

    with pytest.raises(PartlyStored) as raised:
        world.failed.schedule_messages(messages, LATER)

    assert fault.fired == 1
    assert (raised.value.stored, raised.value.not_stored) == ((0, 1), (2, 3))
    assert isinstance(raised.value.backlog_error, ServiceBusServerBusyError)
    stored = [Message.parse(one) for one in world.in_backlog()]
    assert [one.read_properties().message_id for one in stored] == ["0", "1"]


@pytest.mark.rule("S10")
@pytest.mark.parametrize("where", ["healthy", "failed"])
@pytest.mark.parametrize("numbers", [None, [None], [5, None], (None, 5)])
def test_message_scheduled_in_failover_cannot_be_cancelled(
    world: Schedules, where: str, numbers: Any
):
    with pytest.raises(CannotCancel, match="is in the backlog and has no sequence number"):
        getattr(world, where).cancel_scheduled_messages(numbers)


@pytest.mark.rule("S10")
def test_message_of_the_primary_cannot_be_cancelled_during_an_outage(world: Schedules):
    sender = world.keep(quick_sender(world.bus, world.queue()))
    (number,) = sender.schedule_messages(ServiceBusMessage("b"), LATER)
    world.fail_over(sender)
    world.in_backlog()

    with pytest.raises(SendUnavailable, match="is in failover") as raised:
        sender.cancel_scheduled_messages(number)

    assert isinstance(raised.value.primary_error, MessagingEntityDisabledError)
    assert world.scheduled(sender) == [number]
    # Mark the path healthy, because the next ping is in half an hour.
    world.bus.mark_path_healthy(sender.entity_name)
    sender.cancel_scheduled_messages(number)
    assert world.scheduled(sender) == []


@pytest.mark.rule("S10", "S11")
def test_scheduled_message_gets_an_id_in_every_state(world: Schedules):
    bare = AmqpAnnotatedMessage(data_body=b"b")

    (number,) = world.healthy.schedule_messages(bare, LATER)
    world.failed.schedule_messages(bare, LATER)

    assert bare.properties is None or bare.properties.message_id is None
    (healthy,) = (
        one
        for one in world.stored(world.primary, world.healthy.entity_name)
        if Message.parse(one).body.endswith(b"b")
    )
    (failed,) = world.in_backlog()
    given = [Message.parse(one).read_properties().message_id for one in (healthy, failed)]
    assert None not in given
    assert given[0] != given[1]
    world.healthy.cancel_scheduled_messages(number)
