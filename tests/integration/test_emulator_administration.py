"""The administration clients of the SDK, sync and async, against a local namespace.

Entities and rules are created, read, updated, listed in pages and deleted, and every error is an
error of the SDK. The details of descriptions are in the unit tests.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import (
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from pairbus.emulator.namespace import LocalNamespace
from tests.integration.sdk_flavours import (
    SDK_MARKS,
    Flavour,
    bodies,
    listed,
    take,
    take_one,
)

pytestmark = SDK_MARKS


@pytest_asyncio.fixture(loop_scope="module")
async def admin(sdk: Flavour) -> AsyncIterator[Any]:
    sdk.namespace.call(delete_all_entities)
    async with sdk.administration() as client:
        yield client


def delete_all_entities(core: Any) -> None:
    for entity in list(core.entities.all()):
        if "/Subscriptions/" not in entity.path:
            core.entities.delete(entity.path)


def kinds(admin: Any) -> dict[str, tuple[Any, ...]]:
    """The administration calls for one kind of entity, and its path."""
    return {
        "queue": (
            *(getattr(admin, f"{verb}_queue") for verb in ("create", "get", "update", "delete")),
            *(admin.list_queues, admin.get_queue_runtime_properties),
            *(admin.list_queues_runtime_properties, ()),
        ),
        "topic": (
            *(getattr(admin, f"{verb}_topic") for verb in ("create", "get", "update", "delete")),
            *(admin.list_topics, admin.get_topic_runtime_properties),
            *(admin.list_topics_runtime_properties, ()),
        ),
        "subscription": (
            *(
                getattr(admin, f"{verb}_subscription")
                for verb in ("create", "get", "update", "delete")
            ),
            *(admin.list_subscriptions, admin.get_subscription_runtime_properties),
            *(admin.list_subscriptions_runtime_properties, ("t",)),
        ),
    }


KINDS = ["queue", "topic", "subscription"]


@pytest.mark.parametrize("kind", KINDS)
async def test_entity_is_created_read_updated_listed_and_deleted(admin: Any, kind: str) -> None:
    create, get, update, delete, list_, runtime, list_runtime, where = kinds(admin)[kind]
    if where:
        await admin.create_topic("t")

    made = await create(*where, "One", default_message_time_to_live=timedelta(hours=1))
    assert made.name == "One"
    made.default_message_time_to_live = timedelta(hours=2)
    made.status = EntityStatus.DISABLED
    await update(*where, made)

    rules = await get(*where, "oNE")
    assert rules.default_message_time_to_live == timedelta(hours=2)
    assert rules.status == EntityStatus.DISABLED
    assert [item.name for item in await listed(list_(*where))] == ["One"]
    properties = await runtime(*where, "One")
    assert properties.name == "One"
    assert datetime.now(UTC) - properties.created_at_utc < timedelta(minutes=1)
    assert [item.name for item in await listed(list_runtime(*where))] == ["One"]

    await delete(*where, "One")
    assert await listed(list_(*where)) == []
    with pytest.raises(ResourceNotFoundError):
        await get(*where, "One")


@pytest.mark.parametrize("kind", KINDS)
async def test_long_lists_are_paged(admin: Any, namespace: LocalNamespace, kind: str) -> None:
    expected = [f"n{number:03}" for number in range(105)]
    if kind == "subscription":
        namespace.create_topic("t")
    for name in expected:
        if kind == "subscription":
            namespace.create_subscription("t", name)
        else:
            getattr(namespace, f"create_{kind}")(name)
    *_, list_, _, list_runtime, where = kinds(admin)[kind]

    assert [item.name for item in await listed(list_(*where))] == expected
    assert [item.name for item in await listed(list_runtime(*where))] == expected
    assert [item.name for item in await listed(list_(*where, start_index=100))] == expected[100:]


async def test_rules_are_created_read_updated_listed_and_deleted(admin: Any) -> None:
    await admin.create_topic("t")
    await admin.create_subscription("t", "s")
    filters = {
        "sql": SqlRuleFilter("size > @least", {"@least": 10}),
        "correlation": CorrelationRuleFilter(correlation_id="c", properties={"colour": "red"}),
        "true": TrueRuleFilter(),
        "false": FalseRuleFilter(),
    }
    for name, filter_ in filters.items():
        action = SqlRuleAction("SET seen = @yes", {"@yes": True})
        await admin.create_rule("t", "s", name, filter=filter_, action=action)

    rules = {item.name: item for item in await listed(admin.list_rules("t", "s"))}
    assert set(rules) == {"$Default", *filters}
    for name, filter_ in filters.items():
        assert type(rules[name].filter) is type(filter_)
        assert rules[name].action.sql_expression == "SET seen = @yes"
        assert rules[name].action.parameters == {"@yes": True}
    assert rules["sql"].filter.parameters == {"@least": 10}
    assert rules["correlation"].filter.properties == {"colour": "red"}

    rule = rules["sql"]
    rule.filter, rule.action = SqlRuleFilter("size = 1"), None
    await admin.update_rule("t", "s", rule)
    assert (await admin.get_rule("t", "s", "SQL")).filter.sql_expression == "size = 1"
    await admin.delete_rule("t", "s", "sql")
    with pytest.raises(ResourceNotFoundError):
        await admin.get_rule("t", "s", "sql")


async def test_administered_settings_apply_to_messages(admin: Any, sdk: Flavour) -> None:
    """Filters, actions, forwarding and counts are set by administration and seen by messages."""
    await admin.create_queue("deep/er/target")
    await admin.create_topic("t")
    await admin.create_subscription("t", "s", forward_to="deep/er/target")
    await admin.create_subscription("t", "kept")
    await admin.delete_rule("t", "s", "$Default")
    await admin.create_rule(
        "t", "s", "large", filter=SqlRuleFilter("size > 10"), action=SqlRuleAction("SET size = 0")
    )
    sender, receiver = await sdk.open(sdk.topic_sender("T"), sdk.receiver("DEEP/er/TARGET"))
    await sender.send_messages(
        [
            ServiceBusMessage(str(size), application_properties={"size": size})
            for size in (5, 20, 10, 11)
        ]
    )
    messages = await take(receiver, 2)
    assert bodies(messages) == ["20", "11"]
    assert [item.application_properties for item in messages] == [
        {b"size": 0, b"RuleName": b"large"}
    ] * 2

    await receiver.dead_letter_message(messages[0])
    properties = await admin.get_queue_runtime_properties("deep/er/target")
    assert (properties.active_message_count, properties.dead_letter_message_count) == (1, 1)
    assert properties.total_message_count == 2
    assert properties.size_in_bytes > 0
    kept = await admin.get_subscription_runtime_properties("t", "kept")
    assert kept.active_message_count == 4
    topic = await admin.get_topic_runtime_properties("t")
    assert topic.subscription_count == 2


async def test_update_applies_to_an_entity_in_use(admin: Any, sdk: Flavour) -> None:
    made = await admin.create_queue("q", max_delivery_count=10)
    sender, receiver, dead = await sdk.open(
        sdk.sender("q"), sdk.receiver("q"), sdk.dead_letters("q")
    )
    made.max_delivery_count = 1
    await admin.update_queue(made)
    await sender.send_messages(ServiceBusMessage("x"))
    await receiver.abandon_message(await take_one(receiver))
    assert (await take_one(dead)).dead_letter_reason == "MaxDeliveryCountExceeded"


async def test_missing_entity_is_not_found(admin: Any) -> None:
    queue = await admin.create_queue("q")
    topic = await admin.create_topic("t")
    subscription = await admin.create_subscription("t", "s")
    rule = await admin.create_rule("t", "s", "r")
    await admin.delete_rule("t", "s", "r")
    await admin.delete_subscription("t", "s")
    for missing in (
        lambda: admin.update_rule("t", "s", rule),
        lambda: admin.get_rule("t", "s", "r"),
        lambda: admin.delete_rule("t", "s", "r"),
        lambda: admin.create_rule("t", "s", "r"),
        lambda: admin.update_subscription("t", subscription),
        lambda: admin.delete_subscription("t", "s"),
        lambda: admin.get_subscription_runtime_properties("t", "s"),
        lambda: admin.create_subscription("nowhere", "s"),
        lambda: admin.get_queue("nowhere"),
        lambda: admin.delete_queue("nowhere"),
        lambda: admin.get_queue_runtime_properties("nowhere"),
        lambda: admin.get_topic("nowhere"),
        lambda: admin.delete_topic("nowhere"),
    ):
        with pytest.raises(ResourceNotFoundError):
            await missing()
    await admin.delete_queue("q")
    await admin.delete_topic("t")
    with pytest.raises(ResourceNotFoundError):
        await admin.update_queue(queue)
    with pytest.raises(ResourceNotFoundError):
        await admin.update_topic(topic)


async def test_existing_entity_is_not_created_again(admin: Any) -> None:
    await admin.create_queue("q")
    await admin.create_topic("t")
    await admin.create_subscription("t", "s")
    await admin.create_rule("t", "s", "r")
    for again in (
        lambda: admin.create_queue("Q"),
        lambda: admin.create_topic("q"),
        lambda: admin.create_queue("t"),
        lambda: admin.create_topic("T"),
        lambda: admin.create_subscription("t", "S"),
        lambda: admin.create_rule("t", "s", "R"),
    ):
        with pytest.raises(ResourceExistsError):
            await again()


async def test_invalid_value_is_refused_and_changes_nothing(admin: Any) -> None:
    made = await admin.create_queue("q", max_delivery_count=7)
    await admin.create_topic("t")
    await admin.create_subscription("t", "s")
    made.max_delivery_count = 0
    for bad in (
        lambda: admin.create_queue("new", lock_duration=timedelta(minutes=6)),
        lambda: admin.create_queue("new", max_delivery_count=0),
        lambda: admin.create_queue("new", default_message_time_to_live=timedelta(0)),
        lambda: admin.create_queue("new", forward_to="nowhere"),
        lambda: admin.create_queue("new", auto_delete_on_idle=timedelta(seconds=1)),
        lambda: admin.create_topic("new", max_size_in_megabytes=-1),
        lambda: admin.create_subscription("t", "new", lock_duration=timedelta(hours=1)),
        lambda: admin.create_rule("t", "s", "new", filter=SqlRuleFilter("size >")),
        lambda: admin.create_rule("t", "s", "new", action=SqlRuleAction("PAINT it black")),
        lambda: admin.update_queue(made),
    ):
        with pytest.raises(HttpResponseError) as refused:
            await bad()
        assert refused.value.status_code == 400
        assert refused.value.message
    assert (await admin.get_queue("q")).max_delivery_count == 7
    assert [item.name for item in await listed(admin.list_queues())] == ["q"]
    assert [item.name for item in await listed(admin.list_topics())] == ["t"]
    assert [item.name for item in await listed(admin.list_rules("t", "s"))] == ["$Default"]


async def test_namespace_properties_are_returned(admin: Any) -> None:
    properties = await admin.get_namespace_properties()
    assert properties.name == "tests"
    assert properties.namespace_type == "Messaging"
