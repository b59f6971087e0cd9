"""Sessions: one holder each, in order, with a lock of their own and a state."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from pairbus.emulator.entities.message_buffer import MAX_BUFFERED
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.entities.sessions import Sessions
from pairbus.errors import LockLost, MessageNotFound, Refused
from pairbus.servicebus.message_states import ACTIVE, DEFERRED
from tests.unit.emulator.local import (
    Local,
    body,
    drain,
    message,
    properties,
    seen,
    take,
    take_one,
    why_dead,
)

ANNA, BERT = object(), object()
LOST = "com.microsoft:session-lock-lost"
TAKEN = "com.microsoft:session-cannot-be-locked"


@pytest.fixture
def queue(local: Local) -> MessageQueue:
    """Locks last 100 milliseconds; three deliveries are too many."""
    return local.add_queue(
        requires_session=True, lock_duration=timedelta(milliseconds=100), max_delivery_count=3
    )


@pytest.fixture
def sessions(queue: MessageQueue) -> Sessions:
    assert queue.sessions is not None
    return queue.sessions


def again(local: Local) -> Sessions:
    """The sessions after a start."""
    local.restart()
    found = local.at("q").sessions
    assert found is not None
    return found


# Accepting.


def test_a_session_is_accepted_by_its_id_and_gives_its_messages_in_order(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    local.send("q", message("x1", session="x"), message("y1", session="y"))
    local.send("q", message("x2", session="x"))

    assert sessions.accept("x", ANNA, 0) == "x"
    assert sessions.locked_until("x", ANNA) == 100
    assert drain(queue, session="x") == ["x1", "x2"]
    assert seen(queue) == ["y1"]


def test_a_session_may_be_accepted_before_it_has_messages(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    sessions.accept("x", ANNA, 0)
    assert drain(queue, session="x") == []
    local.send("q", message("x1", session="x"))

    assert drain(queue, session="x") == ["x1"]


def test_the_next_session_is_the_one_that_has_waited_longest(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    for name in ("b", "a", "b", "c"):
        local.send("q", message(name, session=name))

    assert [sessions.accept(None, ANNA, 0) for _ in range(4)] == ["b", "a", "c", None]


def test_the_order_of_sessions_outlives_a_start(local: Local, sessions: Sessions) -> None:
    for name in ("b", "a", "b", "c"):
        local.send("q", message(name, session=name))
    sessions.accept(None, ANNA, 0)

    after = again(local)

    assert [after.accept(None, ANNA, 0) for _ in range(4)] == ["b", "a", "c", None]


def test_a_session_without_active_messages_is_not_the_next(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    for name in ("taken", "deferred", "expires"):
        local.send("q", message(name, session=name, ttl=50 if name == "expires" else None))
    local.send("q", message("scheduled", session="scheduled", at=90))
    for name in ("taken", "deferred"):
        sessions.accept(name, ANNA, 0)
    drain(queue, session="taken")
    queue.defer(take_one(queue, session="deferred")[1], {}, 0)
    for name in ("taken", "deferred"):
        sessions.release(name, ANNA, 0)
    local.tick(60)

    assert sessions.accept(None, ANNA, 60) is None
    local.tick(90)
    assert sessions.accept(None, ANNA, 90) == "scheduled"


def test_a_session_has_one_holder_at_a_time(local: Local, sessions: Sessions) -> None:
    local.send("q", message(session="x"))
    sessions.accept("x", ANNA, 0)

    for holder in (ANNA, BERT):
        with pytest.raises(LockLost) as caught:
            sessions.accept("x", holder, 99)
        assert caught.value.condition == TAKEN
    assert sessions.accept(None, BERT, 99) is None


def test_a_session_can_be_had_again_once_it_was_let_go(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    local.send("q", message("x1", session="x"))
    sessions.accept("x", ANNA, 0)
    sessions.release("x", BERT, 0)  # not his
    with pytest.raises(LockLost):
        sessions.accept("x", BERT, 0)
    sessions.release("x", ANNA, 0)
    sessions.release("x", ANNA, 0)

    assert sessions.accept(None, BERT, 0) == "x"
    with pytest.raises(LockLost):
        sessions.locked_until("x", ANNA)
    assert drain(queue, session="x") == ["x1"]


def test_letting_go_says_that_there_is_something_to_be_had(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    local.send("q", message(session="x"))
    sessions.accept("x", ANNA, 0)
    local.available.clear()
    sessions.release("x", ANNA, 0)

    assert local.available == ["q"]


def test_every_message_needs_a_session(local: Local, queue: MessageQueue) -> None:
    with pytest.raises(Refused):
        local.send("q", message("a", session="x"), message("b"))

    assert len(queue) == 0


# Order.


def test_what_is_abandoned_comes_again_before_all_that_follow(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    local.send("q", *[message(text, session="x") for text in "abc"])
    sessions.accept("x", ANNA, 0)
    first, second = take(queue, limit=2, session="x")
    queue.abandon(second, {}, 0)
    queue.abandon(first, {}, 0)
    local.send("q", message("d", session="x"))

    assert drain(queue, session="x") == ["a", "b", "c", "d"]


@pytest.mark.parametrize("starts", [False, True])
def test_the_next_holder_starts_with_what_the_last_one_did_not_settle(
    local: Local, queue: MessageQueue, sessions: Sessions, starts: bool
) -> None:
    local.send("q", *[message(text, session="x") for text in "abc"])
    sessions.accept("x", ANNA, 0)
    first, _ = take(queue, limit=2, session="x")
    queue.complete(first, 0)
    if starts:
        sessions = again(local)
    else:
        sessions.release("x", ANNA, 0)

    sessions.accept("x", BERT, 0)

    assert drain(local.at("q"), session="x") == ["b", "c"]


def test_sessions_do_not_wait_for_each_other(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    for number in range(3):
        local.send("q", *[message(f"{name}{number}", session=name) for name in "xyz"])
    for name in "xyz":
        sessions.accept(name, ANNA, 0)
    take(queue, session="x")

    assert drain(queue, session="z") == ["z0", "z1", "z2"]
    assert drain(queue, session="y") == ["y0", "y1", "y2"]


def test_a_long_session_is_on_disk_and_not_in_memory(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    total = MAX_BUFFERED + 500
    sessions.accept("x", ANNA, 0)
    drain(queue, session="x")
    local.send("q", *[message(str(number), session="x") for number in range(total)])
    line = sessions.messages("x", 0)

    assert len(line) <= MAX_BUFFERED
    assert drain(queue, session="x") == [str(number) for number in range(total)]


# Locks.


def test_a_session_is_lost_when_its_time_is_over(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    local.send("q", message("a", session="x"))
    sessions.accept("x", ANNA, 0)
    assert sessions.next_expiry_ms() == 100
    local.tick(99)
    assert sessions.locked_until("x", ANNA) == 100
    local.tick(100)

    for call in (
        lambda: sessions.locked_until("x", ANNA),
        lambda: sessions.renew("x", 100),
        lambda: queue.receive(1, 100, locked=True, session="x"),
        lambda: queue.receive_deferred([1], 100, locked=True, session="x"),
    ):
        with pytest.raises(LockLost) as caught:
            call()
        assert caught.value.condition == LOST
    assert sessions.accept(None, BERT, 100) == "x"


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.sessions.renew("x", 100),
        lambda queue: queue.receive(1, 100, locked=True, session="x"),
        lambda queue: queue.receive(1, 100, locked=True, session=None),
        lambda queue: queue.receive(1, 100, locked=True, session="nobody's"),
    ],
)
def test_a_session_whose_time_is_over_is_lost_before_anybody_noticed(
    local: Local, queue: MessageQueue, sessions: Sessions, call: Callable[[MessageQueue], object]
) -> None:
    local.send("q", message("a", session="x"))
    sessions.accept("x", ANNA, 0)

    with pytest.raises(LockLost) as caught:
        call(queue)

    assert caught.value.condition == LOST


def test_who_has_lost_a_session_gets_none_of_its_messages(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    local.send("q", message("a", session="x"))
    sessions.accept("x", ANNA, 0)
    sessions.accept("x", BERT, 100)

    with pytest.raises(LockLost):
        queue.receive(1, 100, locked=True, session="x", receiver=ANNA)
    assert len(queue.receive(1, 100, locked=True, session="x", receiver=BERT)) == 1


def test_renewing_a_session_renews_the_locks_of_its_messages(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    local.send("q", message("a", session="x"), message("b", session="x"))
    sessions.accept("x", ANNA, 0)
    _, first = take_one(queue, 10, session="x")
    assert sessions.renew("x", 90) == 190
    _, second = take_one(queue, 150, session="x")
    local.tick(189)

    assert queue.has_lock(first, 189)
    assert queue.has_lock(second, 189)
    assert queue.renew_lock(second, 189) == 190
    assert not queue.has_lock(first, 190)
    with pytest.raises(LockLost) as caught:
        queue.complete(second, 190)
    assert caught.value.condition == LOST


def test_a_message_does_not_run_out_of_time_while_its_session_is_held(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    local.send("q", message("a", session="x"))
    sessions.accept("x", ANNA, 0)
    _, token = take_one(queue, session="x")
    for now in range(50, 500, 50):
        sessions.renew("x", now)
        local.tick(now)

    queue.complete(token, 500)
    assert len(queue) == 0


def test_a_delivery_counts_if_the_session_was_lost_and_not_if_it_was_let_go(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    local.send("q", message("a", session="x"))
    sessions.accept("x", ANNA, 0)
    take_one(queue, session="x")
    sessions.release("x", ANNA, 0)

    sessions.accept("x", ANNA, 0)
    assert take_one(queue, session="x")[0].deliveries == 0
    local.tick(100)

    sessions.accept("x", ANNA, 100)
    assert take_one(queue, 100, session="x")[0].deliveries == 1


def test_a_session_that_is_lost_too_often_loses_its_messages_to_the_dead_letters(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    local.send("q", message("a", session="x"), message("b", session="x"))
    for now in (0, 100, 200):
        sessions.accept("x", ANNA, now)
        take_one(queue, now, session="x")
        local.tick(now + 100)

    assert why_dead(local.dead()) == [("a", "MaxDeliveryCountExceeded")]
    assert sessions.accept(None, ANNA, 300) == "x"
    assert drain(queue, 300, session="x") == ["b"]


def test_a_start_frees_all_sessions(local: Local, sessions: Sessions) -> None:
    local.send("q", message("a", session="x"))
    sessions.accept("x", ANNA, 0)

    assert again(local).accept("x", BERT, 0) == "x"


# Dead letters, deferral, peeking.


def test_dead_letters_of_a_session_have_no_session(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    local.send("q", message("a", session="x"), message("b", session="y", ttl=1))
    sessions.accept("x", ANNA, 0)
    queue.dead_letter(take_one(queue, session="x")[1], "r", None, {}, 0)
    local.entities.update("q", {"dead_lettering_on_message_expiration": True}, 0)
    local.tick(1)

    assert local.dead().sessions is None
    stored, token = take_one(local.dead(), 1)
    assert (body(stored), stored.session) == ("a", "x")
    assert properties(stored)["DeadLetterReason"] == "r"
    local.tick(10**6)
    assert not local.dead().has_lock(token, 10**6)
    assert drain(local.dead(), 10**6) == ["a", "b"]
    assert len(queue) == 0


def test_deferred_messages_are_had_by_the_holder_of_their_session(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    (number,) = local.send("q", message("a", session="x"))
    sessions.accept("x", ANNA, 0)
    sessions.accept("y", BERT, 0)
    queue.defer(take_one(queue, session="x")[1], {}, 0)

    with pytest.raises(MessageNotFound):
        queue.receive_deferred([number], 0, locked=True, session="y")
    for nobody in (None, "z"):
        with pytest.raises(LockLost):
            queue.receive_deferred([number], 0, locked=False, session=nobody)
    assert queue.counts[DEFERRED] == 1
    ((stored, _),) = queue.receive_deferred([number], 0, locked=True, session="x")
    assert body(stored) == "a"
    sessions.release("x", ANNA, 0)
    assert (queue.counts[ACTIVE], queue.counts[DEFERRED]) == (0, 1)
    assert sessions.accept(None, ANNA, 0) is None


def test_peeking_needs_no_lock_and_can_be_for_one_session(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    sent = [message(f"{name}{n}", session=name) for n in (1, 2) for name in "xy"]
    numbers = local.send("q", *sent)
    sessions.accept("x", ANNA, 0)
    take(queue, session="x")

    assert seen(queue) == ["x1", "y1", "x2", "y2"]
    assert seen(queue, "x") == ["x1", "x2"]
    assert [body(one) for one in queue.peek(numbers[0], 10, "x")] == ["x2"]


# State.


def test_a_session_keeps_its_state_without_messages_and_across_starts(
    local: Local, sessions: Sessions
) -> None:
    assert sessions.state("x") is None
    sessions.set_state("x", b"\x00 half done")
    sessions.set_state("y", b"")

    after = again(local)

    assert after.state("x") == b"\x00 half done"
    assert after.state("y") == b""
    after.set_state("x", None)
    assert after.state("x") is None


def test_sessions_with_messages_or_a_state_are_listed(
    local: Local, queue: MessageQueue, sessions: Sessions
) -> None:
    local.send("q", *[message(session=name) for name in ("c", "a", "c", "gone")])
    sessions.set_state("b", b"state")
    sessions.accept("gone", ANNA, 0)
    drain(queue, session="gone")

    assert sessions.ids() == ["a", "b", "c"]
    assert again(local).ids() == ["a", "b", "c"]


def test_two_queues_have_nothing_to_do_with_each_other(local: Local, queue: MessageQueue) -> None:
    other = local.add_queue("other", requires_session=True)
    assert queue.sessions is not None
    assert other.sessions is not None
    local.send("q", message("here", session="x"))
    local.send("other", message("there", session="x"))
    queue.sessions.set_state("x", b"here")
    queue.sessions.accept("x", ANNA, 0)

    assert other.sessions.accept("x", BERT, 0) == "x"
    assert drain(other, session="x") == ["there"]
    assert other.sessions.state("x") is None
