"""Sessions of a queue: order, locks, delivery counts, deferral, peeking and state."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from pairbus.emulator.entities.message_buffer import MAX_BUFFERED
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.entities.sessions import Sessions
from pairbus.errors import LockLost, MessageNotFound, Refused
from pairbus.servicebus.message_states import ACTIVE, DEFERRED
from tests.unit.emulator.entities.harness import (
    EntityHarness,
    body,
    dead_letter_reasons,
    drain,
    lock_all,
    lock_one,
    message,
    peek,
    properties,
)

FIRST, SECOND = object(), object()
LOCK_LOST = "com.microsoft:session-lock-lost"
CANNOT_BE_LOCKED = "com.microsoft:session-cannot-be-locked"


@pytest.fixture
def queue(harness: EntityHarness) -> MessageQueue:
    """A queue with sessions, locks of 100 milliseconds and at most three deliveries."""
    return harness.add_queue(
        requires_session=True, lock_duration=timedelta(milliseconds=100), max_delivery_count=3
    )


@pytest.fixture
def sessions(queue: MessageQueue) -> Sessions:
    assert queue.sessions is not None
    return queue.sessions


def restart(harness: EntityHarness) -> Sessions:
    """Restart the namespace and return the sessions of the queue."""
    harness.restart()
    sessions = harness.queue("q").sessions
    assert sessions is not None
    return sessions


# Accepting.


def test_accepted_session_delivers_its_messages_in_order(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    harness.send("q", message("x1", session="x"), message("y1", session="y"))
    harness.send("q", message("x2", session="x"))

    assert sessions.accept("x", FIRST, 0) == "x"
    assert sessions.locked_until("x", FIRST) == 100
    assert drain(queue, session="x") == ["x1", "x2"]
    assert peek(queue) == ["y1"]


def test_session_can_be_accepted_before_it_has_messages(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    sessions.accept("x", FIRST, 0)
    assert drain(queue, session="x") == []
    harness.send("q", message("x1", session="x"))

    assert drain(queue, session="x") == ["x1"]


def test_next_session_is_the_one_with_the_oldest_message(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    for name in ("b", "a", "b", "c"):
        harness.send("q", message(name, session=name))

    assert [sessions.accept(None, FIRST, 0) for _ in range(4)] == ["b", "a", "c", None]


def test_order_of_sessions_survives_a_restart(harness: EntityHarness, sessions: Sessions) -> None:
    for name in ("b", "a", "b", "c"):
        harness.send("q", message(name, session=name))
    sessions.accept(None, FIRST, 0)

    after = restart(harness)

    assert [after.accept(None, FIRST, 0) for _ in range(4)] == ["b", "a", "c", None]


def test_session_without_active_messages_is_not_accepted_next(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    for name in ("received", "deferred", "expires"):
        harness.send("q", message(name, session=name, ttl=50 if name == "expires" else None))
    harness.send("q", message("scheduled", session="scheduled", at=90))
    for name in ("received", "deferred"):
        sessions.accept(name, FIRST, 0)
    drain(queue, session="received")
    queue.defer(lock_one(queue, session="deferred")[1], {}, 0)
    for name in ("received", "deferred"):
        sessions.release(name, FIRST, 0)
    harness.tick(60)

    assert sessions.accept(None, FIRST, 60) is None
    harness.tick(90)
    assert sessions.accept(None, FIRST, 90) == "scheduled"


def test_session_has_one_receiver_at_a_time(harness: EntityHarness, sessions: Sessions) -> None:
    harness.send("q", message(session="x"))
    sessions.accept("x", FIRST, 0)

    for receiver in (FIRST, SECOND):
        with pytest.raises(LockLost) as raised:
            sessions.accept("x", receiver, 99)
        assert raised.value.condition == CANNOT_BE_LOCKED
    assert sessions.accept(None, SECOND, 99) is None


def test_released_session_can_be_accepted_again(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    harness.send("q", message("x1", session="x"))
    sessions.accept("x", FIRST, 0)
    sessions.release("x", SECOND, 0)  # has no effect: FIRST has the lock
    with pytest.raises(LockLost):
        sessions.accept("x", SECOND, 0)
    sessions.release("x", FIRST, 0)
    sessions.release("x", FIRST, 0)

    assert sessions.accept(None, SECOND, 0) == "x"
    with pytest.raises(LockLost):
        sessions.locked_until("x", FIRST)
    assert drain(queue, session="x") == ["x1"]


def test_queue_notifies_when_a_session_is_released(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    harness.send("q", message(session="x"))
    sessions.accept("x", FIRST, 0)
    harness.available.clear()
    sessions.release("x", FIRST, 0)

    assert harness.available == ["q"]


def test_message_without_a_session_id_is_refused(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    with pytest.raises(Refused):
        harness.send("q", message("a", session="x"), message("b"))

    assert len(queue) == 0


# Order.


def test_abandoned_messages_return_to_their_positions(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    harness.send("q", *[message(text, session="x") for text in "abc"])
    sessions.accept("x", FIRST, 0)
    first, second = lock_all(queue, limit=2, session="x")
    queue.abandon(second, {}, 0)
    queue.abandon(first, {}, 0)
    harness.send("q", message("d", session="x"))

    assert drain(queue, session="x") == ["a", "b", "c", "d"]


@pytest.mark.parametrize("restarts", [False, True])
def test_next_receiver_starts_with_the_first_unsettled_message(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions, restarts: bool
) -> None:
    harness.send("q", *[message(text, session="x") for text in "abc"])
    sessions.accept("x", FIRST, 0)
    first, _ = lock_all(queue, limit=2, session="x")
    queue.complete(first, 0)
    if restarts:
        sessions = restart(harness)
    else:
        sessions.release("x", FIRST, 0)

    sessions.accept("x", SECOND, 0)

    assert drain(harness.queue("q"), session="x") == ["b", "c"]


def test_sessions_are_received_independently(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    for number in range(3):
        harness.send("q", *[message(f"{name}{number}", session=name) for name in "xyz"])
    for name in "xyz":
        sessions.accept(name, FIRST, 0)
    lock_all(queue, session="x")

    assert drain(queue, session="z") == ["z0", "z1", "z2"]
    assert drain(queue, session="y") == ["y0", "y1", "y2"]


def test_long_session_is_not_kept_in_memory(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    total = MAX_BUFFERED + 500
    sessions.accept("x", FIRST, 0)
    drain(queue, session="x")
    harness.send("q", *[message(str(number), session="x") for number in range(total)])

    assert len(sessions.messages("x", 0)) <= MAX_BUFFERED
    assert drain(queue, session="x") == [str(number) for number in range(total)]


# Locks.


def test_session_lock_expires(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    harness.send("q", message("a", session="x"))
    sessions.accept("x", FIRST, 0)
    assert sessions.locked_until("x", FIRST) == 100
    harness.tick(99)
    assert sessions.locked_until("x", FIRST) == 100
    harness.tick(100)

    for call in (
        lambda: sessions.locked_until("x", FIRST),
        lambda: sessions.renew("x", 100),
        lambda: queue.receive(1, 100, locked=True, session="x"),
        lambda: queue.receive_deferred([1], 100, locked=True, session="x"),
    ):
        with pytest.raises(LockLost) as raised:
            call()
        assert raised.value.condition == LOCK_LOST
    assert sessions.accept(None, SECOND, 100) == "x"


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.sessions.renew("x", 100),
        lambda queue: queue.receive(1, 100, locked=True, session="x"),
        lambda queue: queue.receive(1, 100, locked=True, session=None),
        lambda queue: queue.receive(1, 100, locked=True, session="other"),
    ],
)
def test_expired_session_lock_is_lost_even_before_a_tick(
    harness: EntityHarness,
    queue: MessageQueue,
    sessions: Sessions,
    call: Callable[[MessageQueue], object],
) -> None:
    harness.send("q", message("a", session="x"))
    sessions.accept("x", FIRST, 0)

    with pytest.raises(LockLost) as raised:
        call(queue)

    assert raised.value.condition == LOCK_LOST


def test_previous_receiver_gets_no_messages_of_a_lost_session(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    harness.send("q", message("a", session="x"))
    sessions.accept("x", FIRST, 0)
    sessions.accept("x", SECOND, 100)

    with pytest.raises(LockLost):
        queue.receive(1, 100, locked=True, session="x", receiver=FIRST)
    assert len(queue.receive(1, 100, locked=True, session="x", receiver=SECOND)) == 1


def test_renewing_a_session_renews_the_locks_of_its_messages(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    harness.send("q", message("a", session="x"), message("b", session="x"))
    sessions.accept("x", FIRST, 0)
    _, first = lock_one(queue, 10, session="x")
    assert sessions.renew("x", 90) == 190
    _, second = lock_one(queue, 150, session="x")
    harness.tick(189)

    assert queue.has_locks([first], 189)
    assert queue.has_locks([second], 189)
    assert queue.renew_lock(second, 189) == 190
    assert not queue.has_locks([first], 190)
    with pytest.raises(LockLost) as raised:
        queue.complete(second, 190)
    assert raised.value.condition == LOCK_LOST


def test_message_stays_locked_while_its_session_is_renewed(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    harness.send("q", message("a", session="x"))
    sessions.accept("x", FIRST, 0)
    _, token = lock_one(queue, session="x")
    for now in range(50, 500, 50):
        sessions.renew("x", now)
        harness.tick(now)

    queue.complete(token, 500)
    assert len(queue) == 0


def test_delivery_is_counted_for_a_lost_but_not_for_a_released_session(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    harness.send("q", message("a", session="x"))
    sessions.accept("x", FIRST, 0)
    lock_one(queue, session="x")
    sessions.release("x", FIRST, 0)

    sessions.accept("x", FIRST, 0)
    assert lock_one(queue, session="x")[0].deliveries == 0
    harness.tick(100)

    sessions.accept("x", FIRST, 100)
    assert lock_one(queue, 100, session="x")[0].deliveries == 1


def test_message_of_a_repeatedly_lost_session_is_dead_lettered(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    harness.send("q", message("a", session="x"), message("b", session="x"))
    for now in (0, 100, 200):
        sessions.accept("x", FIRST, now)
        lock_one(queue, now, session="x")
        harness.tick(now + 100)

    assert dead_letter_reasons(harness.dead_letters()) == [("a", "MaxDeliveryCountExceeded")]
    assert sessions.accept(None, FIRST, 300) == "x"
    assert drain(queue, 300, session="x") == ["b"]


def test_restart_releases_all_sessions(harness: EntityHarness, sessions: Sessions) -> None:
    harness.send("q", message("a", session="x"))
    sessions.accept("x", FIRST, 0)

    assert restart(harness).accept("x", SECOND, 0) == "x"


# Dead letters, deferral, peeking.


def test_dead_letters_are_received_without_a_session(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    harness.send("q", message("a", session="x"), message("b", session="y", ttl=1))
    sessions.accept("x", FIRST, 0)
    queue.dead_letter(lock_one(queue, session="x")[1], "r", None, {}, 0)
    harness.entities.update("q", {"dead_lettering_on_message_expiration": True}, 0)
    harness.tick(1)

    assert harness.dead_letters().sessions is None
    stored, token = lock_one(harness.dead_letters(), 1)
    assert (body(stored), stored.session) == ("a", "x")
    assert properties(stored)["DeadLetterReason"] == "r"
    harness.tick(10**6)
    assert not harness.dead_letters().has_locks([token], 10**6)
    assert drain(harness.dead_letters(), 10**6) == ["a", "b"]
    assert len(queue) == 0


def test_deferred_message_is_received_only_by_the_receiver_of_its_session(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    (number,) = harness.send("q", message("a", session="x"))
    sessions.accept("x", FIRST, 0)
    sessions.accept("y", SECOND, 0)
    queue.defer(lock_one(queue, session="x")[1], {}, 0)

    with pytest.raises(MessageNotFound):
        queue.receive_deferred([number], 0, locked=True, session="y")
    for session in (None, "z"):
        with pytest.raises(LockLost):
            queue.receive_deferred([number], 0, locked=False, session=session)
    assert queue.counts[DEFERRED] == 1
    ((stored, _),) = queue.receive_deferred([number], 0, locked=True, session="x")
    assert body(stored) == "a"
    sessions.release("x", FIRST, 0)
    assert (queue.counts[ACTIVE], queue.counts[DEFERRED]) == (0, 1)
    assert sessions.accept(None, FIRST, 0) is None


def test_peek_needs_no_lock_and_can_be_limited_to_a_session(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    sent = [message(f"{name}{n}", session=name) for n in (1, 2) for name in "xy"]
    numbers = harness.send("q", *sent)
    sessions.accept("x", FIRST, 0)
    lock_all(queue, session="x")

    assert peek(queue) == ["x1", "y1", "x2", "y2"]
    assert peek(queue, "x") == ["x1", "x2"]
    assert [body(stored) for stored in queue.peek(numbers[0], 10, "x")] == ["x2"]


# State.


def test_session_state_survives_a_restart_without_messages(
    harness: EntityHarness, sessions: Sessions
) -> None:
    assert sessions.state("x") is None
    sessions.set_state("x", b"\x00 half done")
    sessions.set_state("y", b"")

    after = restart(harness)

    assert after.state("x") == b"\x00 half done"
    assert after.state("y") == b""
    after.set_state("x", None)
    assert after.state("x") is None


def test_sessions_with_messages_or_a_state_are_listed(
    harness: EntityHarness, queue: MessageQueue, sessions: Sessions
) -> None:
    harness.send("q", *[message(session=name) for name in ("c", "a", "c", "drained")])
    sessions.set_state("b", b"state")
    sessions.accept("drained", FIRST, 0)
    drain(queue, session="drained")

    assert sessions.ids() == ["a", "b", "c"]
    assert restart(harness).ids() == ["a", "b", "c"]


def test_sessions_of_different_queues_are_independent(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    other = harness.add_queue("other", requires_session=True)
    assert queue.sessions is not None
    assert other.sessions is not None
    harness.send("q", message("here", session="x"))
    harness.send("other", message("there", session="x"))
    queue.sessions.set_state("x", b"here")
    queue.sessions.accept("x", FIRST, 0)

    assert other.sessions.accept("x", SECOND, 0) == "x"
    assert drain(other, session="x") == ["there"]
    assert other.sessions.state("x") is None
