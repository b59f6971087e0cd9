"""An error of a send tells the truth about each message: stored, not sent, or unknown."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from pairbus import FailureKind, MessageTooLargeForBacklog, PartlyStored, SendUnavailable
from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.errors import SendOutcome
from pairbus.events import PathStatus
from pairbus.pairing.failures import classify_failure
from tests.integration.pairs import QUICK, Make, Pair, error_of, id_of, message

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.rule("S5", "S11")]

KB = 1024
LATER = datetime(2999, 1, 1, tzinfo=UTC)
GUARANTEES = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "guarantees.md"


async def send_list(sender: Any) -> None:
    await sender.send_messages([message("x", message_id=name) for name in ("a", "b", "c")])


async def send_batch(sender: Any) -> None:
    batch = await sender.create_message_batch()
    for name in ("a", "b", "c"):
        batch.add_message(message("x", message_id=name))
    await sender.send_messages(batch)


WAYS: dict[str, tuple[Callable[[Any], Awaitable[Any]], list[str]]] = {
    "single": (lambda sender: sender.send_messages(message("x", message_id="a")), ["a"]),
    "list": (send_list, ["a", "b", "c"]),
    "batch": (send_batch, ["a", "b", "c"]),
    "schedule": (
        lambda sender: sender.schedule_messages(message("x", message_id="a"), LATER),
        ["a"],
    ),
}
"""The ways to send messages, and the ids of the messages."""
each_way = pytest.mark.parametrize("way", WAYS)


def outcomes_of(error: BaseException | None) -> dict[Any, SendOutcome]:
    """Return the outcomes by message id."""
    assert isinstance(error, SendUnavailable)
    assert [each.position for each in error.messages] == list(range(len(error.messages)))
    return {each.message_id: each.outcome for each in error.messages}


def ids_in_backlog(pair: Pair) -> list[Any]:
    return [restored.message_id for restored in pair.backlog()]


def ids_in(pair: Pair, path: str) -> list[Any]:
    return [id_of(payload) for payload in pair.arrived(path)]


@each_way
async def test_lost_answers_of_the_backlog_are_unknown(make: Make, way: str) -> None:
    pair = await make()
    send, ids = WAYS[way]
    sender = pair.sender(pair.queue())
    pair.primary.stop()
    fault = pair.secondary.add_fault("lose-answer")

    error = await error_of(send(sender))

    assert fault.fired >= 3  # every queue was tried
    assert outcomes_of(error) == dict.fromkeys(ids, SendOutcome.UNKNOWN)
    stored = ids_in_backlog(pair)
    assert len(stored) == len(ids) * fault.fired
    assert set(stored) == set(ids)
    assert "was not sent" not in str(error)
    assert "Nothing was sent" not in str(error)


@each_way
async def test_lost_answer_of_the_primary_is_unknown_if_the_backlog_is_down(
    make: Make, way: str
) -> None:
    pair = await make()
    send, ids = WAYS[way]
    path = pair.queue()
    sender = pair.sender(path)
    pair.secondary.stop()
    fault = pair.fault("lose-answer", path)

    error = await error_of(send(sender))

    assert fault.fired == 1
    assert pair.state(path) is PathStatus.FAILOVER
    assert outcomes_of(error) == dict.fromkeys(ids, SendOutcome.UNKNOWN)
    assert ids_in(pair, path) == ids


@each_way
async def test_nothing_is_unknown_if_both_namespaces_refuse_connections(
    make: Make, way: str
) -> None:
    pair = await make()
    send, ids = WAYS[way]
    path = pair.queue()
    sender = pair.sender(path)
    faults = [space.add_fault("refuse-connections") for space in (pair.primary, pair.secondary)]

    error = await error_of(send(sender))

    assert all(fault.fired for fault in faults)
    assert type(error) is SendUnavailable
    assert outcomes_of(error) == dict.fromkeys(ids, SendOutcome.NOT_SENT)
    assert error.not_sent == tuple(range(len(ids)))
    assert ("Nothing was sent" if len(ids) > 1 else "was not sent") in str(error)
    assert (ids_in(pair, path), ids_in_backlog(pair)) == ([], [])


@each_way
@pytest.mark.parametrize("kind", ["internal-error", "throttle"])
async def test_message_that_the_backlog_answers_with_an_error_is_not_sent(
    make: Make, way: str, kind: str
) -> None:
    pair = await make()
    send, ids = WAYS[way]
    path = pair.queue()
    primary, secondary = pair.fault("internal-error", path), pair.secondary.add_fault(kind)

    error = await error_of(send(pair.sender(path)))

    assert primary.fired == 1
    assert secondary.fired
    assert outcomes_of(error) == dict.fromkeys(ids, SendOutcome.NOT_SENT)
    assert (ids_in(pair, path), ids_in_backlog(pair)) == ([], [])


@pytest.mark.parametrize("fault", ["cut", "detach"])
async def test_transfer_without_an_answer_is_unknown_also_if_nothing_was_stored(
    make: Make, fault: str
) -> None:
    pair = await make(backlog_queue_count=1)
    path = pair.queue()
    primary = pair.fault("internal-error", path)
    secondary = pair.secondary.add_fault(fault)

    error = await error_of(pair.sender(path).send_messages(message(message_id="a")))

    assert (primary.fired, secondary.fired > 0) == (1, True)
    assert outcomes_of(error) == {"a": SendOutcome.UNKNOWN}
    assert "'a'" in str(error)


@pytest.mark.parametrize("namespace", ["primary", "secondary"])
async def test_attempt_that_was_lost_is_unknown_although_the_retry_was_refused(
    make: Make, namespace: str
) -> None:
    """The SDK retries by itself: the error that it raises is that of the last attempt."""
    pair = await make(sdk=QUICK | {"retry_total": 1}, backlog_queue_count=1)
    path = pair.queue()
    if namespace == "primary":
        (sender,) = await pair.entered(path)
        lossy, other = pair.primary, pair.secondary
    else:
        sender = pair.sender(path)
        await pair.fail_over(sender)  # opens the link to the backlog queue
        lossy, other = pair.secondary, pair.primary
    other.stop()
    lost = lossy.add_fault("lose-answer", count=1)
    refused = lossy.add_fault("refuse-connections")

    error = await error_of(sender.send_messages(message(message_id="a")))

    assert (lost.fired, refused.fired > 0) == (1, True)
    assert outcomes_of(error) == {"a": SendOutcome.UNKNOWN}
    assert (ids_in(pair, path) if namespace == "primary" else ids_in_backlog(pair))[-1] == "a"


@pytest.mark.rule("S4", "S11")
async def test_lost_answer_is_tried_on_another_queue_with_the_same_id(make: Make) -> None:
    pair = await make(backlog_queue_count=2)
    path = pair.queue()
    pair.fault("internal-error", path)
    sender = pair.sender(path)
    await sender.send_messages(message("first"))
    (mine,) = pair.bus.status().paths[path].backlog_queues
    (other,) = set(pair.backlog_queues) - {mine}
    fault = pair.secondary.add_fault("lose-answer", mine)

    await sender.send_messages(AmqpAnnotatedMessage(data_body=b"without an id"))

    assert fault.fired
    (restored,) = pair.in_queue(other)
    copies = [each.message_id for each in pair.in_queue(mine)[1:]]
    assert copies == [restored.message_id] * fault.fired
    assert restored.message_id is not None


@pytest.mark.unlimited
@pytest.mark.rule("S9", "S11")
@pytest.mark.parametrize("schedule", [False, True])
async def test_split_batch_has_the_outcome_of_each_part(make: Make, schedule: bool) -> None:
    pair = await make(backlog_queue_count=1)
    sender = pair.sender(pair.queue())
    await pair.fail_over(sender)
    fault = pair.secondary.add_fault("lose-answer", after=1)
    messages = [message("x" * 100 * KB, message_id=f"id-{number}") for number in range(6)]

    send = sender.schedule_messages(messages, LATER) if schedule else sender.send_messages(messages)
    error = await error_of(send)

    assert fault.fired
    assert isinstance(error, PartlyStored)
    assert (error.stored, error.unknown, error.not_sent) == ((0, 1), (2, 3), (4, 5))
    assert [each.message_id for each in error.messages] == [f"id-{number}" for number in range(6)]
    assert set(ids_in_backlog(pair)[1:]) == {f"id-{number}" for number in range(4)}
    assert str(error).startswith(
        f"2 of 6 messages for {sender.entity_name!r} are known to be stored:"
    )
    assert "Stored: positions 0, 1. Not sent: positions 4, 5." in str(error)
    assert "Not known whether sent: positions 2 ('id-2'), 3 ('id-3')." in str(error)


@pytest.mark.unlimited
@pytest.mark.rule("S8", "S11")
async def test_message_too_large_for_the_backlog_is_unknown_if_the_primary_may_have_it(
    make: Make,
) -> None:
    pair = await make()
    path = pair.queue()
    fault = pair.fault("lose-answer", path)
    large = message("x" * (256 * KB - 50), message_id="large")

    error = await error_of(pair.sender(path).send_messages(large))

    assert fault.fired == 1
    assert outcomes_of(error) == {"large": SendOutcome.UNKNOWN}
    assert isinstance(error.backlog_error, MessageTooLargeForBacklog)
    assert isinstance(error.primary_error, ServiceBusError)
    assert ids_in(pair, path) == ["large"]


@pytest.mark.rule("S4", "S11")
async def test_message_that_the_backlog_rejects_is_unknown_if_the_primary_may_have_it(
    make: Make,
) -> None:
    pair = await make(start=False)
    queues = [f"{pair.name}/x-servicebus-transfer/{index}" for index in range(2)]
    for queue in queues:  # the service refuses a message without a session
        pair.secondary.create_queue(queue, requires_session=True)
    await pair.start(backlog_queue_count=2)
    path = pair.queue()
    fault = pair.fault("lose-answer", path)

    error = await error_of(pair.sender(path).send_messages(message(message_id="a")))

    assert fault.fired == 1
    assert outcomes_of(error) == {"a": SendOutcome.UNKNOWN}
    assert isinstance(error.backlog_error, ServiceBusError)
    assert classify_failure(error.backlog_error) is FailureKind.CALLER
    assert all(queue.in_rotation for queue in pair.bus.status().backlog.values())
    assert (ids_in(pair, path), ids_in_backlog(pair)) == (["a"], [])


async def test_id_that_the_paired_sender_assigned_is_in_the_error(make: Make) -> None:
    pair = await make()
    path = pair.queue()
    pair.secondary.stop()
    fault = pair.fault("lose-answer", path)

    error = await error_of(
        pair.sender(path).send_messages(AmqpAnnotatedMessage(data_body=b"without an id"))
    )

    assert fault.fired == 1
    (stored,) = ids_in(pair, path)
    assert stored is not None
    assert outcomes_of(error) == {stored: SendOutcome.UNKNOWN}


@pytest.mark.rule("S1", "S3")
async def test_error_of_the_sdk_is_raised_unchanged_before_the_failover(make: Make) -> None:
    pair = await make(failover_interval=timedelta(minutes=1))
    path = pair.queue()
    fault = pair.fault("lose-answer", path, count=1)

    error = await error_of(pair.sender(path).send_messages(message(message_id="a")))

    assert fault.fired == 1
    assert isinstance(error, ServiceBusConnectionError)
    assert ids_in(pair, path) == ["a"]


# Sending again.


def example() -> str:
    """Return the example of docs/explanation/guarantees.md."""
    (text,) = re.findall(r"```python\n(.*?)```", GUARANTEES.read_text(encoding="utf-8"), re.DOTALL)
    return str(text)


def example_function(pair: Pair, attempts: list[BaseException]) -> Callable[[Any, Any], Any]:
    """Return the function of the example, for the flavour of the pair. Its pauses are short, and
    its errors are recorded."""
    source = example()
    if not pair.sync:
        source = source.replace("def send_all", "async def send_all")
        source = source.replace("sender.send_messages", "await sender.send_messages")
        source = source.replace("time.sleep", "await time.sleep")
    names: dict[str, Any] = {}
    exec(compile(source, GUARANTEES, "exec"), names)
    pause: Any = time.sleep if pair.sync else asyncio.sleep
    names["time"] = SimpleNamespace(sleep=lambda seconds: pause(0.01))
    names["print"] = attempts.append
    return names["send_all"]


@pytest.mark.rule("S11", "S9")
async def test_example_of_the_docs_gives_one_copy_of_each_message(make: Make) -> None:
    """Answers of the primary and then of the backlog are lost; the entity detects duplicates."""
    pair = await make(backlog_cool_down=timedelta())
    path = pair.queue(requires_duplicate_detection=True)
    sender = pair.sender(path)
    errors: list[Any] = []
    send_all = example_function(pair, errors)
    lost_by_primary = pair.fault("lose-answer", path, count=1)
    lost_by_backlog = pair.secondary.add_fault("lose-answer", count=8)
    messages = [message("x" * 100 * KB, message_id=f"id-{number}") for number in range(2)]

    await pair.do(send_all, pair.inner(sender), messages)

    assert (lost_by_primary.fired, lost_by_backlog.fired) == (1, 8)
    # Calls fail without sending anything while the secondary is known to be down.
    assert any(error.unknown for error in errors)
    assert ids_in(pair, path) == ["id-0", "id-1"]
    assert len(ids_in_backlog(pair)) > 2
    await asyncio.to_thread(drain, pair)
    assert ids_in(pair, path) == ["id-0", "id-1"]


def drain(pair: Pair) -> None:
    """Send the restored messages of the backlog to their destinations."""
    options = ClientOptions.from_connection_string(pair.primary.connection_string)
    with Client(options) as client:
        for restored in pair.backlog():
            Sender(client, restored.path).send(restored.payload)
