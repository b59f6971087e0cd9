"""Topics: each subscription gets the messages that its rules select, with their changes."""

from datetime import timedelta
from typing import Any

import pytest

from pairbus.amqp.encode import encode
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Int32, Pairs, Symbol, Timestamp
from pairbus.emulator.entities.message_codec import parse_message
from pairbus.emulator.entities.rule_messages import RuleMessage
from pairbus.emulator.filters.rules import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    SqlAction,
    SqlFilter,
)
from pairbus.errors import ConfigurationError, EntityExists, EntityNotFound, QuotaExceeded
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

PATH = "t/Subscriptions/s"


@pytest.fixture
def topic(harness: EntityHarness) -> None:
    harness.add_topic()


pytestmark = pytest.mark.usefixtures("topic")


def sql(expression: str, action: str | None = None, name: str = "r") -> Rule:
    return Rule(
        name=name,
        filter=SqlFilter(expression),
        action=None if action is None else SqlAction(action),
    )


# Copies.


def test_every_subscription_gets_a_copy(harness: EntityHarness) -> None:
    first, second = harness.add_subscription("a"), harness.add_subscription("b")
    numbers = harness.send("t", message("x"), message("y"))
    first.complete(lock_one(first)[1], 0)

    assert numbers == sorted(set(numbers))
    assert 0 not in numbers
    assert drain(first) == ["y"]
    assert drain(second) == ["x", "y"]


def test_topic_without_subscriptions_accepts_and_discards_messages(harness: EntityHarness) -> None:
    harness.send("t", message("x"))
    late = harness.add_subscription()

    assert len(late) == len(harness.queue("t")) == 0


def test_topic_does_not_send_to_subscriptions_of_other_topics(harness: EntityHarness) -> None:
    harness.add_topic("t2")
    harness.add_topic("t/sub")
    others = [harness.add_subscription("s", topic=name) for name in ("t2", "t/sub")]
    own = harness.add_subscription("s")
    harness.send("T", message("x"))

    assert [len(queue) for queue in others] == [0, 0]
    assert drain(own) == ["x"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (None, ["red", "blue", "none"]),
        (Rule(name="r", filter=FalseFilter()), []),
        (sql("color = 'red'"), ["red"]),
        (sql("color IS NULL OR size > 3"), ["blue", "none"]),
        (sql("sys.Label = 'urgent'"), ["red"]),
        (sql("sys.MessageId LIKE 'x%'"), ["blue"]),
        (sql("sys.TimeToLive IS NULL"), ["red", "none"]),
        (sql("sys.SessionId = 'x' AND sys.To = 'you'"), ["blue"]),
        (sql("sys.PartitionKey = 'pk'"), ["none"]),
        (Rule(name="r", filter=CorrelationFilter(label="urgent")), ["red"]),
        (Rule(name="r", filter=CorrelationFilter(properties={"size": 5})), ["blue"]),
    ],
)
def test_rule_selects_messages(
    harness: EntityHarness, rule: Rule | None, expected: list[str]
) -> None:
    subscription = harness.add_subscription(rule=rule)
    with_key = Message.parse(payload("none"))
    with_key.edit_message_annotations({Symbol("x-opt-partition-key"): "pk"})
    harness.send(
        "t",
        message("red", properties={"color": "red", "size": 1}, subject="urgent"),
        message(
            "blue",
            properties={"color": "blue", "size": Int32(5)},
            id="x1",  # not hexadecimal, as the ids that the emulator creates
            session="x",
            to="you",
            ttl=50,
        ),
        parse_message(with_key.encode()),
    )

    assert drain(subscription) == expected


