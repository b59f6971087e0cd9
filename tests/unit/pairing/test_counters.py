"""Counters of a path."""

import gc
import os
import signal
import threading
from datetime import UTC, datetime
from random import Random

from azure.servicebus.exceptions import ServiceBusServerBusyError

from pairbus.errors import (
    MessageOutcome,
    PartlyStored,
    ReservedProperty,
    SendOutcome,
    SendUnavailable,
)
from pairbus.options import FailureKind, SendAvailabilityOptions
from pairbus.pairing.counters import PathCounters, SentCounter, total
from pairbus.pairing.state import PairingState

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
UNAVAILABLE, BUSY, CALLER = FailureKind.UNAVAILABLE, FailureKind.BUSY, FailureKind.CALLER
DEADLINE_S = 30.0


class Sender:
    """An object that can be deleted."""


def make_pairing() -> PairingState:
    return PairingState(
        SendAvailabilityOptions(),
        primary="one",
        secondary="two",
        queues=("backlog",),
        on_change=lambda: None,
        start_recovery=lambda path: None,
        random=Random(1),
        wall_clock=lambda: NOON,
    )


def test_sent_is_the_sum_of_all_senders_and_of_those_that_are_gone() -> None:
    counters = PathCounters()
    first, second = SentCounter(), SentCounter()
    for counter in (first, second):
        counters.add_sender(counter)
    first.messages, second.messages = 3, 4
    counters.add_sent(10)

    counters.remove_sender(first)

    assert counters.sent == 17
    second.messages += 1
    assert counters.snapshot().sent == 18


def test_deleted_senders_of_many_threads_keep_their_counts() -> None:
    pairing = make_pairing()
    path = pairing.path("orders")

    def use_senders() -> None:
        for _ in range(100):
            sender = Sender()
            pairing.recorder.add_sender(path, sender).messages += 3
            pairing.recorder.sent(path, 2)
            pairing.status()
            del sender

    threads = [threading.Thread(target=use_senders) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    gc.collect()

    assert path.counters.sent == 8 * 100 * 5
    assert path.counters._senders == set()


def test_deleting_a_sender_in_a_forked_child_does_not_wait_for_a_lock_of_the_parent() -> None:
    pairing = make_pairing()
    sender = Sender()
    pairing.recorder.add_sender(pairing.path("orders"), sender)
    held, leave = threading.Event(), threading.Event()

    def hold_lock() -> None:
        with pairing.lock:
            held.set()
            leave.wait(DEADLINE_S)

    holder = threading.Thread(target=hold_lock)
    holder.start()
    assert held.wait(DEADLINE_S)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(DEADLINE_S))  # ends the child if it hangs
        del sender
        os._exit(0)
    leave.set()
    holder.join(DEADLINE_S)

    assert os.waitpid(child, 0) == (child, 0)


def test_snapshot_is_a_copy() -> None:
    counters = PathCounters()
    before = counters.snapshot()

    counters.failed[BUSY] += 1

    assert before.failed == dict.fromkeys(FailureKind, 0)


def test_total_adds_all_counters() -> None:
    first, second = PathCounters(), PathCounters()
    for number, counters in enumerate((first, second), start=1):
        counters.add_sent(number)
        counters.stored = 10 * number
        counters.failed[CALLER] = 100 * number
        counters.throttled = 1000 * number
        for _ in range(number):
            counters.add_ping(None)
            counters.add_ping(OSError())

    both = total([first.snapshot(), second.snapshot()])

    assert (both.sent, both.stored, both.throttled) == (3, 30, 3000)
    assert (both.failed[CALLER], both.failed[BUSY]) == (300, 0)
    assert (both.pings, both.pings_failed) == (6, 3)
    assert total([]).failed == dict.fromkeys(FailureKind, 0)


def test_errors_of_pairbus_have_a_kind_and_a_time() -> None:
    pairing = make_pairing()
    path = pairing.path("orders")
    outcomes = (SendOutcome.STORED, SendOutcome.UNKNOWN, SendOutcome.STORED)
    partly = PartlyStored(
        "partly", messages=tuple(MessageOutcome(n, n, each) for n, each in enumerate(outcomes))
    )
    errors = [
        (SendUnavailable("down"), UNAVAILABLE, 3),
        (partly, UNAVAILABLE, 1),
        (ReservedProperty("reserved"), CALLER, 3),
        (TypeError("not a message"), CALLER, 3),
        (ServiceBusServerBusyError(message="busy"), BUSY, 3),
    ]
    for error, kind, failed in errors:
        before = path.counters.failed[kind]

        pairing.recorder.call_failed(path, error, 3)

        assert path.counters.failed[kind] == before + failed
        last = pairing.status().last_error
        assert last is not None
        assert (last.error, last.kind, last.when) == (error, kind, NOON)


def test_kind_of_a_failed_send_is_decided_once() -> None:
    classified: list[BaseException] = []

    def classify(error: BaseException) -> FailureKind:
        classified.append(error)
        return BUSY

    pairing = make_pairing()
    pairing.classify = classify
    path = pairing.path("orders")
    error = OSError("busy")

    pairing.send_failed(path, error, 5)
    pairing.recorder.call_failed(path, error, 5)

    assert classified == [error]
    assert (path.counters.failed[BUSY], path.counters.throttled) == (5, 5)


def test_last_error_of_the_pairing_is_the_latest_of_all_paths() -> None:
    times = iter(NOON.replace(second=second) for second in range(60))
    pairing = make_pairing()
    pairing.wall_clock = lambda: next(times)
    orders, bills = pairing.path("orders"), pairing.path("bills")
    first, second = TypeError("first"), TypeError("second")

    pairing.send_failed(bills, first)
    pairing.send_failed(orders, second)

    status = pairing.status()
    assert status.last_error is status.paths["orders"].last_error is not None
    assert status.last_error.error is second
    bills_error = status.paths["bills"].last_error
    assert bills_error is not None
    assert bills_error.when < status.last_error.when
