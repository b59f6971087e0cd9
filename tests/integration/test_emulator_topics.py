"""Topics, rules and forwarding in a local namespace, with the sync and the async SDK."""

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
from tests.integration.sdk_flavours import (
    SDK_MARKS,
    Flavour,
    bodies,
    eventually,
    is_empty,
    listed,
    take,
    take_one,
)

pytestmark = SDK_MARKS

SECOND = datetime.timedelta(seconds=1)


def message(body: str, **properties: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, application_properties=properties)


def subscribe(sdk: Flavour, topic: str, name: str, filter_: Any = None, **settings: Any) -> None:
    action = settings.pop("action", None)
    rule = None
    if filter_ is not None:
        rule = Rule(name="rule", filter=filter_, action=action)
    sdk.namespace.create_subscription(topic, name, rule=rule, **settings)


def waiting(sdk: Flavour, topic: str, name: str) -> int:
    return sdk.runtime(f"{topic}/Subscriptions/{name}").counts.active


class TestSubscriptions:
    async def test_every_subscription_gets_its_own_copy(self, sdk: Flavour) -> None:
        topic = sdk.topic()
        subscribe(sdk, topic, "one")
        subscribe(sdk, topic, "two")
        sender, first_receiver, second_receiver = await sdk.open(
            sdk.topic_sender(topic), sdk.receiver(topic, "one"), sdk.receiver(topic, "TWO")
        )
        await sender.send_messages([message("a"), message("b")])
        first = await take(first_receiver, 2)
        assert bodies(first) == ["a", "b"]
        for each in first:
            await first_receiver.complete_message(each)
        assert bodies(await take(second_receiver, 2)) == ["a", "b"]
        assert [waiting(sdk, topic, name) for name in ("one", "two")] == [0, 2]

    async def test_subscription_has_its_own_dead_letter_queue(self, sdk: Flavour) -> None:
        topic = sdk.topic()
        subscribe(sdk, topic, "one")
        subscribe(sdk, topic, "two")
        sender, receiver, dead = await sdk.open(
            sdk.topic_sender(topic),
            sdk.receiver(topic, "one"),
            sdk.dead_letters(topic, "one"),
        )
        await sender.send_messages(message("a"))
        await receiver.dead_letter_message(await take_one(receiver), reason="test")
        letter = await take_one(dead)
        assert (str(letter), letter.dead_letter_reason) == ("a", "test")
        assert letter.dead_letter_source == f"{topic}/Subscriptions/one"
        assert sdk.stored_count(f"{topic}/Subscriptions/two") == 1

    async def test_topic_keeps_scheduled_messages_until_they_are_due(self, sdk: Flavour) -> None:
        topic = sdk.topic()
        subscribe(sdk, topic, "one")
        sender, receiver = await sdk.open(sdk.topic_sender(topic), sdk.receiver(topic, "one"))
        due = datetime.datetime.now(datetime.UTC) + 2 * SECOND
        first, _ = await sender.schedule_messages([message("a"), message("b")], due)
        await sender.cancel_scheduled_messages(first)
        assert sdk.runtime(topic).counts.scheduled == 1
        delivered = await take_one(receiver)
        assert str(delivered) == "b"
        assert datetime.datetime.now(datetime.UTC) >= delivered.scheduled_enqueue_time_utc

    async def test_topic_drops_duplicates(self, sdk: Flavour) -> None:
        topic = sdk.topic(requires_duplicate_detection=True)
        subscribe(sdk, topic, "one")
        sender = sdk.topic_sender(topic)
        for _ in range(2):
            await sender.send_messages(ServiceBusMessage("a", message_id="same"))
        assert waiting(sdk, topic, "one") == 1

    async def test_time_to_live_of_a_topic_applies_to_its_subscriptions(self, sdk: Flavour) -> None:
        topic = sdk.topic(default_message_time_to_live=SECOND)
        subscribe(sdk, topic, "one", dead_lettering_on_message_expiration=True)
        subscribe(sdk, topic, "two")
        sender, dead = await sdk.open(sdk.topic_sender(topic), sdk.dead_letters(topic, "one"))
        await sender.send_messages(message("a"))
        assert (await take_one(dead)).dead_letter_reason == "TTLExpiredException"
        await eventually(lambda: sdk.stored_count(f"{topic}/Subscriptions/two") == 0)

    async def test_sessions_of_a_subscription_are_received_and_listed(self, sdk: Flavour) -> None:
        topic = sdk.topic()
        subscribe(sdk, topic, "one", requires_session=True)
        sender = sdk.topic_sender(topic)
        await sender.send_messages([ServiceBusMessage(name, session_id=name) for name in "ab"])
        sessions = sdk.client.list_subscription_sessions(topic, "one")
        assert await listed(sessions) == ["a", "b"]
        receiver = sdk.receiver(topic, "one", session_id="b")
        assert str(await take_one(receiver)) == "b"
        await receiver.session.set_state(b"x")
        assert await receiver.session.get_state() == b"x"

    async def test_full_topic_accepts_nothing(self, sdk: Flavour) -> None:
        topic = sdk.topic(max_size_in_megabytes=1)
        subscribe(sdk, topic, "one")
        subscribe(sdk, topic, "two")
        sender = sdk.topic_sender(topic)
        for _ in range(2):
            await sender.send_messages(message("x" * 250_000))
        await sender.send_messages(message("x" * 10_000))
        with pytest.raises(ServiceBusQuotaExceededError):
            await sender.send_messages(message("x" * 250_000))

    async def test_subscription_cannot_be_sent_to_and_topic_cannot_be_received_from(
        self, sdk: Flavour
    ) -> None:
        topic = sdk.topic()
        subscribe(sdk, topic, "one")
        with pytest.raises(ServiceBusError):
            await sdk.sender(f"{topic}/Subscriptions/one").send_messages(message("a"))
        with pytest.raises(ServiceBusError):
            await sdk.receiver(topic).receive_messages(1, max_wait_time=2)


