"""Random faults of the primary and of each backlog queue, against the real operations.

An error never says that a message was not sent if a queue accepted it."""

import asyncio
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import hypothesis.strategies as st
import pytest
from azure.servicebus import ServiceBusMessage
from hypothesis import given

from pairbus.errors import (
    MessageTooLargeForBacklog,
    PairingFaulted,
    PartlyStored,
    SendOutcome,
    SendUnavailable,
    StateError,
)
from pairbus.pairing import operations
from pairbus.pairing.effects import CallTimedOut, Operation
from tests.unit.pairing.test_operations import (
    BROKEN,
    BUSY,
    DOWN,
    FULL,
    GONE,
    HIDDEN,
    LARGE,
    QUEUES,
    REJECTED,
    WHEN,
    FakeSender,
    PairingHarness,
    ids,
    payloads_of,
)

pytestmark = pytest.mark.rule("S5", "S9", "S11")

ERRORS = [BROKEN, BUSY, DOWN, FULL, GONE, HIDDEN, LARGE, REJECTED, CallTimedOut(message="late")]
ERRORS += [TypeError("invalid")]
KB = 1024
HEALTHY = ("ok", DOWN)

attempts = st.tuples(
    st.sampled_from(["ok", "not opened", "answered", "lost", "stored"]), st.sampled_from(ERRORS)
)
"""The result of one attempt: accepted; or an error, after the link did not open, after the service
answered, or without an answer, when the messages were lost or stored."""


class FaultySender(FakeSender):
    """A sender of the SDK whose sends follow a plan of attempts, and repeat the last one."""

    def __init__(self, harness: PairingHarness, name: str) -> None:
        super().__init__(harness, name)
        self.plan: Iterator[tuple[str, Any]] = repeat(HEALTHY)
        self.stored: list[bytes] = []
        self.opens = HEALTHY

    def open_link(self) -> None:
        self.harness.clock += 0.5
        fault, error = self.opens
        if fault == "not opened":
            raise error

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> Any:
        self.opens = next(self.plan)
        return super().create_message_batch(max_size_in_bytes)

    def transfer(self, messages: Any) -> None:
        if self.name == "primary":
            self.opens = next(self.plan)
        self.open_link()
        (fault, error), self.opens = self.opens, HEALTHY
        self.loses_answers = fault in ("lost", "stored")
        self.send_error = None if fault == "ok" else error
        if fault in ("ok", "stored"):
            self.stored += payloads_of(messages)
        super().transfer(messages)


