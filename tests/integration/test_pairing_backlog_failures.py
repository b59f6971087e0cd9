"""Answers of backlog queues on the wire: some pull the queue, others fail one call only."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from examples.engine.memory_server import MemoryServer
from pairbus import FailureKind, SendUnavailable
from pairbus.amqp.performatives import Modified, Released
from pairbus.errors import AmqpError, SendOutcome
from pairbus.events import BacklogQueuePulled, PathStatus
from pairbus.pairing.failures import (
    CONDITIONS,
    BacklogFailure,
    backlog_failure_of,
    classify_failure,
)
from tests.integration.pairs import MINUTE, Make, Pair, error_of, gather_all, message

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.rule("S4")]

PULLED, REJECTED = BacklogFailure.QUEUE_UNAVAILABLE, BacklogFailure.MESSAGE_REJECTED


def connection_string(server: MemoryServer) -> str:
    return (
        f"Endpoint=sb://localhost:{server.port};SharedAccessKeyName=n;SharedAccessKey=a2V5;"
        "UseDevelopmentEmulator=true"
    )


async def paired_with(server: MemoryServer, make: Make, **options: Any) -> tuple[Pair, str]:
    """Return a pairing with one backlog queue in a scripted server, and that queue."""
    pair = await make(start=False)
    secondary = pair.connect(connection_string(server))
    options = {"backlog_queue_count": 1, "backlog_cool_down": MINUTE} | options
    await pair.start(secondary=secondary, create_backlog=False, **options)
    return pair, pair.backlog_queues[0]


async def send_in_failover(pair: Pair, text: str = "x") -> tuple[Any, BaseException | None]:
    """Return a sender whose path fails over with its first message, and the error of that."""
    path = pair.queue()
    fault = pair.fault("internal-error", path)
    sender = pair.sender(path)
    error = await error_of(sender.send_messages(message(text, message_id=text)))
    assert fault.fired == 1
    assert pair.state(path) is PathStatus.FAILOVER
    return sender, error


async def test_every_condition_pulls_the_queue_or_fails_the_call(
    server: MemoryServer, make: Make
) -> None:
    """The scripted server rejects a message with each condition of the table. All connect at the
    same time, so their calls need more time than others on a slow machine."""

    async def attempt(condition: str) -> tuple[BacklogFailure, bool, BaseException]:
        pair, queue = await paired_with(server, make, operation_timeout=4 * MINUTE)
        rejection = AmqpError("an error of the test", condition=condition)
        server.call(lambda: server.rejections.update({queue: rejection}))
        _, error = await send_in_failover(pair)
        assert error is not None
        cause = error.backlog_error if isinstance(error, SendUnavailable) else error
        assert cause is not None
        failure = backlog_failure_of(cause, classify_failure(cause), link_open=True)
        if isinstance(error, SendUnavailable):
            assert [each.outcome for each in error.messages] == [SendOutcome.NOT_SENT]
        return failure, bool(pair.of(BacklogQueuePulled)), error

    attempts = await gather_all(attempt(condition) for condition in CONDITIONS)

    results = dict(zip(CONDITIONS, attempts, strict=True))
    assert len({received.address for received in server.received}) == len(CONDITIONS)
    for condition, (failure, pulled, error) in results.items():
        assert pulled == (failure is PULLED), condition
        assert isinstance(error, SendUnavailable) == (failure is not REJECTED), condition
    by_kind = {kind: {c for c in CONDITIONS if CONDITIONS[c] is kind} for kind in FailureKind}
    pulling = {condition for condition, (failure, _, _) in results.items() if failure is PULLED}
    assert pulling == by_kind[FailureKind.UNAVAILABLE] | {
        "amqp:resource-limit-exceeded",
        "amqp:resource-deleted",
        "amqp:unauthorized-access",
        "com.microsoft:auth-failed",
    }
    rejecting = {condition for condition, (failure, _, _) in results.items() if failure is REJECTED}
    assert rejecting == by_kind[FailureKind.CALLER] - pulling


@pytest.mark.rule("S5", "S11")
@pytest.mark.parametrize("outcome", [Released, Modified])
async def test_message_that_a_queue_releases_is_not_sent(
    server: MemoryServer, make: Make, outcome: Callable[[], Any]
) -> None:
    """The SDK waits for another answer, until the call times out."""
    pair, queue = await paired_with(server, make, operation_timeout=timedelta(seconds=5))
    server.call(lambda: server.outcomes.update({queue: outcome()}))

    _, error = await send_in_failover(pair)

    assert [received.address for received in server.received] == [queue]
    assert isinstance(error, SendUnavailable)
    assert [each.outcome for each in error.messages] == [SendOutcome.NOT_SENT]


@pytest.mark.parametrize(
    ("fault", "options", "cause"),
    [
        ("internal-error", {}, ServiceBusError),
        ("disable", {}, MessagingEntityDisabledError),
        ("refuse-tokens", {"status": 401}, ServiceBusAuthenticationError),
        ("refuse-tokens", {"status": 404}, ServiceBusAuthenticationError),
        ("refuse-tokens", {"status": 503}, ServiceBusAuthenticationError),
    ],
)
async def test_queue_that_does_not_take_messages_is_pulled_and_another_stores_the_message(
    make: Make, fault: str, options: dict[str, Any], cause: type[Exception]
) -> None:
    """A token that is refused with 404 is how the service reports a queue that is gone."""
    pair = await make(backlog_queue_count=2, backlog_cool_down=MINUTE)
    bad, good = pair.backlog_queues
    injected = pair.secondary.add_fault(fault, bad, **options)
    path = pair.queue()
    pair.fault("internal-error", path)

    for number in range(12):  # each sender chooses a queue at random
        await pair.sender(path).send_messages(message(str(number)))

    assert injected.fired
    (pulled,) = pair.of(BacklogQueuePulled)
    assert pulled.queue == bad
    assert isinstance(pulled.cause, cause)
    assert len(pair.in_queue(good)) == 12


@pytest.mark.rule("S4", "S5")
@pytest.mark.parametrize(
    ("fault", "options", "cause"),
    [
        ("throttle", {}, ServiceBusServerBusyError),
        ("refuse-tokens", {"status": 429}, ServiceBusAuthenticationError),
    ],
)
async def test_busy_queue_stays_and_no_other_is_tried(
    make: Make, fault: str, options: dict[str, Any], cause: type[Exception]
) -> None:
    pair = await make(backlog_cool_down=MINUTE)
    injected = pair.secondary.add_fault(fault, **options)

    sender, error = await send_in_failover(pair)

    assert injected.fired == 1
    assert isinstance(error, SendUnavailable)
    assert isinstance(error.backlog_error, cause)
    assert error.not_sent == (0,)
    assert pair.of(BacklogQueuePulled) == []
    pair.secondary.clear_faults()
    await sender.send_messages(message("again"))
    assert len(pair.backlog()) == 1


@pytest.mark.rule("S2")
async def test_token_for_the_primary_refused_with_404_is_raised_and_is_no_outage(
    make: Make,
) -> None:
    pair = await make()
    path = pair.queue()
    fault = pair.fault("refuse-tokens", path, status=404)

    error = await error_of(pair.sender(path).send_messages(message()))

    assert fault.fired
    assert isinstance(error, ServiceBusAuthenticationError)
    assert classify_failure(error) is FailureKind.CALLER
    assert pair.state(path) is PathStatus.HEALTHY
    assert pair.backlog() == []
