"""Closing and faulting a pairing, and its events."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusError

from pairbus import PairingFaulted
from pairbus.amqp.sections import Message
from pairbus.errors import StateError
from pairbus.events import Event, PathStatus, Pinged, Probed, StateChanged
from tests.integration.pairs import MINUTE, SECOND, Make, Pair, error_of, gather_all, message, until
from tests.integration.raw_peer import DEADLINE_S
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEALTHY, SUSPECT, FAILOVER = PathStatus.HEALTHY, PathStatus.SUSPECT, PathStatus.FAILOVER
LATER = datetime(2999, 1, 1, tzinfo=UTC)

CALLS: list[Callable[[Any], Awaitable[Any]]] = [
    lambda sender: sender.send_messages(message()),
    lambda sender: sender.send_messages([message()]),
    lambda sender: sender.schedule_messages(message(), LATER),
    lambda sender: sender.cancel_scheduled_messages(1),
    lambda sender: sender.create_message_batch(),
    lambda sender: sender.__aenter__(),
]


def background_work(pair: Pair, path: str) -> list[Any]:
    """Return the background threads or tasks of a pairing."""
    if not pair.sync:
        return [task for task in pair.bus._driver._tasks if not task.done()]
    monitor = pair.bus._driver.deadlines._thread
    recoveries = [
        thread for thread in threading.enumerate() if thread.name.endswith(f"recovery of {path}")
    ]
    return recoveries + ([monitor] if monitor is not None and monitor.is_alive() else [])


@pytest.mark.rule("S14")
async def test_closing_stops_pings_and_background_work_and_can_be_repeated(make: Make) -> None:
    pair = await make(ping_primary_interval=SECOND)
    queue, other = pair.queues(2)
    senders = await pair.entered(queue, other)
    fault = pair.fault("internal-error", queue)
    await gather_all(sender.send_messages(message()) for sender in senders)
    await until(lambda: pair.of(Pinged), "a ping")
    assert background_work(pair, queue)
    await asyncio.wait_for(pair.close(), DEADLINE_S)
    await until(lambda: not background_work(pair, queue), "threads and tasks to end")
    fired, events = fault.fired, list(pair.events)
    await gather_all((pair.close(), pair.close()))
    assert pair.bus.status().closed
    assert (fault.fired, pair.events) == (fired, events)
    # Acknowledged messages are still there.
    assert len(pair.backlog(queue)) == 1
    assert len(pair.arrived(other)) == 1
    # Clients that were passed in stay open.
    sender = pair.clients[0].get_queue_sender(other)
    await pair.do(sender.send_messages, message())
    await pair.do(sender.close)
    assert len(pair.arrived(other)) == 2


@pytest.mark.rule("S14")
async def test_closed_pairing_refuses_every_call(make: Make) -> None:
    pair = await make()
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    await pair.close()
    for call in CALLS:
        error = await error_of(call(sender))
        assert isinstance(error, ValueError | StateError), error
        assert "pair" in str(error) or "shutdown" in str(error)
    for make_one in (pair.bus.get_queue_sender, pair.bus.get_topic_sender):
        with pytest.raises(StateError, match="closed"):
            make_one(queue)
    with pytest.raises(StateError, match="closed"):
        pair.bus.get_queue_receiver(queue)
    with pytest.raises(StateError, match="closed"):
        pair.bus.mark_path_healthy(queue)
    assert pair.arrived(queue) == []
    await sender.close()


@pytest.mark.rule("S14")
async def test_closing_waits_for_a_call_that_probes_the_primary(make: Make) -> None:
    pair = await make()
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    pair.fault("detach", queue, count=1)  # its reason is not known, so the primary is probed
    late = pair.fault("answer-late", queue, seconds=1.0)
    call = asyncio.ensure_future(error_of(sender.send_messages(message())))
    await until(lambda: late.fired, "the probe")
    assert not pair.of(Probed)

    await asyncio.wait_for(pair.close(), DEADLINE_S)

    assert pair.of(Probed)
    assert isinstance(await call, ServiceBusError)


@pytest.mark.rule("S14")
async def test_closing_during_sends_loses_no_acknowledged_message(make: Make) -> None:
    pair = await make()
    healthy, broken = pair.queues(2)
    pair.fault("internal-error", broken)
    acknowledged: dict[str, list[str]] = {healthy: [], broken: []}

    async def keep_sending(path: str, name: str) -> None:
        sender = pair.sender(path)
        for number in range(100_000):
            id_ = f"{name}-{number}"
            await sender.send_messages(message(message_id=id_))
            acknowledged[path].append(id_)

    tasks = [
        asyncio.ensure_future(error_of(keep_sending(path, str(number))))
        for number, path in enumerate((healthy, broken) * 2)
    ]
    await until(lambda: all(len(ids) > 20 for ids in acknowledged.values()), "some messages")
    await asyncio.wait_for(pair.close(), DEADLINE_S)
    errors = await asyncio.wait_for(gather_all(tasks), DEADLINE_S)
    assert all(error is not None for error in errors)
    arrived = {
        Message.parse(payload).read_properties().message_id for payload in pair.arrived(healthy)
    }
    assert set(acknowledged[healthy]) <= arrived
    assert set(acknowledged[broken]) <= {restored.message_id for restored in pair.backlog(broken)}


class Lock:
    """A lock that is held and counts its waiters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._waiters = 0  # the attribute of asyncio.Lock that the test uses

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._waiters += blocking
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


