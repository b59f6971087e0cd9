"""Topics: each subscription gets what its rules let through, changed as they say."""

from datetime import timedelta
from typing import Any

import pytest

from pairbus.amqp.encode import encode
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Int32, Pairs, Symbol, Timestamp
from pairbus.emulator.entities.descriptions import EntityStatus
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
from tests.unit.emulator.local import (
    Local,
    body,
    drain,
    message,
    payload,
    properties,
    received,
    seen,
    take_one,
    why_dead,
)

S = "t/Subscriptions/s"


@pytest.fixture
def topic(local: Local) -> None:
    local.add_topic()


pytestmark = pytest.mark.usefixtures("topic")


def sql(expression: str, action: str | None = None, name: str = "r") -> Rule:
    return Rule(
        name=name,
        filter=SqlFilter(expression),
        action=None if action is None else SqlAction(action),
    )


# Copies.


def test_every_subscription_gets_a_copy_of_its_own(local: Local) -> None:
    first, second = local.add_subscription("a"), local.add_subscription("b")
    numbers = local.send("t", message("x"), message("y"))
    first.complete(take_one(first)[1], 0)

    assert numbers == sorted(set(numbers))
    assert 0 not in numbers
    assert drain(first) == ["y"]
    assert drain(second) == ["x", "y"]


def test_a_topic_without_subscriptions_takes_messages_and_keeps_none(local: Local) -> None:
    local.send("t", message("x"))
    late = local.add_subscription()

    assert len(late) == len(local.at("t")) == 0


def test_a_topic_does_not_send_to_the_subscriptions_of_another(local: Local) -> None:
    local.add_topic("t2")
    local.add_topic("t/sub")
    others = [local.add_subscription("s", topic=name) for name in ("t2", "t/sub")]
    own = local.add_subscription("s")
    local.send("T", message("x"))

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
        (sql("sys.MessageId LIKE 'b%'"), ["blue"]),
        (sql("sys.TimeToLive IS NULL"), ["red", "none"]),
        (sql("sys.SessionId = 'x' AND sys.To = 'you'"), ["blue"]),
        (sql("sys.PartitionKey = 'pk'"), ["none"]),
        (Rule(name="r", filter=CorrelationFilter(label="urgent")), ["red"]),
        (Rule(name="r", filter=CorrelationFilter(properties={"size": 5})), ["blue"]),
    ],
)
def test_a_rule_decides_what_goes_through(
    local: Local, rule: Rule | None, expected: list[str]
) -> None:
    subscription = local.add_subscription(rule=rule)
    with_key = Message.parse(payload("none"))
    with_key.edit_message_annotations({Symbol("x-opt-partition-key"): "pk"})
    local.send(
        "t",
        message("red", properties={"color": "red", "size": 1}, subject="urgent"),
        message(
            "blue",
            properties={"color": "blue", "size": Int32(5)},
            id="b1",
            session="x",
            to="you",
            ttl=50,
        ),
        parse_message(with_key.encode()),
    )

    assert drain(subscription) == expected


