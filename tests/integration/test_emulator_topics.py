"""Topics, rules and forwarding in a local namespace, with the azure-servicebus SDK."""

import datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError, ServiceBusQuotaExceededError

from pairbus.emulator.filters.rules import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    SqlAction,
    SqlFilter,
)
from tests.integration.emulator_fixtures import (
    Bench,
    bench,
    bodies,
    eventually,
    is_empty,
    module_bench,
    take,
    take_one,
)

__all__ = ["bench", "module_bench"]

# The SDK does not close its socket when a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

SECOND = datetime.timedelta(seconds=1)


def message(body: str, **properties: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, application_properties=properties)


def subscribe(bench: Bench, topic: str, name: str, filter_: Any = None, **settings: Any) -> None:
    action = settings.pop("action", None)
    rule = None
    if filter_ is not None:
        rule = Rule(name="rule", filter=filter_, action=action)
    bench.namespace.create_subscription(topic, name, rule=rule, **settings)


def waiting(bench: Bench, topic: str, name: str) -> int:
    return bench.runtime(f"{topic}/Subscriptions/{name}").counts.active


class TestSubscriptions:
    def test_every_subscription_gets_its_own_copy(self, bench: Bench) -> None:
        topic = bench.topic()
        subscribe(bench, topic, "one")
        subscribe(bench, topic, "two")
        sender, one, two = bench.open(
            bench.topic_sender(topic), bench.receiver(topic, "one"), bench.receiver(topic, "TWO")
        )
        sender.send_messages([message("a"), message("b")])
        first = take(one, 2)
        assert bodies(first) == ["a", "b"]
        for each in first:
            one.complete_message(each)
        assert bodies(take(two, 2)) == ["a", "b"]
        assert [waiting(bench, topic, name) for name in ("one", "two")] == [0, 2]

    def test_subscription_has_its_own_dead_letter_queue(self, bench: Bench) -> None:
        topic = bench.topic()
        subscribe(bench, topic, "one")
        subscribe(bench, topic, "two")
        sender, one, dead = bench.open(
            bench.topic_sender(topic),
            bench.receiver(topic, "one"),
            bench.dead_letters(topic, "one"),
        )
        sender.send_messages(message("a"))
        one.dead_letter_message(take_one(one), reason="why not")
        letter = take_one(dead)
        assert (str(letter), letter.dead_letter_reason) == ("a", "why not")
        assert letter.dead_letter_source == f"{topic}/Subscriptions/one"
        assert bench.held(f"{topic}/Subscriptions/two") == 1

    def test_topic_keeps_scheduled_messages_until_they_are_due(self, bench: Bench) -> None:
        topic = bench.topic()
        subscribe(bench, topic, "one")
        sender, one = bench.open(bench.topic_sender(topic), bench.receiver(topic, "one"))
        due = datetime.datetime.now(datetime.UTC) + 2 * SECOND
        first, _ = sender.schedule_messages([message("a"), message("b")], due)
        sender.cancel_scheduled_messages(first)
        assert bench.runtime(topic).counts.scheduled == 1
        delivered = take_one(one)
        assert str(delivered) == "b"
        assert datetime.datetime.now(datetime.UTC) >= delivered.scheduled_enqueue_time_utc

    def test_topic_drops_duplicates(self, bench: Bench) -> None:
        topic = bench.topic(requires_duplicate_detection=True)
        subscribe(bench, topic, "one")
        sender = bench.topic_sender(topic)
        for _ in range(2):
            sender.send_messages(ServiceBusMessage("a", message_id="same"))
        assert waiting(bench, topic, "one") == 1

    def test_time_to_live_of_a_topic_applies_to_its_subscriptions(self, bench: Bench) -> None:
        topic = bench.topic(default_message_time_to_live=SECOND)
        subscribe(bench, topic, "one", dead_lettering_on_message_expiration=True)
        subscribe(bench, topic, "two")
        sender, dead = bench.open(bench.topic_sender(topic), bench.dead_letters(topic, "one"))
        sender.send_messages(message("a"))
        assert take_one(dead).dead_letter_reason == "TTLExpiredException"
        eventually(lambda: bench.held(f"{topic}/Subscriptions/two") == 0)

    def test_sessions_of_a_subscription_are_received_and_listed(self, bench: Bench) -> None:
        topic = bench.topic()
        subscribe(bench, topic, "one", requires_session=True)
        sender = bench.topic_sender(topic)
        sender.send_messages([ServiceBusMessage(name, session_id=name) for name in "ab"])
        assert list(bench.client.list_subscription_sessions(topic, "one")) == ["a", "b"]
        receiver = bench.receiver(topic, "one", session_id="b")
        assert str(take_one(receiver)) == "b"
        receiver.session.set_state(b"x")
        assert receiver.session.get_state() == b"x"

    def test_full_topic_accepts_nothing(self, bench: Bench) -> None:
        topic = bench.topic(max_size_in_megabytes=1)
        subscribe(bench, topic, "one")
        subscribe(bench, topic, "two")
        sender = bench.topic_sender(topic)
        for _ in range(2):
            sender.send_messages(message("x" * 250_000))
        sender.send_messages(message("x" * 10_000))
        with pytest.raises(ServiceBusQuotaExceededError):
            sender.send_messages(message("x" * 250_000))

    def test_subscription_cannot_be_sent_to_and_topic_cannot_be_received_from(
        self, bench: Bench
    ) -> None:
        topic = bench.topic()
        subscribe(bench, topic, "one")
        with pytest.raises(ServiceBusError):
            bench.sender(f"{topic}/Subscriptions/one").send_messages(message("a"))
        with pytest.raises(ServiceBusError):
            bench.receiver(topic).receive_messages(1, max_wait_time=2)