@pytest.mark.rule("S14")
async def test_call_that_waited_for_a_closed_sender_opens_no_link(make: Make) -> None:
    pair = await make()
    healthy, broken = pair.queues(2)
    senders = await pair.entered(healthy, broken)
    pair.fault("internal-error", broken)
    await senders[1].send_messages(message())
    for sender in senders:
        inner = sender.inner if pair.sync else sender
        if pair.sync:  # another call holds the lock
            inner._links.lock = Lock()
        else:
            await inner._links.lock.acquire()
        waiting = asyncio.ensure_future(error_of(sender.send_messages(message())))
        await until(lambda lock=inner._links.lock: lock._waiters, "the call to wait")
        inner._links.closed = True
        inner._links.lock.release()
        assert isinstance(await waiting, StateError)
    assert pair.arrived(healthy) == []
    assert len(pair.backlog(broken)) == 1


@pytest.mark.rule("S14", "Y7")
async def test_faulted_pairing_raises_its_cause_and_can_be_paired_again(make: Make) -> None:
    pair = await make()
    queue, down = pair.queues(2)
    sender, failing = await pair.entered(queue, down)
    pair.fault("internal-error", down)
    await failing.send_messages(message())
    unused = pair.sender(queue)
    cause = RuntimeError("the partner is gone")
    await asyncio.wait_for(pair.do(pair.bus.fault, cause), DEADLINE_S)
    await pair.do(pair.bus.fault, RuntimeError("another"))  # the first cause is kept
    for closed_sender in (sender, failing, unused):
        for call in CALLS:
            error = await error_of(call(closed_sender))
            assert isinstance(error, PairingFaulted)
            assert error.__cause__ is cause
    for make_one in (
        pair.bus.get_queue_sender,
        pair.bus.get_topic_sender,
        pair.bus.get_queue_receiver,
        pair.bus.mark_path_healthy,
    ):
        with pytest.raises(PairingFaulted) as caught_one:
            make_one(queue)
        assert caught_one.value.__cause__ is cause
    with pytest.raises(PairingFaulted):
        pair.bus.get_subscription_receiver(queue, "all")
    assert pair.bus.status().fault is cause
    await sender.close()
    await pair.close()
    await until(lambda: not background_work(pair, down), "threads and tasks to end")
    again = await make(start=False)
    await again.start(primary=pair.clients[0])
    await again.sender(queue).send_messages(message())
    assert len(pair.arrived(queue)) == 1


