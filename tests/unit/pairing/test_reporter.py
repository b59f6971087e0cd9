"""Events, log lines and ledger records are in the order in which things happened."""

import asyncio
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from pairbus.events import (
    BacklogQueueMismatch,
    BacklogQueuePulled,
    BacklogQueueRestored,
    DrainStalled,
    Event,
    PathStatus,
    Pinged,
    StateChanged,
    SyphonStarted,
    SyphonStopped,
)
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.aio.driver import LoopDriver
from pairbus.pairing.backlog_settings import find_mismatches
from pairbus.pairing.health import InFlightSend
from pairbus.pairing.state import PairingState, PathState
from pairbus.servicebus.atom import QueueProperties

DOWN = ServiceBusConnectionError(message="down")
BROKEN = ServiceBusError("the queue is broken", condition=b"amqp:internal-error")
HEALTHY, FAILOVER = PathStatus.HEALTHY, PathStatus.FAILOVER
QUEUES = ("one/x-servicebus-transfer/0", "one/x-servicebus-transfer/1")
THREADS, ROUNDS = 8, 150
DEADLINE_S = 30.0
NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
WITH_SESSIONS = QueueProperties(
    path=QUEUES[0],
    status="Active",
    requires_session=True,
    requires_duplicate_detection=False,
    active_message_count=0,
    dead_letter_message_count=0,
    size_in_bytes=0,
)


def make_pairing(
    on_event: Callable[[Event], None] | None, *, options: Any = None, **arguments: Any
) -> PairingState:
    return PairingState(
        SendAvailabilityOptions(
            **{
                "failover_interval": timedelta(),
                "backlog_cool_down": timedelta(),
                "on_event": on_event,
                **(options or {}),
            }
        ),
        primary="one",
        secondary="two",
        queues=QUEUES,
        on_change=lambda: None,
        start_recovery=lambda path: None,
        random=Random(1),
        **arguments,
    )


def fail(pairing: PairingState, path: PathState) -> None:
    """Fail a send to the primary, which starts the failover."""
    action = pairing.send_failed(path, DOWN)
    if isinstance(action, InFlightSend):
        with action:
            pass


@contextmanager
def frequent_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def run_in_threads(work: Callable[[int], None]) -> None:
    """Call a function in many threads that begin at the same time."""
    barrier = threading.Barrier(THREADS)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        barrier.wait(DEADLINE_S)
        try:
            work(number)
        except BaseException as exc:
            errors.append(exc)
            raise

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    with frequent_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert errors == []
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.rule("S13")
def test_state_changes_of_many_threads_are_reported_as_a_chain(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="pairbus.pairing")
    events: list[Event] = []
    recorded: list[tuple[str, str, str, datetime]] = []
    pairing = make_pairing(
        events.append,
        record_change=lambda path, old, new, cause, when: recorded.append((path, old, new, when)),
    )
    paths = [pairing.path("orders"), pairing.path("bills")]

    def toggle(number: int) -> None:
        for count in range(ROUNDS):
            path = paths[count % 2]
            fail(pairing, path)
            if number % 2:
                pairing.mark_healthy(path)
            else:
                pairing.pinged(path, None, path.health.next_step())

    run_in_threads(toggle)

    for path in paths:
        changes = [e for e in events if isinstance(e, StateChanged) and e.path == path.name]
        assert len(changes) > 10
        states = [HEALTHY, *(change.to_state for change in changes)]
        assert [change.from_state for change in changes] == states[:-1]
        assert states[-1] is path.health.status
    changes = [event for event in events if isinstance(event, StateChanged)]
    assert recorded == [(e.path, e.from_state.value, e.to_state.value, e.when) for e in changes]
    logged = [record.getMessage().partition(";")[0] for record in caplog.records]
    assert logged == [f"{e.path}: {e.from_state.value} to {e.to_state.value}" for e in changes]
    times = [event.when for event in events]
    assert times == sorted(times)


@pytest.mark.rule("S13", "G2")
def test_ping_is_reported_before_the_change_that_it_causes() -> None:
    events: list[Event] = []
    pairing = make_pairing(events.append)
    path = pairing.path("orders")

    def recover(number: int) -> None:
        for _ in range(ROUNDS):
            fail(pairing, path)
            pairing.pinged(path, None, path.health.next_step())

    run_in_threads(recover)

    ends = [
        index
        for index, event in enumerate(events)
        if isinstance(event, StateChanged) and event.to_state is HEALTHY
    ]
    assert len(ends) > 10
    for index in ends:
        ping = events[index - 1]
        assert isinstance(ping, Pinged)
        assert ping.error is None


