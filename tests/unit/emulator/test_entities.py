"""Entities: made, found, changed, removed, sent to and forwarded from, and there after a start."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from pairbus.amqp.types import Symbol
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.entities.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.emulator.entities.entity import Entity
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.filters.rules import CorrelationFilter, Rule, SqlAction, SqlFilter
from pairbus.errors import (
    ConfigurationError,
    EntityDisabled,
    EntityExists,
    EntityNotFound,
    LockLost,
    MessageNotFound,
    MessageTooLarge,
    QuotaExceeded,
    Refused,
)
from tests.unit.emulator.local import (
    Local,
    body,
    drain,
    message,
    properties,
    received,
    seen,
    take_one,
    why_dead,
)

KEY = "c2VjcmV0LWtleS10aGF0LWlzLW5vdC1zaG93bg=="


# Making and finding.


def test_what_was_made_is_found_whatever_the_spelling(local: Local) -> None:
    made = local.entities.create(QueueDescription(name="Orders/New"), 5)

    for spelling in ("Orders/New", "orders/new", "/ORDERS/NEW/"):
        assert local.entities.get(spelling) is made
    assert made.path == "Orders/New"
    assert made.row.created_ms == 5


@pytest.mark.parametrize(
    "path", ["other", "orders", "orders/new/more", "orders/new/$deadletterqueue", ""]
)
def test_what_was_not_made_is_not_found(local: Local, path: str) -> None:
    local.add_queue("orders/new")

    assert local.entities.find(path) is None
    with pytest.raises(EntityNotFound):
        local.entities.get(path)


@pytest.mark.parametrize("kind", [QueueDescription, TopicDescription])
def test_a_name_is_given_once(local: Local, kind: Any) -> None:
    local.add_queue("orders")

    with pytest.raises(EntityExists):
        local.entities.create(kind(name="ORDERS"), 0)


def test_a_subscription_needs_its_topic(local: Local) -> None:
    local.add_queue("q")
    for topic in ("none", "q"):
        with pytest.raises(EntityNotFound):
            local.entities.create(SubscriptionDescription(topic=topic, name="s"), 0)
    local.add_topic("t")
    local.add_subscription("s")

    with pytest.raises(EntityExists):
        local.add_subscription("S", topic="T")


@pytest.mark.parametrize("setting", ["forward_to", "forward_dead_lettered_messages_to"])
def test_where_an_entity_forwards_to_must_be_there(local: Local, setting: str) -> None:
    with pytest.raises(EntityNotFound):
        local.add_queue("q", **{setting: "nowhere"})
    local.add_queue("q")
    with pytest.raises(EntityNotFound):
        local.entities.update("q", {setting: "nowhere"}, 0)
    local.add_queue("there")
    local.entities.update("q", {setting: "sb://localhost:5671/There"}, 0)


def test_what_could_not_be_made_leaves_nothing_behind(local: Local) -> None:
    local.add_topic("t")
    with pytest.raises(ConfigurationError):
        local.add_subscription(rule=Rule(name="r", filter=SqlFilter("not a (filter")))
    with pytest.raises(EntityNotFound):
        local.add_queue("q", forward_to="nowhere")
    local.restart()

    assert [entity.path for entity in local.entities.all()] == ["t"]


def test_entities_are_listed_by_kind_and_path(local: Local) -> None:
    local.add_topic("t")
    local.add_subscription("b")
    local.add_subscription("A")
    local.add_queue("Z")
    local.add_queue("a")

    def paths(kind: Any = None) -> list[str]:
        return [entity.path for entity in local.entities.all(kind)]

    assert paths(QueueDescription) == ["a", "Z"]
    assert paths(TopicDescription) == ["t"]
    assert paths(SubscriptionDescription) == ["t/Subscriptions/A", "t/Subscriptions/b"]
    assert len(paths()) == 5


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("q", 0),
        ("Q/$DeadLetterQueue", 1),
        ("q/$deadletterqueue", 1),
        ("q/$Transfer/$DeadLetterQueue", 2),
        ("sb://localhost:5671/q%2F$DeadLetterQueue", 1),
    ],
)
def test_an_address_leads_to_a_queue_or_one_of_its_sub_queues(
    local: Local, address: str, place: int
) -> None:
    local.add_queue("q")
    entity = local.entities.get("q")

    assert local.entities.source(address) == (entity, entity.queues[place])


# Changing.


def test_an_update_counts_from_now_on(local: Local) -> None:
    queue = local.add_queue("q", lock_duration=timedelta(seconds=1), max_delivery_count=9)
    local.send("q", message("a"), message("b"))
    before, _ = take_one(queue)
    entity = local.entities.update(
        "Q", {"lock_duration": timedelta(seconds=5), "max_delivery_count": 1}, 77
    )
    _, token = take_one(queue)

    assert before.deliveries == 0
    assert entity.row.updated_ms == 77
    assert queue.has_lock(token, 4999)
    queue.abandon(token, {}, 4999)
    assert why_dead(local.dead()) == [("b", "MaxDeliveryCountExceeded")]


@pytest.mark.parametrize(
    "setting", ["requires_session", "requires_duplicate_detection", "enable_partitioning"]
)
def test_some_settings_are_for_ever(local: Local, setting: str) -> None:
    local.add_queue("q")

    with pytest.raises(ConfigurationError):
        local.entities.update("q", {setting: True}, 0)
    assert not getattr(local.entities.get("q").description, setting)


def test_a_bad_value_changes_nothing(local: Local) -> None:
    queue = local.add_queue("q", max_delivery_count=5)

    with pytest.raises(ConfigurationError):
        local.entities.update("q", {"max_delivery_count": 0}, 0)
    with pytest.raises(EntityNotFound):
        local.entities.update("other", {}, 0)
    assert queue.settings.max_delivery_count == 5


def test_dead_letters_of_sessions_have_none_after_an_update_either(local: Local) -> None:
    local.add_queue("q", requires_session=True)
    local.entities.update("q", {"max_delivery_count": 5}, 0)

    assert not local.dead().settings.requires_session
    assert local.at("q").settings.requires_session


# Removing.


def test_what_was_deleted_is_gone_with_all_that_it_held(local: Local) -> None:
    queue = local.add_queue("q")
    local.send("q", message("a"), message("b"), message("c", at=50))
    queue.dead_letter(take_one(queue)[1], "r", None, {}, 0)
    local.entities.delete("Q")
    local.tick(100)
    local.restart()
    fresh = local.add_queue("q")

    assert len(fresh) == len(local.dead()) == 0
    assert seen(fresh) == seen(local.dead()) == []


def test_a_topic_goes_with_its_subscriptions(local: Local) -> None:
    for topic in ("t", "tt"):
        local.add_topic(topic)
        local.add_subscription("s", topic=topic)
    local.entities.delete("t")

    assert sorted(local.deleted) == ["t", "t/Subscriptions/s"]
    assert len(local.entities.all()) == 2
    local.restart()
    assert [entity.path for entity in local.entities.all()] == ["tt", "tt/Subscriptions/s"]
    with pytest.raises(EntityNotFound):
        local.entities.delete("t")


@pytest.fixture
def stale(local: Local) -> Iterator[tuple[Entity, MessageQueue, bytes, int]]:
    """A queue that was deleted and made again, with locks and numbers of the old one."""
    queue = local.add_queue("q", requires_session=True)
    entity = local.entities.get("q")
    assert queue.sessions is not None
    queue.sessions.accept("x", "holder", 0)
    numbers = local.send("q", message("old", session="x"), message("older", session="x"))
    _, token = take_one(queue, session="x")
    local.entities.on_gone = lambda _: queue.sessions and queue.sessions.release("x", "holder", 0)
    local.entities.delete("q")
    local.add_queue("q", requires_session=True)
    local.send("q", message("new", session="x"), message("newer", session="x"))
    yield entity, queue, token, numbers[1]
    assert seen(local.at("q")) == ["new", "newer"]
    local.restart()
    assert seen(local.at("q")) == ["new", "newer"]
    assert len(local.at("q")) == 2


def test_who_still_knows_a_deleted_queue_gets_nothing_from_it(
    local: Local, stale: tuple[Entity, MessageQueue, bytes, int]
) -> None:
    _, queue, token, number = stale

    with pytest.raises(LockLost):
        queue.complete(token, 0)
    with pytest.raises(LockLost):
        queue.abandon(token, {}, 0)
    with pytest.raises(LockLost):
        queue.receive(1, 0, locked=True, session="x")
    with pytest.raises(MessageNotFound):
        queue.cancel_scheduled([number])
    assert seen(queue) == []
    queue.expire_locks(10**9)


def test_who_still_knows_a_deleted_entity_cannot_send_to_it(
    local: Local, stale: tuple[Entity, MessageQueue, bytes, int]
) -> None:
    with pytest.raises(EntityNotFound):
        local.entities.router.send(stale[0], [message("a", session="x")], 0)


# Starts.

RICH_QUEUE = QueueDescription(
    name="Rich/Queue",
    lock_duration=timedelta(seconds=17, milliseconds=250),
    max_size_in_megabytes=3,
    requires_duplicate_detection=True,
    requires_session=True,
    default_message_time_to_live=timedelta(days=3, microseconds=5),
    dead_lettering_on_message_expiration=True,
    duplicate_detection_history_time_window=timedelta(minutes=1),
    max_delivery_count=2147483647,
    enable_batched_operations=False,
    authorization_rules=(
        SharedAccessRule(name="sender", primary_key=KEY, rights=frozenset({Right.SEND})),
    ),
    status=EntityStatus.RECEIVE_DISABLED,
    support_ordering=False,
    auto_delete_on_idle=timedelta(hours=1),
    user_metadata="<a> & 'b' \n ü",
    forward_dead_lettered_messages_to="t",
    max_message_size_in_kilobytes=5,
)
RICH_TOPIC = TopicDescription(
    name="t",
    default_message_time_to_live=timedelta(minutes=2),
    filtering_messages_before_publishing=True,
    support_ordering=True,
    status=EntityStatus.SEND_DISABLED,
)
RICH_SUBSCRIPTION = SubscriptionDescription(
    topic="t",
    name="s",
    dead_lettering_on_filter_evaluation_exceptions=False,
    forward_to="q",
    user_metadata="m",
)
RICH_RULES = (
    Rule(name="$Default"),
    Rule(
        name="sql",
        filter=SqlFilter("a > @b AND c < '<d>'", {"@b": 5}),
        action=SqlAction("SET e = @f; REMOVE g", {"@f": "h"}),
    ),
    Rule(
        name="Correlation",
        filter=CorrelationFilter(label="l", session_id="s", properties={"p": 1, "q": True}),
    ),
)


def test_a_start_finds_every_setting_and_rule(local: Local) -> None:
    local.add_queue("q")
    for description in (RICH_TOPIC, RICH_QUEUE, RICH_SUBSCRIPTION):
        local.entities.create(description, 5)
    for rule in RICH_RULES[1:]:
        local.entities.create_rule("t/subscriptions/s", rule, 0)
    local.entities.update("q", {"user_metadata": "changed"}, 6)
    local.restart()

    assert local.entities.get("rich/queue").description == RICH_QUEUE
    assert local.entities.get("t").description == RICH_TOPIC
    subscription = local.entities.get("t/subscriptions/s")
    assert subscription.description == RICH_SUBSCRIPTION
    assert {rule.name: rule for rule in subscription.rules.values()} == {
        rule.name: rule for rule in RICH_RULES
    }
    changed = local.entities.get("q")
    assert changed.description.user_metadata == "changed"
    assert (changed.row.created_ms, changed.row.updated_ms) == (0, 6)


def test_what_was_not_committed_is_as_if_it_had_not_been(local: Local) -> None:
    local.add_queue("kept")
    local.send("kept", message("a"))
    local.store.commit()
    local.add_queue("new")
    local.send("kept", message("b"))
    queue = local.at("kept")
    queue.complete(take_one(queue)[1], 0)
    local.entities.update("kept", {"max_delivery_count": 3}, 0)
    local.kill()

    assert [entity.path for entity in local.entities.all()] == ["kept"]
    assert local.at("kept").settings.max_delivery_count == 10
    assert drain(local.at("kept")) == ["a"]


def test_numbers_that_were_told_are_not_given_again_after_a_kill(local: Local) -> None:
    local.add_queue("q", forward_to=local.add_queue("target").path)
    told: list[int] = []
    for _ in range(5):
        told += local.send("q", message("a"), message("b", at=50))
        local.store.commit()
        local.send("q", message("never told"))
        local.kill()

    assert told == sorted(set(told))


def test_the_numbers_at_run_time_are_right_before_and_after_a_start(local: Local) -> None:
    queue = local.add_queue("q")
    local.send("q", *[message("x" * 100)] * 4, message("later", at=50))
    queue.dead_letter(take_one(queue)[1], "r", None, {}, 0)
    queue.defer(take_one(queue)[1], {}, 0)
    take_one(queue)

    before = local.entities.runtime_properties(local.entities.get("q"))
    local.restart()
    after = local.entities.runtime_properties(local.entities.get("q"))

    assert before == after
    assert (before.counts.active, before.counts.scheduled, before.counts.dead_letter) == (3, 1, 1)
    assert before.size_in_bytes > 400


# Sending.


def test_what_is_too_large_is_refused_and_so_is_all_that_came_with_it(local: Local) -> None:
    queue = local.add_queue("q", max_message_size_in_kilobytes=1)
    exact = 1024 - message("").size - 3  # a longer body takes three bytes more for its size

    with pytest.raises(MessageTooLarge) as caught:
        local.send("q", message("small"), message("x" * (exact + 1)))

    assert caught.value.condition == "amqp:link:message-size-exceeded"
    assert len(queue) == 0
    assert message("x" * exact).size == 1024
    local.send("q", message("x" * exact))
    assert len(queue) == 1


def test_a_queue_is_full_when_it_holds_its_quota_dead_letters_included(local: Local) -> None:
    queue = local.add_queue("q", max_size_in_megabytes=1)
    big = message("x" * 200_000)
    local.send("q", big, big)
    queue.dead_letter(take_one(queue)[1], "r", None, {}, 0)

    with pytest.raises(QuotaExceeded) as caught:
        local.send("q", big, big, big, big)
    assert caught.value.condition == "amqp:resource-limit-exceeded"
    assert len(queue) == 1
    local.send("q", big, big, big)
    with pytest.raises(QuotaExceeded):
        local.send("q", big)
    local.restart()
    with pytest.raises(QuotaExceeded):
        local.send("q", big)
    drain(local.dead())
    local.send("q", big)
    local.entities.update("q", {"max_size_in_megabytes": 2}, 0)
    local.send("q", big)


def test_a_topic_is_full_when_its_subscriptions_hold_its_quota(local: Local) -> None:
    local.add_topic(max_size_in_megabytes=1)
    first, second = local.add_subscription("a"), local.add_subscription("b")
    big = message("x" * 200_000)
    for _ in range(3):
        local.send("t", big)

    with pytest.raises(QuotaExceeded):
        local.send("t", big)
    drain(first)
    local.send("t", big)
    assert len(second) == 4


@pytest.mark.parametrize(
    ("status", "takes"),
    [
        (EntityStatus.ACTIVE, True),
        (EntityStatus.RECEIVE_DISABLED, True),
        (EntityStatus.SEND_DISABLED, False),
        (EntityStatus.DISABLED, False),
    ],
)
def test_an_entity_can_be_closed_for_sending(
    local: Local, status: EntityStatus, takes: bool
) -> None:
    queue = local.add_queue("q")
    local.send("q", message("before", at=50))
    local.entities.update("q", {"status": status}, 0)
    if takes:
        local.send("q", message("after"))
    else:
        with pytest.raises(EntityDisabled) as caught:
            local.send("q", message("after"))
        assert caught.value.condition == "com.microsoft:entity-disabled"
    local.tick(50)

    assert drain(queue, 50) == (["after", "before"] if takes else ["before"])


def test_nobody_sends_to_a_subscription(local: Local) -> None:
    local.add_topic()
    local.add_subscription()

    with pytest.raises(Refused):
        local.send("t/Subscriptions/s", message())


# Duplicates.


@pytest.fixture
def once(local: Local) -> MessageQueue:
    """A queue that knows the ids of the last minute."""
    return local.add_queue(
        "once",
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=1),
    )


def test_a_message_id_is_taken_once_within_the_window(local: Local, once: MessageQueue) -> None:
    first = local.send("once", message("a", id="1"), message("b", id="2"), now=0)
    again = local.send("once", message("c", id="1"), message("d", id="3"), now=59_999)
    later = local.send("once", message("e", id="1"), now=60_000)

    assert 0 not in first + later
    assert again[0] == 0 != again[1]
    assert drain(once) == ["a", "b", "d", "e"]


def test_duplicates_within_one_send_are_dropped(local: Local, once: MessageQueue) -> None:
    local.send("once", message("a", id="1"), message("b", id="1"))

    assert drain(once) == ["a"]


def test_a_duplicate_is_one_even_if_the_first_is_long_gone(
    local: Local, once: MessageQueue
) -> None:
    local.send("once", message("a", id="1"))
    drain(once)
    local.restart()
    local.send("once", message("b", id="1"), now=100)

    assert drain(local.at("once")) == []


def test_scheduled_messages_are_compared_when_they_are_sent(
    local: Local, once: MessageQueue
) -> None:
    local.send("once", message("a", id="1", at=50))
    local.send("once", message("b", id="1"))
    local.tick(50)

    assert drain(once, 50) == ["a"]


def test_what_was_refused_was_not_seen(local: Local, once: MessageQueue) -> None:
    with pytest.raises(MessageTooLarge):
        local.send("once", message("a", id="1"), message("x" * 300_000, id="2"))
    local.send("once", message("a", id="1"))

    assert drain(once) == ["a"]


def test_messages_without_an_id_are_never_duplicates(local: Local, once: MessageQueue) -> None:
    local.send("once", message("a"), message("b"))

    assert drain(once) == ["a", "b"]


def test_ids_are_not_compared_where_nobody_asked_for_it_nor_between_queues(
    local: Local, once: MessageQueue
) -> None:
    queue = local.add_queue("q")
    local.send("q", message("a", id="1"), message("b", id="1"))
    local.send("once", message("c", id="1"))

    assert drain(queue) == ["a", "b"]
    assert drain(once) == ["c"]


def test_ids_of_the_past_are_forgotten(local: Local, once: MessageQueue) -> None:
    local.send("once", message(id="1"), now=0)
    local.send("once", message(id="2"), now=10)
    local.tick(60_000)

    assert local.store._database.read("SELECT message_id FROM seen") == [("2",)]


# Forwarding.


def test_a_queue_forwards_along_a_chain_and_keeps_nothing(local: Local) -> None:
    for name, target in (("d", None), ("c", "d"), ("b", "c"), ("a", "b")):
        local.add_queue(name, forward_to=target)
    numbers = local.send("a", message("x", id="1", properties={"p": 1}), now=7)

    assert all(numbers)
    assert [len(local.at(name)) for name in "abcd"] == [0, 0, 0, 1]
    (stored,) = local.at("d").peek(0, 10)
    assert (body(stored), properties(stored)) == ("x", {"p": 1})


@pytest.mark.parametrize("length", [4, 5])
def test_a_message_is_forwarded_four_times_and_no_more(local: Local, length: int) -> None:
    names = [f"q{number}" for number in range(length + 1)]
    for name, target in zip(reversed(names), [None, *reversed(names)], strict=False):
        local.add_queue(name, forward_to=target)
    local.send("q0", message("x"))

    if length == 4:
        assert drain(local.at("q4")) == ["x"]
    else:
        assert why_dead(local.undelivered("q4")) == [("x", "MaxTransferHopCountExceeded")]
        assert len(local.at("q5")) == 0


def test_a_circle_ends_in_the_transfer_dead_letters(local: Local) -> None:
    local.add_queue("a")
    local.add_queue("b", forward_to="a")
    local.entities.update("a", {"forward_to": "b"}, 0)
    local.send("a", message("x"))

    assert why_dead(local.undelivered("a")) == [("x", "MaxTransferHopCountExceeded")]
    assert len(local.at("a")) == len(local.at("b")) == 0


def test_a_scheduled_message_is_forwarded_when_its_time_comes(local: Local) -> None:
    local.add_queue("target")
    queue = local.add_queue("q", forward_to="target")
    local.send("q", message("x", at=50))
    assert len(queue) == 1
    local.restart()
    local.tick(50)

    assert len(local.at("q")) == 0
    assert drain(local.at("target"), 50) == ["x"]


def obstacle(local: Local, kind: str) -> None:
    """Make the queue `target` one that takes nothing."""
    if kind == "EntityNotFound":
        local.entities.delete("target")
    elif kind == "EntityDisabled":
        local.entities.update("target", {"status": EntityStatus.SEND_DISABLED}, 0)
    elif kind == "MessageTooLarge":
        local.entities.update("target", {"max_message_size_in_kilobytes": 1}, 0)
    elif kind == "QuotaExceeded":
        local.entities.update("target", {"max_size_in_megabytes": 1}, 0)
        local.send("target", *[message("full" * 50_000)] * 5)


@pytest.mark.parametrize(
    "kind", ["EntityNotFound", "EntityDisabled", "MessageTooLarge", "QuotaExceeded"]
)
def test_what_cannot_be_forwarded_is_kept_with_the_reason(local: Local, kind: str) -> None:
    local.add_queue("target", max_size_in_megabytes=2)
    local.add_queue("q", forward_to="target")
    obstacle(local, kind)
    local.send("q", message("x" * 100_000, ttl=50), now=5)
    local.restart()
    local.tick(10**6)  # dead letters do not expire

    (stored,) = local.undelivered().peek(0, 10)

    assert properties(stored)["DeadLetterReason"] == kind
    assert len(properties(stored)["DeadLetterErrorDescription"]) > 10
    assert received(stored).read_message_annotations()[Symbol("x-opt-deadletter-source")] == "q"
    assert (
        local.entities.runtime_properties(local.entities.get("q")).counts.transfer_dead_letter == 1
    )


def test_a_message_without_a_session_is_not_forwarded_to_a_queue_that_has_them(
    local: Local,
) -> None:
    local.add_queue("target", requires_session=True)
    local.add_queue("q", forward_to="target")
    local.send("q", message("has none"), message("has one", session="x"))

    assert why_dead(local.undelivered()) == [("has none", "Refused")]
    assert seen(local.at("target")) == ["has one"]


# Forwarding of dead letters.


def test_dead_letters_are_forwarded_where_the_queue_is_set_to(local: Local) -> None:
    graves = local.add_queue("graves", lock_duration=timedelta(seconds=1))
    queue = local.add_queue(
        "q",
        forward_dead_lettered_messages_to="graves",
        dead_lettering_on_message_expiration=True,
        max_delivery_count=1,
    )
    local.send("q", message("told", properties={"p": 1}), message("tried"), message("old", ttl=50))
    queue.dead_letter(take_one(queue)[1], "Broken", "No wheels.", {"q": 2}, 0)
    queue.abandon(take_one(queue)[1], {}, 0)
    local.tick(50)
    local.restart()
    graves = local.at("graves")
    local.tick(10**6)

    assert len(local.at("q")) == len(local.dead()) == 0
    assert why_dead(graves) == [
        ("told", "Broken"),
        ("tried", "MaxDeliveryCountExceeded"),
        ("old", "TTLExpiredException"),  # and does not expire again
    ]
    first = graves.peek(0, 1)[0]
    assert properties(first) == {
        "p": 1,
        "q": 2,
        "DeadLetterReason": "Broken",
        "DeadLetterErrorDescription": "No wheels.",
    }
    assert received(first).read_message_annotations()["x-opt-deadletter-source"] == "q"
    assert first.deliveries == 0


def test_forwarding_of_dead_letters_can_be_switched_on_and_off(local: Local) -> None:
    local.add_queue("graves")
    queue = local.add_queue("q")
    local.send("q", message("a"), message("b"), message("c"))
    for target in (None, "graves", None):
        local.entities.update("q", {"forward_dead_lettered_messages_to": target}, 0)
        queue.dead_letter(take_one(queue)[1], "r", None, {}, 0)

    assert seen(local.dead()) == ["a", "c"]
    assert seen(local.at("graves")) == ["b"]


def test_a_dead_letter_names_the_last_place_where_it_died(local: Local) -> None:
    graves = local.add_queue("graves")
    queue = local.add_queue("q", forward_dead_lettered_messages_to="graves")
    local.send("q", message("a"))
    queue.dead_letter(take_one(queue)[1], "first", None, {}, 0)
    graves.dead_letter(take_one(graves)[1], "second", None, {}, 0)

    (stored,) = local.dead("graves").peek(0, 10)

    assert properties(stored)["DeadLetterReason"] == "second"
    assert received(stored).read_message_annotations()["x-opt-deadletter-source"] == "graves"


def test_a_dead_letter_that_cannot_be_forwarded_is_not_lost(local: Local) -> None:
    local.add_queue("target")
    queue = local.add_queue("q", forward_dead_lettered_messages_to="target")
    local.send("q", message("a"))
    obstacle(local, "EntityNotFound")
    queue.dead_letter(take_one(queue)[1], "r", None, {}, 0)

    assert why_dead(local.undelivered()) == [("a", "EntityNotFound")]


def test_two_queues_may_be_each_others_graves(local: Local) -> None:
    local.add_queue("a")
    local.add_queue("b", forward_dead_lettered_messages_to="a")
    local.entities.update("a", {"forward_dead_lettered_messages_to": "b"}, 0)
    local.send("a", message("x"))
    for name in "abab":
        queue = local.at(name)
        queue.dead_letter(take_one(queue)[1], name, None, {}, 0)

    assert why_dead(local.at("a")) == [("x", "b")]
    assert len(local.at("b")) == 0
