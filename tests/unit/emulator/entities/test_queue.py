"""Message queues: receiving, settling, locks, time-to-live, scheduling, deferral, peeking.

Times are milliseconds. Locks last 100 milliseconds, except where a test sets another duration.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pairbus.amqp.sections import Message
from pairbus.amqp.types import Int32, Symbol, Timestamp
from pairbus.emulator.entities.locks import MAX_STALE_TOKENS
from pairbus.emulator.entities.message_buffer import MAX_BUFFERED, PAGE_SIZE
from pairbus.emulator.entities.message_codec import encode_deliveries
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.entities.sequence_numbers import RESERVATION_SIZE
from pairbus.errors import EncodeError, LockLost, MessageNotFound, Refused
from pairbus.servicebus.message_states import ACTIVE, DEFERRED, SCHEDULED
from tests.unit.emulator.entities.harness import (
    EntityHarness,
    body,
    dead_letter_reasons,
    delivered,
    drain,
    lock_all,
    lock_one,
    message,
    peek,
    properties,
)

LOCK = timedelta(milliseconds=100)


@pytest.fixture
def queue(harness: EntityHarness) -> MessageQueue:
    return harness.add_queue(lock_duration=LOCK, max_delivery_count=3)


# Receiving.


def test_messages_are_received_in_the_order_of_sending(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    numbers = harness.send("q", message("a"), message("b"))
    numbers += harness.send("q", message("c"))

    assert numbers == sorted(set(numbers))
    assert drain(queue) == ["a", "b", "c"]
    assert len(queue) == queue.bytes == 0


def test_no_more_messages_than_the_limit_are_received(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", *[message(str(number)) for number in range(5)])

    assert len(lock_all(queue, limit=2)) == 2
    assert len(lock_all(queue, limit=2)) == 2
    assert len(lock_all(queue, limit=2)) == 1
    assert lock_all(queue, limit=2) == []


def test_receiving_stops_at_the_byte_limit_after_at_least_one_message(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", *[message(str(number)) for number in range(6)])
    size = queue.bytes // 6

    def receive(max_bytes: int) -> list[str]:
        received = queue.receive(100, 0, locked=True, max_bytes=max_bytes)
        return [body(stored) for stored, _ in received]

    assert receive(1) == ["0"]
    assert receive(size) == ["1"]
    assert receive(size + 1) == ["2", "3"]
    assert receive(100 * size) == ["4", "5"]


def test_deferred_messages_beyond_the_byte_limit_are_not_received(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    numbers = harness.send("q", *[message(str(number)) for number in range(4)])
    size = queue.bytes // 4
    for token in lock_all(queue):
        queue.defer(token, {}, 0)

    def receive(sequences: list[int], max_bytes: int) -> list[str]:
        received = queue.receive_deferred(sequences, 0, locked=True, max_bytes=max_bytes)
        return [body(stored) for stored, _ in received]

    assert receive(numbers, 1) == ["0"]
    assert receive(numbers[1:], size + 1) == ["1", "2"]
    assert receive(numbers[3:], 100 * size) == ["3"]


def test_locked_message_is_not_received_again_but_can_be_peeked(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", message("a"), message("b"))
    lock_one(queue)

    assert drain(queue) == ["b"]
    assert len(queue) == 1
    assert peek(queue) == ["a"]


def test_queue_notifies_when_a_message_becomes_available(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", message("now"), message("later", at=50))
    assert harness.available == ["q"]
    harness.tick(50)
    assert harness.available == ["q"] * 2
    token, _ = lock_all(queue, now=50)
    queue.abandon(token, {}, 50)
    assert harness.available == ["q"] * 3
    harness.tick(150)
    assert harness.available == ["q"] * 4


# Settling.


def test_completed_message_is_removed(harness: EntityHarness, queue: MessageQueue) -> None:
    harness.send("q", message("a"))
    queue.complete(lock_one(queue)[1], 0)

    assert len(queue) == queue.bytes == 0
    assert peek(queue) == []


def test_abandoned_message_returns_to_its_position_with_another_delivery(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", message("a"), message("b"), message("c"))
    first, _, _ = lock_all(queue)
    queue.abandon(first, {}, 0)
    harness.send("q", message("d"))

    stored, _ = lock_one(queue)

    assert (body(stored), stored.deliveries) == ("a", 1)
    assert drain(queue) == ["d"]


def test_released_message_returns_to_its_position_without_another_delivery(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", message("a"), message("b"))
    first, _ = lock_all(queue)
    queue.release(first, 0)

    stored, _ = lock_one(queue)

    assert (body(stored), stored.deliveries) == ("a", 0)
    with pytest.raises(LockLost):
        queue.release(first, 0)


def test_deferred_message_is_only_received_by_its_sequence_number(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    (number,) = harness.send("q", message("a"))
    queue.defer(lock_one(queue)[1], {}, 0)

    assert drain(queue) == []
    assert queue.counts == {ACTIVE: 0, DEFERRED: 1, SCHEDULED: 0}
    ((stored, lock),) = queue.receive_deferred([number], 0, locked=True)
    assert lock is not None
    assert (body(stored), stored.sequence, stored.deliveries) == ("a", number, 1)
    queue.complete(lock.token, 0)
    assert len(queue) == queue.bytes == 0


def test_dead_lettered_message_has_reason_source_and_its_sequence_number(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    (number,) = harness.send("q", message("a", properties={"color": "red"}), now=7)
    queue.dead_letter(lock_one(queue)[1], "Broken", "It has no wheels.", {"wheels": 0}, 50)

    (stored,) = harness.dead_letters().peek(0, 10)

    assert len(queue) == queue.bytes == 0
    assert (stored.sequence, stored.enqueued_ms) == (number, 7)
    assert properties(stored) == {
        "color": "red",
        "wheels": 0,
        "DeadLetterReason": "Broken",
        "DeadLetterErrorDescription": "It has no wheels.",
    }
    assert delivered(stored).read_message_annotations()["x-opt-deadletter-source"] == "q"
    assert drain(harness.dead_letters()) == ["a"]


def test_dead_letter_reason_is_optional(harness: EntityHarness, queue: MessageQueue) -> None:
    harness.send("q", message("a"))
    queue.dead_letter(lock_one(queue)[1], None, None, {}, 0)

    (stored,) = harness.dead_letters().peek(0, 10)

    assert properties(stored) == {}


Settle = Callable[[MessageQueue, bytes, dict[str, Any]], None]
WITH_CHANGES: dict[str, Settle] = {
    "abandon": lambda queue, token, changes: queue.abandon(token, changes, 0),
    "defer": lambda queue, token, changes: queue.defer(token, changes, 0),
    "dead-letter": lambda queue, token, changes: queue.dead_letter(token, "r", "d", changes, 0),
}


@pytest.mark.parametrize("settle", WITH_CHANGES.values(), ids=WITH_CHANGES.keys())
def test_settlement_changes_application_properties(
    harness: EntityHarness, queue: MessageQueue, settle: Settle
) -> None:
    harness.send("q", message("a", properties={"kept": Int32(1), "changed": "old"}))
    settle(queue, lock_one(queue)[1], {"changed": "new", "added": Timestamp(5)})
    harness.restart()

    (stored,) = [*harness.queue("q").peek(0, 10), *harness.dead_letters().peek(0, 10)]
    values = properties(stored)

    assert values["kept"] == 1
    assert type(values["kept"]) is Int32
    assert values["changed"] == "new"
    assert type(values["added"]) is Timestamp
    assert body(stored) == "a"


@pytest.mark.parametrize("settle", WITH_CHANGES.values(), ids=WITH_CHANGES.keys())
def test_settlement_with_properties_that_cannot_be_encoded_changes_nothing(
    harness: EntityHarness, queue: MessageQueue, settle: Settle
) -> None:
    harness.send("q", message("a"))
    _, token = lock_one(queue)

    with pytest.raises(EncodeError):
        settle(queue, token, {"a": object()})

    assert queue.has_locks([token], 0)
    queue.complete(token, 0)
    assert len(queue) == len(harness.dead_letters()) == 0


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
@pytest.mark.parametrize("ticks", [False, True], ids=["before a tick", "after a tick"])
def test_settlement_with_an_expired_lock_fails(
    harness: EntityHarness, queue: MessageQueue, settle: Callable[..., object], ticks: bool
) -> None:
    harness.send("q", message("a"))
    _, token = lock_one(queue)
    assert queue.has_locks([token], 99)
    if ticks:
        harness.tick(100)

    assert not queue.has_locks([token], 100)
    with pytest.raises(LockLost) as raised:
        settle(queue, token, 100)

    assert raised.value.condition == "com.microsoft:message-lock-lost"
    harness.tick(100)
    assert drain(queue, 100) == ["a"]


@each_settlement
def test_settled_message_cannot_be_settled_again(
    harness: EntityHarness, queue: MessageQueue, settle: Callable[..., object]
) -> None:
    harness.send("q", message("a"))
    _, token = lock_one(queue)
    queue.complete(token, 0)

    with pytest.raises(LockLost):
        settle(queue, token, 0)
    with pytest.raises(LockLost):
        settle(queue, b"unknown token", 0)


def test_expired_lock_counts_as_a_delivery(harness: EntityHarness, queue: MessageQueue) -> None:
    harness.send("q", message("a"))
    lock_one(queue)
    harness.tick(99)
    assert lock_all(queue, 99) == []
    harness.tick(100)

    stored, _ = lock_one(queue, 100)

    assert stored.deliveries == 1


def test_lock_holds_for_its_duration_after_the_last_renewal(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", message("a"))
    _, token = lock_one(queue)

    assert queue.renew_lock(token, 60) == 160
    assert queue.renew_lock(token, 90) == 190
    harness.tick(189)
    assert queue.has_locks([token], 189)
    harness.tick(190)
    assert not queue.has_locks([token], 190)
    assert drain(queue, 190) == ["a"]


def test_lock_has_the_duration_at_the_time_of_receiving(harness: EntityHarness) -> None:
    queue = harness.add_queue("other", lock_duration=timedelta(seconds=1))
    harness.send("other", message("a"), message("b"))
    (_, first), *_ = queue.receive(1, 0, locked=True)
    harness.entities.update("other", {"lock_duration": timedelta(seconds=2)}, 0)
    (_, second), *_ = queue.receive(1, 0, locked=True)

    assert first is not None
    assert second is not None
    assert (first.until_ms, second.until_ms) == (1000, 2000)


def test_restart_releases_all_locks_without_counting_deliveries(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", message("a"))
    _, token = lock_one(queue)
    harness.restart()

    stored, _ = lock_one(harness.queue("q"))

    assert (body(stored), stored.deliveries) == ("a", 0)
    assert not harness.queue("q").has_locks([token], 0)


def test_ended_locks_do_not_accumulate_in_memory(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    for _ in range(3 * MAX_STALE_TOKENS // 100):
        harness.send("q", *[message()] * 100)
        for token in lock_all(queue):
            queue.renew_lock(token, 1)
            queue.complete(token, 1)

    assert len(queue._locks) == len(queue._locks._by_sequence) == 0
    assert queue._locks._tokens_in_expiries <= MAX_STALE_TOKENS
    assert len(queue._locks._expiries) <= MAX_STALE_TOKENS
    assert len(queue._ready) == 0


# Deliveries.


@pytest.mark.parametrize("settlement", ["abandon", "expired lock"])
def test_message_is_dead_lettered_after_its_last_delivery(
    harness: EntityHarness, queue: MessageQueue, settlement: str
) -> None:
    harness.send("q", message("a", properties={"color": "red"}))
    now = 0
    for attempt in range(3):
        stored, token = lock_one(queue, now)
        assert stored.deliveries == attempt
        if settlement == "abandon":
            queue.abandon(token, {"last": attempt}, now)
        else:
            now += 100
            harness.tick(now)

    assert lock_all(queue, now) == []
    assert len(queue) == 0
    (dead,) = harness.dead_letters().peek(0, 10)
    assert dead.deliveries == 3
    assert properties(dead)["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert "3 delivery attempts" in properties(dead)["DeadLetterErrorDescription"]
    assert properties(dead)["color"] == "red"
    assert properties(dead).get("last") == (2 if settlement == "abandon" else None)


def test_delivery_count_survives_restarts(harness: EntityHarness, queue: MessageQueue) -> None:
    harness.send("q", message("a"))
    for attempt in range(3):
        stored, token = lock_one(harness.queue("q"))
        assert stored.deliveries == attempt
        harness.queue("q").abandon(token, {}, 0)
        harness.restart()

    assert dead_letter_reasons(harness.dead_letters()) == [("a", "MaxDeliveryCountExceeded")]


def test_deliveries_of_deferred_messages_are_counted(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    (number,) = harness.send("q", message("a"))
    queue.defer(lock_one(queue)[1], {}, 0)
    for _ in range(2):
        ((_, lock),) = queue.receive_deferred([number], 0, locked=True)
        assert lock is not None
        queue.abandon(lock.token, {}, 0)

    assert len(queue) == 0
    assert dead_letter_reasons(harness.dead_letters()) == [("a", "MaxDeliveryCountExceeded")]


# Dead letters.


def test_dead_letters_have_no_maximum_delivery_count(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", message("a"))
    queue.dead_letter(lock_one(queue)[1], "r", None, {}, 0)
    dead = harness.dead_letters()
    for attempt in range(20):
        stored, token = lock_one(dead)
        assert stored.deliveries == attempt
        dead.abandon(token, {}, 0)

    assert drain(dead) == ["a"]


def test_dead_letters_cannot_be_dead_lettered(harness: EntityHarness, queue: MessageQueue) -> None:
    harness.send("q", message("a"))
    queue.dead_letter(lock_one(queue)[1], "r", None, {}, 0)
    dead = harness.dead_letters()
    _, token = lock_one(dead)

    with pytest.raises(Refused):
        dead.dead_letter(token, "again", None, {}, 0)

    assert dead.has_locks([token], 0)
    dead.abandon(token, {}, 0)
    assert drain(dead) == ["a"]


def test_dead_letters_can_be_deferred(harness: EntityHarness, queue: MessageQueue) -> None:
    (number,) = harness.send("q", message("a"))
    queue.dead_letter(lock_one(queue)[1], "r", None, {}, 0)
    dead = harness.dead_letters()
    dead.defer(lock_one(dead)[1], {}, 0)

    assert drain(dead) == []
    ((stored, _),) = dead.receive_deferred([number], 0, locked=False)
    assert body(stored) == "a"


def test_messages_dead_lettered_out_of_order_are_each_received_once(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", *[message(str(number)) for number in range(6)])
    tokens = lock_all(queue)
    dead = harness.dead_letters()

    def dead_letter(*indexes: int) -> None:
        for index in indexes:
            queue.dead_letter(tokens[index], "r", None, {}, 0)

    dead_letter(4)
    assert drain(dead) == ["4"]
    dead_letter(5, 1)
    (locked,) = lock_all(dead, limit=1)
    dead_letter(0, 3)
    assert drain(dead) == ["0", "3", "5"]
    dead.abandon(locked, {}, 0)
    dead_letter(2)
    assert drain(dead) == ["1", "2"]
    assert len(dead) == 0


def test_many_messages_dead_lettered_out_of_order_are_each_received_once(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    total = 2 * MAX_BUFFERED
    harness.send("q", *[message(str(number)) for number in range(total)])
    tokens = lock_all(queue, limit=total)
    dead = harness.dead_letters()
    bodies: list[str] = []
    locked: list[bytes] = []
    # The second half first, in reverse order, with some of them received in between.
    for step, index in enumerate(
        [*reversed(range(MAX_BUFFERED, total)), *reversed(range(MAX_BUFFERED))]
    ):
        queue.dead_letter(tokens[index], "r", None, {}, 0)
        assert len(dead._ready) <= MAX_BUFFERED
        if step % 700 == 0:
            received = dead.receive(20, 0, locked=True)
            bodies += [body(stored) for stored, _ in received]
            locked += [lock.token for _, lock in received if lock is not None]
    bodies += drain(dead)

    assert sorted(map(int, bodies)) == list(range(total))
    assert len(dead) == len(locked)


def test_new_dead_letters_do_not_overwrite_older_ones(harness: EntityHarness) -> None:
    harness.add_topic()
    subscription = harness.add_subscription(requires_session=True)
    path = "t/Subscriptions/s"
    harness.send("t", message("with session", session="x"))
    assert subscription.sessions is not None
    subscription.sessions.accept("x", object(), 0)
    _, token = lock_one(subscription, session="x")
    harness.send("t", message("without session"))
    subscription.dead_letter(token, "r", None, {}, 0)
    harness.restart()
    harness.send("t", message("also without"))

    assert sorted(drain(harness.dead_letters(path))) == [
        "also without",
        "with session",
        "without session",
    ]


# Time-to-live.


def test_message_expires_after_its_time_to_live(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", message("short", ttl=50), message("long"))
    harness.tick(49)
    assert peek(queue) == ["short", "long"]
    harness.tick(50)

    assert peek(queue) == ["long"]
    assert drain(queue, 50) == ["long"]
    assert len(harness.dead_letters()) == 0


def test_expired_message_is_not_received_even_before_a_tick(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", message("short", ttl=50), message("long"))

    assert drain(queue, 50) == ["long"]
    assert len(queue) == 0


@pytest.mark.parametrize(
    ("entity_ttl_ms", "message_ttl_ms", "lifetime_ms"),
    [
        (1000, None, 1000),
        (1000, 2000, 1000),
        (2000, 1000, 1000),
        (None, 1000, 1000),
        (None, 0xFFFFFFFF, 0xFFFFFFFF),
    ],
)
def test_smaller_time_to_live_applies(
    harness: EntityHarness,
    entity_ttl_ms: int | None,
    message_ttl_ms: int | None,
    lifetime_ms: int,
) -> None:
    settings: dict[str, Any] = {}
    if entity_ttl_ms is not None:
        settings["default_message_time_to_live"] = timedelta(milliseconds=entity_ttl_ms)
    queue = harness.add_queue("other", **settings)
    harness.send("other", message("a", ttl=message_ttl_ms), now=5)
    harness.tick(5 + lifetime_ms - 1)
    assert len(queue) == 1
    harness.tick(5 + lifetime_ms)

    assert len(queue) == 0


def test_message_with_a_time_to_live_of_zero_is_never_received(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", message("a", ttl=0))

    assert drain(queue) == []


def test_message_without_a_time_to_live_never_expires(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", message("a"))
    harness.tick(10**15)

    assert drain(queue, 10**15) == ["a"]


@pytest.mark.parametrize("ticks", [False, True], ids=["on receiving", "by a tick"])
def test_expired_message_is_dead_lettered_if_configured(
    harness: EntityHarness, ticks: bool
) -> None:
    queue = harness.add_queue(dead_lettering_on_message_expiration=True)
    (number,) = harness.send("q", message("a", ttl=50))
    if ticks:
        harness.tick(50)
    else:
        assert drain(queue, 50) == []

    (dead,) = harness.dead_letters().peek(0, 10)

    assert properties(dead)["DeadLetterReason"] == "TTLExpiredException"
    assert dead.sequence == number
    harness.tick(10**12)
    assert drain(harness.dead_letters(), 10**12) == ["a"]  # dead letters do not expire


def test_locked_message_does_not_expire(harness: EntityHarness) -> None:
    queue = harness.add_queue(lock_duration=LOCK, dead_lettering_on_message_expiration=True)
    harness.send("q", message("a", ttl=50), message("b", ttl=50))
    first, second = lock_all(queue)
    harness.tick(60)

    assert peek(queue) == ["a", "b"]
    queue.complete(first, 60)
    queue.renew_lock(second, 70)
    harness.tick(169)
    assert queue.has_locks([second], 169)
    harness.tick(170)
    assert len(queue) == 0
    assert dead_letter_reasons(harness.dead_letters()) == [("b", "TTLExpiredException")]


def test_message_that_expired_while_locked_is_not_received_again(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", message("a", ttl=50))
    _, token = lock_one(queue)
    harness.tick(60)
    queue.abandon(token, {}, 60)

    assert drain(queue, 60) == []
    assert len(queue) == 0


def test_many_locked_messages_do_not_prevent_others_from_expiring(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", *[message("locked", ttl=50) for _ in range(20)])
    lock_all(queue)
    harness.send("q", *[message("free", ttl=60) for _ in range(5)])

    while harness.entities.tick(70, limit=10):
        pass

    assert set(peek(queue)) == {"locked"}


def test_deferred_messages_do_not_expire(harness: EntityHarness) -> None:
    queue = harness.add_queue(dead_lettering_on_message_expiration=True)
    (number,) = harness.send("q", message("a", ttl=50))
    queue.defer(lock_one(queue)[1], {}, 0)
    harness.tick(60)

    ((stored, _),) = queue.receive_deferred([number], 60, locked=False)

    assert body(stored) == "a"
    assert len(harness.dead_letters()) == 0


# Scheduling.


def test_scheduled_message_is_enqueued_when_due_with_a_new_sequence_number(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    (early,) = harness.send("q", message("later", at=50))
    (number,) = harness.send("q", message("now"))
    assert queue.counts == {ACTIVE: 1, DEFERRED: 0, SCHEDULED: 1}
    harness.tick(49)
    assert drain(queue, 49) == ["now"]
    harness.tick(50)

    stored, _ = lock_one(queue, 50)

    assert body(stored) == "later"
    assert stored.sequence > number > early
    assert stored.enqueued_ms == 50
    assert queue.counts == {ACTIVE: 1, DEFERRED: 0, SCHEDULED: 0}
    assert delivered(stored).read_message_annotations()["x-opt-scheduled-enqueue-time"] == 50


def test_messages_due_at_one_tick_are_ordered_by_their_scheduled_times(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", message("third", at=70), message("first", at=50), message("second", at=60))
    harness.tick(100)

    assert drain(queue, 100) == ["first", "second", "third"]


@pytest.mark.parametrize("at", [-5, 0, 10])
def test_message_scheduled_in_the_past_is_active_at_once(
    harness: EntityHarness, queue: MessageQueue, at: int
) -> None:
    harness.send("q", message("a", at=at), now=10)

    assert drain(queue, 10) == ["a"]


def test_time_to_live_of_a_scheduled_message_starts_when_it_is_due(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", message("a", at=1000, ttl=50))
    harness.tick(1000)
    harness.tick(1049)
    assert peek(queue) == ["a"]
    harness.tick(1050)
    assert peek(queue) == []


def test_scheduled_message_is_cancelled_once(harness: EntityHarness, queue: MessageQueue) -> None:
    numbers = harness.send("q", message("a", at=50), message("b", at=50), message("c", at=50))
    queue.cancel_scheduled([numbers[0], numbers[2], numbers[0]])

    assert len(queue) == 1
    with pytest.raises(MessageNotFound) as raised:
        queue.cancel_scheduled([numbers[1], numbers[0]])
    assert raised.value.condition == "com.microsoft:message-not-found"
    harness.tick(50)
    assert drain(queue, 50) == ["b"]
    assert len(queue) == queue.bytes == 0


def test_message_that_is_not_scheduled_cannot_be_cancelled(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    active, due = harness.send("q", message("a"), message("b", at=50))
    harness.tick(50)

    for number in (active, due, 0, 10**9):
        with pytest.raises(MessageNotFound):
            queue.cancel_scheduled([number])
    assert drain(queue, 50) == ["a", "b"]


# Deferral.


def test_deferred_messages_are_received_all_or_none(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    numbers = harness.send("q", message("a"), message("b"), message("c"))
    for token in lock_all(queue, limit=2):
        queue.defer(token, {}, 0)

    with pytest.raises(MessageNotFound) as raised:
        queue.receive_deferred(numbers, 0, locked=False)

    assert raised.value.condition == "com.microsoft:message-not-found"
    received = queue.receive_deferred([numbers[1], numbers[0], numbers[1]], 0, locked=False)
    assert [body(stored) for stored, _ in received] == ["b", "a"]
    assert len(queue) == 1


def test_locked_deferred_message_is_not_received_again(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    (number,) = harness.send("q", message("a"))
    queue.defer(lock_one(queue)[1], {}, 0)
    queue.receive_deferred([number], 0, locked=True)

    with pytest.raises(MessageNotFound):
        queue.receive_deferred([number], 0, locked=True)
    harness.tick(100)
    ((stored, _),) = queue.receive_deferred([number], 100, locked=True)
    assert stored.deliveries == 2


@pytest.mark.parametrize("settlement", ["abandon", "defer"])
def test_deferred_message_stays_deferred_until_it_is_settled(
    harness: EntityHarness, queue: MessageQueue, settlement: str
) -> None:
    (number,) = harness.send("q", message("a"))
    queue.defer(lock_one(queue)[1], {}, 0)
    ((_, lock),) = queue.receive_deferred([number], 0, locked=True)
    assert lock is not None
    (queue.abandon if settlement == "abandon" else queue.defer)(lock.token, {}, 0)

    assert drain(queue) == []
    assert queue.counts == {ACTIVE: 0, DEFERRED: 1, SCHEDULED: 0}
    ((_, lock),) = queue.receive_deferred([number], 0, locked=True)
    assert lock is not None
    queue.dead_letter(lock.token, "r", None, {}, 0)
    assert len(queue) == 0
    assert drain(harness.dead_letters()) == ["a"]


def test_queue_without_sessions_ignores_session_ids(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    (number,) = harness.send("q", message("a", session="x"))
    queue.defer(lock_one(queue)[1], {}, 0)

    ((stored, _),) = queue.receive_deferred([number], 0, locked=False)

    assert body(stored) == "a"


# Peeking.


def test_peek_returns_messages_in_all_states_and_changes_nothing(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    harness.send("q", message("locked"), message("deferred"), message("active"))
    harness.send("q", message("scheduled", at=50))
    _, second = lock_all(queue, limit=2)
    queue.defer(second, {}, 0)

    for _ in range(2):
        messages = queue.peek(0, 10)
        assert [(body(stored), stored.state, stored.deliveries) for stored in messages] == [
            ("locked", ACTIVE, 0),
            ("deferred", DEFERRED, 1),
            ("active", ACTIVE, 0),
            ("scheduled", SCHEDULED, 0),
        ]
    assert drain(queue) == ["active"]


def test_peek_continues_after_a_sequence_number(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    numbers = harness.send("q", *[message(str(number)) for number in range(5)])

    assert [body(stored) for stored in queue.peek(numbers[1], 2)] == ["2", "3"]
    assert [body(stored) for stored in queue.peek(numbers[3], 2)] == ["4"]
    assert queue.peek(numbers[4], 2) == []


# Restarts.


def test_restart_keeps_messages_states_and_counts(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    numbers = harness.send("q", *[message(str(number)) for number in range(5)])
    scheduled, cancelled = harness.send("q", message("later", at=50), message("no", at=50))
    queue.cancel_scheduled([cancelled])
    tokens = lock_all(queue, limit=4)
    queue.complete(tokens[0], 0)
    queue.abandon(tokens[1], {}, 0)
    queue.defer(tokens[2], {}, 0)
    counts, size = dict(queue.counts), queue.bytes
    harness.restart()
    queue = harness.queue("q")

    assert (queue.counts, queue.bytes) == (counts, size)
    assert counts == {ACTIVE: 3, DEFERRED: 1, SCHEDULED: 1}
    assert [stored.sequence for stored in queue.peek(0, 10)] == [*numbers[1:], scheduled]
    assert drain(queue) == ["1", "3", "4"]
    ((stored, _),) = queue.receive_deferred([numbers[2]], 0, locked=False)
    assert body(stored) == "2"
    harness.tick(50)
    assert drain(queue, 50) == ["later"]
    assert len(queue) == queue.bytes == 0


def test_sequence_numbers_are_never_reused(harness: EntityHarness, queue: MessageQueue) -> None:
    numbers: list[int] = []
    for start in range(4):
        numbers += harness.send("q", *[message()] * (RESERVATION_SIZE // 2 * start + 1))
        harness.send("q", message("dead"))
        for token in lock_all(harness.queue("q"), limit=10_000):
            harness.queue("q").dead_letter(token, "r", None, {}, 0)
        drain(harness.dead_letters())
        harness.restart()

    assert numbers == sorted(set(numbers))


# Memory.


def test_long_queue_is_not_kept_in_memory(harness: EntityHarness, queue: MessageQueue) -> None:
    total = 20_000
    expected = [str(number) for number in range(total)]
    for start in range(0, total, 1000):
        harness.send("q", *[message(text) for text in expected[start : start + 1000]])
    assert len(queue) == total
    assert len(queue._ready) <= MAX_BUFFERED

    bodies: list[str] = []
    max_in_memory = 0
    while received := queue.receive(100, 0, locked=True):
        for stored, lock in received:
            assert lock is not None
            bodies.append(body(stored))
            queue.complete(lock.token, 0)
        if len(bodies) <= PAGE_SIZE:
            harness.send("q", message("more"))
        numbers = len(queue._ready._new) + len(queue._ready._returned)
        max_in_memory = max(max_in_memory, len(queue._ready), numbers)

    assert bodies[:total] == expected
    assert set(bodies[total:]) == {"more"}
    assert max_in_memory <= MAX_BUFFERED
    assert len(queue) == 0


def test_order_is_kept_when_sending_and_receiving_alternate(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    sent = received = 0
    for step in range(60):
        count = 120 if step < 40 else 20
        harness.send("q", *[message(str(sent + offset)) for offset in range(count)])
        sent += count
        for stored, _ in queue.receive(70, 0, locked=False):
            assert body(stored) == str(received)
            received += 1
        assert len(queue._ready) <= MAX_BUFFERED
    for text in drain(queue):
        assert text == str(received)
        received += 1

    assert received == sent


# Encoding.


def test_delivery_has_the_annotations_of_the_service(
    harness: EntityHarness, queue: MessageQueue
) -> None:
    (number,) = harness.send("q", message("a", properties={"color": "red"}), now=7)
    ((stored, lock),) = queue.receive(1, 9, locked=True)
    assert lock is not None
    delivery = Message.parse(encode_deliveries([stored], [lock.token], lock.until_ms)[0])

    annotations = delivery.read_message_annotations()

    assert annotations == {
        Symbol("x-opt-enqueued-time"): 7,
        Symbol("x-opt-sequence-number"): number,
        Symbol("x-opt-locked-until"): 109,
    }
    assert type(annotations["x-opt-enqueued-time"]) is Timestamp
    assert type(annotations["x-opt-locked-until"]) is Timestamp
    assert delivery.read_header().delivery_count == 0
