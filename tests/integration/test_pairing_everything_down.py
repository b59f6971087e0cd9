"""Neither namespace takes a message: the caller is told, with both reasons, and nothing is
pretended (rule S5)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from pairbus import FailureKind, PartlyStored, SendUnavailable
from pairbus.events import BacklogQueuePulled, PathStatus
from pairbus.pairing.failures import classify_failure
from tests.integration.emulator_kit import DEADLINE_S
from tests.integration.pairing_faults_kit import (
    FORGETFUL,
    MINUTE,
    Make,
    both,
    caught,
    message,
    namespaces,
    together,
)

__all__ = ["namespaces"]

pytestmark = [*FORGETFUL, pytest.mark.rule("S5")]

LATER = datetime(2999, 1, 1, tzinfo=UTC)


async def send_batch(sender: Any) -> None:
    batch = await sender.create_message_batch()
    batch.add_message(message())
    await sender.send_messages(batch)


WAYS: list[Callable[[Any], Awaitable[Any]]] = [
    lambda sender: sender.send_messages(message()),
    lambda sender: sender.send_messages([message(), message()]),
    send_batch,
    lambda sender: sender.schedule_messages(message(), LATER),
]


def check(error: BaseException | None) -> None:
    """It is a SendUnavailable that has both reasons."""
    assert type(error) is SendUnavailable
    for reason in (error.primary_error, error.backlog_error):
        assert reason is not None
        assert classify_failure(reason) is FailureKind.UNAVAILABLE
    assert isinstance(error.__cause__, ExceptionGroup)
    assert error.__cause__.exceptions == (error.primary_error, error.backlog_error)


@both
async def test_every_way_to_send_says_why_neither_took_it_and_nothing_arrives_anywhere(
    make: Make,
) -> None:
    pair = await make(backlog_cool_down=timedelta())
    paths = pair.queues(len(WAYS))
    senders = [pair.sender(path) for path in paths]
    await senders[0].send_messages(message("before"))
    pair.primary.stop()
    pair.secondary.stop()
    met = await together(caught(way(sender)) for way, sender in zip(WAYS, senders, strict=True))
    for error in met:
        check(error)
    pair.primary.start()
    pair.secondary.start()
    assert [len(pair.arrived(path)) for path in paths] == [1, 0, 0, 0]
    assert pair.backlog() == []
    for sender in senders:  # at once they would be four, and three queues are tried by one each
        await sender.send_messages(message("after"))
    assert [len(pair.backlog(path)) for path in paths] == [1, 1, 1, 1]


@both
async def test_a_secondary_that_goes_first_does_not_matter_until_the_primary_goes_too(
    make: Make,
) -> None:
    pair = await make()
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    pair.secondary.stop()
    await sender.send_messages(message())
    assert pair.state(queue) is PathStatus.HEALTHY
    pair.primary.stop()
    check(await caught(sender.send_messages(message())))
    assert pair.state(queue) is PathStatus.FAILOVER
    assert len(pair.of(BacklogQueuePulled)) == 3
    # Known to be down, nobody is asked again.
    again = await caught(sender.send_messages(message()))
    check(again)


@pytest.mark.rule("S14")
@both
async def test_a_secondary_that_goes_after_the_primary_stores_exactly_what_was_acknowledged(
    make: Make,
) -> None:
    pair = await make(backlog_cool_down=timedelta())
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    acknowledged = []

    async def send(number: int) -> None:
        await sender.send_messages(message(str(number), message_id=str(number)))
        acknowledged.append(str(number))

    pair.primary.stop()
    await send(1)
    pair.secondary.stop()
    for number in (2, 3):
        check(await caught(send(number)))
    pair.secondary.start()
    await send(4)
    assert acknowledged == ["1", "4"]
    assert sorted(one.message_id for one in pair.backlog()) == acknowledged


@both
async def test_with_some_of_the_backlog_down_messages_go_to_the_rest(make: Make) -> None:
    pair = await make()
    queue = pair.queue()
    pair.fault("internal-error", queue)
    *lost, left = pair.backlog_queues
    faults = [pair.secondary.add_fault("internal-error", one) for one in lost]
    senders = [pair.sender(queue) for _ in range(6)]
    await together(sender.send_messages(message()) for sender in senders)
    assert len(pair.in_queue(left)) == 6
    assert len(pair.of(BacklogQueuePulled)) == sum(fault.fired > 0 for fault in faults)


@pytest.mark.rule("S5", "S9", "S12")
@both
async def test_a_list_of_which_one_session_has_lost_its_queue_says_what_was_stored(
    make: Make,
) -> None:
    pair = await make(failback="after-drain")
    queue = pair.queue(requires_session=True)
    path = pair.bus._pairing.path(queue)
    by_queue = {pair.bus._pairing.queue_of_session(path, str(n)): str(n) for n in range(50)}
    assert set(by_queue) == set(pair.backlog_queues)
    lost = pair.backlog_queues[1]
    sessions = [by_queue[one] for one in pair.backlog_queues]
    pair.fault("internal-error", queue)
    fault = pair.secondary.add_fault("internal-error", lost)
    sender = pair.sender(queue)
    error = await caught(sender.send_messages([message(session_id=one) for one in sessions]))
    assert fault.fired == 1
    assert isinstance(error, PartlyStored)
    assert sorted((*error.stored, *error.not_stored)) == [0, 1, 2]
    assert 1 in error.not_stored
    assert error.primary_error is not None
    assert isinstance(error.backlog_error, ServiceBusError)
    stored = {one.session for one in pair.backlog()}
    assert stored == {sessions[place] for place in error.stored}


@both
async def test_a_busy_backlog_is_told_and_keeps_its_queues(make: Make) -> None:
    pair = await make()
    queue = pair.queue()
    pair.fault("internal-error", queue)
    fault = pair.secondary.add_fault("throttle")
    error = await caught(pair.sender(queue).send_messages(message()))
    assert fault.fired == 1
    assert isinstance(error, SendUnavailable)
    assert isinstance(error.backlog_error, ServiceBusServerBusyError)
    assert all(one.in_rotation for one in pair.bus.status().backlog.values())
    assert pair.backlog() == []


@pytest.mark.rule("S3", "S5")
@both
async def test_while_the_timer_runs_the_caller_gets_the_primarys_error_whatever_the_backlog_is(
    make: Make,
) -> None:
    pair = await make(failover_interval=MINUTE)
    queue = pair.queue()
    pair.primary.stop()
    pair.secondary.stop()
    error = await caught(pair.sender(queue).send_messages(message()))
    assert isinstance(error, ServiceBusError)
    assert pair.state(queue) is PathStatus.SUSPECT


@pytest.mark.rule("S14")
@both
async def test_closing_ends_while_everything_is_down(make: Make) -> None:
    pair = await make()
    queues = pair.queues(3)
    senders = await pair.entered(*queues)
    pair.primary.stop()
    await together(sender.send_messages(message()) for sender in senders)
    pair.secondary.stop()
    for error in await together(caught(sender.send_messages(message())) for sender in senders):
        check(error)
    await asyncio.wait_for(pair.close(), DEADLINE_S)
    assert pair.bus.status().closed
    pair.secondary.start()
    assert len(pair.backlog()) == 3
