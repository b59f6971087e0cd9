"""Both namespaces are down: the caller gets both causes, and no send is reported as successful."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from pairbus import FailureKind, PartlyStored, SendUnavailable
from pairbus.events import (
    BacklogQueuePulled,
    BacklogQueueRestored,
    PathStatus,
    SecondaryRestored,
    SecondaryUnavailable,
)
from pairbus.pairing.failures import classify_failure
from tests.integration.pairs import MINUTE, Make, Pair, error_of, gather_all, message, until
from tests.integration.raw_peer import DEADLINE_S

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.rule("S5")]

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
    """Check that an error is a SendUnavailable with both causes."""
    assert type(error) is SendUnavailable
    for reason in (error.primary_error, error.backlog_error):
        assert reason is not None
        assert classify_failure(reason) is FailureKind.UNAVAILABLE
    assert isinstance(error.__cause__, ExceptionGroup)
    assert error.__cause__.exceptions == (error.primary_error, error.backlog_error)


def is_reachable(pair: Pair) -> bool:
    """Return whether the secondary of a pairing is known to be reachable."""
    reachable: bool = pair.bus.status().secondary_host.reachable
    return reachable


async def restored(pair: Pair) -> None:
    """Wait until a probe has reached the secondary."""
    await until(lambda: is_reachable(pair), "a probe of the secondary")


async def test_every_kind_of_send_raises_both_causes_and_sends_nothing(make: Make) -> None:
    pair = await make(backlog_cool_down=timedelta())
    paths = pair.queues(len(WAYS))
    senders = [pair.sender(path) for path in paths]
    await senders[0].send_messages(message("before"))
    pair.primary.stop()
    pair.secondary.stop()
    errors = await gather_all(
        error_of(way(sender)) for way, sender in zip(WAYS, senders, strict=True)
    )
    for error in errors:
        check(error)
    pair.primary.start()
    pair.secondary.start()
    assert [len(pair.arrived(path)) for path in paths] == [1, 0, 0, 0]
    assert pair.backlog() == []
    await restored(pair)
    await gather_all(sender.send_messages(message("after")) for sender in senders)
    assert [len(pair.backlog(path)) for path in paths] == [1, 1, 1, 1]


async def test_outage_of_the_secondary_alone_has_no_effect(make: Make) -> None:
    pair = await make()
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    pair.secondary.stop()
    await sender.send_messages(message())
    assert pair.state(queue) is PathStatus.HEALTHY
    pair.primary.stop()
    check(await error_of(sender.send_messages(message())))
    assert pair.state(queue) is PathStatus.FAILOVER
    # All queues are on the same host, so one attempt is sufficient.
    (event,) = pair.of(SecondaryUnavailable)
    assert classify_failure(event.cause) is FailureKind.UNAVAILABLE
    assert pair.of(BacklogQueuePulled) == []
    host = pair.bus.status().secondary_host
    assert not host.reachable
    assert host.cause is not None
    assert host.since == event.when
    # No namespace is called again while it is known to be down.
    again = await error_of(sender.send_messages(message()))
    check(again)


@pytest.mark.rule("S2a", "S4")
async def test_senders_use_the_secondary_as_soon_as_it_is_reachable_again(make: Make) -> None:
    pair = await make(backlog_cool_down=MINUTE)
    queue = pair.queue()
    senders = await pair.entered(*(queue for _ in range(6)))
    pair.primary.stop()
    await gather_all(sender.send_messages(message()) for sender in senders)
    pair.secondary.stop()  # while all senders have an open link to a backlog queue
    for error in await gather_all(error_of(sender.send_messages(message())) for sender in senders):
        check(error)
    pulled = len(pair.of(BacklogQueuePulled))
    assert pulled > 0
    assert not is_reachable(pair)
    pair.secondary.start()
    await restored(pair)
    await gather_all(sender.send_messages(message()) for sender in senders)
    assert len(pair.backlog()) == 12
    assert len(pair.of(SecondaryUnavailable)) == len(pair.of(SecondaryRestored)) > 0
    assert len(pair.of(BacklogQueueRestored)) >= pulled
    # A sender whose call did not use its link during the outage notices only now that it is lost.
    lost = len(pair.of(BacklogQueuePulled)) - pulled
    out = [queue for queue in pair.bus.status().backlog.values() if not queue.in_rotation]
    assert len(out) <= lost


@pytest.mark.rule("S14")
async def test_secondary_that_goes_down_later_has_exactly_the_acknowledged_messages(
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
        check(await error_of(send(number)))
    pair.secondary.start()
    await restored(pair)
    await send(4)
    assert acknowledged == ["1", "4"]
    assert sorted(transferred.message_id for transferred in pair.backlog()) == acknowledged


async def test_messages_go_to_the_remaining_backlog_queues(make: Make) -> None:
    pair = await make()
    queue = pair.queue()
    pair.fault("internal-error", queue)
    *lost, left = pair.backlog_queues
    faults = [pair.secondary.add_fault("internal-error", queue) for queue in lost]
    senders = [pair.sender(queue) for _ in range(6)]
    await gather_all(sender.send_messages(message()) for sender in senders)
    assert len(pair.in_queue(left)) == 6
    assert len(pair.of(BacklogQueuePulled)) == sum(fault.fired > 0 for fault in faults)


@pytest.mark.rule("S5", "S9", "S12")
async def test_list_with_an_unavailable_session_names_the_stored_messages(make: Make) -> None:
    pair = await make(failback="after-drain")
    queue = pair.queue(requires_session=True)
    path = pair.bus._pairing.path(queue)
    by_queue = {pair.bus._pairing.backlog.queue_of_session(path, str(n)): str(n) for n in range(50)}
    assert set(by_queue) == set(pair.backlog_queues)
    lost = pair.backlog_queues[1]
    sessions = [by_queue[queue] for queue in pair.backlog_queues]
    pair.fault("internal-error", queue)
    fault = pair.secondary.add_fault("internal-error", lost)
    sender = pair.sender(queue)
    error = await error_of(
        sender.send_messages([message(session_id=session) for session in sessions])
    )
    assert fault.fired == 1
    assert isinstance(error, PartlyStored)
    assert sorted((*error.stored, *error.not_sent)) == [0, 1, 2]
    assert 1 in error.not_sent
    assert error.primary_error is not None
    assert isinstance(error.backlog_error, ServiceBusError)
    stored = {transferred.session for transferred in pair.backlog()}
    assert stored == {sessions[place] for place in error.stored}


async def test_busy_backlog_raises_and_keeps_its_queues(make: Make) -> None:
    pair = await make()
    queue = pair.queue()
    pair.fault("internal-error", queue)
    fault = pair.secondary.add_fault("throttle")
    error = await error_of(pair.sender(queue).send_messages(message()))
    assert fault.fired == 1
    assert isinstance(error, SendUnavailable)
    assert isinstance(error.backlog_error, ServiceBusServerBusyError)
    assert all(queue.in_rotation for queue in pair.bus.status().backlog.values())
    assert pair.backlog() == []


@pytest.mark.rule("S3", "S5")
async def test_error_of_the_primary_is_raised_while_the_timer_runs(make: Make) -> None:
    pair = await make(failover_interval=MINUTE)
    queue = pair.queue()
    pair.primary.stop()
    pair.secondary.stop()
    error = await error_of(pair.sender(queue).send_messages(message()))
    assert isinstance(error, ServiceBusError)
    assert pair.state(queue) is PathStatus.SUSPECT


@pytest.mark.rule("S14")
async def test_closing_ends_while_both_namespaces_are_down(make: Make) -> None:
    pair = await make()
    queues = pair.queues(3)
    senders = await pair.entered(*queues)
    pair.primary.stop()
    await gather_all(sender.send_messages(message()) for sender in senders)
    pair.secondary.stop()
    for error in await gather_all(error_of(sender.send_messages(message())) for sender in senders):
        check(error)
    await asyncio.wait_for(pair.close(), DEADLINE_S)
    assert pair.bus.status().closed
    pair.secondary.start()
    assert len(pair.backlog()) == 3