class TestRules:
    async def test_filters_select_the_messages_of_a_subscription(self, sdk: Flavour) -> None:
        topic = sdk.topic()
        for name, filter_ in {
            "large": SqlFilter("size > @limit AND colour IN ('red', 'blue')", {"@limit": 10}),
            "labelled": SqlFilter("sys.Label LIKE 'ord%' OR EXISTS(extra)"),
            "correlated": CorrelationFilter(correlation_id="c", properties={"colour": "red"}),
            "none": FalseFilter(),
            "all": SqlFilter("1=1"),
        }.items():
            subscribe(sdk, topic, name, filter_)
        sender, correlated = await sdk.open(
            sdk.topic_sender(topic), sdk.receiver(topic, "correlated")
        )
        await sender.send_messages(
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
            name: waiting(sdk, topic, name)
            for name in ("large", "labelled", "correlated", "none", "all")
        }
        assert counts == {"large": 1, "labelled": 2, "correlated": 1, "none": 0, "all": 5}
        assert str(await take_one(correlated)) == "e"

    async def test_actions_change_only_the_copy_of_their_subscription(self, sdk: Flavour) -> None:
        topic = sdk.topic()
        action = SqlAction("SET colour = 'blue'; SET sys.Label = 'painted'; REMOVE size;")
        subscribe(sdk, topic, "changed", SqlFilter("size = 1"), action=action)
        subscribe(sdk, topic, "plain")
        sender, changed, plain = await sdk.open(
            sdk.topic_sender(topic),
            sdk.receiver(topic, "changed"),
            sdk.receiver(topic, "plain"),
        )
        await sender.send_messages(message("a", size=1, colour="red"))
        painted, kept = await take_one(changed), await take_one(plain)
        assert painted.subject == "painted"
        assert painted.application_properties[b"colour"] == b"blue"
        assert b"size" not in painted.application_properties
        assert kept.subject is None
        assert kept.application_properties == {b"size": 1, b"colour": b"red"}

    async def test_added_and_deleted_rules_apply_to_later_messages(self, sdk: Flavour) -> None:
        topic = sdk.topic()
        subscribe(sdk, topic, "one", FalseFilter())
        path = f"{topic}/Subscriptions/one"
        sender, receiver = await sdk.open(sdk.topic_sender(topic), sdk.receiver(topic, "one"))
        await sender.send_messages(message("before"))
        rule = Rule(name="more", filter=SqlFilter("sys.MessageId = 'm'"))
        sdk.namespace.call(lambda core: core.entities.create_rule(path, rule, 0))
        await sender.send_messages(ServiceBusMessage("now", message_id="m"))
        sdk.namespace.call(lambda core: core.entities.delete_rule(path, "more", 0))
        await sender.send_messages(ServiceBusMessage("after", message_id="m"))
        assert str(await take_one(receiver)) == "now"
        assert await is_empty(receiver)


