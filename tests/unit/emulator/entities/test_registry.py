"""The registry of entities: lookup, lifecycle, sending, duplicates, forwarding, restarts."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from pairbus.amqp.sections import Message
from pairbus.amqp.types import Symbol
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.entities.descriptions import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.emulator.entities.entity import Entity
from pairbus.emulator.entities.message_codec import IncomingMessage, parse_message
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
from pairbus.servicebus.annotations import PARTITION_KEY
from pairbus.servicebus.entity_status import EntityStatus
from tests.unit.emulator.entities.harness import (
    EntityHarness,
    body,
    dead_letter_reasons,
    delivered,
    drain,
    lock_one,
    message,
    payload,
    peek,
    properties,
)

KEY = "c2VjcmV0LWtleS10aGF0LWlzLW5vdC1zaG93bg=="


# Lookup and creation.


def test_entity_is_found_in_any_case(harness: EntityHarness) -> None:
    created = harness.entities.create(QueueDescription(name="Orders/New"), 5)

    for spelling in ("Orders/New", "orders/new", "/ORDERS/NEW/"):
        assert harness.entities.get(spelling) is created
    assert created.path == "Orders/New"
    assert created.row.created_ms == 5


@pytest.mark.parametrize(
    "path", ["other", "orders", "orders/new/more", "orders/new/$deadletterqueue", ""]
)
def test_unknown_path_is_not_found(harness: EntityHarness, path: str) -> None:
    harness.add_queue("orders/new")

    assert harness.entities.find(path) is None
    with pytest.raises(EntityNotFound):
        harness.entities.get(path)


@pytest.mark.parametrize("kind", [QueueDescription, TopicDescription])
def test_name_is_unique_among_queues_and_topics(harness: EntityHarness, kind: Any) -> None:
    harness.add_queue("orders")

    with pytest.raises(EntityExists):
        harness.entities.create(kind(name="ORDERS"), 0)


def test_subscription_requires_its_topic(harness: EntityHarness) -> None:
    harness.add_queue("q")
    for topic in ("none", "q"):
        with pytest.raises(EntityNotFound):
            harness.entities.create(SubscriptionDescription(topic=topic, name="s"), 0)
    harness.add_topic("t")
    harness.add_subscription("s")

    with pytest.raises(EntityExists):
        harness.add_subscription("S", topic="T")


@pytest.mark.parametrize("setting", ["forward_to", "forward_dead_lettered_messages_to"])
def test_forwarding_target_must_exist(harness: EntityHarness, setting: str) -> None:
    with pytest.raises(EntityNotFound):
        harness.add_queue("q", **{setting: "nowhere"})
    harness.add_queue("q")
    with pytest.raises(EntityNotFound):
        harness.entities.update("q", {setting: "nowhere"}, 0)
    harness.add_queue("there")
    harness.entities.update("q", {setting: "sb://localhost:5671/There"}, 0)


def test_failed_creation_leaves_nothing_behind(harness: EntityHarness) -> None:
    harness.add_topic("t")
    with pytest.raises(ConfigurationError):
        harness.add_subscription(rule=Rule(name="r", filter=SqlFilter("not a (filter")))
    with pytest.raises(EntityNotFound):
        harness.add_queue("q", forward_to="nowhere")
    harness.restart()

    assert [entity.path for entity in harness.entities.all()] == ["t"]


def test_entities_are_listed_by_kind_and_path(harness: EntityHarness) -> None:
    harness.add_topic("t")
    harness.add_subscription("b")
    harness.add_subscription("A")
    harness.add_queue("Z")
    harness.add_queue("a")

    def paths(kind: Any = None) -> list[str]:
        return [entity.path for entity in harness.entities.all(kind)]

    assert paths(QueueDescription) == ["a", "Z"]
    assert paths(TopicDescription) == ["t"]
    assert paths(SubscriptionDescription) == ["t/Subscriptions/A", "t/Subscriptions/b"]
    assert len(paths()) == 5


@pytest.mark.parametrize(
    ("address", "subqueue"),
    [
        ("q", 0),
        ("Q/$DeadLetterQueue", 1),
        ("q/$deadletterqueue", 1),
        ("q/$Transfer/$DeadLetterQueue", 2),
        ("sb://localhost:5671/q%2F$DeadLetterQueue", 1),
    ],
)
def test_address_names_a_queue_or_one_of_its_subqueues(
    harness: EntityHarness, address: str, subqueue: int
) -> None:
    harness.add_queue("q")
    entity = harness.entities.get("q")

    assert harness.entities.source(address) == (entity, entity.queues[subqueue])


# Updates.


def test_update_applies_from_now_on(harness: EntityHarness) -> None:
    queue = harness.add_queue("q", lock_duration=timedelta(seconds=1), max_delivery_count=9)
    harness.send("q", message("a"), message("b"))
    before, _ = lock_one(queue)
    entity = harness.entities.update(
        "Q", {"lock_duration": timedelta(seconds=5), "max_delivery_count": 1}, 77
    )
    _, token = lock_one(queue)

    assert before.deliveries == 0
    assert entity.row.updated_ms == 77
    assert queue.has_locks([token], 4999)
    queue.abandon(token, {}, 4999)
    assert dead_letter_reasons(harness.dead_letters()) == [("b", "MaxDeliveryCountExceeded")]


@pytest.mark.parametrize(
    "setting", ["requires_session", "requires_duplicate_detection", "enable_partitioning"]
)
def test_immutable_settings_cannot_be_updated(harness: EntityHarness, setting: str) -> None:
    harness.add_queue("q")

    with pytest.raises(ConfigurationError):
        harness.entities.update("q", {setting: True}, 0)
    assert not getattr(harness.entities.get("q").description, setting)


def test_failed_update_changes_nothing(harness: EntityHarness) -> None:
    queue = harness.add_queue("q", max_delivery_count=5)

    with pytest.raises(ConfigurationError):
        harness.entities.update("q", {"max_delivery_count": 0}, 0)
    with pytest.raises(EntityNotFound):
        harness.entities.update("other", {}, 0)
    assert queue.settings.max_delivery_count == 5


def test_dead_letter_queue_has_no_sessions_after_an_update(harness: EntityHarness) -> None:
    harness.add_queue("q", requires_session=True)
    harness.entities.update("q", {"max_delivery_count": 5}, 0)

    assert not harness.dead_letters().settings.requires_session
    assert harness.queue("q").settings.requires_session


# Deletion.


def test_deleting_an_entity_deletes_its_messages(harness: EntityHarness) -> None:
    queue = harness.add_queue("q")
    harness.send("q", message("a"), message("b"), message("c", at=50))
    queue.dead_letter(lock_one(queue)[1], "r", None, {}, 0)
    harness.entities.delete("Q")
    harness.tick(100)
    harness.restart()
    fresh = harness.add_queue("q")

    assert len(fresh) == len(harness.dead_letters()) == 0
    assert peek(fresh) == peek(harness.dead_letters()) == []


def test_deleting_a_topic_deletes_its_subscriptions(harness: EntityHarness) -> None:
    for topic in ("t", "tt"):
        harness.add_topic(topic)
        harness.add_subscription("s", topic=topic)
    harness.entities.delete("t")

    assert sorted(harness.deleted) == ["t", "t/Subscriptions/s"]
    assert len(harness.entities.all()) == 2
    harness.restart()
    assert [entity.path for entity in harness.entities.all()] == ["tt", "tt/Subscriptions/s"]
    with pytest.raises(EntityNotFound):
        harness.entities.delete("t")


@pytest.fixture
def deleted_queue(harness: EntityHarness) -> Iterator[tuple[Entity, MessageQueue, bytes, int]]:
    """A queue that was deleted and created again, with a lock token and number of the old one."""
    queue = harness.add_queue("q", requires_session=True)
    entity = harness.entities.get("q")
    assert queue.sessions is not None
    queue.sessions.accept("x", "receiver", 0)
    numbers = harness.send("q", message("old", session="x"), message("older", session="x"))
    _, token = lock_one(queue, session="x")
    harness.entities.delete("q")
    queue.sessions.release("x", "receiver", 0)
    harness.add_queue("q", requires_session=True)
    harness.send("q", message("new", session="x"), message("newer", session="x"))
    yield entity, queue, token, numbers[1]
    assert peek(harness.queue("q")) == ["new", "newer"]
    harness.restart()
    assert peek(harness.queue("q")) == ["new", "newer"]
    assert len(harness.queue("q")) == 2


def test_nothing_is_received_or_settled_through_a_deleted_queue(
    harness: EntityHarness, deleted_queue: tuple[Entity, MessageQueue, bytes, int]
) -> None:
    _, queue, token, number = deleted_queue

    with pytest.raises(LockLost):
        queue.complete(token, 0)
    with pytest.raises(LockLost):
        queue.abandon(token, {}, 0)
    with pytest.raises(LockLost):
        queue.receive(1, 0, locked=True, session="x")
    with pytest.raises(MessageNotFound):
        queue.cancel_scheduled([number])
    assert peek(queue) == []
    queue.expire_locks(10**9)


def test_sending_to_a_deleted_entity_fails(
    harness: EntityHarness, deleted_queue: tuple[Entity, MessageQueue, bytes, int]
) -> None:
    with pytest.raises(EntityNotFound):
        harness.entities.router.send(deleted_queue[0], [message("a", session="x")], 0)


# Restarts.

FULL_QUEUE = QueueDescription(
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
FULL_TOPIC = TopicDescription(
    name="t",
    default_message_time_to_live=timedelta(minutes=2),
    filtering_messages_before_publishing=True,
    support_ordering=True,
    status=EntityStatus.SEND_DISABLED,
)
FULL_SUBSCRIPTION = SubscriptionDescription(
    topic="t",
    name="s",
    dead_lettering_on_filter_evaluation_exceptions=False,
    forward_to="q",
    user_metadata="m",
)
ALL_RULES = (
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


def test_all_settings_and_rules_survive_a_restart(harness: EntityHarness) -> None:
    harness.add_queue("q")
    for description in (FULL_TOPIC, FULL_QUEUE, FULL_SUBSCRIPTION):
        harness.entities.create(description, 5)
    for rule in ALL_RULES[1:]:
        harness.entities.create_rule("t/subscriptions/s", rule, 0)
    harness.entities.update("q", {"user_metadata": "changed"}, 6)
    harness.restart()

    assert harness.entities.get("rich/queue").description == FULL_QUEUE
    assert harness.entities.get("t").description == FULL_TOPIC
    subscription = harness.entities.get("t/subscriptions/s")
    assert subscription.description == FULL_SUBSCRIPTION
    assert {rule.name: rule for rule in subscription.rules.values()} == {
        rule.name: rule for rule in ALL_RULES
    }
    changed = harness.entities.get("q")
    assert changed.description.user_metadata == "changed"
    assert (changed.row.created_ms, changed.row.updated_ms) == (0, 6)


def test_uncommitted_changes_are_lost_with_the_process(harness: EntityHarness) -> None:
    harness.add_queue("kept")
    harness.send("kept", message("a"))
    harness.store.commit()
    harness.add_queue("new")
    harness.send("kept", message("b"))
    queue = harness.queue("kept")
    queue.complete(lock_one(queue)[1], 0)
    harness.entities.update("kept", {"max_delivery_count": 3}, 0)
    harness.kill()

    assert [entity.path for entity in harness.entities.all()] == ["kept"]
    assert harness.queue("kept").settings.max_delivery_count == 10
    assert drain(harness.queue("kept")) == ["a"]


def test_committed_sequence_numbers_are_not_reused_after_a_kill(harness: EntityHarness) -> None:
    harness.add_queue("q", forward_to=harness.add_queue("target").path)
    numbers: list[int] = []
    for _ in range(5):
        numbers += harness.send("q", message("a"), message("b", at=50))
        harness.store.commit()
        harness.send("q", message("uncommitted"))
        harness.kill()

    assert numbers == sorted(set(numbers))


def test_runtime_properties_survive_a_restart(harness: EntityHarness) -> None:
    queue = harness.add_queue("q")
    harness.send("q", *[message("x" * 100)] * 4, message("later", at=50))
    queue.dead_letter(lock_one(queue)[1], "r", None, {}, 0)
    queue.defer(lock_one(queue)[1], {}, 0)
    lock_one(queue)

    before = harness.entities.runtime_properties(harness.entities.get("q"))
    harness.restart()
    after = harness.entities.runtime_properties(harness.entities.get("q"))

    assert before == after
    assert (before.counts.active, before.counts.scheduled, before.counts.dead_letter) == (3, 1, 1)
    assert before.size_in_bytes > 400


# Sending.


def test_batch_with_a_too_large_message_is_refused(harness: EntityHarness) -> None:
    queue = harness.add_queue("q", max_message_size_in_kilobytes=1)
    exact = 1024 - message("").size - 3  # the size of a longer body is encoded in three more bytes

    with pytest.raises(MessageTooLarge) as raised:
        harness.send("q", message("small"), message("x" * (exact + 1)))

    assert raised.value.condition == "amqp:link:message-size-exceeded"
    assert len(queue) == 0
    assert message("x" * exact).size == 1024
    harness.send("q", message("x" * exact))
    assert len(queue) == 1


def test_queue_refuses_messages_above_its_quota_including_dead_letters(
    harness: EntityHarness,
) -> None:
    queue = harness.add_queue("q", max_size_in_megabytes=1)
    large = message("x" * 200_000)
    harness.send("q", large, large)
    queue.dead_letter(lock_one(queue)[1], "r", None, {}, 0)

    with pytest.raises(QuotaExceeded) as raised:
        harness.send("q", large, large, large, large)
    assert raised.value.condition == "amqp:resource-limit-exceeded"
    assert len(queue) == 1
    harness.send("q", large, large, large)
    with pytest.raises(QuotaExceeded):
        harness.send("q", large)
    harness.restart()
    with pytest.raises(QuotaExceeded):
        harness.send("q", large)
    drain(harness.dead_letters())
    harness.send("q", large)
    harness.entities.update("q", {"max_size_in_megabytes": 2}, 0)
    harness.send("q", large)


def test_topic_refuses_messages_when_its_subscriptions_reach_the_quota(
    harness: EntityHarness,
) -> None:
    harness.add_topic(max_size_in_megabytes=1)
    first, second = harness.add_subscription("a"), harness.add_subscription("b")
    large = message("x" * 200_000)
    for _ in range(3):
        harness.send("t", large)

    with pytest.raises(QuotaExceeded):
        harness.send("t", large)
    drain(first)
    harness.send("t", large)
    assert len(second) == 4


@pytest.mark.parametrize(
    ("status", "accepts"),
    [
        (EntityStatus.ACTIVE, True),
        (EntityStatus.RECEIVE_DISABLED, True),
        (EntityStatus.SEND_DISABLED, False),
        (EntityStatus.DISABLED, False),
    ],
)
def test_status_determines_whether_messages_are_accepted(
    harness: EntityHarness, status: EntityStatus, accepts: bool
) -> None:
    queue = harness.add_queue("q")
    harness.send("q", message("before", at=50))
    harness.entities.update("q", {"status": status}, 0)
    if accepts:
        harness.send("q", message("after"))
    else:
        with pytest.raises(EntityDisabled) as raised:
            harness.send("q", message("after"))
        assert raised.value.condition == "com.microsoft:entity-disabled"
    harness.tick(50)

    assert drain(queue, 50) == (["after", "before"] if accepts else ["before"])


def test_sending_to_a_subscription_is_refused(harness: EntityHarness) -> None:
    harness.add_topic()
    harness.add_subscription()

    with pytest.raises(Refused):
        harness.send("t/Subscriptions/s", message())


# Duplicate detection.


@pytest.fixture
def deduplicated(harness: EntityHarness) -> MessageQueue:
    """A queue that detects duplicates within a minute."""
    return harness.add_queue(
        "deduplicated",
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=1),
    )


def test_message_id_is_accepted_once_within_the_window(
    harness: EntityHarness, deduplicated: MessageQueue
) -> None:
    first = harness.send("deduplicated", message("a", id="1"), message("b", id="2"), now=0)
    again = harness.send("deduplicated", message("c", id="1"), message("d", id="3"), now=59_999)
    later = harness.send("deduplicated", message("e", id="1"), now=60_000)

    assert 0 not in first + later
    assert again[0] == 0 != again[1]
    assert drain(deduplicated) == ["a", "b", "d", "e"]


def test_duplicates_within_one_batch_are_discarded(
    harness: EntityHarness, deduplicated: MessageQueue
) -> None:
    harness.send("deduplicated", message("a", id="1"), message("b", id="1"))

    assert drain(deduplicated) == ["a"]


def with_partition_key(body: str, key: str) -> IncomingMessage:
    sections = Message.parse(payload(body, id="1"))
    sections.edit_message_annotations({Symbol(PARTITION_KEY): key})
    return parse_message(sections.encode())


@pytest.mark.rule("N1")
@pytest.mark.parametrize("partitioned", [True, False])
def test_each_partition_detects_its_own_duplicates(
    harness: EntityHarness, partitioned: bool
) -> None:
    queue = harness.add_queue(
        "q", requires_duplicate_detection=True, enable_partitioning=partitioned
    )
    first = [message("a", id="1"), with_partition_key("b", "x"), with_partition_key("c", "y")]
    again = [message("d", id="1"), with_partition_key("e", "x"), with_partition_key("f", "y")]

    harness.send("q", *first)
    harness.send("q", *again)

    assert drain(queue) == (["a", "b", "c"] if partitioned else ["a"])


def test_session_id_selects_the_partition_for_duplicate_detection(harness: EntityHarness) -> None:
    harness.add_queue("q", requires_duplicate_detection=True, enable_partitioning=True)

    numbers = harness.send(
        "q", *(message(id="1", session=session) for session in ("s", "t", "s", "t"))
    )

    assert [number > 0 for number in numbers] == [True, True, False, False]


def test_duplicate_is_detected_after_the_first_message_was_completed(
    harness: EntityHarness, deduplicated: MessageQueue
) -> None:
    harness.send("deduplicated", message("a", id="1"))
    drain(deduplicated)
    harness.restart()
    harness.send("deduplicated", message("b", id="1"), now=100)

    assert drain(harness.queue("deduplicated")) == []


def test_duplicates_of_scheduled_messages_are_detected_when_sent(
    harness: EntityHarness, deduplicated: MessageQueue
) -> None:
    harness.send("deduplicated", message("a", id="1", at=50))
    harness.send("deduplicated", message("b", id="1"))
    harness.tick(50)

    assert drain(deduplicated, 50) == ["a"]


def test_id_of_a_refused_message_is_not_recorded(
    harness: EntityHarness, deduplicated: MessageQueue
) -> None:
    with pytest.raises(MessageTooLarge):
        harness.send("deduplicated", message("a", id="1"), message("x" * 300_000, id="2"))
    harness.send("deduplicated", message("a", id="1"))

    assert drain(deduplicated) == ["a"]


def test_messages_without_an_id_are_never_duplicates(
    harness: EntityHarness, deduplicated: MessageQueue
) -> None:
    harness.send("deduplicated", message("a"), message("b"))

    assert drain(deduplicated) == ["a", "b"]


def test_duplicates_are_detected_only_where_configured_and_per_queue(
    harness: EntityHarness, deduplicated: MessageQueue
) -> None:
    queue = harness.add_queue("q")
    harness.send("q", message("a", id="1"), message("b", id="1"))
    harness.send("deduplicated", message("c", id="1"))

    assert drain(queue) == ["a", "b"]
    assert drain(deduplicated) == ["c"]


def test_recorded_ids_are_removed_after_the_window(
    harness: EntityHarness, deduplicated: MessageQueue
) -> None:
    harness.send("deduplicated", message(id="1"), now=0)
    harness.send("deduplicated", message(id="2"), now=10)
    harness.tick(60_000)

    assert harness.store._database.read("SELECT message_id FROM seen") == [("2",)]


# Forwarding.


def test_queue_forwards_along_a_chain_and_keeps_nothing(harness: EntityHarness) -> None:
    for name, target in (("d", None), ("c", "d"), ("b", "c"), ("a", "b")):
        harness.add_queue(name, forward_to=target)
    numbers = harness.send("a", message("x", id="1", properties={"p": 1}), now=7)

    assert all(numbers)
    assert [len(harness.queue(name)) for name in "abcd"] == [0, 0, 0, 1]
    (stored,) = harness.queue("d").peek(0, 10)
    assert (body(stored), properties(stored)) == ("x", {"p": 1})


@pytest.mark.parametrize("length", [4, 5])
def test_message_is_forwarded_at_most_four_times(harness: EntityHarness, length: int) -> None:
    names = [f"q{number}" for number in range(length + 1)]
    for name, target in zip(reversed(names), [None, *reversed(names)], strict=False):
        harness.add_queue(name, forward_to=target)
    harness.send("q0", message("x"))

    if length == 4:
        assert drain(harness.queue("q4")) == ["x"]
    else:
        assert dead_letter_reasons(harness.transfer_dead_letters("q4")) == [
            ("x", "MaxTransferHopCountExceeded")
        ]
        assert len(harness.queue("q5")) == 0


def test_forwarding_cycle_ends_in_the_transfer_dead_letter_queue(harness: EntityHarness) -> None:
    harness.add_queue("a")
    harness.add_queue("b", forward_to="a")
    harness.entities.update("a", {"forward_to": "b"}, 0)
    harness.send("a", message("x"))

    assert dead_letter_reasons(harness.transfer_dead_letters("a")) == [
        ("x", "MaxTransferHopCountExceeded")
    ]
    assert len(harness.queue("a")) == len(harness.queue("b")) == 0


def test_message_of_a_queue_that_forwards_to_itself_is_in_the_transfer_dead_letter_queue(
    harness: EntityHarness,
) -> None:
    queue = harness.add_queue("q", forward_to="Q", forward_dead_lettered_messages_to="q")
    harness.send("q", message("x"))

    assert dead_letter_reasons(harness.transfer_dead_letters("q")) == [
        ("x", "MaxTransferHopCountExceeded")
    ]
    assert len(harness.queue("q")) == len(queue.dead_letters) == 0


def test_queue_with_sessions_forwards_its_messages(harness: EntityHarness) -> None:
    harness.add_queue("target")
    harness.add_queue("q", requires_session=True, forward_to="target")
    harness.send("q", message("x", session="s"))

    assert drain(harness.queue("target")) == ["x"]


def test_scheduled_message_is_forwarded_when_due(harness: EntityHarness) -> None:
    harness.add_queue("target")
    queue = harness.add_queue("q", forward_to="target")
    harness.send("q", message("x", at=50))
    assert len(queue) == 1
    harness.restart()
    harness.tick(50)

    assert len(harness.queue("q")) == 0
    assert drain(harness.queue("target"), 50) == ["x"]


def block_target(harness: EntityHarness, kind: str) -> None:
    """Make the queue `target` refuse messages."""
    if kind == "EntityNotFound":
        harness.entities.delete("target")
    elif kind == "EntityDisabled":
        harness.entities.update("target", {"status": EntityStatus.SEND_DISABLED}, 0)
    elif kind == "MessageTooLarge":
        harness.entities.update("target", {"max_message_size_in_kilobytes": 1}, 0)
    elif kind == "QuotaExceeded":
        harness.entities.update("target", {"max_size_in_megabytes": 1}, 0)
        harness.send("target", *[message("full" * 50_000)] * 5)


@pytest.mark.parametrize(
    "kind", ["EntityNotFound", "EntityDisabled", "MessageTooLarge", "QuotaExceeded"]
)
def test_message_that_cannot_be_forwarded_is_dead_lettered_with_the_reason(
    harness: EntityHarness, kind: str
) -> None:
    harness.add_queue("target", max_size_in_megabytes=2)
    harness.add_queue("q", forward_to="target")
    block_target(harness, kind)
    harness.send("q", message("x" * 100_000, ttl=50), now=5)
    harness.restart()
    harness.tick(10**6)  # dead letters do not expire

    (stored,) = harness.transfer_dead_letters().peek(0, 10)

    assert properties(stored)["DeadLetterReason"] == kind
    assert len(properties(stored)["DeadLetterErrorDescription"]) > 10
    assert delivered(stored).read_message_annotations()[Symbol("x-opt-deadletter-source")] == "q"
    assert (
        harness.entities.runtime_properties(harness.entities.get("q")).counts.transfer_dead_letter
        == 1
    )


def test_message_without_a_session_is_not_forwarded_to_a_queue_with_sessions(
    harness: EntityHarness,
) -> None:
    harness.add_queue("target", requires_session=True)
    harness.add_queue("q", forward_to="target")
    harness.send("q", message("without session"), message("with session", session="x"))

    assert dead_letter_reasons(harness.transfer_dead_letters()) == [("without session", "Refused")]
    assert peek(harness.queue("target")) == ["with session"]


# Forwarding of dead letters.


def test_dead_letters_are_forwarded_if_configured(harness: EntityHarness) -> None:
    target = harness.add_queue("target", lock_duration=timedelta(seconds=1))
    queue = harness.add_queue(
        "q",
        forward_dead_lettered_messages_to="target",
        dead_lettering_on_message_expiration=True,
        max_delivery_count=1,
    )
    harness.send(
        "q", message("rejected", properties={"p": 1}), message("tried"), message("old", ttl=50)
    )
    queue.dead_letter(lock_one(queue)[1], "Broken", "No wheels.", {"q": 2}, 0)
    queue.abandon(lock_one(queue)[1], {}, 0)
    harness.tick(50)
    harness.restart()
    target = harness.queue("target")
    harness.tick(10**6)

    assert len(harness.queue("q")) == len(harness.dead_letters()) == 0
    assert dead_letter_reasons(target) == [
        ("rejected", "Broken"),
        ("tried", "MaxDeliveryCountExceeded"),
        ("old", "TTLExpiredException"),  # it does not expire again
    ]
    first = target.peek(0, 1)[0]
    assert properties(first) == {
        "p": 1,
        "q": 2,
        "DeadLetterReason": "Broken",
        "DeadLetterErrorDescription": "No wheels.",
    }
    assert delivered(first).read_message_annotations()["x-opt-deadletter-source"] == "q"
    assert first.deliveries == 0


def test_forwarding_of_dead_letters_can_be_enabled_and_disabled(harness: EntityHarness) -> None:
    harness.add_queue("target")
    queue = harness.add_queue("q")
    harness.send("q", message("a"), message("b"), message("c"))
    for target in (None, "target", None):
        harness.entities.update("q", {"forward_dead_lettered_messages_to": target}, 0)
        queue.dead_letter(lock_one(queue)[1], "r", None, {}, 0)

    assert peek(harness.dead_letters()) == ["a", "c"]
    assert peek(harness.queue("target")) == ["b"]


def test_dead_letter_source_is_the_last_entity(harness: EntityHarness) -> None:
    target = harness.add_queue("target")
    queue = harness.add_queue("q", forward_dead_lettered_messages_to="target")
    harness.send("q", message("a"))
    queue.dead_letter(lock_one(queue)[1], "first", None, {}, 0)
    target.dead_letter(lock_one(target)[1], "second", None, {}, 0)

    (stored,) = harness.dead_letters("target").peek(0, 10)

    assert properties(stored)["DeadLetterReason"] == "second"
    assert delivered(stored).read_message_annotations()["x-opt-deadletter-source"] == "target"


def test_dead_letter_that_cannot_be_forwarded_is_kept(harness: EntityHarness) -> None:
    harness.add_queue("target")
    queue = harness.add_queue("q", forward_dead_lettered_messages_to="target")
    harness.send("q", message("a"))
    block_target(harness, "EntityNotFound")
    queue.dead_letter(lock_one(queue)[1], "r", None, {}, 0)

    assert dead_letter_reasons(harness.transfer_dead_letters()) == [("a", "EntityNotFound")]


def test_two_queues_can_forward_dead_letters_to_each_other(harness: EntityHarness) -> None:
    harness.add_queue("a")
    harness.add_queue("b", forward_dead_lettered_messages_to="a")
    harness.entities.update("a", {"forward_dead_lettered_messages_to": "b"}, 0)
    harness.send("a", message("x"))
    for name in "abab":
        queue = harness.queue(name)
        queue.dead_letter(lock_one(queue)[1], name, None, {}, 0)

    assert dead_letter_reasons(harness.queue("a")) == [("x", "b")]
    assert len(harness.queue("b")) == 0