@pytest.mark.rule("S4", "S13")
def test_queue_is_reported_as_pulled_and_restored_in_turns() -> None:
    events: list[Event] = []
    pairing = make_pairing(events.append)

    def use_queues(number: int) -> None:
        for count in range(ROUNDS):
            claim = pairing.backlog.claim(QUEUES[count % 2])
            if claim is None:  # another thread tries the queue
                continue
            with claim:
                if (number + count // 2) % 2:
                    claim.succeeded()
                else:
                    claim.failed(BROKEN)

    run_in_threads(use_queues)

    for queue in QUEUES:
        kinds = [
            type(event)
            for event in events
            if isinstance(event, BacklogQueuePulled | BacklogQueueRestored) and event.queue == queue
        ]
        assert len(kinds) > 10
        expected = [BacklogQueuePulled, BacklogQueueRestored] * len(kinds)
        assert kinds == expected[: len(kinds)]


@pytest.mark.rule("S13")
def test_handler_that_blocks_delays_only_the_delivery() -> None:
    entered, leave = threading.Event(), threading.Event()
    events: list[Event] = []

    def handle(event: Event) -> None:
        if not events:
            entered.set()
            assert leave.wait(DEADLINE_S)
        events.append(event)

    pairing = make_pairing(handle)
    orders, bills = pairing.path("orders"), pairing.path("bills")
    blocked = threading.Thread(target=fail, args=(pairing, orders))
    blocked.start()
    assert entered.wait(DEADLINE_S)

    fail(pairing, bills)  # does not wait for the handler
    pairing.mark_healthy(bills)
    pairing.backlog.pull(QUEUES[0], DOWN)

    assert events == []
    assert pairing.status().paths["bills"].status is HEALTHY
    leave.set()
    blocked.join(DEADLINE_S)
    assert not blocked.is_alive()
    assert [type(event) for event in events] == [StateChanged] * 3 + [BacklogQueuePulled]
    assert [event.path for event in events[:3] if isinstance(event, StateChanged)] == [
        "orders",
        "bills",
        "bills",
    ]


@pytest.mark.rule("S13")
def test_event_of_a_handler_is_delivered_after_the_handler_has_returned() -> None:
    steps: list[str] = []

    def handle(event: Event) -> None:
        assert isinstance(event, StateChanged)
        name = event.to_state.value
        steps.append(f"{name} begins")
        if event.to_state is FAILOVER:
            assert pairing.status().paths["orders"].status is FAILOVER
            pairing.mark_healthy(path)
        steps.append(f"{name} ends")

    pairing = make_pairing(handle)
    path = pairing.path("orders")

    fail(pairing, path)

    assert steps == ["failover begins", "failover ends", "healthy begins", "healthy ends"]


@pytest.mark.rule("S13")
def test_times_of_events_and_status_are_those_of_the_change() -> None:
    clock = [NOON]
    entered, leave = threading.Event(), threading.Event()
    events: list[Event] = []

    def handle(event: Event) -> None:
        if not events:
            entered.set()
            assert leave.wait(DEADLINE_S)
        events.append(event)

    pairing = make_pairing(handle, wall_clock=lambda: clock[0])
    orders, bills = pairing.path("orders"), pairing.path("bills")
    blocked = threading.Thread(target=fail, args=(pairing, orders))
    blocked.start()
    assert entered.wait(DEADLINE_S)
    clock[0] += timedelta(seconds=1)
    fail(pairing, bills)
    clock[0] += timedelta(seconds=1)
    pairing.backlog.pull(QUEUES[0], DOWN)
    pairing.pinged(bills, DOWN, bills.health.next_step())
    clock[0] += timedelta(hours=1)  # the handler returns later
    leave.set()
    blocked.join(DEADLINE_S)

    seconds = [(event.when - NOON).total_seconds() for event in events]
    assert seconds == [0, 1, 2, 2]
    status = pairing.status()
    assert status.paths["orders"].since == NOON
    assert status.paths["bills"].since == NOON + timedelta(seconds=1)
    assert status.backlog[QUEUES[0]].since == NOON + timedelta(seconds=2)


def test_status_does_not_change_from_call_to_call() -> None:
    now, clock = [1000.0], [NOON]
    pairing = make_pairing(None, now=lambda: now[0], wall_clock=lambda: clock[0])
    fail(pairing, pairing.path("orders"))
    pairing.backlog.pull(QUEUES[0], DOWN)
    first = pairing.status()

    now[0] += 59.7
    clock[0] += timedelta(seconds=60)  # the two clocks differ
    pairing.backlog.pull(QUEUES[0], DOWN)  # a probe failed: it is out since the first failure

    assert pairing.status() == first
    assert first.backlog[QUEUES[0]].since == NOON


@pytest.mark.rule("S12", "S13")
def test_stalled_drain_has_the_time_at_which_it_was_noticed() -> None:
    now, clock = [1000.0], [NOON]
    events: list[Event] = []
    pairing = make_pairing(
        events.append,
        options={"failback": "after-drain"},
        now=lambda: now[0],
        wall_clock=lambda: clock[0],
    )
    path = pairing.path("orders")
    fail(pairing, path)
    pairing.pinged(path, None, path.health.next_step())
    now[0] += 600
    clock[0] += timedelta(seconds=600)

    pairing.peek_failed(path, DOWN)

    stalled = events[-1]
    assert isinstance(stalled, DrainStalled)
    assert (stalled.when, stalled.error) == (NOON + timedelta(seconds=600), DOWN)


def test_interrupted_handler_does_not_stop_the_delivery() -> None:
    events: list[Event] = []

    def handle(event: Event) -> None:
        events.append(event)
        if len(events) == 1:
            raise KeyboardInterrupt

    pairing = make_pairing(handle)
    path = pairing.path("orders")
    with pytest.raises(KeyboardInterrupt):
        fail(pairing, path)

    pairing.mark_healthy(path)

    assert [type(event) for event in events] == [StateChanged, StateChanged]


async def test_in_an_event_loop_handlers_run_in_its_thread() -> None:
    threads: list[int] = []
    driver = LoopDriver()
    pairing = make_pairing(
        lambda event: threads.append(threading.get_ident()), call_handler=driver.call_handler
    )
    path = pairing.path("orders")

    fail(pairing, path)
    assert len(threads) == 1  # at once
    await asyncio.to_thread(pairing.syphon_started)
    await asyncio.sleep(0)

    assert threads == [threading.get_ident()] * 2


def test_event_after_the_end_of_the_event_loop_is_delivered_in_the_thread_of_the_caller() -> None:
    events: list[Event] = []

    async def start() -> LoopDriver:
        return LoopDriver()

    drivers: list[LoopDriver] = []
    thread = threading.Thread(target=lambda: drivers.append(asyncio.run(start())))
    thread.start()
    thread.join(DEADLINE_S)
    pairing = make_pairing(events.append, call_handler=drivers[0].call_handler)

    pairing.syphon_started()

    assert [type(event) for event in events] == [SyphonStarted]


@pytest.mark.rule("S13")
def test_changes_are_queued_and_timed_while_the_lock_is_held() -> None:
    queued: list[bool] = []
    timed: list[bool] = []

    class CheckedQueue(deque[Callable[[], None]]):
        def append(self, report: Callable[[], None]) -> None:
            queued.append(is_locked())
            super().append(report)

    def is_locked() -> bool:
        """Return whether another thread cannot take the lock."""
        taken: list[bool] = []

        def take() -> None:
            taken.append(pairing.lock.acquire(blocking=False))
            if taken[0]:
                pairing.lock.release()

        thread = threading.Thread(target=take)
        thread.start()
        thread.join(DEADLINE_S)
        return taken == [False]

    def wall_clock() -> datetime:
        timed.append(is_locked())
        return NOON

    events: list[Event] = []
    pairing = make_pairing(
        events.append, options={"failback": "after-drain"}, wall_clock=wall_clock
    )
    pairing.reporter._reports = CheckedQueue()
    path = pairing.path("orders")
    fail(pairing, path)
    pairing.backlog.pull(QUEUES[0], DOWN)
    claim = pairing.backlog.claim(QUEUES[0])
    assert claim is not None
    with claim:
        claim.succeeded()
    pairing.pinged(path, None, path.health.next_step())
    pairing.peek_failed(path, DOWN)
    pairing.mark_healthy(path)
    pairing.backlog.report_mismatches(find_mismatches(WITH_SESSIONS, ordered=False))
    pairing.syphon_started()
    pairing.syphon_stopped(DOWN)

    assert [type(event) for event in events] == [
        StateChanged,
        BacklogQueuePulled,
        BacklogQueueRestored,
        Pinged,
        StateChanged,
        StateChanged,
        BacklogQueueMismatch,
        SyphonStarted,
        SyphonStopped,
    ]
    assert len(queued) > len(events)  # log lines, too
    assert all(queued)
    assert all(timed)


@pytest.mark.rule("S13")
def test_event_that_is_added_at_the_end_of_a_delivery_is_not_left_behind() -> None:
    class Turn:
        """A lock; while it is released for the first time, another thread reports an event."""

        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.acquire = self.lock.acquire
            self.released = 0

        def release(self) -> None:
            self.released += 1
            if self.released == 1:
                thread = threading.Thread(target=pairing.mark_healthy, args=(path,))
                thread.start()
                thread.join(DEADLINE_S)
                assert not thread.is_alive()
                assert len(events) == 1  # that thread found this one delivering
            self.lock.release()

    events: list[Event] = []
    pairing = make_pairing(events.append)
    path = pairing.path("orders")
    turn = Turn()
    pairing.reporter._delivering = turn  # type: ignore[assignment]

    fail(pairing, path)

    assert turn.released == 2
    assert [type(event) for event in events] == [StateChanged, StateChanged]


@pytest.mark.rule("O1")
def test_telemetry_gets_each_event_before_the_handler() -> None:
    calls: list[tuple[str, Event]] = []

    def break_down(event: Event) -> None:
        calls.append(("telemetry", event))
        raise OSError("disk full")

    pairing = make_pairing(lambda event: calls.append(("handler", event)), on_telemetry=break_down)
    fail(pairing, pairing.path("orders"))

    [(first, event), (second, same)] = calls
    assert (first, second) == ("telemetry", "handler")
    assert event is same
