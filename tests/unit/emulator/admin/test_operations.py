"""All operations of the SDK's administration client, against the API without sockets."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.management import (
    ApiVersion,
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from pairbus.emulator.entities.descriptions import QueueDescription, TopicDescription
from pairbus.emulator.entities.message_codec import parse_message
from pairbus.emulator.filters.rules import Rule, SqlFilter
from pairbus.servicebus.entity_status import EntityStatus
from pairbus.servicebus.time_spans import MAX_TIME_SPAN
from tests.unit.emulator.admin.harness import CREATED_AT, NOW_MS, AdminHarness

MAX_TIME_SPAN_TEXT = "P10675199DT2H48M5.4775807S"
KINDS = ("queue", "topic", "subscription")


def names(kind: str, name: str = "one") -> list[str]:
    return ["parent", name] if kind == "subscription" else [name]


def parent(kind: str) -> list[str]:
    return ["parent"] if kind == "subscription" else []


def prepare(harness: AdminHarness, kind: str) -> Any:
    client = harness.client()
    if kind == "subscription":
        client.create_topic("parent")
    return client


@pytest.mark.parametrize("kind", KINDS)
def test_entity_is_created_read_updated_listed_and_deleted(harness: AdminHarness, kind: str):
    client = prepare(harness, kind)

    created = getattr(client, f"create_{kind}")(*names(kind), user_metadata="<first> & 'only'")
    assert harness.responses[-1].status == 201
    read = getattr(client, f"get_{kind}")(*names(kind))
    assert dict(created) == dict(read)
    assert (read.name, read.user_metadata, read.status) == ("one", "<first> & 'only'", "Active")

    read.status = "ReceiveDisabled"
    getattr(client, f"update_{kind}")(*parent(kind), read, user_metadata="second")
    assert harness.responses[-1].status == 200
    (listed,) = getattr(client, f"list_{kind}s")(*parent(kind))
    assert (listed.user_metadata, listed.status) == ("second", "ReceiveDisabled")

    getattr(client, f"delete_{kind}")(*names(kind))
    assert list(getattr(client, f"list_{kind}s")(*parent(kind))) == []
    with pytest.raises(ResourceNotFoundError):
        getattr(client, f"get_{kind}")(*names(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_created_and_updated_entity_survives_a_restart(harness: AdminHarness, kind: str):
    client = prepare(harness, kind)
    created = getattr(client, f"create_{kind}")(
        *names(kind), auto_delete_on_idle=timedelta(hours=1)
    )
    getattr(client, f"update_{kind}")(*parent(kind), created, user_metadata="kept")
    before = getattr(client, f"get_{kind}")(*names(kind))

    restarted = harness.restart()
    after = getattr(restarted.client(), f"get_{kind}")(*names(kind))

    assert dict(after) == dict(before)
    assert after.user_metadata == "kept"
    restarted.store.close()


def test_update_accepts_a_dictionary(harness: AdminHarness):
    client = harness.client()
    queue = client.create_queue("q")

    client.update_queue({**queue, "max_delivery_count": 3})

    assert client.get_queue("q").max_delivery_count == 3


@pytest.mark.parametrize("kind", KINDS)
def test_runtime_properties_have_times_and_counts(harness: AdminHarness, kind: str):
    client = prepare(harness, kind)
    created = getattr(client, f"create_{kind}")(*names(kind))
    harness.now_ms += 5000
    getattr(client, f"update_{kind}")(*parent(kind), created)

    single = getattr(client, f"get_{kind}_runtime_properties")(*names(kind))
    (listed,) = getattr(client, f"list_{kind}s_runtime_properties")(*parent(kind))

    for runtime in (single, listed):
        assert runtime.name == "one"
        assert abs(runtime.created_at_utc - CREATED_AT) < timedelta(milliseconds=1)
        assert runtime.updated_at_utc - runtime.created_at_utc == timedelta(seconds=5)
        if kind == "topic":
            assert (runtime.subscription_count, runtime.size_in_bytes) == (0, 0)
        else:
            assert (runtime.total_message_count, runtime.active_message_count) == (0, 0)
            assert runtime.dead_letter_message_count == 0


def test_runtime_properties_count_messages_by_state(harness: AdminHarness):
    client = harness.client()
    client.create_queue("q")
    queue = harness.entities.get("q")
    message = parse_message(b"\x00Su\xa0\x05hello")
    scheduled = replace(message, scheduled_ms=NOW_MS + 60_000)
    harness.entities.router.send(queue, [message, message, scheduled], NOW_MS)

    runtime = client.get_queue_runtime_properties("q")

    assert (runtime.total_message_count, runtime.active_message_count) == (3, 2)
    assert runtime.scheduled_message_count == 1
    assert runtime.size_in_bytes == 3 * message.size


def test_topic_counts_subscriptions_and_their_filters(harness: AdminHarness):
    client = harness.client()
    client.create_topic("t")
    for name in ("s1", "s2"):
        client.create_subscription("t", name)
    client.create_rule("t", "s1", "sql", filter=SqlRuleFilter("1=1"))
    client.create_rule("t", "s1", "same", filter=CorrelationRuleFilter(correlation_id="x"))

    runtime = client.get_topic_runtime_properties("t")

    assert runtime.subscription_count == 2
    # The service counts the true filter of $Default as a SQL filter.
    assert (runtime.sql_filter_count, runtime.correlation_filter_count) == (3, 1)


def test_deleting_a_topic_deletes_its_subscriptions(harness: AdminHarness):
    client = harness.client()
    client.create_topic("t")
    client.create_subscription("t", "s")

    client.delete_topic("t")

    assert harness.entities.all() == []


def test_rules_are_created_read_updated_listed_and_deleted(harness: AdminHarness):
    client = harness.client()
    client.create_topic("a/t")
    client.create_subscription("a/t", "s")
    assert [rule.name for rule in client.list_rules("a/t", "s")] == ["$Default"]
    assert type(client.get_rule("a/t", "s", "$Default").filter) is TrueRuleFilter

    client.create_rule(
        "a/t", "s", "b", filter=SqlRuleFilter("x = @y", {"@y": 5}), action=SqlRuleAction("SET z=1")
    )
    client.create_rule("a/t", "s", "a", filter=FalseRuleFilter())
    assert [rule.name for rule in client.list_rules("a/t", "s")] == ["$Default", "a", "b"]
    rule = client.get_rule("a/t", "s", "B")
    assert (rule.filter.sql_expression, rule.filter.parameters) == ("x = @y", {"@y": 5})
    assert rule.action.sql_expression == "SET z=1"

    client.update_rule("a/t", "s", rule, filter=CorrelationRuleFilter(label="l"), action=None)
    changed = client.get_rule("a/t", "s", "b")
    assert (changed.filter.label, changed.action) == ("l", None)

    for name in ("$Default", "a", "b"):
        client.delete_rule("a/t", "s", name)
    assert list(client.list_rules("a/t", "s")) == []
    assert harness.entities.get("a/t/Subscriptions/s").rules == {}


def test_rules_survive_a_restart(harness: AdminHarness):
    client = harness.client()
    client.create_topic("t")
    client.create_subscription("t", "s")
    client.create_rule("t", "s", "r", filter=SqlRuleFilter("x = 1"))
    client.delete_rule("t", "s", "$Default")

    restarted = harness.restart()

    rules = restarted.entities.get("t/subscriptions/s").rules
    assert rules == {"r": Rule(name="r", filter=SqlFilter("x = 1"))}
    restarted.store.close()


def test_namespace_properties_are_returned(harness: AdminHarness):
    properties = harness.client().get_namespace_properties()

    assert (properties.name, properties.messaging_sku) == ("local", "Premium")
    assert abs(properties.created_at_utc - CREATED_AT) < timedelta(milliseconds=1)


@pytest.mark.parametrize(("count", "size"), [(0, 100), (100, 100), (250, 100), (250, 1000), (7, 3)])
def test_queues_and_topics_are_listed_separately_in_pages(
    harness: AdminHarness, count: int, size: int
):
    for number in range(count):
        harness.entities.create(QueueDescription(name=f"q{number:03}"), NOW_MS)
        harness.entities.create(TopicDescription(name=f"T{number:03}"), NOW_MS)
    client = harness.client()

    queues = [item.name for item in client.list_queues(max_page_size=size)]
    assert len(harness.requests) == max(1, -(-count // min(size, 100)))
    topics = [item.name for item in client.list_topics_runtime_properties(max_page_size=size)]

    assert queues == [f"q{number:03}" for number in range(count)]
    assert topics == [f"T{number:03}" for number in range(count)]


def test_subscriptions_and_rules_are_listed_in_pages(harness: AdminHarness):
    client = harness.client()
    client.create_topic("a/topic")
    client.create_topic("a/topic/below")
    client.create_subscription("a/topic/below", "other")
    expected = [f"s{number:03}" for number in range(101)]
    for name in reversed(expected):
        client.create_subscription("a/topic", name)
    for name in expected:
        client.create_rule("a/topic", "s000", name)

    assert [item.name for item in client.list_subscriptions("A/Topic")] == expected
    listed = client.list_subscriptions_runtime_properties("a/topic", max_page_size=40)
    assert [item.name for item in listed] == expected
    rules = [item.name for item in client.list_rules("a/topic", "s000")]
    assert rules == ["$Default", *expected]


def test_list_starts_at_an_index_and_ends_with_an_empty_page(harness: AdminHarness):
    for number in range(5):
        harness.entities.create(QueueDescription(name=f"q{number}"), NOW_MS)
    client = harness.client()

    assert [item.name for item in client.list_queues(start_index=3)] == ["q3", "q4"]
    assert list(client.list_queues(start_index=9)) == []
    assert list(client.list_queues(max_page_size=0)) == []


@pytest.mark.parametrize("name", ["a/b/c", "MiXed.Case-1_~x", "über/Öl", "x" * 260])
def test_names_may_contain_slashes_and_are_case_insensitive(harness: AdminHarness, name: str):
    client = harness.client()
    client.create_queue(name)

    assert client.get_queue(name.upper()).name == name.upper()
    assert [item.name for item in client.list_queues()] == [name]
    client.delete_queue(name.lower())
    assert list(client.list_queues()) == []


def test_path_of_a_subscription_keeps_the_spelling_of_its_topic(harness: AdminHarness):
    client = harness.client()
    client.create_topic("Orders/New")

    client.create_subscription("orders/new", "Audit")

    assert harness.entities.get("ORDERS/NEW/subscriptions/AUDIT").path == (
        "Orders/New/Subscriptions/Audit"
    )
    assert client.get_subscription("Orders/New", "audit").lock_duration == timedelta(minutes=1)


@pytest.mark.parametrize(
    "time_spans",
    [
        {},
        {
            "default_message_time_to_live": MAX_TIME_SPAN_TEXT,
            "auto_delete_on_idle": MAX_TIME_SPAN_TEXT,
        },
    ],
)
def test_backlog_queue_is_created_with_the_exact_maximum_time_span(
    harness: AdminHarness, time_spans: dict[str, str]
):
    client = harness.client()
    path = "orders/x-servicebus-transfer/0"

    client.create_queue(
        path,
        max_size_in_megabytes=5120,
        max_delivery_count=2147483647,
        lock_duration=timedelta(minutes=1),
        dead_lettering_on_message_expiration=True,
        enable_batched_operations=True,
        **time_spans,
    )
    # The SDK rounds the text.
    request = harness.requests[-1].body.decode()
    assert request.count(">P10675199DT2H48M5.477581S<") == len(time_spans)

    queue = client.get_queue(path)

    for name, value in {
        "MaxSizeInMegabytes": "5120",
        "MaxDeliveryCount": "2147483647",
        "DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S",
        "AutoDeleteOnIdle": "P10675199DT2H48M5.4775807S",
        "LockDuration": "PT1M",
        "DeadLetteringOnMessageExpiration": "true",
        "EnableBatchedOperations": "true",
    }.items():
        assert f"<{name}>{value}</{name}>" in harness.last_body
    assert (queue.max_size_in_megabytes, queue.max_delivery_count) == (5120, 2147483647)
    assert queue.default_message_time_to_live == queue.auto_delete_on_idle == MAX_TIME_SPAN
    assert queue.lock_duration == timedelta(minutes=1)
    assert queue.dead_lettering_on_message_expiration
    assert queue.enable_batched_operations


@pytest.mark.parametrize("kind", ["queue", "subscription"])
def test_forwarding_is_set_and_removed(harness: AdminHarness, kind: str):
    client = prepare(harness, kind)
    client.create_queue("x/target")
    client.create_topic("dead")

    getattr(client, f"create_{kind}")(
        *names(kind), forward_to="x/target", forward_dead_lettered_messages_to="dead"
    )
    created = getattr(client, f"get_{kind}")(*names(kind))
    assert created.forward_to == "sb://localhost:5671/x/target"
    assert created.forward_dead_lettered_messages_to == "sb://localhost:5671/dead"

    created.forward_to = created.forward_dead_lettered_messages_to = None
    getattr(client, f"update_{kind}")(*parent(kind), created)
    assert getattr(client, f"get_{kind}")(*names(kind)).forward_to is None


def test_status_of_a_disabled_entity_is_returned(harness: AdminHarness):
    client = harness.client()
    queue = client.create_queue("q")

    client.update_queue(queue, status="Disabled")

    assert harness.entities.get("q").description.status is EntityStatus.DISABLED
    assert client.get_queue("q").status == "Disabled"


def test_links_use_the_scheme_and_host_of_the_request(harness: AdminHarness):
    for number in range(2):
        harness.entities.create(QueueDescription(name=f"a/q{number}"), NOW_MS)
    harness.scheme = "http"

    next(harness.client().list_queues(max_page_size=1).by_page())

    version = "api-version=2024-05"
    assert (
        f'rel="next" href="http://localhost:5671/$Resources/queues?$skip=1&amp;$top=1&amp;{version}"'
        in harness.last_body
    )
    assert f"<id>http://localhost:5671/a/q0?{version}</id>" in harness.last_body


def test_response_has_the_content_type_of_the_service(harness: AdminHarness):
    client = harness.client()
    client.create_queue("q")
    list(client.list_queues())
    client.delete_queue("q")
    with pytest.raises(ResourceNotFoundError):
        client.delete_queue("q")

    assert [response.content_type for response in harness.responses] == [
        "application/atom+xml;type=entry;charset=utf-8",
        "application/atom+xml;type=feed;charset=utf-8",
        None,
        "application/xml; charset=utf-8",
    ]


def test_old_api_version_neither_returns_nor_resets_newer_properties(
    harness: AdminHarness,
):
    client, old = harness.client(), harness.client(api_version=ApiVersion.V2017_04)
    client.create_queue("q", max_message_size_in_kilobytes=2048)
    client.create_topic("t")

    queue = old.get_queue("q")
    assert queue.max_message_size_in_kilobytes is None
    old.update_queue(queue, user_metadata="x")
    topic = old.get_topic_runtime_properties("t")

    assert client.get_queue("q").max_message_size_in_kilobytes == 2048
    assert topic.sql_filter_count is None
    assert "api-version=2017-04" in harness.responses[-2].body.decode()


def test_request_is_metered_for_its_entity(harness: AdminHarness):
    client = harness.client()
    client.create_topic("A/Topic")
    client.create_subscription("a/topic", "Sub")
    client.get_rule("a/topic", "sub", "$Default")
    list(client.list_subscriptions("a/topic"))
    list(client.list_queues())
    client.get_namespace_properties()
    with pytest.raises(ResourceNotFoundError):
        client.get_queue("nothing")
    client.delete_topic("a/topic")

    assert harness.metered == [
        (path, "management")
        for path in (
            "A/Topic",
            "A/Topic/Subscriptions/Sub",
            "A/Topic/Subscriptions/Sub",
            "A/Topic",
            "",
            "",
            "",
            "A/Topic",
        )
    ]
