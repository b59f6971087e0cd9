"""The status of a pairing: counters and the last errors, with the real SDK and real sockets."""

import asyncio
import gc
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from pairbus import FailureKind, SendUnavailable
from pairbus.events import Event, PathStatus, Pinged, StateChanged
from tests.integration.pairs import (
    MINUTE,
    Make,
    Pair,
    error_of,
    gather_all,
    message,
    until,
)
from tests.integration.raw_peer import DEADLINE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEALTHY, FAILOVER = PathStatus.HEALTHY, PathStatus.FAILOVER
UNAVAILABLE, BUSY, CALLER = FailureKind.UNAVAILABLE, FailureKind.BUSY, FailureKind.CALLER
UNKNOWN = FailureKind.UNKNOWN
LATER = datetime(2999, 1, 1, tzinfo=UTC)
ROUNDS, IN_BATCH, IN_LIST = 10, 7, 3
IN_ROUND = 1 + IN_LIST + IN_BATCH


def counters(pair: Pair, path: str) -> Any:
    return pair.bus.status().paths[path].counters


async def send_rounds(sender: Any, rounds: int = ROUNDS) -> None:
    """Send single messages, lists and batches."""
    for _ in range(rounds):
        await sender.send_messages(message())
        await sender.send_messages([message() for _ in range(IN_LIST)])
        batch = await sender.create_message_batch()
        for _ in range(IN_BATCH):
            batch.add_message(message())
        await sender.send_messages(batch)


async def test_every_message_of_concurrent_senders_is_counted_once(make: Make) -> None:
    pair = await make()
    orders, bills = pair.queues(2)
    shared = pair.sender(orders)
    own = [pair.sender(path) for path in (orders, orders, bills)]

    await gather_all(send_rounds(sender) for sender in (*own, *[shared] * 4))

    status = pair.bus.status()
    assert status.paths[orders].counters.sent == 6 * ROUNDS * IN_ROUND == len(pair.arrived(orders))
    assert status.paths[bills].counters.sent == ROUNDS * IN_ROUND == len(pair.arrived(bills))
    assert status.counters.sent == 7 * ROUNDS * IN_ROUND
    assert status.counters.failed == dict.fromkeys(FailureKind, 0)
    assert (status.counters.stored, status.counters.pings, status.counters.throttled) == (0, 0, 0)
    assert (status.last_error, status.paths[orders].last_error) == (None, None)


async def test_messages_of_closed_and_deleted_senders_stay_counted(make: Make) -> None:
    pair = await make()
    queue = pair.queue()
    for _ in range(3):
        sender = pair.sender(queue)
        await send_rounds(sender, 1)
        await sender.close()
    assert counters(pair, queue).sent == 3 * IN_ROUND

    del sender
    pair._open.clear()

    def all_deleted() -> bool:
        gc.collect()
        return len(pair.bus._open_links) == 0

    # The thread that closed the last sender may keep it a moment longer.
    await until(all_deleted, "the senders to be deleted")

    assert counters(pair, queue).sent == 3 * IN_ROUND


async def test_scheduled_messages_are_counted(make: Make) -> None:
    pair = await make()
    healthy, failed = pair.queues(2)
    fault = pair.fault("disable", failed)
    for queue in (healthy, failed):
        await pair.sender(queue).schedule_messages([message(), message()], LATER)
        await pair.sender(queue).schedule_messages(message(), LATER)

    assert fault.fired
    assert (counters(pair, healthy).sent, counters(pair, healthy).stored) == (3, 0)
    assert (counters(pair, failed).sent, counters(pair, failed).stored) == (0, 3)


async def test_messages_in_the_backlog_are_counted_with_the_error_of_the_primary(
    make: Make,
) -> None:
    pair = await make(fake_clock=True, ping_jitter=0.0)
    queue = pair.queue()
    sender = pair.sender(queue)
    fault = pair.fault("internal-error", queue)
    before = datetime.now(UTC)
    await gather_all(send_rounds(sender, 2) for _ in range(3))
    after = datetime.now(UTC)

    status = pair.bus.status()
    path = status.paths[queue]
    assert fault.fired
    assert path.counters.stored == 6 * IN_ROUND == len(pair.backlog(queue))
    assert path.counters.sent == 0
    assert path.counters.failed == dict.fromkeys(FailureKind, 0)
    # Senders that failed at the same time have errors of their own.
    assert str(path.last_error.error) == str(path.cause)
    assert isinstance(path.last_error.error, ServiceBusError)
    assert path.last_error.kind is UNAVAILABLE
    assert before <= path.last_error.when <= after
    assert status.last_error == path.last_error

    pair.advance(60)
    await until(lambda: counters(pair, queue).pings == 1, "a ping")
    pair.remove_faults(fault)
    pair.advance(60)
    await pair.until_state(queue, HEALTHY)
    await send_rounds(sender, 1)

    path = pair.bus.status().paths[queue]
    assert (path.counters.pings, path.counters.pings_failed) == (2, 1)
    assert (path.counters.sent, path.counters.stored) == (IN_ROUND, 6 * IN_ROUND)