def test_several_rules_make_one_copy_and_each_action_one_more(local: Local) -> None:
    subscription = local.add_subscription(rule=sql("a = 1"))
    local.entities.create_rule(S, sql("b = 1", name="other"), 0)
    local.entities.create_rule(S, sql("a = 1", "SET c = 2", name="acts"), 0)
    local.send("t", message("x", properties={"a": 1, "b": 1}))

    copies = [properties(one) for one in subscription.peek(0, 10)]

    assert copies == [{"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 2, "RuleName": "acts"}]


# Actions.


def test_an_action_changes_the_copy_and_nothing_else(local: Local) -> None:
    plain = local.add_subscription("plain")
    acts = local.add_subscription(
        rule=sql(
            "1 = 1",
            "SET size = size + 1; SET New = 'n'; REMOVE color; SET sys.Label = 'l';"
            "SET sys.ReplyTo = sys.To; SET sys.ContentType = 'text/plain'; SET sys.SessionId = 's';"
            "SET sys.PartitionKey = 'k'",
        )
    )
    sent = payload("x", id="1", to="you", properties={"size": Int32(1), "color": "red"})
    local.send("t", parse_message(sent))

    (untouched,) = plain.peek(0, 10)
    (stored,) = acts.peek(0, 10)
    changed = received(stored)
    head = changed.read_properties()

    assert untouched.rest == Message.parse(sent).properties + sent[sent.index(b"\x00\x53\x74") :]
    assert properties(stored) == {"size": 2, "New": "n", "RuleName": "r"}
    assert type(properties(stored)["size"]) is Int32
    assert (head.message_id, head.to, head.subject, head.reply_to) == ("1", "you", "l", "you")
    assert head.content_type == "text/plain"
    assert (head.group_id, stored.session) == ("s", "s")
    assert changed.read_message_annotations()["x-opt-partition-key"] == "k"
    assert body(stored) == "x"


def test_an_action_can_set_the_time_to_live(local: Local) -> None:
    subscription = local.add_subscription(rule=sql("1 = 1", "SET sys.TimeToLive = 'PT1S'"))
    local.send("t", message("x"))
    local.tick(999)
    assert seen(subscription) == ["x"]
    local.tick(1000)

    assert seen(subscription) == []


def test_an_action_can_schedule_a_copy(local: Local) -> None:
    at = "1970-01-01T00:00:50Z"
    subscription = local.add_subscription(
        rule=sql("1 = 1", f"SET sys.ScheduledEnqueueTimeUtc = '{at}'")
    )
    local.send("t", message("x"))
    assert drain(subscription) == []
    local.tick(50_000)

    assert drain(subscription, 50_000) == ["x"]


def test_an_action_can_give_a_message_the_session_that_it_needs(local: Local) -> None:
    subscription = local.add_subscription(
        requires_session=True, rule=sql("1 = 1", "SET sys.SessionId = color")
    )
    local.send("t", message("x", properties={"color": "red"}))
    assert subscription.sessions is not None

    assert subscription.sessions.accept(None, object(), 0) == "red"
    assert drain(subscription, session="red") == ["x"]


# Failures.


@pytest.mark.parametrize("buries", [True, False])
@pytest.mark.parametrize(
    "rule",
    [sql("color > 5"), sql("1 = 1", "SET a = size / 0")],
    ids=["filter", "action"],
)
def test_what_a_rule_cannot_judge_is_dead_lettered_where_the_subscription_is_set_to(
    local: Local, rule: Rule, buries: bool
) -> None:
    subscription = local.add_subscription(
        rule=rule, dead_lettering_on_filter_evaluation_exceptions=buries
    )
    other = local.add_subscription("other")
    local.send("t", message("x", properties={"color": "red", "size": 1}))

    assert len(subscription) == 0
    assert drain(other) == ["x"]
    assert why_dead(local.dead(S)) == ([("x", "FilterEvaluationException")] if buries else [])
    if buries:
        (stored,) = local.dead(S).peek(0, 10)
        assert "rule r" in properties(stored)["DeadLetterErrorDescription"]


def test_a_message_that_rules_cannot_read_fails_them_and_not_the_emulator(local: Local) -> None:
    plain = local.add_subscription("plain")
    local.add_subscription("label", rule=sql("sys.Label = 'l'"))
    local.add_subscription("key", rule=sql("sys.PartitionKey = 'k'"))
    number_as_subject = Message.build(data=b"number")
    number_as_subject.properties = b"\x00\x53\x73" + encode([None, None, None, 5])
    key_twice = Message.build(data=b"twice")
    key = Symbol("x-opt-partition-key")
    key_twice.message_annotations = b"\x00\x53\x72" + encode(Pairs([(key, "k"), (str(key), "k")]))
    local.send("t", parse_message(number_as_subject.encode()), parse_message(key_twice.encode()))

    assert drain(plain) == ["number", "twice"]
    for name, dead in (("label", "number"), ("key", "twice")):
        path = f"t/Subscriptions/{name}"
        assert why_dead(local.dead(path)) == [(dead, "FilterEvaluationException")]
        assert len(local.at(path)) == 0


def test_a_copy_that_an_action_has_made_too_large_is_dead_lettered(local: Local) -> None:
    grows = SqlAction("SET a = @long; SET b = @long", {"@long": "x" * 30_000})
    local.add_subscription(rule=Rule(name="r", action=grows))
    plain = local.add_subscription("plain")
    local.send("t", message("x", properties={"c": "y" * 20_000}))

    assert drain(plain) == ["x"]
    assert why_dead(local.dead(S)) == [("x", "FilterEvaluationException")]


def test_a_subscription_with_sessions_buries_what_has_none(local: Local) -> None:
    subscription = local.add_subscription(requires_session=True)
    local.send("t", message("has none"), message("has one", session="x"))

    assert seen(subscription) == ["has one"]
    assert why_dead(local.dead(S)) == [("has none", "Session ID is null.")]


# Rules that change.


def test_rules_are_added_replaced_and_removed(local: Local) -> None:
    subscription = local.add_subscription(rule=sql("a = 1", name="One"))
    local.entities.create_rule(S, sql("a = 2", name="Two"), 0)

    def got() -> list[str]:
        local.send("t", *[message(str(a), properties={"a": a}) for a in (1, 2, 3)])
        return drain(local.at(S))

    assert got() == ["1", "2"]
    local.entities.update_rule(S, sql("a = 3", name="ONE"), 0)
    assert got() == ["2", "3"]
    local.entities.delete_rule(S, "two", 0)
    assert got() == ["3"]
    local.restart()
    assert got() == ["3"]
    local.entities.delete_rule(S, "one", 0)
    assert got() == []
    local.restart()
    assert got() == []
    assert len(subscription) == 0


def test_a_rule_that_is_wrong_or_not_there_changes_nothing(local: Local) -> None:
    subscription = local.add_subscription()
    with pytest.raises(ConfigurationError):
        local.entities.create_rule(S, sql("a ="), 0)
    with pytest.raises(EntityExists):
        local.entities.create_rule(S, sql("a = 1", name="$default"), 0)
    with pytest.raises(EntityNotFound):
        local.entities.update_rule(S, sql("a = 1"), 0)
    with pytest.raises(EntityNotFound):
        local.entities.delete_rule(S, "r", 0)
    local.send("t", message("x"))

    assert drain(subscription) == ["x"]


def test_a_subscription_whose_rules_are_changed_is_in_use(local: Local) -> None:
    minute = 60_000
    local.add_subscription(auto_delete_on_idle=timedelta(hours=1))
    local.entities.create_rule(S, sql("a = 1", name="r"), 50 * minute)
    local.tick(100 * minute)
    assert local.entities.find(S) is not None
    local.entities.update_rule(S, sql("a = 2", name="r"), 100 * minute)
    local.tick(150 * minute)
    assert local.entities.find(S) is not None
    local.entities.delete_rule(S, "r", 150 * minute)
    local.tick(200 * minute)
    assert local.entities.find(S) is not None

    local.tick(210 * minute)
    assert local.entities.find(S) is None


# Time.


@pytest.mark.parametrize(
    ("of_topic_ms", "of_subscription_ms", "of_message_ms", "lives_ms"),
    [
        (1000, 3000, 2000, 1000),
        (3000, 1000, 2000, 1000),
        (3000, 2000, 1000, 1000),
        (1000, None, None, 1000),
        (None, 1000, None, 1000),
        (None, None, 1000, 1000),
    ],
)
@pytest.mark.parametrize("acts", [False, True])
def test_the_smallest_time_to_live_counts(
    local: Local,
    of_topic_ms: int | None,
    of_subscription_ms: int | None,
    of_message_ms: int | None,
    lives_ms: int,
    acts: bool,
) -> None:
    def settings(ms: int | None) -> dict[str, Any]:
        return {} if ms is None else {"default_message_time_to_live": timedelta(milliseconds=ms)}

    local.entities.update("t", settings(of_topic_ms), 0)
    rule = sql("1 = 1", "SET a = 1") if acts else None
    subscription = local.add_subscription(
        dead_lettering_on_message_expiration=True, rule=rule, **settings(of_subscription_ms)
    )
    local.send("t", message("x", ttl=of_message_ms))
    local.tick(lives_ms - 1)
    assert seen(subscription) == ["x"]
    local.tick(lives_ms)

    assert why_dead(local.dead(S)) == [("x", "TTLExpiredException")]


def test_a_scheduled_message_is_published_when_its_time_comes(local: Local) -> None:
    red = local.add_subscription("red", rule=sql("color = 'red'"))
    all_of_them = local.add_subscription("all")
    (number,) = local.send("t", message("x", at=50, ttl=100, properties={"color": "red"}))
    assert len(red) == len(all_of_them) == 0
    assert seen(local.at("t")) == ["x"]
    local.restart()
    local.tick(50)

    assert len(local.at("t")) == 0
    for name in ("red", "all"):
        subscription = local.at(f"t/Subscriptions/{name}")
        (stored,) = subscription.peek(0, 10)
        assert (body(stored), stored.enqueued_ms, stored.expires_ms) == ("x", 50, 150)
    assert number > 0


def test_a_scheduled_message_of_a_topic_can_be_cancelled(local: Local) -> None:
    subscription = local.add_subscription()
    (number,) = local.send("t", message("x", at=50))
    local.at("t").cancel_scheduled([number])
    local.tick(50)

    assert len(subscription) == len(local.at("t")) == 0


def test_a_scheduled_message_with_annotations_of_its_delivery_is_published(local: Local) -> None:
    subscription = local.add_subscription()
    whole = Message.parse(payload("x", at=50))
    whole.delivery_annotations = b"\x00\x53\x71" + encode({Symbol("hop"): 1})
    local.send("t", parse_message(whole.encode()))
    local.tick(50)

    assert drain(subscription, 50) == ["x"]


# Duplicates and forwarding.


def test_a_topic_takes_a_message_id_once(local: Local) -> None:
    local.add_topic(
        "once",
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=1),
    )
    subscription = local.add_subscription("s", topic="once")
    numbers = local.send("once", message("a", id="1"), message("b", id="1"))

    assert numbers[1] == 0
    assert drain(subscription) == ["a"]


def test_a_subscription_forwards_to_a_queue_what_its_rules_let_through(local: Local) -> None:
    target = local.add_queue("target")
    subscription = local.add_subscription(
        forward_to="target", rule=sql("color = 'red'", "SET seen = 1")
    )
    local.send("t", message("x", properties={"color": "red"}))
    local.send("t", message("y", properties={"color": "blue"}))

    (stored,) = target.peek(0, 10)

    assert len(subscription) == 0
    assert properties(stored) == {"color": "red", "seen": 1, "RuleName": "r"}


def test_a_queue_forwards_to_a_topic(local: Local) -> None:
    subscription = local.add_subscription()
    local.add_queue("q", forward_to="t")
    local.send("q", message("x"))

    assert drain(subscription) == ["x"]


def test_a_circle_through_a_topic_ends(local: Local) -> None:
    local.add_queue("q", forward_to="t")
    local.add_subscription(forward_to="q")
    local.send("t", message("x"))

    dead = [*seen(local.undelivered("q")), *seen(local.undelivered(S))]

    assert dead == ["x"]
    assert len(local.at("q")) == len(local.at(S)) == 0


def test_what_a_subscription_cannot_forward_is_kept_with_the_reason(local: Local) -> None:
    target = local.add_queue("target")
    local.add_subscription(forward_to="target")
    local.entities.update("target", {"status": EntityStatus.DISABLED}, 0)
    local.send("t", message("x"))
    local.entities.delete("target")
    local.send("t", message("y"))

    assert why_dead(local.undelivered(S)) == [("x", "EntityDisabled"), ("y", "EntityNotFound")]
    assert len(target) == 0


def test_dead_letters_of_a_subscription_are_forwarded(local: Local) -> None:
    graves = local.add_queue("graves")
    local.add_subscription(
        forward_dead_lettered_messages_to="graves", rule=sql("color > 5", name="wrong")
    )
    local.send("t", message("x", properties={"color": "red"}))

    assert why_dead(graves) == [("x", "FilterEvaluationException")]
    assert len(local.dead(S)) == 0


def test_a_subscription_that_is_full_of_dead_letters_fills_its_topic(local: Local) -> None:
    local.entities.update("t", {"max_size_in_megabytes": 1}, 0)
    subscription = local.add_subscription()
    for _ in range(5):
        local.send("t", message("x" * 200_000))
        subscription.dead_letter(take_one(subscription)[1], "r", None, {}, 0)

    with pytest.raises(QuotaExceeded):
        local.send("t", message("x" * 200_000))


# What rules see.


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
def test_rules_see_the_system_properties(local: Local, name: str, value: Any) -> None:
    incoming = message("x", id=7, session="s", subject="l", ttl=5000, at=2000)

    assert RuleMessage(incoming, 1000).system(name) == value


def test_rules_see_the_size(local: Local) -> None:
    subscription = local.add_subscription(rule=sql("sys.Size > 50"))
    local.send("t", message("x" * 100), message("y"))

    assert drain(subscription) == ["x" * 100]