@pytest.mark.rule("S14", "Y7")
@pytest.mark.parametrize("by", ["pairing", "application"])
async def test_many_senders_of_a_frozen_primary_are_closed_at_the_same_time(
    make: Make, by: str
) -> None:
    pair = await make(failover_interval=MINUTE, operation_timeout=6 * SECOND)
    queue = pair.queue()
    senders = await pair.entered(*(queue for _ in range(4)))
    fault = pair.fault("stop-reading", queue)
    waiting = [
        asyncio.ensure_future(error_of(sender.send_messages(message()))) for sender in senders
    ]
    await until(lambda: fault.fired == 4, "the host to freeze")
    if by == "pairing":
        await asyncio.wait_for(pair.close(), DEADLINE_S)
    else:  # it closes its own client of the SDK, which waits for the sends in progress
        await asyncio.wait_for(pair.do(pair.clients[0].close), DEADLINE_S)
    assert pair.bus.status().closed
    for error in await gather_all(waiting):
        assert isinstance(error, ServiceBusError | ValueError | StateError)


@pytest.mark.rule("S14")
async def test_many_senders_are_closed_side_by_side(make: Make) -> None:
    pair = await make()
    queue = pair.queue()
    await pair.entered(*(queue for _ in range(20)))
    closing, most = 0, 0
    lock = threading.Lock()

    def count(change: int) -> None:
        nonlocal closing, most
        with lock:
            closing += change
            most = max(most, closing)

    def slow(close: Any) -> Any:
        """Return a `close` that begins after all others have begun, or at a deadline."""

        async def close_async() -> None:
            count(1)
            await until(lambda: most >= 20, "the other senders")
            await close()

        def close_sync() -> None:
            count(1)
            wait_until(lambda: most >= 20, "the other senders", deadline_s=DEADLINE_S)
            close()

        return close_sync if pair.sync else close_async

    for links in pair.bus._open_links:
        sender = links.primary_sender()
        sender.close = slow(sender.close)
    await asyncio.wait_for(pair.close(), DEADLINE_S)
    assert most >= 20


# Events.


@pytest.mark.rule("S13")
async def test_every_state_change_is_an_event_with_path_cause_and_time(make: Make) -> None:
    before = datetime.now(UTC)
    pair = await make(failover_interval=MINUTE, fake_clock=True, ping_jitter=0.0)
    queue = pair.queue()
    fault = pair.fault("internal-error", queue)
    sender = pair.sender(queue)
    error = await error_of(sender.send_messages(message()))
    pair.advance(60)
    await pair.until_state(queue, FAILOVER)
    await sender.send_messages(message())
    pair.remove_faults(fault)
    pair.advance(60)
    await pair.until_state(queue, HEALTHY)
    suspect, failover, ping, healthy = pair.events
    assert isinstance(ping, Pinged)
    assert (ping.path, ping.error, ping.refused) == (queue, None, False)
    reported = [
        (event.path, event.from_state, event.to_state, event.cause)
        for event in (suspect, failover, healthy)
        if isinstance(event, StateChanged)
    ]
    assert reported == [
        (queue, HEALTHY, SUSPECT, error),
        (queue, SUSPECT, FAILOVER, error),
        (queue, FAILOVER, HEALTHY, None),
    ]
    times = [event.when for event in pair.events]
    assert times == sorted(times)
    assert all(before <= when <= datetime.now(UTC) for when in times)


@pytest.mark.rule("S13")
async def test_failing_event_handler_fails_no_send(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Event] = []

    def hook(event: Event) -> None:
        seen.append(event)
        raise RuntimeError("a hook of poor quality")

    pair = await make(on_event=hook)
    queue = pair.queue()
    pair.fault("internal-error", queue)
    await pair.sender(queue).send_messages(message())
    assert len(seen) == 1
    assert len(pair.backlog(queue)) == 1
    assert "a hook of poor quality" in caplog.text