async def test_failed_messages_are_counted_by_the_kind_of_the_error(make: Make) -> None:
    pair = await make(failover_interval=MINUTE, fake_clock=True)
    busy, down, lost = pair.queues(3)
    senders = await pair.entered(busy, down, lost)
    faults = [
        pair.fault(kind, queue)
        for kind, queue in (("throttle", busy), ("internal-error", down), ("detach", lost))
    ]
    senders.append(pair.sender("nowhere"))
    three = [message(), message(), message()]
    for _ in range(2):
        errors = await gather_all(error_of(sender.send_messages(three)) for sender in senders)

    assert all(fault.fired == 2 for fault in faults)
    expected = {
        busy: (BUSY, ServiceBusServerBusyError),
        down: (UNAVAILABLE, ServiceBusError),
        lost: (UNKNOWN, ServiceBusConnectionError),
        "nowhere": (CALLER, ServiceBusAuthenticationError),
    }
    status = pair.bus.status()
    for (path, (kind, error_class)), error in zip(expected.items(), errors, strict=True):
        snapshot = status.paths[path]
        assert isinstance(error, error_class), path
        assert snapshot.counters.failed == {**dict.fromkeys(FailureKind, 0), kind: 6}, path
        assert snapshot.counters.throttled == (6 if kind is BUSY else 0), path
        assert (snapshot.last_error.error, snapshot.last_error.kind) == (error, kind), path
        assert snapshot.counters.sent == 0
    assert status.counters.failed == dict.fromkeys(FailureKind, 6)
    assert status.last_error in [path.last_error for path in status.paths.values()]
    assert status == pair.bus.status()  # nothing changes from call to call


@pytest.mark.rule("S13")
async def test_event_handler_can_use_the_pairing_and_send(make: Make) -> None:
    pair = await make(start=False)
    statuses: list[PathStatus] = []
    alerts: list[Any] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def handle(event: Event) -> None:
        pair.events.append(event)
        if isinstance(event, StateChanged) and event.path == queue:
            statuses.append(pair.bus.status().paths[queue].status)
            if pair.sync:  # the alert fails over as well, inside of the handler
                pair.inner(alerts[0]).send_messages(message("alert"))
                loop.call_soon_threadsafe(done.set)
            else:
                task = asyncio.get_running_loop().create_task(alerts[0].send_messages(message()))
                task.add_done_callback(lambda task: done.set())

    await pair.start(on_event=handle)
    queue, alert_queue = pair.queues(2)
    alerts.append(pair.sender(alert_queue))
    faults = [pair.fault("disable", path) for path in (queue, alert_queue)]

    await pair.sender(queue).send_messages(message())
    await asyncio.wait_for(done.wait(), DEADLINE_S)

    assert all(fault.fired for fault in faults)
    assert statuses == [FAILOVER]
    assert [event.path for event in pair.of(StateChanged)] == [queue, alert_queue]
    assert len(pair.backlog(queue)) == len(pair.backlog(alert_queue)) == 1


@pytest.mark.rule("S13")
async def test_events_of_concurrent_senders_form_a_chain(make: Make) -> None:
    pair = await make(fake_clock=True, ping_jitter=0.0)
    paths = pair.queues(3)
    senders = [pair.sender(path) for path in paths for _ in range(4)]
    for _ in range(3):
        faults = [pair.fault("disable", path) for path in paths]
        await gather_all(sender.send_messages(message()) for sender in senders)
        assert all(fault.fired for fault in faults)
        pair.remove_faults(*faults)
        pair.advance(60)
        for path in paths:
            await pair.until_state(path, HEALTHY)

    for path in paths:
        assert pair.changes(path) == [(HEALTHY, FAILOVER), (FAILOVER, HEALTHY)] * 3
    times = [event.when for event in pair.events]
    assert times == sorted(times)
    for index, event in enumerate(pair.events):
        if isinstance(event, StateChanged) and event.to_state is HEALTHY:
            ping = pair.events[index - 1]
            assert isinstance(ping, Pinged)
            assert (ping.path, ping.error) == (event.path, None)


async def test_messages_that_neither_namespace_accepts_are_counted_as_failed(make: Make) -> None:
    pair = await make()
    queue = pair.queue()
    sender = pair.sender(queue)
    await pair.fail_over(sender)
    fault = pair.secondary.add_fault("throttle", pair.backlog_queues[0])
    for other in pair.backlog_queues[1:]:
        pair.secondary.add_fault("throttle", other)

    error = await error_of(sender.send_messages([message(), message()]))

    assert isinstance(error, SendUnavailable)
    assert isinstance(error.backlog_error, ServiceBusServerBusyError)
    assert fault is not None
    path = pair.bus.status().paths[queue]
    assert path.counters.stored == 1
    assert path.counters.failed[UNAVAILABLE] == 2
    assert path.counters.throttled == 2
    assert (path.last_error.error, path.last_error.kind) == (error, UNAVAILABLE)
