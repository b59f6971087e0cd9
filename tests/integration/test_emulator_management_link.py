"""Operations of an entity's management node, with our own client.

The SDK settles over the management link after its own link is detached.
"""

import datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import FalseRuleFilter

from pairbus.amqp.client import Client, ClientOptions, Management, Receiver
from pairbus.amqp.events import Delivery
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Described, Int32, Symbol, Timestamp, ULong
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.errors import (
    EntityExists,
    EntityNotFound,
    LinkLost,
    LockLost,
    MessageNotFound,
    NotAuthorized,
    Refused,
)
from pairbus.servicebus.management import ABANDONED, DEAD_LETTERED, DEFERRED
from tests.integration.sdk_flavours import (
    SDK_MARKS,
    Flavour,
    bodies,
    listed,
    take,
    take_one,
)

pytestmark = SDK_MARKS

SECOND = datetime.timedelta(seconds=1)
SETTLEMENTS = ("complete", "abandon", "defer", "dead_letter")


def numbered(count: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"{i}") for i in range(count)]


class TestSettling:
    async def test_many_messages_are_completed_at_once_by_another_connection(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages(numbered(300))
        tokens = [message.lock_token.bytes_le for message in await take(receiver, 300)]
        Management(sdk.raw(), queue).settle(tokens)
        assert sdk.stored_count(queue) == 0
        readings = sdk.namespace.meter()
        assert readings[queue, "complete"].operations == 300

    async def test_messages_are_abandoned_deferred_and_dead_lettered_with_changes(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue()
        sender, receiver, dead = await sdk.open(
            sdk.sender(queue), sdk.receiver(queue), sdk.dead_letters(queue)
        )
        await sender.send_messages(numbered(3))
        abandoned, deferred, dead_lettered = await take(receiver, 3)
        management = Management(sdk.raw(), queue)
        changes = {"properties_to_modify": {"seen": "yes"}}
        management.settle([abandoned.lock_token.bytes_le], ABANDONED, **changes)
        management.settle([deferred.lock_token.bytes_le], DEFERRED, **changes)
        management.settle(
            [dead_lettered.lock_token.bytes_le],
            DEAD_LETTERED,
            reason="r",
            description="d",
            **changes,
        )
        abandoned = await take_one(receiver)
        assert (str(abandoned), abandoned.delivery_count) == ("0", 1)
        (deferred,) = await receiver.receive_deferred_messages(deferred.sequence_number)
        dead_lettered = await take_one(dead)
        assert (dead_lettered.dead_letter_reason, dead_lettered.dead_letter_error_description) == (
            "r",
            "d",
        )
        for message in (abandoned, deferred, dead_lettered):
            assert message.application_properties[b"seen"] == b"yes"

    async def test_one_lost_lock_prevents_settling_all(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        await sdk.sender(queue).send_messages(numbered(2))
        client = sdk.raw()
        receiver, management = Receiver(client, queue), Management(client, queue)
        first, second = [delivery.tag for delivery in receive(receiver, 2)]
        management.settle([first])
        with pytest.raises(LockLost) as refused:
            management.settle([second, first])
        assert refused.value.condition == "com.microsoft:message-lock-lost"
        assert sdk.stored_count(queue) == 1
        management.settle([second])
        assert sdk.stored_count(queue) == 0

    async def test_unknown_disposition_changes_nothing(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        await sdk.sender(queue).send_messages(numbered(1))
        client = sdk.raw()
        tokens = [delivery.tag for delivery in receive(Receiver(client, queue), 1)]
        management = Management(client, queue)
        with pytest.raises(Refused):
            management.settle(tokens, "eaten")
        management.settle(tokens)
        assert sdk.stored_count(queue) == 0

    async def test_sdk_settles_over_the_management_link_after_its_link_is_detached(
        self, sdk: Flavour
    ) -> None:
        """After the link of a message is lost, the SDK settles it over the management link."""
        queue = sdk.queue()
        sender, dead, *receivers = await sdk.open(
            sdk.sender(queue), sdk.dead_letters(queue), *(sdk.receiver(queue) for _ in SETTLEMENTS)
        )
        await sender.send_messages(numbered(4))
        messages = [await take_one(receiver) for receiver in receivers]
        sdk.namespace.call(lambda core: detach_all(core, queue))
        settled = {}
        for settle, receiver, message in zip(SETTLEMENTS, receivers, messages, strict=True):
            options = {"reason": "r", "error_description": "d"} if settle == "dead_letter" else {}
            await getattr(receiver, f"{settle}_message")(message, **options)
            settled[settle] = str(message)
        letter = await take_one(dead)
        assert str(letter) == settled["dead_letter"]
        assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("r", "d")
        peeked = await sdk.receiver(queue).peek_messages(9)
        assert {str(message): message.state for message in peeked} == {
            settled["abandon"]: ServiceBusMessageState.ACTIVE,
            settled["defer"]: ServiceBusMessageState.DEFERRED,
        }


class TestOthers:
    async def test_many_locks_are_renewed_at_once(self, sdk: Flavour) -> None:
        queue = sdk.queue(lock_duration=60 * SECOND)
        await sdk.sender(queue).send_messages(numbered(3))
        client = sdk.raw()
        deliveries = receive(Receiver(client, queue), 3)
        before = max(locked_until(bytes(delivery.payload)) for delivery in deliveries)
        until = Management(client, queue).renew_locks(delivery.tag for delivery in deliveries)
        assert len(until) == 3
        assert min(until) >= before

    async def test_messages_are_peeked_from_a_sequence_number(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        await sdk.sender(queue).send_messages(numbered(5))
        messages = Management(sdk.raw(), queue).peek(3, 2)
        assert [Message.parse(delivery).read_body()[1][0] for delivery in messages] == [b"2", b"3"]

    async def test_message_is_scheduled_and_cancelled(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        due = datetime.datetime.now(datetime.UTC) + 60 * SECOND
        payload = Message.build(
            message_annotations={
                Symbol("x-opt-scheduled-enqueue-time"): Timestamp.from_datetime(due)
            },
            data=b"later",
        ).encode()
        management = Management(sdk.raw(), queue)
        (number,) = management.schedule([payload])
        assert sdk.runtime(queue).counts.scheduled == 1
        management.cancel([number])
        with pytest.raises(MessageNotFound):
            management.cancel([number])
        assert sdk.stored_count(queue) == 0

    async def test_dead_letter_queue_has_a_management_node(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, receiver, dead = await sdk.open(
            sdk.sender(queue), sdk.receiver(queue), sdk.dead_letters(queue)
        )
        await sender.send_messages(numbered(2))
        for message in await take(receiver, 2):
            await receiver.dead_letter_message(message)
        assert bodies(await dead.peek_messages(5)) == ["0", "1"]
        first = await take_one(dead)
        assert await dead.renew_message_lock(first) >= first.locked_until_utc
        await dead.defer_message(first)
        (again,) = await dead.receive_deferred_messages(first.sequence_number)
        await dead.complete_message(again)
        assert sdk.runtime(queue).counts.dead_letter == 1


class TestRules:
    """Requests as the JavaScript and .NET SDKs send them. The Python SDK has none."""

    def rules(self, sdk: Flavour) -> tuple[str, Management]:
        topic = sdk.topic()
        sdk.namespace.create_subscription(topic, "s")
        return topic, Management(sdk.raw(), f"{topic}/Subscriptions/s")

    async def test_added_rules_are_listed_and_select_messages(self, sdk: Flavour) -> None:
        topic, management = self.rules(sdk)
        add_rule(
            management,
            "red",
            {
                "correlation-filter": {
                    "label": "fruit",
                    "to": None,
                    "properties": {"color": "red", "size": Int32(5)},
                }
            },
        )
        add_rule(
            management,
            "sql",
            {
                "sql-filter": {"expression": "size = 2"},
                "sql-rule-action": {"expression": "SET a=1"},
            },
        )
        remove_rule(management, "$Default")

        red, sql = list_rules(management)
        empty = [None] * 3
        assert red.value[:3] == [
            Described(
                ULong(0x1370000009),
                [None, *empty, "fruit", *empty, {"color": "red", "size": 5}],
            ),
            Described(ULong(0x13700000005), []),
            "red",
        ]
        assert red.descriptor == ULong(0x13700000004)
        assert type(red.value[3]) is Timestamp
        assert sql.value[:3] == [
            Described(ULong(0x1370000006), ["size = 2", 20]),
            Described(ULong(0x13700000006), ["SET a=1", 20]),
            "sql",
        ]
        sender, receiver = await sdk.open(sdk.topic_sender(topic), sdk.receiver(topic, "s"))
        properties = {"color": "red", "size": 5}
        await sender.send_messages(
            [
                ServiceBusMessage("a", subject="fruit", application_properties=properties),
                ServiceBusMessage("b", application_properties=properties),
                ServiceBusMessage("c", application_properties={"size": 2}),
            ]
        )
        first, second = await take(receiver, 2)
        assert bodies([first, second]) == ["a", "c"]
        assert second.application_properties[b"a"] == 1

    async def test_rules_are_those_of_the_administration_client(self, sdk: Flavour) -> None:
        topic, management = self.rules(sdk)
        async with sdk.administration() as administration:
            await administration.create_rule(topic, "s", "none", filter=FalseRuleFilter())
            rules = list_rules(management)
            assert [(rule.value[0].descriptor, rule.value[2]) for rule in rules] == [
                (ULong(0x1370000007), "$Default"),
                (ULong(0x1370000008), "none"),
            ]
            remove_rule(management, "NONE")
            add_rule(management, "new", {"sql-filter": {"expression": "1=0"}})
            listed_rules = await listed(administration.list_rules(topic, "s"))
        assert [rule.name for rule in listed_rules] == ["$Default", "new"]

    async def test_rules_are_listed_in_pages(self, sdk: Flavour) -> None:
        _, management = self.rules(sdk)
        for name in "abc":
            add_rule(management, name, {"sql-filter": {"expression": "1=1"}})
        assert [rule.value[2] for rule in list_rules(management, skip=1, top=2)] == ["a", "b"]
        assert list_rules(management, skip=4) == []
        assert list_rules(management, top=-1) == []

    async def test_invalid_requests_are_refused_and_change_nothing(self, sdk: Flavour) -> None:
        _, management = self.rules(sdk)
        valid = {"sql-filter": {"expression": "1=1"}}
        with pytest.raises(EntityExists):
            add_rule(management, "$default", valid)
        with pytest.raises(EntityNotFound, match=r"The messaging entity .* could not be found"):
            remove_rule(management, "none")
        for name, description in (
            ("x/y", valid),
            ("x", {}),
            ("x", {"sql-filter": {"expression": "a =="}}),
            ("x", {"sql-filter": {"expression": 5}}),
            ("x", {"sql-filter": "1=1"}),
            ("x", {**valid, "sql-rule-action": {"expression": "SET"}}),
            ("x", {"correlation-filter": {"label": 5}}),
            ("x", {"correlation-filter": {"properties": {"a": None}}}),
            ("x", {"correlation-filter": {"properties": {5: "a"}}}),
        ):
            with pytest.raises(Refused):
                add_rule(management, name, description)
        assert [rule.value[2] for rule in list_rules(management)] == ["$Default"]

    async def test_queue_has_no_rules(self, sdk: Flavour) -> None:
        management = Management(sdk.raw(), sdk.queue())
        with pytest.raises(Refused, match="not a subscription"):
            list_rules(management)

    async def test_listen_right_is_required(self, sdk: Flavour) -> None:
        topic, _ = self.rules(sdk)
        rule = SharedAccessRule(name="send", primary_key="a2V5", rights=frozenset({Right.SEND}))
        sdk.update(topic, authorization_rules=(rule,))
        options = ClientOptions.from_connection_string(
            sdk.namespace.connection_string_of("send", "a2V5")
        )
        with Client(options) as client, pytest.raises(NotAuthorized):
            list_rules(Management(client, f"{topic}/Subscriptions/s"))


def add_rule(management: Management, name: str, description: dict[str, Any]) -> None:
    body = {"rule-name": name, "rule-description": description}
    management._request("com.microsoft:add-rule", body, None)


def remove_rule(management: Management, name: str) -> None:
    management._request("com.microsoft:remove-rule", {"rule-name": name}, None)


def list_rules(management: Management, skip: int = 0, top: int = 100) -> list[Described]:
    body = {"skip": Int32(skip), "top": Int32(top)}
    response = management._request("com.microsoft:enumerate-rules", body, None)
    return [] if response is None else [entry["rule-description"] for entry in response["rules"]]


def detach_all(core: NamespaceRuntime, queue: str) -> None:
    """Detach the links of all receivers of a queue."""
    for outlet in core.outgoing_links.pop(core.entities.get(queue).queue.id):
        outlet.detach(LinkLost("The link was taken away."))


def receive(receiver: Receiver, count: int) -> list[Delivery]:
    messages: list[Delivery] = []
    while len(messages) < count:
        some = receiver.receive(count - len(messages))
        assert some
        messages += some
    return messages


def locked_until(payload: bytes) -> Timestamp:
    return Message.parse(payload).read_message_annotations()["x-opt-locked-until"]


class TestDeletion:
    async def test_queue_that_was_created_again_is_used_by_the_next_request(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue()
        management = Management(sdk.raw(), queue)
        (receiver,) = await sdk.open(sdk.receiver(queue))
        assert management.peek() == []
        assert await receiver.peek_messages() == []
        sdk.namespace.call(lambda core: core.entities.delete(queue))
        sdk.namespace.create_queue(queue)
        (sender,) = await sdk.open(sdk.sender(queue))
        await sender.send_messages(numbered(1))
        assert len(management.peek()) == 1
        with pytest.raises(ServiceBusError, match="Management Operation error"):
            await receiver.peek_messages()  # the SDK attaches its links again after the error
        assert len(await receiver.peek_messages()) == 1
