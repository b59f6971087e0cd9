"""Forwarding and settlement, against an emulator, without Spark."""

import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from pairbus.amqp.batch import BATCH_FORMAT, batch_envelope, size_in_batch, split_batch
from pairbus.amqp.client import PendingDelivery, Sender
from pairbus.servicebus.limits import MAX_MESSAGE_KB_STANDARD, MAX_MESSAGE_SIZE_STANDARD
from pairbus.spark.destination_sender import MAX_BATCH_MESSAGES, MAX_IN_FLIGHT
from pairbus.spark.locks import MAX_MARGIN_MS
from tests.integration.backlog_queue import BacklogQueue
from tests.integration.emulator_data import stored
from tests.messages import id_of


@dataclass
class Posted:
    """The deliveries that destinations got."""

    message_counts: list[int] = field(default_factory=list)
    max_in_flight: int = 0


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> Posted:
    recorded = Posted()
    post = Sender.post

    def record(sender: Sender, payload: bytes, **options: Any) -> PendingDelivery:
        is_batch = options.get("message_format") == BATCH_FORMAT
        messages = split_batch(payload) if is_batch else [payload]
        assert id_of(payload) == id_of(messages[0])  # the envelope is that of the first message
        recorded.message_counts.append(len(messages))
        pending = post(sender, payload, **options)
        recorded.max_in_flight = max(recorded.max_in_flight, sender.in_flight)
        return pending

    monkeypatch.setattr(Sender, "post", record)
    return recorded


@pytest.mark.unlimited
def test_accepted_messages_are_completed(backlog: BacklogQueue, posted: Posted) -> None:
    path = backlog.create_queue()
    bodies = [str(n) for n in range(2 * MAX_BATCH_MESSAGES + 1)]

    outcome = backlog.forward(backlog.locked(path, bodies))

    assert posted.message_counts == [MAX_BATCH_MESSAGES, MAX_BATCH_MESSAGES, 1]
    assert outcome.moved[path] == len(bodies)
    assert (outcome.unsettled, outcome.errors) == (0, {})
    assert stored(backlog.namespace, path) == bodies[:99]
    assert backlog.message_count() == 0


@pytest.mark.unlimited
@pytest.mark.parametrize("limit_kb", [MAX_MESSAGE_KB_STANDARD, 2 * MAX_MESSAGE_KB_STANDARD])
@pytest.mark.parametrize(("excess", "expected"), [(0, [3, 2]), (1, [2, 2, 1])])
def test_batch_is_as_large_as_the_destination_accepts(
    backlog: BacklogQueue, posted: Posted, limit_kb: int, excess: int, expected: list[int]
) -> None:
    path = backlog.create_queue(max_message_size_in_kilobytes=limit_kb)
    [sample] = backlog.locked(path, ["x" * 1000])
    max_bytes = limit_kb * 1024 - len(batch_envelope(sample.payload))
    third = max_bytes // 3 - size_in_batch(len(sample.payload)) + 1000
    bodies = ["x" * third] * 5
    bodies[2] += "x" * (max_bytes % 3 + excess)

    outcome = backlog.forward(backlog.locked(path, bodies))

    assert posted.message_counts == expected
    assert (outcome.moved[path], outcome.dead_lettered) == (5, {})


@pytest.mark.parametrize(
    ("session", "max_in_flight"), [(None, MAX_IN_FLIGHT), ("s", 1)], ids=["no session", "session"]
)
def test_number_of_unanswered_deliveries_is_limited(
    backlog: BacklogQueue, posted: Posted, session: str | None, max_in_flight: int
) -> None:
    path = backlog.create_queue(max_message_size_in_kilobytes=8)
    fault = backlog.namespace.add_fault("answer-late", path, seconds=0.2)
    bodies = [str(n) * 5000 for n in range(MAX_IN_FLIGHT + 2)]

    outcome = backlog.forward(backlog.locked(path, bodies, session))
    backlog.namespace.clear_faults()

    assert fault.fired == len(posted.message_counts) == len(bodies)
    assert posted.max_in_flight == max_in_flight
    assert outcome.moved[path] == len(bodies)