class TestForwarding:
    async def test_message_sent_to_a_forwarding_queue_is_received_from_its_target(
        self, sdk: Flavour
    ) -> None:
        target = sdk.queue()
        queue = sdk.queue(forward_to=target)
        sender, receiver = await sdk.open(sdk.sender(queue), sdk.receiver(target))
        await sender.send_messages([message("a", kept=1), message("b")])
        first, second = await take(receiver, 2)
        assert bodies([first, second]) == ["a", "b"]
        assert first.application_properties == {b"kept": 1}
        assert sdk.stored_count(queue) == 0

    async def test_subscription_forwards_messages_and_dead_letters_to_two_queues(
        self, sdk: Flavour
    ) -> None:
        dead_letter_target = sdk.queue()
        target = sdk.queue(forward_dead_lettered_messages_to=dead_letter_target)
        topic = sdk.topic()
        subscribe(sdk, topic, "one", SqlFilter("size = 1"), forward_to=target)
        sender, receiver, dead = await sdk.open(
            sdk.topic_sender(topic), sdk.receiver(target), sdk.receiver(dead_letter_target)
        )
        await sender.send_messages([message("a", size=1), message("b", size=2)])
        await receiver.dead_letter_message(await take_one(receiver), reason="test")
        letter = await take_one(dead)
        assert (str(letter), letter.dead_letter_reason) == ("a", "test")
        assert letter.dead_letter_source == target
        assert await is_empty(receiver)

    async def test_message_that_cannot_be_forwarded_is_in_the_transfer_dead_letter_queue(
        self, sdk: Flavour
    ) -> None:
        target = sdk.queue(requires_session=True)
        queue = sdk.queue(forward_to=target)
        sender, receiver = await sdk.open(
            sdk.sender(queue),
            sdk.receiver(queue, sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER),
        )
        await sender.send_messages([message("lost"), ServiceBusMessage("found", session_id="s")])
        letter = await take_one(receiver)
        assert str(letter) == "lost"
        assert letter.dead_letter_reason
        assert sdk.runtime(queue).counts.transfer_dead_letter == 1
        assert str(await take_one(sdk.receiver(target, session_id="s"))) == "found"

    async def test_queue_can_forward_to_itself_and_a_queue_with_sessions_can_forward(
        self, sdk: Flavour
    ) -> None:
        """The SDK's administration client creates such queues in its own tests."""
        queue, target = sdk.queue(), sdk.queue()
        async with sdk.administration() as administration:
            properties = await administration.get_queue(queue)
            properties.forward_to = properties.forward_dead_lettered_messages_to = queue
            await administration.update_queue(properties)
            updated = await administration.get_queue(queue)
            with_sessions = await administration.create_queue(
                f"{queue}-sessions", requires_session=True, forward_to=target
            )
        assert updated.forward_to.endswith(f"/{queue}")
        assert updated.forward_dead_lettered_messages_to.endswith(f"/{queue}")
        sender, receiver = await sdk.open(sdk.sender(with_sessions.name), sdk.receiver(target))
        await sender.send_messages(ServiceBusMessage("x", session_id="s"))
        assert str(await take_one(receiver)) == "x"