def test_several_rules_yield_one_copy_and_each_action_another(harness: EntityHarness) -> None:
    subscription = harness.add_subscription(rule=sql("a = 1"))
    harness.entities.create_rule(PATH, sql("b = 1", name="other"), 0)
    harness.entities.create_rule(PATH, sql("a = 1", "SET c = 2", name="with_action"), 0)
    harness.send("t", message("x", properties={"a": 1, "b": 1}))

    copies = [properties(stored) for stored in subscription.peek(0, 10)]

    assert copies == [{"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 2, "RuleName": "with_action"}]


# Actions.


def test_action_changes_only_its_copy(harness: EntityHarness) -> None:
    unchanged = harness.add_subscription("unchanged")
    with_action = harness.add_subscription(
        rule=sql(
            "1 = 1",
            "SET size = size + 1; SET New = 'n'; REMOVE color; SET sys.Label = 'l';"
            "SET sys.ReplyTo = sys.To; SET sys.ContentType = 'text/plain'; SET sys.SessionId = 's';"
            "SET sys.PartitionKey = 'k'",
        )
    )
    sent = payload("x", id="1", to="you", properties={"size": Int32(1), "color": "red"})
    harness.send("t", parse_message(sent))

    (untouched,) = unchanged.peek(0, 10)
    (stored,) = with_action.peek(0, 10)
    changed = delivered(stored)
    fields = changed.read_properties()

    assert untouched.rest == Message.parse(sent).properties + sent[sent.index(b"\x00\x53\x74") :]
    assert properties(stored) == {"size": 2, "New": "n", "RuleName": "r"}
    assert type(properties(stored)["size"]) is Int32
    assert (fields.message_id, fields.to, fields.subject, fields.reply_to) == (
        "1",
        "you",
        "l",
        "you",
    )
    assert fields.content_type == "text/plain"
    assert (fields.group_id, stored.session) == ("s", "s")
    assert changed.read_message_annotations()["x-opt-partition-key"] == "k"
    assert body(stored) == "x"


def test_action_sets_the_time_to_live(harness: EntityHarness) -> None:
    subscription = harness.add_subscription(rule=sql("1 = 1", "SET sys.TimeToLive = 'PT1S'"))
    harness.send("t", message("x"))
    harness.tick(999)
    assert peek(subscription) == ["x"]
    harness.tick(1000)

    assert peek(subscription) == []


def test_action_schedules_the_copy(harness: EntityHarness) -> None:
    at = "1970-01-01T00:00:50Z"
    subscription = harness.add_subscription(
        rule=sql("1 = 1", f"SET sys.ScheduledEnqueueTimeUtc = '{at}'")
    )
    harness.send("t", message("x"))
    assert drain(subscription) == []
    harness.tick(50_000)

    assert drain(subscription, 50_000) == ["x"]


def test_action_sets_the_session_that_the_subscription_requires(harness: EntityHarness) -> None:
    subscription = harness.add_subscription(
        requires_session=True, rule=sql("1 = 1", "SET sys.SessionId = color")
    )
    harness.send("t", message("x", properties={"color": "red"}))
    assert subscription.sessions is not None

    assert subscription.sessions.accept(None, object(), 0) == "red"
    assert drain(subscription, session="red") == ["x"]


# Failures.


@pytest.mark.parametrize("dead_letters", [True, False])
@pytest.mark.parametrize(
    "rule",
    [sql("color > 5"), sql("1 = 1", "SET a = size / 0")],
    ids=["filter", "action"],
)
def test_message_that_a_rule_cannot_evaluate_is_dead_lettered_if_configured(
    harness: EntityHarness, rule: Rule, dead_letters: bool
) -> None:
    subscription = harness.add_subscription(
        rule=rule, dead_lettering_on_filter_evaluation_exceptions=dead_letters
    )
    other = harness.add_subscription("other")
    harness.send("t", message("x", properties={"color": "red", "size": 1}))

    assert len(subscription) == 0
    assert drain(other) == ["x"]
    assert dead_letter_reasons(harness.dead_letters(PATH)) == (
        [("x", "FilterEvaluationException")] if dead_letters else []
    )
    if dead_letters:
        (stored,) = harness.dead_letters(PATH).peek(0, 10)
        assert "rule r" in properties(stored)["DeadLetterErrorDescription"]


def test_message_that_rules_cannot_decode_is_an_evaluation_error(harness: EntityHarness) -> None:
    unchanged = harness.add_subscription("unchanged")
    harness.add_subscription("label", rule=sql("sys.Label = 'l'"))
    harness.add_subscription("key", rule=sql("sys.PartitionKey = 'k'"))
    number_as_subject = Message.build(data=b"number")
    number_as_subject.properties = b"\x00\x53\x73" + encode([None, None, None, 5])
    key_twice = Message.build(data=b"twice")
    key = Symbol("x-opt-partition-key")
    key_twice.message_annotations = b"\x00\x53\x72" + encode(Pairs([(key, "k"), (str(key), "k")]))
    harness.send("t", parse_message(number_as_subject.encode()), parse_message(key_twice.encode()))

    assert drain(unchanged) == ["number", "twice"]
    for name, dead in (("label", "number"), ("key", "twice")):
        path = f"t/Subscriptions/{name}"
        assert dead_letter_reasons(harness.dead_letters(path)) == [
            (dead, "FilterEvaluationException")
        ]
        assert len(harness.queue(path)) == 0


def test_copy_that_an_action_made_too_large_is_dead_lettered(harness: EntityHarness) -> None:
    action = SqlAction("SET a = @long; SET b = @long", {"@long": "x" * 30_000})
    harness.add_subscription(rule=Rule(name="r", action=action))
    unchanged = harness.add_subscription("unchanged")
    harness.send("t", message("x", properties={"c": "y" * 20_000}))

    assert drain(unchanged) == ["x"]
    assert dead_letter_reasons(harness.dead_letters(PATH)) == [("x", "FilterEvaluationException")]


def test_subscription_with_sessions_dead_letters_messages_without_one(
    harness: EntityHarness,
) -> None:
    subscription = harness.add_subscription(requires_session=True)
    harness.send("t", message("without session"), message("with session", session="x"))

    assert peek(subscription) == ["with session"]
    assert dead_letter_reasons(harness.dead_letters(PATH)) == [
        ("without session", "Session ID is null.")
    ]


# Changes of rules.


def test_rules_are_created_updated_and_deleted(harness: EntityHarness) -> None:
    subscription = harness.add_subscription(rule=sql("a = 1", name="One"))
    harness.entities.create_rule(PATH, sql("a = 2", name="Two"), 0)

    def receive() -> list[str]:
        harness.send("t", *[message(str(a), properties={"a": a}) for a in (1, 2, 3)])
        return drain(harness.queue(PATH))

    assert receive() == ["1", "2"]
    harness.entities.update_rule(PATH, sql("a = 3", name="ONE"), 0)
    assert receive() == ["2", "3"]
    harness.entities.delete_rule(PATH, "two", 0)
    assert receive() == ["3"]
    harness.restart()
    assert receive() == ["3"]
    harness.entities.delete_rule(PATH, "one", 0)
    assert receive() == []
    harness.restart()
    assert receive() == []
    assert len(subscription) == 0


def test_failed_change_of_a_rule_changes_nothing(harness: EntityHarness) -> None:
    subscription = harness.add_subscription()
    with pytest.raises(ConfigurationError):
        harness.entities.create_rule(PATH, sql("a ="), 0)
    with pytest.raises(EntityExists):
        harness.entities.create_rule(PATH, sql("a = 1", name="$default"), 0)
    with pytest.raises(EntityNotFound):
        harness.entities.update_rule(PATH, sql("a = 1"), 0)
    with pytest.raises(EntityNotFound):
        harness.entities.delete_rule(PATH, "r", 0)
    harness.send("t", message("x"))

    assert drain(subscription) == ["x"]


def test_changing_rules_keeps_a_subscription_from_being_idle(harness: EntityHarness) -> None:
    minute = 60_000
    harness.add_subscription(auto_delete_on_idle=timedelta(hours=1))
    harness.entities.create_rule(PATH, sql("a = 1", name="r"), 50 * minute)
    harness.tick(100 * minute)
    assert harness.entities.find(PATH) is not None
    harness.entities.update_rule(PATH, sql("a = 2", name="r"), 100 * minute)
    harness.tick(150 * minute)
    assert harness.entities.find(PATH) is not None
    harness.entities.delete_rule(PATH, "r", 150 * minute)
    harness.tick(200 * minute)
    assert harness.entities.find(PATH) is not None

    harness.tick(210 * minute)
    assert harness.entities.find(PATH) is None


# Time-to-live and scheduling.


@pytest.mark.parametrize(
    ("topic_ttl_ms", "subscription_ttl_ms", "message_ttl_ms", "lifetime_ms"),
    [
        (1000, 3000, 2000, 1000),
        (3000, 1000, 2000, 1000),
        (3000, 2000, 1000, 1000),
        (1000, None, None, 1000),
        (None, 1000, None, 1000),
        (None, None, 1000, 1000),
    ],
)
@pytest.mark.parametrize("with_action", [False, True])
def test_smallest_time_to_live_applies(
    harness: EntityHarness,
    topic_ttl_ms: int | None,
    subscription_ttl_ms: int | None,
    message_ttl_ms: int | None,
    lifetime_ms: int,
    with_action: bool,
) -> None:
    def settings(ms: int | None) -> dict[str, Any]:
        return {} if ms is None else {"default_message_time_to_live": timedelta(milliseconds=ms)}

    harness.entities.update("t", settings(topic_ttl_ms), 0)
    rule = sql("1 = 1", "SET a = 1") if with_action else None
    subscription = harness.add_subscription(
        dead_lettering_on_message_expiration=True, rule=rule, **settings(subscription_ttl_ms)
    )
    harness.send("t", message("x", ttl=message_ttl_ms))
    harness.tick(lifetime_ms - 1)
    assert peek(subscription) == ["x"]
    harness.tick(lifetime_ms)

    assert dead_letter_reasons(harness.dead_letters(PATH)) == [("x", "TTLExpiredException")]


def test_scheduled_message_is_published_when_due(harness: EntityHarness) -> None:
    red = harness.add_subscription("red", rule=sql("color = 'red'"))
    everything = harness.add_subscription("all")
    (number,) = harness.send("t", message("x", at=50, ttl=100, properties={"color": "red"}))
    assert len(red) == len(everything) == 0
    assert peek(harness.queue("t")) == ["x"]
    harness.restart()
    harness.tick(50)

    assert len(harness.queue("t")) == 0
    for name in ("red", "all"):
        subscription = harness.queue(f"t/Subscriptions/{name}")
        (stored,) = subscription.peek(0, 10)
        assert (body(stored), stored.enqueued_ms, stored.expires_ms) == ("x", 50, 150)
    assert number > 0


def test_scheduled_message_of_a_topic_is_cancelled(harness: EntityHarness) -> None:
    subscription = harness.add_subscription()
    (number,) = harness.send("t", message("x", at=50))
    harness.queue("t").cancel_scheduled([number])
    harness.tick(50)

    assert len(subscription) == len(harness.queue("t")) == 0


def test_scheduled_message_with_delivery_annotations_is_published(harness: EntityHarness) -> None:
    subscription = harness.add_subscription()
    scheduled = Message.parse(payload("x", at=50))
    scheduled.delivery_annotations = b"\x00\x53\x71" + encode({Symbol("hop"): 1})
    harness.send("t", parse_message(scheduled.encode()))
    harness.tick(50)

    assert drain(subscription, 50) == ["x"]


# Duplicates and forwarding.


def test_topic_accepts_a_message_id_once(harness: EntityHarness) -> None:
    harness.add_topic(
        "once",
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=1),
    )
    subscription = harness.add_subscription("s", topic="once")
    numbers = harness.send("once", message("a", id="1"), message("b", id="1"))

    assert numbers[1] == 0
    assert drain(subscription) == ["a"]


def test_subscription_forwards_selected_messages_to_a_queue(harness: EntityHarness) -> None:
    target = harness.add_queue("target")
    subscription = harness.add_subscription(
        forward_to="target", rule=sql("color = 'red'", "SET seen = 1")
    )
    harness.send("t", message("x", properties={"color": "red"}))
    harness.send("t", message("y", properties={"color": "blue"}))

    (stored,) = target.peek(0, 10)

    assert len(subscription) == 0
    assert properties(stored) == {"color": "red", "seen": 1, "RuleName": "r"}


def test_queue_forwards_to_a_topic(harness: EntityHarness) -> None:
    subscription = harness.add_subscription()
    harness.add_queue("q", forward_to="t")
    harness.send("q", message("x"))

    assert drain(subscription) == ["x"]


def test_forwarding_cycle_through_a_topic_ends(harness: EntityHarness) -> None:
    harness.add_queue("q", forward_to="t")
    harness.add_subscription(forward_to="q")
    harness.send("t", message("x"))

    dead = [*peek(harness.transfer_dead_letters("q")), *peek(harness.transfer_dead_letters(PATH))]

    assert dead == ["x"]
    assert len(harness.queue("q")) == len(harness.queue(PATH)) == 0


def test_message_that_a_subscription_cannot_forward_is_dead_lettered(
    harness: EntityHarness,
) -> None:
    target = harness.add_queue("target")
    harness.add_subscription(forward_to="target")
    harness.entities.update("target", {"status": EntityStatus.DISABLED}, 0)
    harness.send("t", message("x"))
    harness.entities.delete("target")
    harness.send("t", message("y"))

    assert dead_letter_reasons(harness.transfer_dead_letters(PATH)) == [
        ("x", "EntityDisabled"),
        ("y", "EntityNotFound"),
    ]
    assert len(target) == 0


def test_dead_letters_of_a_subscription_are_forwarded(harness: EntityHarness) -> None:
    target = harness.add_queue("target")
    harness.add_subscription(
        forward_dead_lettered_messages_to="target", rule=sql("color > 5", name="wrong")
    )
    harness.send("t", message("x", properties={"color": "red"}))

    assert dead_letter_reasons(target) == [("x", "FilterEvaluationException")]
    assert len(harness.dead_letters(PATH)) == 0


def test_dead_letters_of_a_subscription_count_towards_the_quota_of_its_topic(
    harness: EntityHarness,
) -> None:
    harness.entities.update("t", {"max_size_in_megabytes": 1}, 0)
    subscription = harness.add_subscription()
    for _ in range(5):
        harness.send("t", message("x" * 200_000))
        subscription.dead_letter(lock_one(subscription)[1], "r", None, {}, 0)

    with pytest.raises(QuotaExceeded):
        harness.send("t", message("x" * 200_000))


# System properties.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MessageId", "7"),
        ("SessionId", "s"),
        ("CorrelationId", None),
        ("Label", "l"),
        ("TimeToLive", timedelta(seconds=5)),
        ("EnqueuedTimeUtc", Timestamp(1000)),
        ("ExpiresAtUtc", Timestamp(6000)),
        ("ScheduledEnqueueTimeUtc", Timestamp(2000)),
        ("DeliveryCount", 0),
        ("LockToken", None),
    ],
)
def test_rules_can_read_system_properties(harness: EntityHarness, name: str, value: Any) -> None:
    sent = message("x", id=7, session="s", subject="l", ttl=5000, at=2000)

    assert RuleMessage(sent, 1000).system(name) == value


def test_rules_can_read_the_size(harness: EntityHarness) -> None:
    subscription = harness.add_subscription(rule=sql("sys.Size > 50"))
    harness.send("t", message("x" * 100), message("y"))

    assert drain(subscription) == ["x" * 100]