@pytest.mark.unlimited
def test_message_that_is_too_large_is_dead_lettered_and_others_are_delivered(
    backlog: BacklogQueue,
) -> None:
    path = backlog.create_queue()
    bodies = ["a", "x" * MAX_MESSAGE_SIZE_STANDARD, "b"]

    outcome = backlog.forward(backlog.locked(path, bodies))

    assert (outcome.moved[path], outcome.dead_lettered[path]) == (2, 1)
    assert stored(backlog.namespace, path) == ["a", "b"]
    assert len(backlog.dead_letters()) == 1


def test_message_whose_lock_expires_soon_is_not_sent(backlog: BacklogQueue) -> None:
    path = backlog.create_queue()
    fresh, old = backlog.locked(path, ["x", "y"])
    locked_until = time.time_ns() // 1_000_000 + MAX_MARGIN_MS - 1000

    outcome = backlog.forward([fresh, old._replace(locked_until=locked_until)])

    assert (outcome.moved[path], outcome.left[path]) == (1, 1)
    assert stored(backlog.namespace, path) == ["x"]
    assert backlog.message_count() == 1


@pytest.mark.rule("S12", "Y2")
def test_no_message_overtakes_one_of_its_session_whose_lock_expires(backlog: BacklogQueue) -> None:
    path = backlog.create_queue()
    first, second, third = backlog.locked(path, ["0-a", "1-a", "2-a"], session="a")
    others = backlog.locked(path, ["0-b", "1-b"], session="b")
    [without_session] = backlog.locked(path, ["x"])
    expired = [message._replace(locked_until=0) for message in (without_session, second)]

    outcome = backlog.forward([first, *expired, *others, third, *backlog.locked(path, ["y"])])

    assert stored(backlog.namespace, path) == ["0-a", "0-b", "1-b", "y"]
    assert outcome.left[path] == 3
    left = [id_of(delivery.payload) for delivery in backlog.receive(9)]
    assert left == ["1-a", "2-a"]  # those of the session were abandoned
    assert backlog.message_count() == 3


def test_refused_message_is_dead_lettered_and_the_rest_of_its_batch_is_delivered(
    backlog: BacklogQueue,
) -> None:
    path = backlog.create_queue(requires_session=True)
    good = backlog.locked(path, ["a", "b"], session="s")
    [bad] = backlog.locked(path, ["no session"])

    outcome = backlog.forward([good[0], bad, good[1]])

    assert outcome.moved[path] == 2
    assert outcome.dead_lettered[path] == 1
    assert stored(backlog.namespace, path) == ["a", "b"]
    assert len(backlog.dead_letters()) == 1


def test_batch_of_two_with_a_refused_message_is_sent_in_parts(backlog: BacklogQueue) -> None:
    path = backlog.create_queue(requires_session=True)
    [bad] = backlog.locked(path, ["no session"])
    [good] = backlog.locked(path, ["a"], session="s")

    outcome = backlog.forward([bad, good])

    assert (outcome.moved[path], outcome.dead_lettered[path]) == (1, 1)
    assert stored(backlog.namespace, path) == ["a"]


@pytest.mark.rule("S12")
def test_transient_failure_while_a_batch_is_sent_in_parts_leaves_the_rest(
    backlog: BacklogQueue,
) -> None:
    path = backlog.create_queue(requires_session=True)
    good = backlog.locked(path, ["a", "a2", "b", "c", "d"], session="s")
    [bad] = backlog.locked(path, ["no session"])
    # The deliveries: the batch, its first half, "a", the message without a session with "a2", each
    # of them, and the second half.
    fault = backlog.namespace.add_fault("internal-error", path, after=6, count=1)

    outcome = backlog.forward([good[0], bad, *good[1:]])

    assert fault.fired == 1
    assert (outcome.moved[path], outcome.dead_lettered[path], outcome.left[path]) == (2, 1, 3)
    assert stored(backlog.namespace, path) == ["a", "a2"]
    assert backlog.message_count() == 3
    assert [id_of(delivery.payload) for delivery in backlog.receive(9)] == ["b", "c", "d"]