class TestRules:
    def test_filters_select_the_messages_of_a_subscription(self, bench: Bench) -> None:
        topic = bench.topic()
        for name, filter_ in {
            "large": SqlFilter("size > @limit AND colour IN ('red', 'blue')", {"@limit": 10}),
            "labelled": SqlFilter("sys.Label LIKE 'ord%' OR EXISTS(extra)"),
            "correlated": CorrelationFilter(correlation_id="c", properties={"colour": "red"}),
            "none": FalseFilter(),
            "all": SqlFilter("1=1"),
        }.items():
            subscribe(bench, topic, name, filter_)
        sender, correlated = bench.open(
            bench.topic_sender(topic), bench.receiver(topic, "correlated")
        )
        sender.send_messages(
            [
                message("a", size=11, colour="red"),
                message("b", size=9, colour="red"),
                message("c", size=12, colour="green", extra=None),
                ServiceBusMessage("d", subject="order"),
                ServiceBusMessage(
                    "e", correlation_id="c", application_properties={"colour": "red"}
                ),
            ]
        )
        counts = {
            name: waiting(bench, topic, name)
            for name in ("large", "labelled", "correlated", "none", "all")
        }
        assert counts == {"large": 1, "labelled": 2, "correlated": 1, "none": 0, "all": 5}
        assert str(take_one(correlated)) == "e"

    def test_actions_change_only_the_copy_of_their_subscription(self, bench: Bench) -> None:
        topic = bench.topic()
        action = SqlAction("SET colour = 'blue'; SET sys.Label = 'painted'; REMOVE size;")
        subscribe(bench, topic, "changed", SqlFilter("size = 1"), action=action)
        subscribe(bench, topic, "plain")
        sender, changed, plain = bench.open(
            bench.topic_sender(topic),
            bench.receiver(topic, "changed"),
            bench.receiver(topic, "plain"),
        )
        sender.send_messages(message("a", size=1, colour="red"))
        painted, kept = take_one(changed), take_one(plain)
        assert painted.subject == "painted"
        assert painted.application_properties[b"colour"] == b"blue"
        assert b"size" not in painted.application_properties
        assert kept.subject is None
        assert kept.application_properties == {b"size": 1, b"colour": b"red"}

    def test_added_and_deleted_rules_apply_to_later_messages(self, bench: Bench) -> None:
        topic = bench.topic()
        subscribe(bench, topic, "one", FalseFilter())
        path = f"{topic}/Subscriptions/one"
        sender, receiver = bench.open(bench.topic_sender(topic), bench.receiver(topic, "one"))
        sender.send_messages(message("before"))
        rule = Rule(name="more", filter=SqlFilter("sys.MessageId = 'm'"))
        bench.namespace.call(lambda core: core.entities.create_rule(path, rule, 0))
        sender.send_messages(ServiceBusMessage("now", message_id="m"))
        bench.namespace.call(lambda core: core.entities.delete_rule(path, "more", 0))
        sender.send_messages(ServiceBusMessage("after", message_id="m"))
        assert str(take_one(receiver)) == "now"
        assert is_empty(receiver)


class TestForwarding:
    def test_message_sent_to_a_forwarding_queue_is_received_from_its_target(
        self, bench: Bench
    ) -> None:
        target = bench.queue()
        queue = bench.queue(forward_to=target)
        sender, receiver = bench.open(bench.sender(queue), bench.receiver(target))
        sender.send_messages([message("a", kept=1), message("b")])
        first, second = take(receiver, 2)
        assert bodies([first, second]) == ["a", "b"]
        assert first.application_properties == {b"kept": 1}
        assert bench.held(queue) == 0

    def test_subscription_forwards_messages_and_dead_letters_to_two_queues(
        self, bench: Bench
    ) -> None:
        graves = bench.queue()
        target = bench.queue(forward_dead_lettered_messages_to=graves)
        topic = bench.topic()
        subscribe(bench, topic, "one", SqlFilter("size = 1"), forward_to=target)
        sender, receiver, dead = bench.open(
            bench.topic_sender(topic), bench.receiver(target), bench.receiver(graves)
        )
        sender.send_messages([message("a", size=1), message("b", size=2)])
        receiver.dead_letter_message(take_one(receiver), reason="why not")
        letter = take_one(dead)
        assert (str(letter), letter.dead_letter_reason) == ("a", "why not")
        assert letter.dead_letter_source == target
        assert is_empty(receiver)

    def test_message_that_cannot_be_forwarded_is_in_the_transfer_dead_letter_queue(
        self, bench: Bench
    ) -> None:
        target = bench.queue(requires_session=True)
        queue = bench.queue(forward_to=target)
        sender, receiver = bench.open(
            bench.sender(queue),
            bench.receiver(queue, sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER),
        )
        sender.send_messages([message("lost"), ServiceBusMessage("found", session_id="s")])
        letter = take_one(receiver)
        assert str(letter) == "lost"
        assert letter.dead_letter_reason
        assert bench.runtime(queue).counts.transfer_dead_letter == 1
        assert str(take_one(bench.receiver(target, session_id="s"))) == "found"
