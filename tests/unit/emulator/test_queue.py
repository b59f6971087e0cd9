"""A queue: taking and settling, locks, deliveries, time-to-live, schedules, deferral, peeking.

Times are milliseconds. Locks last 100 of them, unless a test says otherwise.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pairbus.amqp.sections import Message
from pairbus.amqp.types import Int32, Symbol, Timestamp
from pairbus.emulator.entities.locks import MAX_STALE_ENTRIES
from pairbus.emulator.entities.message_buffer import MAX_BUFFERED, PAGE_SIZE
from pairbus.emulator.entities.message_codec import encode_delivery
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.entities.sequence_numbers import RESERVATION_SIZE
from pairbus.errors import EncodeError, LockLost, MessageNotFound, Refused
from pairbus.servicebus.message_states import ACTIVE, DEFERRED, SCHEDULED
from tests.unit.emulator.local import (
    Local,
    body,
    drain,
    message,
    properties,
    received,
    seen,
    take,
    take_one,
    why_dead,
)

LOCK = timedelta(milliseconds=100)


@pytest.fixture
def queue(local: Local) -> MessageQueue:
    return local.add_queue(lock_duration=LOCK, max_delivery_count=3)


# Taking.


def test_messages_come_out_in_the_order_in_which_they_went_in(
    local: Local, queue: MessageQueue
) -> None:
    numbers = local.send("q", message("a"), message("b"))
    numbers += local.send("q", message("c"))

    assert numbers == sorted(set(numbers))
    assert drain(queue) == ["a", "b", "c"]
    assert len(queue) == queue.bytes == 0


def test_no_more_is_taken_than_was_asked_for(local: Local, queue: MessageQueue) -> None:
    local.send("q", *[message(str(number)) for number in range(5)])

    assert len(take(queue, limit=2)) == 2
    assert len(take(queue, limit=2)) == 2
    assert len(take(queue, limit=2)) == 1
    assert take(queue, limit=2) == []


def test_no_more_is_taken_once_it_has_so_many_bytes_but_one_at_least(
    local: Local, queue: MessageQueue
) -> None:
    local.send("q", *[message(str(number)) for number in range(6)])
    size = queue.bytes // 6

    def bodies(room: int) -> list[str]:
        return [body(one) for one, _ in queue.receive(100, 0, locked=True, max_bytes=room)]

    assert bodies(1) == ["0"]
    assert bodies(size) == ["1"]
    assert bodies(size + 1) == ["2", "3"]
    assert bodies(100 * size) == ["4", "5"]


def test_deferred_messages_beyond_so_many_bytes_stay_where_they_are(
    local: Local, queue: MessageQueue
) -> None:
    numbers = local.send("q", *[message(str(number)) for number in range(4)])
    size = queue.bytes // 4
    for token in take(queue):
        queue.defer(token, {}, 0)

    def bodies(left: list[int], room: int) -> list[str]:
        return [
            body(one) for one, _ in queue.receive_deferred(left, 0, locked=True, max_bytes=room)
        ]

    assert bodies(numbers, 1) == ["0"]
    assert bodies(numbers[1:], size + 1) == ["1", "2"]
    assert bodies(numbers[3:], 100 * size) == ["3"]


def test_what_is_locked_cannot_be_taken_but_is_there(local: Local, queue: MessageQueue) -> None:
    local.send("q", message("a"), message("b"))
    take_one(queue)

    assert drain(queue) == ["b"]
    assert len(queue) == 1
    assert seen(queue) == ["a"]


def test_the_queue_says_when_something_can_be_taken(local: Local, queue: MessageQueue) -> None:
    local.send("q", message("now"), message("later", at=50))
    assert local.available == ["q"]
    local.tick(50)
    assert local.available == ["q"] * 2
    token, _ = take(queue, now=50)
    queue.abandon(token, {}, 50)
    assert local.available == ["q"] * 3
    local.tick(150)
    assert local.available == ["q"] * 4


# Settling.


def test_what_is_completed_is_gone(local: Local, queue: MessageQueue) -> None:
    local.send("q", message("a"))
    queue.complete(take_one(queue)[1], 0)

    assert len(queue) == queue.bytes == 0
    assert seen(queue) == []


def test_what_is_abandoned_comes_back_in_its_place_with_one_delivery_more(
    local: Local, queue: MessageQueue
) -> None:
    local.send("q", message("a"), message("b"), message("c"))
    first, _, _ = take(queue)
    queue.abandon(first, {}, 0)
    local.send("q", message("d"))

    stored, _ = take_one(queue)

    assert (body(stored), stored.deliveries) == ("a", 1)
    assert drain(queue) == ["d"]


def test_what_is_deferred_is_only_had_by_its_number(local: Local, queue: MessageQueue) -> None:
    (number,) = local.send("q", message("a"))
    queue.defer(take_one(queue)[1], {}, 0)

    assert drain(queue) == []
    assert queue.counts == {ACTIVE: 0, DEFERRED: 1, SCHEDULED: 0}
    ((stored, lock),) = queue.receive_deferred([number], 0, locked=True)
    assert lock is not None
    assert (body(stored), stored.sequence, stored.deliveries) == ("a", number, 1)
    queue.complete(lock.token, 0)
    assert len(queue) == queue.bytes == 0


def test_what_is_dead_lettered_says_why_and_from_where_and_keeps_its_number(
    local: Local, queue: MessageQueue
) -> None:
    (number,) = local.send("q", message("a", properties={"color": "red"}), now=7)
    queue.dead_letter(take_one(queue)[1], "Broken", "It has no wheels.", {"wheels": 0}, 50)

    (stored,) = local.dead().peek(0, 10)

    assert len(queue) == queue.bytes == 0
    assert (stored.sequence, stored.enqueued_ms) == (number, 7)
    assert properties(stored) == {
        "color": "red",
        "wheels": 0,
        "DeadLetterReason": "Broken",
        "DeadLetterErrorDescription": "It has no wheels.",
    }
    assert received(stored).read_message_annotations()["x-opt-deadletter-source"] == "q"
    assert drain(local.dead()) == ["a"]


def test_a_reason_need_not_be_given(local: Local, queue: MessageQueue) -> None:
    local.send("q", message("a"))
    queue.dead_letter(take_one(queue)[1], None, None, {}, 0)

    (stored,) = local.dead().peek(0, 10)

    assert properties(stored) == {}


Settle = Callable[[MessageQueue, bytes, dict[str, Any]], None]
WITH_CHANGES: dict[str, Settle] = {
    "abandon": lambda queue, token, changes: queue.abandon(token, changes, 0),
    "defer": lambda queue, token, changes: queue.defer(token, changes, 0),
    "dead-letter": lambda queue, token, changes: queue.dead_letter(token, "r", "d", changes, 0),
}


@pytest.mark.parametrize("settle", WITH_CHANGES.values(), ids=WITH_CHANGES.keys())
def test_properties_can_be_changed_when_a_message_is_given_back(
    local: Local, queue: MessageQueue, settle: Settle
) -> None:
    local.send("q", message("a", properties={"kept": Int32(1), "changed": "old"}))
    settle(queue, take_one(queue)[1], {"changed": "new", "added": Timestamp(5)})
    local.restart()

    (stored,) = [*local.at("q").peek(0, 10), *local.dead().peek(0, 10)]
    found = properties(stored)

    assert found["kept"] == 1
    assert type(found["kept"]) is Int32
    assert found["changed"] == "new"
    assert type(found["added"]) is Timestamp
    assert body(stored) == "a"


@pytest.mark.parametrize("settle", WITH_CHANGES.values(), ids=WITH_CHANGES.keys())
def test_changes_that_cannot_be_written_change_nothing(
    local: Local, queue: MessageQueue, settle: Settle
) -> None:
    local.send("q", message("a"))
    _, token = take_one(queue)

    with pytest.raises(EncodeError):
        settle(queue, token, {"thing": object()})

    assert queue.has_lock(token, 0)
    queue.complete(token, 0)
    assert len(queue) == len(local.dead()) == 0


# Locks.

SETTLEMENTS: dict[str, Callable[[MessageQueue, bytes, int], object]] = {
    "complete": lambda queue, token, now: queue.complete(token, now),
    "abandon": lambda queue, token, now: queue.abandon(token, {}, now),
    "defer": lambda queue, token, now: queue.defer(token, {}, now),
    "dead-letter": lambda queue, token, now: queue.dead_letter(token, None, None, {}, now),
    "renew": lambda queue, token, now: queue.renew_lock(token, now),
}
each_settlement = pytest.mark.parametrize("settle", SETTLEMENTS.values(), ids=SETTLEMENTS.keys())


@each_settlement
@pytest.mark.parametrize("ticks", [False, True], ids=["unnoticed", "noticed"])
def test_a_lock_that_has_run_out_settles_nothing(
    local: Local, queue: MessageQueue, settle: Callable[..., object], ticks: bool
) -> None:
    local.send("q", message("a"))
    _, token = take_one(queue)
    assert queue.has_lock(token, 99)
    if ticks:
        local.tick(100)

    assert not queue.has_lock(token, 100)
    with pytest.raises(LockLost) as caught:
        settle(queue, token, 100)

    assert caught.value.condition == "com.microsoft:message-lock-lost"
    local.tick(100)
    assert drain(queue, 100) == ["a"]


@each_settlement
def test_what_was_settled_once_cannot_be_settled_again(
    local: Local, queue: MessageQueue, settle: Callable[..., object]
) -> None:
    local.send("q", message("a"))
    _, token = take_one(queue)
    queue.complete(token, 0)

    with pytest.raises(LockLost):
        settle(queue, token, 0)
    with pytest.raises(LockLost):
        settle(queue, b"never given", 0)


def test_a_lock_that_runs_out_counts_as_a_delivery(local: Local, queue: MessageQueue) -> None:
    local.send("q", message("a"))
    take_one(queue)
    local.tick(99)
    assert take(queue, 99) == []
    local.tick(100)

    stored, _ = take_one(queue, 100)

    assert stored.deliveries == 1


def test_a_lock_holds_for_its_duration_after_the_last_renewal(
    local: Local, queue: MessageQueue
) -> None:
    local.send("q", message("a"))
    _, token = take_one(queue)

    assert queue.renew_lock(token, 60) == 160
    assert queue.renew_lock(token, 90) == 190
    local.tick(189)
    assert queue.has_lock(token, 189)
    local.tick(190)
    assert not queue.has_lock(token, 190)
    assert drain(queue, 190) == ["a"]


def test_a_lock_lasts_as_long_as_the_queue_says_when_it_is_taken(local: Local) -> None:
    queue = local.add_queue("other", lock_duration=timedelta(seconds=1))
    local.send("other", message("a"), message("b"))
    (_, first), *_ = queue.receive(1, 0, locked=True)
    local.entities.update("other", {"lock_duration": timedelta(seconds=2)}, 0)
    (_, second), *_ = queue.receive(1, 0, locked=True)

    assert first is not None
    assert second is not None
    assert (first.until_ms, second.until_ms) == (1000, 2000)


def test_a_start_frees_all_locks_and_counts_no_delivery_for_them(
    local: Local, queue: MessageQueue
) -> None:
    local.send("q", message("a"))
    _, token = take_one(queue)
    local.restart()

    stored, _ = take_one(local.at("q"))

    assert (body(stored), stored.deliveries) == ("a", 0)
    assert not local.at("q").has_lock(token, 0)


def test_locks_that_have_ended_leave_nothing_behind(local: Local, queue: MessageQueue) -> None:
    for _ in range(3 * MAX_STALE_ENTRIES // 100):
        local.send("q", *[message()] * 100)
        for token in take(queue):
            queue.renew_lock(token, 1)
            queue.complete(token, 1)

    assert len(queue._locks) == len(queue._locks._by_sequence) == 0
    assert len(queue._locks._expiries) <= MAX_STALE_ENTRIES
    assert len(queue._ready) == 0


# Deliveries.


@pytest.mark.parametrize("way", ["abandon", "let the lock run out"])
def test_after_its_last_delivery_a_message_is_dead_lettered(
    local: Local, queue: MessageQueue, way: str
) -> None:
    local.send("q", message("a", properties={"color": "red"}))
    now = 0
    for attempt in range(3):
        stored, token = take_one(queue, now)
        assert stored.deliveries == attempt
        if way == "abandon":
            queue.abandon(token, {"last": attempt}, now)
        else:
            now += 100
            local.tick(now)

    assert take(queue, now) == []
    assert len(queue) == 0
    (dead,) = local.dead().peek(0, 10)
    assert dead.deliveries == 3
    assert properties(dead)["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert "3 delivery attempts" in properties(dead)["DeadLetterErrorDescription"]
    assert properties(dead)["color"] == "red"
    assert properties(dead).get("last") == (2 if way == "abandon" else None)


def test_deliveries_are_counted_across_starts(local: Local, queue: MessageQueue) -> None:
    local.send("q", message("a"))
    for attempt in range(3):
        stored, token = take_one(local.at("q"))
        assert stored.deliveries == attempt
        local.at("q").abandon(token, {}, 0)
        local.restart()

    assert why_dead(local.dead()) == [("a", "MaxDeliveryCountExceeded")]


def test_deliveries_of_deferred_messages_count_too(local: Local, queue: MessageQueue) -> None:
    (number,) = local.send("q", message("a"))
    queue.defer(take_one(queue)[1], {}, 0)
    for _ in range(2):
        ((_, lock),) = queue.receive_deferred([number], 0, locked=True)
        assert lock is not None
        queue.abandon(lock.token, {}, 0)

    assert len(queue) == 0
    assert why_dead(local.dead()) == [("a", "MaxDeliveryCountExceeded")]


# Dead letters.


def test_dead_letters_are_given_back_for_ever(local: Local, queue: MessageQueue) -> None:
    local.send("q", message("a"))
    queue.dead_letter(take_one(queue)[1], "r", None, {}, 0)
    dead = local.dead()
    for attempt in range(20):
        stored, token = take_one(dead)
        assert stored.deliveries == attempt
        dead.abandon(token, {}, 0)

    assert drain(dead) == ["a"]


def test_dead_letters_cannot_be_dead_lettered(local: Local, queue: MessageQueue) -> None:
    local.send("q", message("a"))
    queue.dead_letter(take_one(queue)[1], "r", None, {}, 0)
    dead = local.dead()
    _, token = take_one(dead)

    with pytest.raises(Refused):
        dead.dead_letter(token, "again", None, {}, 0)

    assert dead.has_lock(token, 0)
    dead.abandon(token, {}, 0)
    assert drain(dead) == ["a"]


def test_dead_letters_can_be_deferred(local: Local, queue: MessageQueue) -> None:
    (number,) = local.send("q", message("a"))
    queue.dead_letter(take_one(queue)[1], "r", None, {}, 0)
    dead = local.dead()
    dead.defer(take_one(dead)[1], {}, 0)

    assert drain(dead) == []
    ((stored, _),) = dead.receive_deferred([number], 0, locked=False)
    assert body(stored) == "a"


def test_dead_letters_that_come_out_of_order_are_all_had_once(
    local: Local, queue: MessageQueue
) -> None:
    local.send("q", *[message(str(number)) for number in range(6)])
    tokens = take(queue)
    dead = local.dead()

    def bury(*which: int) -> None:
        for one in which:
            queue.dead_letter(tokens[one], "r", None, {}, 0)

    bury(4)
    assert drain(dead) == ["4"]
    bury(5, 1)
    held = take(dead, limit=1)
    bury(0, 3)
    assert drain(dead) == ["0", "3", "5"]
    dead.abandon(held[0], {}, 0)
    bury(2)
    assert drain(dead) == ["1", "2"]
    assert len(dead) == 0


def test_many_dead_letters_that_come_out_of_order_are_all_had_once(
    local: Local, queue: MessageQueue
) -> None:
    many = 2 * MAX_BUFFERED
    local.send("q", *[message(str(number)) for number in range(many)])
    tokens = take(queue, limit=many)
    dead = local.dead()
    got: list[str] = []
    locked: list[bytes] = []
    # The second half first, from behind, while somebody takes some of them now and then.
    for step, one in enumerate(
        [*reversed(range(MAX_BUFFERED, many)), *reversed(range(MAX_BUFFERED))]
    ):
        queue.dead_letter(tokens[one], "r", None, {}, 0)
        assert len(dead._ready) <= MAX_BUFFERED
        if step % 700 == 0:
            taken = dead.receive(20, 0, locked=True)
            got += [body(stored) for stored, _ in taken]
            locked += [lock.token for _, lock in taken if lock is not None]
    got += drain(dead)

    assert sorted(map(int, got)) == list(range(many))
    assert len(dead) == len(locked)


def test_new_dead_letters_never_take_the_place_of_old_ones(local: Local) -> None:
    local.add_topic()
    subscription = local.add_subscription(requires_session=True)
    path = "t/Subscriptions/s"
    local.send("t", message("has a session", session="x"))
    assert subscription.sessions is not None
    subscription.sessions.accept("x", object(), 0)
    _, token = take_one(subscription, session="x")
    local.send("t", message("has none"))
    subscription.dead_letter(token, "r", None, {}, 0)
    local.restart()
    local.send("t", message("has none, too"))

    assert sorted(drain(local.dead(path))) == ["has a session", "has none", "has none, too"]


# Time-to-live.


def test_a_message_lives_until_its_time_is_over(local: Local, queue: MessageQueue) -> None:
    local.send("q", message("short", ttl=50), message("long"))
    local.tick(49)
    assert seen(queue) == ["short", "long"]
    local.tick(50)

    assert seen(queue) == ["long"]
    assert drain(queue, 50) == ["long"]
    assert len(local.dead()) == 0


def test_what_has_expired_is_not_handed_out_even_if_nobody_noticed(
    local: Local, queue: MessageQueue
) -> None:
    local.send("q", message("short", ttl=50), message("long"))

    assert drain(queue, 50) == ["long"]
    assert len(queue) == 0


@pytest.mark.parametrize(
    ("of_entity_ms", "of_message_ms", "lives_ms"),
    [
        (1000, None, 1000),
        (1000, 2000, 1000),
        (2000, 1000, 1000),
        (None, 1000, 1000),
        (None, 0xFFFFFFFF, 0xFFFFFFFF),
    ],
)
def test_the_smaller_time_to_live_counts(
    local: Local, of_entity_ms: int | None, of_message_ms: int | None, lives_ms: int
) -> None:
    settings: dict[str, Any] = {}
    if of_entity_ms is not None:
        settings["default_message_time_to_live"] = timedelta(milliseconds=of_entity_ms)
    queue = local.add_queue("other", **settings)
    local.send("other", message("a", ttl=of_message_ms), now=5)
    local.tick(5 + lives_ms - 1)
    assert len(queue) == 1
    local.tick(5 + lives_ms)

    assert len(queue) == 0


def test_a_message_may_have_no_time_to_live_at_all(local: Local, queue: MessageQueue) -> None:
    local.send("q", message("a", ttl=0))

    assert drain(queue) == []


def test_without_any_time_to_live_a_message_lives_for_ever(
    local: Local, queue: MessageQueue
) -> None:
    local.send("q", message("a"))
    local.tick(10**15)

    assert drain(queue, 10**15) == ["a"]


@pytest.mark.parametrize("ticks", [False, True], ids=["when taken", "by the clock"])
def test_what_expires_is_dead_lettered_where_the_queue_is_set_to(local: Local, ticks: bool) -> None:
    queue = local.add_queue(dead_lettering_on_message_expiration=True)
    (number,) = local.send("q", message("a", ttl=50))
    if ticks:
        local.tick(50)
    else:
        assert drain(queue, 50) == []

    (dead,) = local.dead().peek(0, 10)

    assert properties(dead)["DeadLetterReason"] == "TTLExpiredException"
    assert dead.sequence == number
    local.tick(10**12)
    assert drain(local.dead(), 10**12) == ["a"]  # dead letters do not expire


def test_what_is_locked_does_not_expire(local: Local) -> None:
    queue = local.add_queue(lock_duration=LOCK, dead_lettering_on_message_expiration=True)
    local.send("q", message("a", ttl=50), message("b", ttl=50))
    first, second = take(queue)
    local.tick(60)

    assert seen(queue) == ["a", "b"]
    queue.complete(first, 60)
    queue.renew_lock(second, 70)
    local.tick(169)
    assert queue.has_lock(second, 169)
    local.tick(170)
    assert len(queue) == 0
    assert why_dead(local.dead()) == [("b", "TTLExpiredException")]


def test_what_expired_under_a_lock_is_not_handed_out_again(
    local: Local, queue: MessageQueue
) -> None:
    local.send("q", message("a", ttl=50))
    _, token = take_one(queue)
    local.tick(60)
    queue.abandon(token, {}, 60)

    assert drain(queue, 60) == []
    assert len(queue) == 0


def test_many_locked_messages_do_not_keep_others_from_expiring(
    local: Local, queue: MessageQueue
) -> None:
    local.send("q", *[message("locked", ttl=50) for _ in range(20)])
    take(queue)
    local.send("q", *[message("free", ttl=60) for _ in range(5)])

    while local.entities.tick(70, limit=10):
        pass

    assert set(seen(queue)) == {"locked"}


def test_deferred_messages_do_not_expire(local: Local) -> None:
    queue = local.add_queue(dead_lettering_on_message_expiration=True)
    (number,) = local.send("q", message("a", ttl=50))
    queue.defer(take_one(queue)[1], {}, 0)
    local.tick(60)

    ((stored, _),) = queue.receive_deferred([number], 60, locked=False)

    assert body(stored) == "a"
    assert len(local.dead()) == 0


# Schedules.


def test_a_scheduled_message_comes_when_its_time_does_with_a_new_number(
    local: Local, queue: MessageQueue
) -> None:
    (early,) = local.send("q", message("later", at=50))
    (number,) = local.send("q", message("now"))
    assert queue.counts == {ACTIVE: 1, DEFERRED: 0, SCHEDULED: 1}
    local.tick(49)
    assert drain(queue, 49) == ["now"]
    local.tick(50)

    stored, _ = take_one(queue, 50)

    assert body(stored) == "later"
    assert stored.sequence > number > early
    assert stored.enqueued_ms == 50
    assert queue.counts == {ACTIVE: 1, DEFERRED: 0, SCHEDULED: 0}
    assert received(stored).read_message_annotations()["x-opt-scheduled-enqueue-time"] == 50


def test_messages_that_come_due_together_come_in_the_order_of_their_times(
    local: Local, queue: MessageQueue
) -> None:
    local.send("q", message("third", at=70), message("first", at=50), message("second", at=60))
    local.tick(100)

    assert drain(queue, 100) == ["first", "second", "third"]


@pytest.mark.parametrize("at", [-5, 0, 10])
def test_a_time_that_is_over_is_no_schedule(local: Local, queue: MessageQueue, at: int) -> None:
    local.send("q", message("a", at=at), now=10)

    assert drain(queue, 10) == ["a"]


def test_the_time_to_live_of_a_scheduled_message_starts_when_it_comes(
    local: Local, queue: MessageQueue
) -> None:
    local.send("q", message("a", at=1000, ttl=50))
    local.tick(1000)
    local.tick(1049)
    assert seen(queue) == ["a"]
    local.tick(1050)
    assert seen(queue) == []


def test_a_scheduled_message_can_be_cancelled_once(local: Local, queue: MessageQueue) -> None:
    numbers = local.send("q", message("a", at=50), message("b", at=50), message("c", at=50))
    queue.cancel_scheduled([numbers[0], numbers[2], numbers[0]])

    assert len(queue) == 1
    with pytest.raises(MessageNotFound) as caught:
        queue.cancel_scheduled([numbers[1], numbers[0]])
    assert caught.value.condition == "com.microsoft:message-not-found"
    local.tick(50)
    assert drain(queue, 50) == ["b"]
    assert len(queue) == queue.bytes == 0


def test_what_is_not_scheduled_cannot_be_cancelled(local: Local, queue: MessageQueue) -> None:
    active, due = local.send("q", message("a"), message("b", at=50))
    local.tick(50)

    for number in (active, due, 0, 10**9):
        with pytest.raises(MessageNotFound):
            queue.cancel_scheduled([number])
    assert drain(queue, 50) == ["a", "b"]


# Deferral.


def test_deferred_messages_are_had_together_or_not_at_all(
    local: Local, queue: MessageQueue
) -> None:
    numbers = local.send("q", message("a"), message("b"), message("c"))
    for token in take(queue, limit=2):
        queue.defer(token, {}, 0)

    with pytest.raises(MessageNotFound) as caught:
        queue.receive_deferred(numbers, 0, locked=False)

    assert caught.value.condition == "com.microsoft:message-not-found"
    taken = queue.receive_deferred([numbers[1], numbers[0], numbers[1]], 0, locked=False)
    assert [body(stored) for stored, _ in taken] == ["b", "a"]
    assert len(queue) == 1


def test_a_deferred_message_that_is_locked_is_not_there_for_others(
    local: Local, queue: MessageQueue
) -> None:
    (number,) = local.send("q", message("a"))
    queue.defer(take_one(queue)[1], {}, 0)
    queue.receive_deferred([number], 0, locked=True)

    with pytest.raises(MessageNotFound):
        queue.receive_deferred([number], 0, locked=True)
    local.tick(100)
    ((stored, _),) = queue.receive_deferred([number], 100, locked=True)
    assert stored.deliveries == 2


@pytest.mark.parametrize("way", ["abandon", "defer"])
def test_a_deferred_message_stays_deferred_until_it_is_done_with(
    local: Local, queue: MessageQueue, way: str
) -> None:
    (number,) = local.send("q", message("a"))
    queue.defer(take_one(queue)[1], {}, 0)
    ((_, lock),) = queue.receive_deferred([number], 0, locked=True)
    assert lock is not None
    (queue.abandon if way == "abandon" else queue.defer)(lock.token, {}, 0)

    assert drain(queue) == []
    assert queue.counts == {ACTIVE: 0, DEFERRED: 1, SCHEDULED: 0}
    ((_, lock),) = queue.receive_deferred([number], 0, locked=True)
    assert lock is not None
    queue.dead_letter(lock.token, "r", None, {}, 0)
    assert len(queue) == 0
    assert drain(local.dead()) == ["a"]


def test_a_session_id_does_not_matter_where_there_are_no_sessions(
    local: Local, queue: MessageQueue
) -> None:
    (number,) = local.send("q", message("a", session="x"))
    queue.defer(take_one(queue)[1], {}, 0)

    ((stored, _),) = queue.receive_deferred([number], 0, locked=False)

    assert body(stored) == "a"


# Peeking.


def test_all_states_can_be_peeked_at_and_nothing_changes(local: Local, queue: MessageQueue) -> None:
    local.send("q", message("locked"), message("deferred"), message("active"))
    local.send("q", message("scheduled", at=50))
    _, second = take(queue, limit=2)
    queue.defer(second, {}, 0)

    for _ in range(2):
        found = queue.peek(0, 10)
        assert [(body(one), one.state, one.deliveries) for one in found] == [
            ("locked", ACTIVE, 0),
            ("deferred", DEFERRED, 1),
            ("active", ACTIVE, 0),
            ("scheduled", SCHEDULED, 0),
        ]
    assert drain(queue) == ["active"]


def test_peeking_goes_on_behind_a_number(local: Local, queue: MessageQueue) -> None:
    numbers = local.send("q", *[message(str(number)) for number in range(5)])

    assert [body(one) for one in queue.peek(numbers[1], 2)] == ["2", "3"]
    assert [body(one) for one in queue.peek(numbers[3], 2)] == ["4"]
    assert queue.peek(numbers[4], 2) == []


# Starts.


def test_a_start_keeps_everything_as_it_was(local: Local, queue: MessageQueue) -> None:
    numbers = local.send("q", *[message(str(number)) for number in range(5)])
    scheduled, cancelled = local.send("q", message("later", at=50), message("no", at=50))
    queue.cancel_scheduled([cancelled])
    tokens = take(queue, limit=4)
    queue.complete(tokens[0], 0)
    queue.abandon(tokens[1], {}, 0)
    queue.defer(tokens[2], {}, 0)
    counts, size = dict(queue.counts), queue.bytes
    local.restart()
    queue = local.at("q")

    assert (queue.counts, queue.bytes) == (counts, size)
    assert counts == {ACTIVE: 3, DEFERRED: 1, SCHEDULED: 1}
    assert [one.sequence for one in queue.peek(0, 10)] == [*numbers[1:], scheduled]
    assert drain(queue) == ["1", "3", "4"]
    ((stored, _),) = queue.receive_deferred([numbers[2]], 0, locked=False)
    assert body(stored) == "2"
    local.tick(50)
    assert drain(queue, 50) == ["later"]
    assert len(queue) == queue.bytes == 0


def test_numbers_are_never_used_again(local: Local, queue: MessageQueue) -> None:
    given: list[int] = []
    for start in range(4):
        given += local.send("q", *[message()] * (RESERVATION_SIZE // 2 * start + 1))
        local.send("q", message("dead"))
        for token in take(local.at("q"), limit=10_000):
            local.at("q").dead_letter(token, "r", None, {}, 0)
        drain(local.dead())
        local.restart()

    assert given == sorted(set(given))


# Memory.


def test_a_long_queue_is_on_disk_and_not_in_memory(local: Local, queue: MessageQueue) -> None:
    total = 20_000
    expected = [str(number) for number in range(total)]
    for start in range(0, total, 1000):
        local.send("q", *[message(text) for text in expected[start : start + 1000]])
    assert len(queue) == total
    assert len(queue._ready) <= MAX_BUFFERED

    got: list[str] = []
    most = 0
    while taken := queue.receive(100, 0, locked=True):
        for stored, lock in taken:
            assert lock is not None
            got.append(body(stored))
            queue.complete(lock.token, 0)
        if len(got) <= PAGE_SIZE:
            local.send("q", message("more"))
        most = max(most, len(queue._ready), len(queue._ready._heap))

    assert got[:total] == expected
    assert set(got[total:]) == {"more"}
    assert most <= MAX_BUFFERED
    assert len(queue) == 0


def test_messages_that_come_while_others_are_taken_keep_the_order(
    local: Local, queue: MessageQueue
) -> None:
    sent = got = 0
    for step in range(60):
        count = 120 if step < 40 else 20
        local.send("q", *[message(str(sent + one)) for one in range(count)])
        sent += count
        for stored, _ in queue.receive(70, 0, locked=False):
            assert body(stored) == str(got)
            got += 1
        assert len(queue._ready) <= MAX_BUFFERED
    for text in drain(queue):
        assert text == str(got)
        got += 1

    assert got == sent


# On the wire.


def test_a_delivery_has_what_the_emulator_knows(local: Local, queue: MessageQueue) -> None:
    (number,) = local.send("q", message("a", properties={"color": "red"}), now=7)
    ((stored, lock),) = queue.receive(1, 9, locked=True)
    assert lock is not None
    whole = Message.parse(encode_delivery(stored, stored.deliveries, lock.until_ms))

    annotations = whole.read_message_annotations()

    assert annotations == {
        Symbol("x-opt-enqueued-time"): 7,
        Symbol("x-opt-sequence-number"): number,
        Symbol("x-opt-locked-until"): 109,
    }
    assert type(annotations["x-opt-enqueued-time"]) is Timestamp
    assert type(annotations["x-opt-locked-until"]) is Timestamp
    assert whole.read_header().delivery_count == 0