def endless(plan: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    return chain(plan, repeat(plan[-1]))


def harness_with(
    primary: list[tuple[str, Any]], queues: list[list[tuple[str, Any]]], *, after_drain: bool
) -> PairingHarness:
    harness = PairingHarness(failback="after-drain" if after_drain else "immediate")
    harness.primary = FaultySender(harness, "primary")
    harness.primary.plan = endless(primary)
    for queue, plan in zip(QUEUES, queues, strict=True):
        harness.backlog[queue] = sender = FaultySender(harness, queue)
        sender.plan = endless(plan)
    return harness


def stored_ids(harness: PairingHarness) -> set[Any]:
    """Return the ids of all messages that the primary or a queue has stored."""
    senders: list[Any] = [harness.primary, *harness.backlog.values()]
    return {name for sender in senders for name in ids(sender.stored)}


def operation_for(
    harness: PairingHarness, messages: list[ServiceBusMessage], schedule: bool
) -> Operation[Any]:
    call = harness.call(timeout=20)
    if schedule:
        return operations.schedule(call, messages, WHEN, None, {})
    return operations.send(call, messages, None, {})


def error_of(harness: PairingHarness, operation: Operation[Any]) -> Exception | None:
    try:
        harness.driver.run(operation)
    except Exception as error:  # noqa: BLE001  the test checks it
        return error
    return None


@given(
    primary=st.lists(attempts, min_size=1, max_size=1),
    queues=st.lists(st.lists(attempts, min_size=1, max_size=4), min_size=3, max_size=3),
    sizes=st.lists(st.sampled_from([1, 100, 200]), min_size=1, max_size=6),
    schedule=st.booleans(),
    after_drain=st.booleans(),
)
def test_outcomes_agree_with_what_the_queues_stored(
    primary: list[tuple[str, Any]],
    queues: list[list[tuple[str, Any]]],
    sizes: list[int],
    schedule: bool,
    after_drain: bool,
) -> None:
    harness = harness_with(primary, queues, after_drain=after_drain)
    messages = [
        ServiceBusMessage(b"x" * size * KB, message_id=str(number), session_id=f"s{number}")
        for number, size in enumerate(sizes)
    ]
    names = {str(number) for number in range(len(sizes))}

    error = error_of(harness, operation_for(harness, messages, schedule))

    if error is None:
        by_outcome = {SendOutcome.STORED: names}
    elif isinstance(error, SendUnavailable):
        by_outcome = {}
        for each in error.messages:
            assert each.message_id == str(each.position)
            by_outcome.setdefault(each.outcome, set()).add(each.message_id)
        assert set().union(*by_outcome.values()) == names
        assert isinstance(error, PartlyStored) == (SendOutcome.STORED in by_outcome)
        said_not_sent = "Nothing was sent" in str(error) or "was not sent" in str(error)
        assert said_not_sent == (by_outcome.keys() == {SendOutcome.NOT_SENT})
    elif set(harness.called()) <= {"primary", "ping"}:
        return  # the error of the SDK, as without pairing
    else:
        assert isinstance(error, MessageTooLargeForBacklog) or error in ERRORS
        by_outcome = {SendOutcome.NOT_SENT: names}
    stored = stored_ids(harness)
    assert by_outcome.get(SendOutcome.STORED, set()) <= stored
    assert not by_outcome.get(SendOutcome.NOT_SENT, set()) & stored
    assert harness.orders.health.in_flight == 0
    assert not harness.links().lock.locked()


@given(
    after=st.integers(0, 30),
    change=st.sampled_from(["closed", "faulted", "cancelled"]),
    queues=st.lists(st.lists(attempts, min_size=1, max_size=3), min_size=3, max_size=3),
    primary=st.lists(attempts, min_size=1, max_size=1),
)
def test_pairing_that_ends_during_a_call_does_not_hide_what_was_stored(
    after: int, change: str, queues: list[list[tuple[str, Any]]], primary: list[tuple[str, Any]]
) -> None:
    """The sender is closed, the pairing is faulted, or the call is cancelled at any effect."""
    harness = harness_with(primary, queues, after_drain=False)
    messages = [ServiceBusMessage(b"x" * 100 * KB, message_id=str(n)) for n in range(5)]
    operation = operation_for(harness, messages, schedule=False)
    error: BaseException | None = None
    try:
        effect = next(operation)
        for number in range(1000):
            if number == after and change == "cancelled":
                effect = operation.throw(asyncio.CancelledError())
                continue
            if number == after:
                harness.links().closed = True
                if change == "faulted":
                    harness.pairing.primary.set_fault(OSError("partner"))
            try:
                result = harness.driver._carry_out(effect)
            except Exception as exc:  # noqa: BLE001  the operation handles it
                effect = operation.throw(exc)
            else:
                effect = operation.send(result)
    except StopIteration:
        return
    except BaseException as exc:  # noqa: BLE001  checked below
        error = exc

    stored = stored_ids(harness)
    if isinstance(error, SendUnavailable):
        assert not {str(position) for position in error.not_sent} & stored
        assert {str(position) for position in error.stored} <= stored
    elif isinstance(error, StateError | PairingFaulted | MessageTooLargeForBacklog):
        assert stored == set()
    assert harness.orders.health.in_flight == 0
    assert not harness.links().lock.locked()
