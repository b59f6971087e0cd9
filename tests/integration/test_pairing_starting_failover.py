"""The start of failover, with the real SDK and real sockets."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from pairbus import FailureKind
from pairbus.emulator.faults import Fault
from pairbus.errors import SenderInUse
from pairbus.events import PathStatus, StateChanged
from pairbus.pairing.failures import classify_failure
from tests.integration.encoded_messages import payload
from tests.integration.pairs import (
    LISTENS,
    MINUTE,
    SECOND,
    Make,
    Pair,
    error_of,
    gather_all,
    message,
    until,
)
from tests.integration.raw_peer import DEADLINE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEALTHY, SUSPECT, FAILOVER = PathStatus.HEALTHY, PathStatus.SUSPECT, PathStatus.FAILOVER
LATER = datetime(2999, 1, 1, tzinfo=UTC)

UNAVAILABLE: dict[str, tuple[type[Exception], dict[str, Any]]] = {
    "cut": (ServiceBusConnectionError, {}),
    "lose-answer": (ServiceBusConnectionError, {}),
    "internal-error": (ServiceBusError, {}),
    "disable": (MessagingEntityDisabledError, {}),
    "detach": (ServiceBusConnectionError, {}),
    "refuse-tokens": (ServiceBusAuthenticationError, {"status": 503}),
    "ignore-tokens": (OperationTimeoutError, {}),
    "stop-reading": (OperationTimeoutError, {}),
    "answer-late": (OperationTimeoutError, {"seconds": 30}),
}
"""The faults of one entity that start failover, with the errors while the timer runs."""
TWICE = ("lose-answer", "answer-late")
"""The faults with which the primary still stores the message."""

Operation = Callable[[Any], Awaitable[Any]]


async def send_batch(sender: Any) -> None:
    batch = await sender.create_message_batch()
    batch.add_message(message("one"))
    batch.add_message(message("two"))
    await sender.send_messages(batch)


SENDS: dict[str, tuple[Operation, int]] = {
    "single": (lambda sender: sender.send_messages(message()), 1),
    "list": (lambda sender: sender.send_messages([message("one"), message("two")]), 2),
    "batch": (send_batch, 2),
    "schedule": (lambda sender: sender.schedule_messages(message(), LATER), 1),
    "schedule several": (
        lambda sender: sender.schedule_messages([message("one"), message("two")], LATER),
        2,
    ),
}
"""Every kind of send, with its number of messages."""


def unencodable() -> ServiceBusMessage:
    return message(application_properties={"x": object()})


async def faults_of(pair: Pair) -> dict[str, tuple[str, Fault, Any]]:
    """Return each fault of UNAVAILABLE on a separate queue, with a sender whose link is open; for
    token faults the link is not open."""
    queues = {kind: pair.queue() for kind in UNAVAILABLE}
    opened = [kind for kind in queues if not kind.endswith("-tokens")]
    senders = dict(zip(opened, await pair.entered(*map(queues.get, opened)), strict=True))
    return {
        kind: (
            queue,
            pair.fault(kind, queue, **UNAVAILABLE[kind][1]),
            senders[kind] if kind in senders else pair.sender(queue),
        )
        for kind, queue in queues.items()
    }


# Failures that start the timer.


@pytest.mark.rule("S2", "S3")
async def test_each_kind_of_outage_starts_the_timer_and_raises_its_error(make: Make) -> None:
    pair = await make(failover_interval=MINUTE, operation_timeout=5 * SECOND)
    faults = await faults_of(pair)
    errors = await gather_all(
        error_of(sender.send_messages(message())) for _, _, sender in faults.values()
    )
    for (kind, (queue, fault, _)), error in zip(faults.items(), errors, strict=True):
        assert fault.fired, kind
        assert isinstance(error, UNAVAILABLE[kind][0]), (kind, error)
        assert pair.state(queue) is SUSPECT, kind
        assert pair.bus.status().paths[queue].cause is error, kind
        assert pair.changes(queue) == [(HEALTHY, SUSPECT)], kind
    assert pair.backlog() == []


@pytest.mark.rule("S2", "S3")
async def test_each_kind_of_outage_fails_over_immediately_without_an_interval(make: Make) -> None:
    pair = await make(operation_timeout=12 * SECOND)
    faults = await faults_of(pair)
    await gather_all(sender.send_messages(message()) for _, _, sender in faults.values())
    for kind, (queue, fault, _) in faults.items():
        assert fault.fired, kind
        assert pair.state(queue) is FAILOVER, kind
        assert len(pair.backlog(queue)) == 1, kind
        assert len(pair.arrived(queue)) == (kind in TWICE), kind
        (change,) = [event for event in pair.of(StateChanged) if event.path == queue]
        assert isinstance(change.cause, UNAVAILABLE[kind][0]), kind


@pytest.mark.rule("S2", "S3")
async def test_refused_connections_start_the_timer_or_fail_over(make: Make) -> None:
    slow, fast = await gather_all((make(failover_interval=MINUTE), make(start=False)))
    await fast.start(primary=fast.connect(fast.primary.connection_string))
    queue, other = slow.queues(2)
    fault = slow.fault("refuse-connections")
    error, _ = await gather_all(
        (
            error_of(slow.sender(queue).send_messages(message())),
            fast.sender(other).send_messages(message()),
        )
    )
    assert fault.fired
    assert classify_failure(error) is FailureKind.UNAVAILABLE
    assert slow.state(queue) is SUSPECT
    assert fast.state(other) is FAILOVER
    assert [restored.path for restored in fast.backlog()] == [other]


@pytest.mark.rule("S2")
async def test_stopped_namespace_fails_over_every_kind_of_send(make: Make) -> None:
    pair = await make()
    targets = [(name, topic) for name in SENDS for topic in (False, True)]
    paths = [pair.topic() if topic else pair.queue() for _, topic in targets]
    pair.primary.stop()
    results = await gather_all(
        SENDS[name][0](pair.sender(path, topic=topic))
        for (name, topic), path in zip(targets, paths, strict=True)
    )
    for (name, topic), path, result in zip(targets, paths, results, strict=True):
        number = SENDS[name][1]
        assert pair.state(path) is FAILOVER, (name, topic)
        stored = pair.backlog(path)
        assert len(stored) == number, (name, topic)
        if name.startswith("schedule"):
            assert result == [None] * number
            assert all(item.scheduled_ms == LATER.timestamp() * 1000 for item in stored)


@pytest.mark.rule("S2", "S3")
async def test_every_kind_of_send_starts_the_timer_and_raises_the_error_of_the_sdk(
    make: Make,
) -> None:
    pair = await make(failover_interval=MINUTE)
    targets = [(name, topic) for name in SENDS for topic in (False, True)]
    paths = [pair.topic() if topic else pair.queue() for _, topic in targets]
    faults = [pair.fault("internal-error", path) for path in paths]
    errors = await gather_all(
        error_of(SENDS[name][0](pair.sender(path, topic=topic)))
        for (name, topic), path in zip(targets, paths, strict=True)
    )
    for target, path, fault, error in zip(targets, paths, faults, errors, strict=True):
        assert fault.fired, target
        assert isinstance(error, ServiceBusError), target
        assert pair.state(path) is SUSPECT, target
    assert pair.backlog() == []


@pytest.mark.unlimited
@pytest.mark.rule("S1", "S2")
async def test_entering_and_creating_a_batch_start_the_timer_and_do_not_fail(make: Make) -> None:
    slow, fast = await gather_all((make(failover_interval=MINUTE), make(start=False)))
    await fast.start(primary=fast.connect(fast.primary.connection_string))
    paths = slow.queues(4)
    slow.primary.stop()
    ways: list[Operation] = [
        lambda sender: sender.__aenter__(),
        lambda sender: sender.create_message_batch(),
    ]
    targets = list(zip((slow, slow, fast, fast), paths, ways * 2, strict=True))
    results = await gather_all(way(pair.sender(path)) for pair, path, way in targets)
    assert [pair.state(path) for pair, path, _ in targets] == [SUSPECT] * 2 + [FAILOVER] * 2
    assert [results[1].max_size_in_bytes, results[3].max_size_in_bytes] == [256 * 1024] * 2


@pytest.mark.rule("S3")
async def test_entering_and_creating_a_batch_do_not_stop_the_timer(make: Make) -> None:
    pair = await make(failover_interval=MINUTE, fake_clock=True)
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    fault = pair.fault("internal-error", queue)
    for _ in range(3):
        error = await error_of(send_batch(sender))
        assert isinstance(error, ServiceBusError)
        await pair.entered(queue)
        pair.advance(25)
    assert fault.fired == 3
    await pair.until_state(queue, FAILOVER)
    assert pair.changes(queue) == [(HEALTHY, SUSPECT), (SUSPECT, FAILOVER)]


# Failures that do not.


@pytest.mark.unlimited
@pytest.mark.rule("S2")
async def test_throttling_and_caller_errors_do_not_start_the_timer(make: Make) -> None:
    pair = await make()
    busy, unauthorized, gone, small, full, with_sessions, plain, odd, late = pair.queues(9)
    throttled = pair.fault("throttle", busy)
    refused = [
        pair.fault("refuse-tokens", path, status=status)
        for path, status in ((unauthorized, 401), (gone, 404))
    ]
    pair.delete(with_sessions)
    pair.primary.create_queue(with_sessions, requires_session=True)
    pair.delete(full)
    pair.primary.create_queue(full, max_size_in_megabytes=1)
    fill(pair, full)
    cases: list[tuple[str, Any, dict[str, Any], type[Exception]]] = [
        (busy, message(), {}, ServiceBusServerBusyError),
        (unauthorized, message(), {}, ServiceBusAuthenticationError),
        (gone, message(), {}, ServiceBusAuthenticationError),
        ("nowhere", message(), {}, ServiceBusAuthenticationError),
        (small, message("x" * 2**19), {}, MessageSizeExceededError),
        (full, message("x" * 100_000), {}, ServiceBusQuotaExceededError),
        (with_sessions, message(), {}, ServiceBusError),
        (plain, "not a message", {}, TypeError),
        (odd, unencodable(), {}, Exception),
        (late, message(), {"timeout": -1}, ValueError),
    ]
    errors = await gather_all(
        error_of(pair.sender(path).send_messages(what, **options))
        for path, what, options, _ in cases
    )
    assert throttled.fired
    assert all(fault.fired for fault in refused)
    for (path, _, _, kind), error in zip(cases, errors, strict=True):
        assert isinstance(error, kind), (path, error)
        assert pair.state(path) is HEALTHY, path
    assert pair.of(StateChanged) == []
    assert pair.backlog() == []


def fill(pair: Pair, path: str) -> None:
    """Fill a queue of one megabyte."""
    from pairbus.emulator.entities.message_codec import parse_message

    def send(core: Any) -> None:
        large = [parse_message(payload("x" * 250_000)) for _ in range(4)]
        for item in large:
            core.entities.router.send(core.entities.get(path), [item], core.now_ms())

    pair.primary.call(send)


@pytest.mark.rule("S2")
async def test_missing_send_right_raises_on_entering_and_sending(make: Make) -> None:
    pair = await make(start=False)
    text = pair.primary.connection_string_of(LISTENS.name, LISTENS.primary_key)
    await pair.start(primary=pair.connect(text))
    queue = pair.queue()
    errors = await gather_all(
        (
            error_of(pair.sender(queue).__aenter__()),
            error_of(pair.sender(queue).send_messages(message())),
        )
    )
    assert [type(error) for error in errors] == [ServiceBusAuthorizationError] * 2
    assert pair.of(StateChanged) == []


@pytest.mark.rule("S2")
async def test_messages_that_cannot_be_encoded_never_start_a_failover(make: Make) -> None:
    pair = await make()
    queue = pair.queue()
    good, bad = await pair.entered(queue, queue)
    batch = await bad.create_message_batch()
    broken: list[Operation] = [
        lambda sender: sender.send_messages(unencodable()),
        lambda sender: sender.send_messages([message(), unencodable()]),
        lambda sender: sender.schedule_messages(unencodable(), LATER),
        lambda sender: asyncio.to_thread(batch.add_message, unencodable()),
    ]
    for send in broken:
        assert await error_of(send(bad)) is not None
        assert pair.state(queue) is HEALTHY
        await good.send_messages(message())
    assert len(pair.arrived(queue)) == len(broken)
    assert pair.of(StateChanged) == []
    assert pair.backlog() == []


# Links that end for a hidden reason.


@pytest.mark.rule("S2")
async def test_detach_of_a_deleted_entity_is_no_failover(make: Make) -> None:
    pair = await make()
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    fault = pair.fault("detach", queue, count=1)
    sending = error_of(sender.send_messages(message()))
    # The entity is deleted between the send and the ping.
    pair.primary.call(lambda core: watch_detach(core, fault, queue))
    error = await sending
    assert fault.fired == 1
    assert isinstance(error, ServiceBusError)
    assert pair.state(queue) is HEALTHY
    assert pair.of(StateChanged) == []
    assert pair.backlog() == []


def watch_detach(core: Any, fault: Fault, path: str) -> None:
    """Delete an entity as soon as a fault has fired."""
    fire = core.faults.fire

    def fired(*args: Any) -> Any:
        fired_fault = fire(*args)
        if fired_fault is fault:
            core.entities.delete(path)
        return fired_fault

    core.faults.fire = fired


@pytest.mark.rule("S2")
async def test_detach_of_every_link_is_an_outage_and_a_single_one_is_not(make: Make) -> None:
    pair = await make()
    once, always = pair.queues(2)
    senders = await pair.entered(once, always)
    faults = [pair.fault("detach", once, count=1), pair.fault("detach", always)]
    errors = await gather_all(error_of(sender.send_messages(message())) for sender in senders)
    assert [fault.fired for fault in faults] == [1, 2]  # the message and the ping
    assert isinstance(errors[0], ServiceBusConnectionError)
    assert errors[1] is None
    assert [pair.state(once), pair.state(always)] == [HEALTHY, FAILOVER]
    assert [restored.path for restored in pair.backlog()] == [always]
    await senders[0].send_messages(message("again"))
    assert len(pair.arrived(once)) == 1


@pytest.mark.rule("S2")
async def test_expired_tokens_are_no_outage(make: Make) -> None:
    pair = await make()
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    fault = pair.fault("expire-tokens", queue, count=1)
    await until(lambda: fault.fired == 1, "the token to expire")
    error = await error_of(sender.send_messages(message()))
    assert isinstance(error, ServiceBusConnectionError)  # the SDK does not retry here
    await sender.send_messages(message())
    assert len(pair.arrived(queue)) == 1
    assert pair.of(StateChanged) == []
    assert pair.backlog() == []


@pytest.mark.rule("S2", "S3")
async def test_unknown_failure_is_probed_when_the_timer_fires(make: Make) -> None:
    pair = await make(failover_interval=MINUTE, fake_clock=True)
    passing, lasting = pair.queues(2)
    senders = await pair.entered(passing, lasting)
    faults = [pair.fault("detach", passing, count=1), pair.fault("detach", lasting)]
    errors = await gather_all(error_of(sender.send_messages(message())) for sender in senders)
    assert [fault.fired for fault in faults] == [1, 1]
    assert all(isinstance(error, ServiceBusConnectionError) for error in errors)
    assert [pair.state(passing), pair.state(lasting)] == [SUSPECT, SUSPECT]
    pair.advance(60)
    await pair.until_state(passing, HEALTHY)
    await pair.until_state(lasting, FAILOVER)
    assert pair.backlog() == []


# The timer.


@pytest.mark.rule("S3")
async def test_original_errors_are_raised_until_the_timer_fires(make: Make) -> None:
    pair = await make(failover_interval=MINUTE, fake_clock=True)
    queue = pair.queue()
    first, second = await pair.entered(queue, queue)
    fault = pair.fault("internal-error", queue)
    for seconds in (0, 30, 29.999):
        pair.advance(seconds)
        assert isinstance(await error_of(first.send_messages(message())), ServiceBusError)
        assert isinstance(await error_of(second.send_messages(message())), ServiceBusError)
        assert pair.state(queue) is SUSPECT
    assert fault.fired == 6
    cause = pair.bus.status().paths[queue].cause
    pair.advance(0.001)
    await pair.until_state(queue, FAILOVER)
    assert pair.bus.status().paths[queue].cause is cause
    await gather_all(sender.send_messages(message()) for sender in (first, second))
    assert fault.fired == 6
    assert len(pair.backlog(queue)) == 2
    assert pair.changes(queue) == [(HEALTHY, SUSPECT), (SUSPECT, FAILOVER)]


@pytest.mark.rule("S3")
async def test_success_of_another_sender_stops_the_timer_and_a_failure_starts_a_new_one(
    make: Make,
) -> None:
    pair = await make(failover_interval=MINUTE, fake_clock=True)
    queue = pair.queue()
    first, second = await pair.entered(queue, queue)
    fault = pair.fault("internal-error", queue, count=1)
    assert await error_of(first.send_messages(message())) is not None
    pair.advance(59)
    await second.send_messages(message("a success"))
    assert pair.state(queue) is HEALTHY
    again = pair.fault("internal-error", queue)
    assert await error_of(first.send_messages(message())) is not None
    pair.advance(59)
    assert await error_of(second.send_messages(message())) is not None
    assert (fault.fired, again.fired) == (1, 2)
    assert pair.state(queue) is SUSPECT
    pair.advance(1)
    await pair.until_state(queue, FAILOVER)
    assert pair.changes(queue) == [
        (HEALTHY, SUSPECT),
        (SUSPECT, HEALTHY),
        (HEALTHY, SUSPECT),
        (SUSPECT, FAILOVER),
    ]
    assert len(pair.arrived(queue)) == 1


@pytest.mark.rule("S3")
async def test_sends_go_to_the_backlog_after_an_interval_of_one_second(make: Make) -> None:
    pair = await make(failover_interval=SECOND)
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    pair.primary.stop()
    assert (
        classify_failure(await error_of(sender.send_messages(message()))) is FailureKind.UNAVAILABLE
    )
    await pair.until_state(queue, FAILOVER)
    await sender.send_messages(message("stored"))
    assert [restored.path for restored in pair.backlog()] == [queue]


# The option `failover_on_busy`.


@pytest.mark.rule("S2")
async def test_sustained_throttling_does_not_fail_over_by_default(make: Make) -> None:
    pair = await make(fake_clock=True)
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    fault = pair.fault("throttle", queue)
    for _ in range(3):
        error = await error_of(sender.send_messages(message()))
        assert isinstance(error, ServiceBusServerBusyError)
        pair.advance(3600)
    assert fault.fired == 3
    assert pair.state(queue) is HEALTHY
    assert pair.backlog() == []


async def test_sustained_throttling_fails_over_if_that_is_enabled(make: Make) -> None:
    pair = await make(fake_clock=True, ping_jitter=0.0, failover_on_busy=5 * MINUTE)
    queue, other = pair.queues(2)
    sender, fine = await pair.entered(queue, other)
    fault = pair.fault("throttle", queue)
    for seconds in (0, 200, 99):
        pair.advance(seconds)
        error = await error_of(sender.send_messages(message()))
        assert isinstance(error, ServiceBusServerBusyError)
        assert pair.state(queue) is HEALTHY
    pair.advance(1)
    await sender.send_messages(message("stored"))  # the call that notices succeeds
    assert fault.fired == 4
    assert pair.state(queue) is FAILOVER
    (change,) = [event for event in pair.of(StateChanged) if event.path == queue]
    assert isinstance(change.cause, ServiceBusServerBusyError)
    await sender.schedule_messages(message("scheduled"), LATER)
    await fine.send_messages(message())
    assert pair.state(other) is HEALTHY
    assert len(pair.backlog(queue)) == 2
    assert fault.fired == 4

    # A throttled ping is no success.
    pair.advance(60)
    await until(lambda: pair.bus.status().paths[queue].counters.pings_failed == 1, "a ping")
    assert fault.fired == 5
    assert pair.state(queue) is FAILOVER
    pair.remove_faults(fault)
    pair.advance(60)
    await pair.until_state(queue, HEALTHY)
    await sender.send_messages(message("to the primary"))
    assert len(pair.arrived(queue)) == 1


async def test_success_restarts_the_time_of_throttling(make: Make) -> None:
    pair = await make(fake_clock=True, failover_on_busy=MINUTE)
    queue = pair.queue()
    first, second = await pair.entered(queue, queue)
    await first.send_messages(message())  # before the throttling
    fault = pair.fault("throttle", queue, count=1)
    assert isinstance(await error_of(first.send_messages(message())), ServiceBusServerBusyError)
    pair.advance(59)
    await second.send_messages(message())
    pair.advance(1)
    again = pair.fault("throttle", queue)
    assert isinstance(await error_of(first.send_messages(message())), ServiceBusServerBusyError)
    assert pair.state(queue) is HEALTHY
    pair.advance(60)
    await first.send_messages(message())
    assert (fault.fired, again.fired) == (1, 2)
    assert pair.state(queue) is FAILOVER
    assert (len(pair.arrived(queue)), len(pair.backlog(queue))) == (2, 1)


async def test_without_a_time_every_kind_of_throttled_send_goes_to_the_backlog(make: Make) -> None:
    pair = await make(failover_interval=MINUTE, failover_on_busy=timedelta())
    paths = {name: pair.queue() for name in SENDS}
    faults = [pair.fault("throttle", path) for path in paths.values()]
    await gather_all(SENDS[name][0](pair.sender(path)) for name, path in paths.items())
    assert all(fault.fired == 1 for fault in faults)
    for name, path in paths.items():
        counters = pair.bus.status().paths[path].counters
        assert pair.state(path) is FAILOVER, name
        assert len(pair.backlog(path)) == counters.stored == counters.throttled == SENDS[name][1]
        assert counters.failed == dict.fromkeys(FailureKind, 0)


# The option `classify`.


@pytest.mark.rule("S2")
async def test_classify_option_replaces_the_default(make: Make) -> None:
    classified: list[BaseException] = []

    def classify(error: BaseException) -> FailureKind:
        classified.append(error)
        return (
            FailureKind.UNAVAILABLE
            if isinstance(error, ServiceBusServerBusyError)
            else FailureKind.CALLER
        )

    pair = await make(classify=classify)
    busy, broken = pair.queues(2)
    faults = [pair.fault("throttle", busy), pair.fault("internal-error", broken)]
    errors = await gather_all(
        error_of(pair.sender(path).send_messages(message())) for path in (busy, broken)
    )
    assert all(fault.fired for fault in faults)
    assert errors[0] is None
    assert isinstance(errors[1], ServiceBusError)
    assert [pair.state(busy), pair.state(broken)] == [FAILOVER, HEALTHY]
    assert [restored.path for restored in pair.backlog()] == [busy]
    assert {type(error) for error in classified} == {ServiceBusServerBusyError, ServiceBusError}


@pytest.mark.rule("S2")
async def test_retries_of_the_sdk_are_made_first(make: Make) -> None:
    pair = await make(sdk={"retry_total": 3})
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    fault = pair.fault("cut", queue, count=2)
    await sender.send_messages(message())
    assert fault.fired == 2
    await until(lambda: len(pair.arrived(queue)) == 1, "the message")
    assert pair.of(StateChanged) == []


# Waits that say nothing about the primary, and waits without a socket.


async def acquire_lock(pair: Pair, sender: Any) -> Any:
    """Keep the calls of a sender waiting until the lock is released. Return the lock."""
    lock = pair.inner(sender)._links.lock
    if pair.sync:
        lock.acquire()
    else:
        await lock.acquire()
    return lock


@pytest.mark.rule("S2a", "S3")
@pytest.mark.parametrize("interval", [timedelta(), MINUTE])
async def test_waiting_for_other_calls_of_a_sender_starts_no_failover(
    make: Make, interval: timedelta
) -> None:
    pair = await make(failover_interval=interval)
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    lock = await acquire_lock(pair, sender)
    try:
        error = await error_of(sender.send_messages(message(), timeout=0.2))
        assert type(error) is SenderInUse
        assert pair.state(queue) is PathStatus.HEALTHY
        assert pair.events == []
    finally:
        lock.release()  # the sender is closed, also if the test fails
    await sender.send_messages(message())
    assert len(pair.arrived(queue)) == 1
    assert pair.backlog() == []


@pytest.mark.rule("S2a", "S3")
async def test_call_whose_turn_comes_too_late_starts_no_failover(make: Make) -> None:
    pair = await make(failover_interval=MINUTE)
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    lock = await acquire_lock(pair, sender)
    try:
        call = asyncio.create_task(error_of(sender.send_messages(message(), timeout=0.5)))
        await asyncio.sleep(0.45)
    finally:
        lock.release()
    assert type(await call) is SenderInUse
    assert pair.state(queue) is PathStatus.HEALTHY
    assert pair.arrived(queue) == []
    await sender.send_messages(message())
    assert len(pair.arrived(queue)) == 1


@pytest.mark.rule("S2a")
async def test_credential_that_does_not_answer_does_not_block_a_call(make: Make) -> None:
    pair = await make(operation_timeout=8 * SECOND)
    queue = pair.queue()
    asked, answered = threading.Event(), threading.Event()

    def get_token(*scopes: str, **options: Any) -> Any:
        asked.set()
        answered.wait(DEADLINE_S)
        raise OSError("no token")

    async def get_token_async(*scopes: str, **options: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    pair.clients[0]._credential.get_token = get_token if pair.sync else get_token_async
    await pair.sender(queue).send_messages(message())
    assert asked.is_set()
    assert pair.state(queue) is PathStatus.FAILOVER
    assert len(pair.backlog(queue)) == 1
    answered.set()