@pytest.mark.rule("Y5")
@pytest.mark.parametrize("has_destination", [True, False])
def test_message_with_a_problem_is_dead_lettered_with_its_reason(
    backlog: BacklogQueue, has_destination: bool
) -> None:
    path = backlog.create_queue()
    bad, good = backlog.locked(path, ["bad", "good"])
    destination = path if has_destination else None
    bad = bad._replace(destination=destination, problem="Reason", description="because")

    outcome = backlog.forward([bad, good])

    assert outcome.dead_lettered == {destination or "": 1}
    assert backlog.dead_letters() == [("Reason", "because")]
    assert stored(backlog.namespace, path) == ["good"]


def test_message_without_a_lock_cannot_be_dead_lettered_and_is_an_error(
    backlog: BacklogQueue,
) -> None:
    outcome = backlog.forward(backlog.locked("missing", ["x"]), settle=False)

    assert (outcome.dead_lettered, outcome.left["missing"]) == ({}, 1)
    assert outcome.errors["missing"].startswith("EntityNotFound: ")
    assert (backlog.message_count(), backlog.dead_letters()) == (1, [])


@pytest.mark.parametrize("fault", ["disable", "throttle", "internal-error", "cut"])
def test_transient_failure_leaves_messages_of_a_session_in_order(
    backlog: BacklogQueue, fault: str
) -> None:
    path = backlog.create_queue()
    messages = backlog.locked(path, ["a", "b"], session="s")
    injected = backlog.namespace.add_fault(fault, path)

    outcome = backlog.forward(messages)
    backlog.namespace.clear_faults()

    assert injected.fired > 0
    assert (outcome.moved[path], outcome.left[path]) == (0, 2)
    assert path in outcome.errors
    assert outcome.busy is (fault == "throttle")
    assert backlog.message_count() == 2
    # They were abandoned, so they can be received at once, in their order.
    assert [id_of(delivery.payload) for delivery in backlog.receive(9)] == ["a", "b"]


def test_lost_lock_is_counted_and_does_not_affect_others(backlog: BacklogQueue) -> None:
    path = backlog.create_queue()
    messages = backlog.locked(path, ["a", "b", "c"])
    messages[1] = messages[1]._replace(lock_token=b"\1" * 16)

    outcome = backlog.forward(messages)

    assert (outcome.moved[path], outcome.unsettled) == (3, 1)
    assert backlog.message_count() == 1


@pytest.mark.unlimited
def test_no_later_message_of_a_session_overtakes_one_that_failed(backlog: BacklogQueue) -> None:
    path = backlog.create_queue(requires_session=True)
    bodies = [str(n) for n in range(4 * MAX_BATCH_MESSAGES)]
    messages = backlog.locked(path, bodies, session="s")
    fault = backlog.namespace.add_fault("internal-error", path, after=1, count=1)

    outcome = backlog.forward(messages)
    backlog.namespace.clear_faults()

    assert fault.fired == 1
    assert outcome.moved[path] == MAX_BATCH_MESSAGES
    assert outcome.left[path] == 3 * MAX_BATCH_MESSAGES
    assert stored(backlog.namespace, path) == bodies[:99]


@pytest.mark.rule("Y4")
@pytest.mark.parametrize(
    ("kind", "others", "available"),
    [("disable", True, 0), ("disable", False, 2), ("throttle", True, 2)],
)
def test_messages_that_are_left_stay_locked_only_if_others_were_delivered(
    backlog: BacklogQueue, kind: str, others: bool, available: int
) -> None:
    """A destination that is busy accepts its messages soon: they are available at once."""
    down, up = backlog.create_queue(), backlog.create_queue()
    fault = backlog.namespace.add_fault(kind, down)
    messages = backlog.locked(down, ["a", "b"])
    if others:
        messages += backlog.locked(up, ["c"])

    outcome = backlog.forward(messages)

    backlog.namespace.call(lambda core: core.faults.remove(fault))
    assert fault.fired
    assert (outcome.left[down], outcome.moved[up]) == (2, int(others))
    assert len(backlog.receive(10)) == available
