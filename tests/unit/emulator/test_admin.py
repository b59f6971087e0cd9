"""Everything that the SDK's administration client can do, on a namespace in memory."""

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

from pairbus.emulator.entities.descriptions import EntityStatus, QueueDescription, TopicDescription
from pairbus.emulator.entities.message_codec import parse_message
from pairbus.emulator.filters.rules import Rule, SqlFilter
from pairbus.servicebus.time_spans import MAX_TIME_SPAN
from tests.unit.emulator.admin_bench import MOMENT
from tests.unit.emulator.admin_namespace import NOW_MS, Namespace, namespace

__all__ = ["namespace"]

NEVER = "P10675199DT2H48M5.4775807S"
KINDS = ("queue", "topic", "subscription")


def names(kind: str, name: str = "one") -> list[str]:
    return ["parent", name] if kind == "subscription" else [name]


def parent(kind: str) -> list[str]:
    return ["parent"] if kind == "subscription" else []


def prepare(namespace: Namespace, kind: str) -> Any:
    client = namespace.client()
    if kind == "subscription":
        client.create_topic("parent")
    return client


@pytest.mark.parametrize("kind", KINDS)
def test_an_entity_is_created_got_changed_listed_and_deleted(namespace: Namespace, kind: str):
    client = prepare(namespace, kind)

    made = getattr(client, f"create_{kind}")(*names(kind), user_metadata="<first> & 'only'")
    assert namespace.responses[-1].status == 201
    got = getattr(client, f"get_{kind}")(*names(kind))
    assert dict(made) == dict(got)
    assert (got.name, got.user_metadata, got.status) == ("one", "<first> & 'only'", "Active")

    got.status = "ReceiveDisabled"
    getattr(client, f"update_{kind}")(*parent(kind), got, user_metadata="second")
    assert namespace.responses[-1].status == 200
    (listed,) = getattr(client, f"list_{kind}s")(*parent(kind))
    assert (listed.user_metadata, listed.status) == ("second", "ReceiveDisabled")

    getattr(client, f"delete_{kind}")(*names(kind))
    assert list(getattr(client, f"list_{kind}s")(*parent(kind))) == []
    with pytest.raises(ResourceNotFoundError):
        getattr(client, f"get_{kind}")(*names(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_created_and_changed_is_there_after_a_restart(namespace: Namespace, kind: str):
    client = prepare(namespace, kind)
    made = getattr(client, f"create_{kind}")(*names(kind), auto_delete_on_idle=timedelta(hours=1))
    getattr(client, f"update_{kind}")(*parent(kind), made, user_metadata="kept")
    before = getattr(client, f"get_{kind}")(*names(kind))

    again = namespace.started_again()
    after = getattr(again.client(), f"get_{kind}")(*names(kind))

    assert dict(after) == dict(before)
    assert after.user_metadata == "kept"
    again.store.close()


def test_a_dictionary_updates_as_well_as_an_object(namespace: Namespace):
    client = namespace.client()
    queue = client.create_queue("q")

    client.update_queue({**queue, "max_delivery_count": 3})

    assert client.get_queue("q").max_delivery_count == 3


@pytest.mark.parametrize("kind", KINDS)
def test_runtime_properties_say_when_and_how_much(namespace: Namespace, kind: str):
    client = prepare(namespace, kind)
    made = getattr(client, f"create_{kind}")(*names(kind))
    namespace.now_ms += 5000
    getattr(client, f"update_{kind}")(*parent(kind), made)

    one = getattr(client, f"get_{kind}_runtime_properties")(*names(kind))
    (listed,) = getattr(client, f"list_{kind}s_runtime_properties")(*parent(kind))

    for shown in (one, listed):
        assert shown.name == "one"
        assert abs(shown.created_at_utc - MOMENT) < timedelta(milliseconds=1)
        assert shown.updated_at_utc - shown.created_at_utc == timedelta(seconds=5)
        if kind == "topic":
            assert (shown.subscription_count, shown.size_in_bytes) == (0, 0)
        else:
            assert (shown.total_message_count, shown.active_message_count) == (0, 0)
            assert shown.dead_letter_message_count == 0


def test_runtime_properties_count_messages(namespace: Namespace):
    client = namespace.client()
    client.create_queue("q")
    queue = namespace.entities.get("q")
    plain = parse_message(b"\x00Su\xa0\x05hello")
    later = replace(plain, scheduled_ms=NOW_MS + 60_000)
    namespace.entities.router.send(queue, [plain, plain, later], NOW_MS)

    runtime = client.get_queue_runtime_properties("q")

    assert (runtime.total_message_count, runtime.active_message_count) == (3, 2)
    assert runtime.scheduled_message_count == 1
    assert runtime.size_in_bytes == 3 * plain.size


def test_a_topic_counts_subscriptions_and_their_filters(namespace: Namespace):
    client = namespace.client()
    client.create_topic("t")
    for name in ("s1", "s2"):
        client.create_subscription("t", name)
    client.create_rule("t", "s1", "sql", filter=SqlRuleFilter("1=1"))
    client.create_rule("t", "s1", "same", filter=CorrelationRuleFilter(correlation_id="x"))

    runtime = client.get_topic_runtime_properties("t")

    assert runtime.subscription_count == 2
    # The service counts the filters that take everything, $Default's, as SQL.
    assert (runtime.sql_filter_count, runtime.correlation_filter_count) == (3, 1)


def test_a_topic_goes_with_its_subscriptions(namespace: Namespace):
    client = namespace.client()
    client.create_topic("t")
    client.create_subscription("t", "s")

    client.delete_topic("t")

    assert namespace.entities.all() == []


def test_rules_are_created_got_changed_listed_and_deleted(namespace: Namespace):
    client = namespace.client()
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
    assert namespace.entities.get("a/t/Subscriptions/s").rules == {}


def test_rules_are_there_after_a_restart(namespace: Namespace):
    client = namespace.client()
    client.create_topic("t")
    client.create_subscription("t", "s")
    client.create_rule("t", "s", "r", filter=SqlRuleFilter("x = 1"))
    client.delete_rule("t", "s", "$Default")

    again = namespace.started_again()

    rules = again.entities.get("t/subscriptions/s").rules
    assert rules == {"r": Rule(name="r", filter=SqlFilter("x = 1"))}
    again.store.close()


def test_a_namespace_describes_itself(namespace: Namespace):
    properties = namespace.client().get_namespace_properties()

    assert (properties.name, properties.messaging_sku) == ("local", "Standard")
    assert abs(properties.created_at_utc - MOMENT) < timedelta(milliseconds=1)


@pytest.mark.parametrize(("count", "size"), [(0, 100), (100, 100), (250, 100), (250, 1000), (7, 3)])
def test_queues_and_topics_are_listed_in_pages_and_apart(
    namespace: Namespace, count: int, size: int
):
    for at in range(count):
        namespace.entities.create(QueueDescription(name=f"q{at:03}"), NOW_MS)
        namespace.entities.create(TopicDescription(name=f"T{at:03}"), NOW_MS)
    client = namespace.client()

    queues = [one.name for one in client.list_queues(max_page_size=size)]
    assert len(namespace.requests) == max(1, -(-count // min(size, 100)))
    topics = [one.name for one in client.list_topics_runtime_properties(max_page_size=size)]

    assert queues == [f"q{at:03}" for at in range(count)]
    assert topics == [f"T{at:03}" for at in range(count)]


def test_subscriptions_and_rules_are_listed_in_pages(namespace: Namespace):
    client = namespace.client()
    client.create_topic("a/topic")
    client.create_topic("a/topic/below")
    client.create_subscription("a/topic/below", "other")
    wanted = [f"s{at:03}" for at in range(101)]
    for name in reversed(wanted):
        client.create_subscription("a/topic", name)
    for name in wanted:
        client.create_rule("a/topic", "s000", name)

    assert [one.name for one in client.list_subscriptions("A/Topic")] == wanted
    listed = client.list_subscriptions_runtime_properties("a/topic", max_page_size=40)
    assert [one.name for one in listed] == wanted
    rules = [one.name for one in client.list_rules("a/topic", "s000")]
    assert rules == ["$Default", *wanted]


def test_a_list_may_begin_later_and_a_page_of_none_ends_it(namespace: Namespace):
    for at in range(5):
        namespace.entities.create(QueueDescription(name=f"q{at}"), NOW_MS)
    client = namespace.client()

    assert [one.name for one in client.list_queues(start_index=3)] == ["q3", "q4"]
    assert list(client.list_queues(start_index=9)) == []
    assert list(client.list_queues(max_page_size=0)) == []


@pytest.mark.parametrize("name", ["a/b/c", "MiXed.Case-1_~", "über/Öl", "x" * 260])
def test_names_have_slashes_and_any_case(namespace: Namespace, name: str):
    client = namespace.client()
    client.create_queue(name)

    assert client.get_queue(name.upper()).name == name.upper()
    assert [one.name for one in client.list_queues()] == [name]
    client.delete_queue(name.lower())
    assert list(client.list_queues()) == []


def test_a_subscription_stands_below_its_topic_as_that_was_written(namespace: Namespace):
    client = namespace.client()
    client.create_topic("Orders/New")

    client.create_subscription("orders/new", "Audit")

    assert namespace.entities.get("ORDERS/NEW/subscriptions/AUDIT").path == (
        "Orders/New/Subscriptions/Audit"
    )
    assert client.get_subscription("Orders/New", "audit").lock_duration == timedelta(minutes=1)


@pytest.mark.parametrize(
    "never", [{}, {"default_message_time_to_live": NEVER, "auto_delete_on_idle": NEVER}]
)
def test_a_backlog_queue_is_made_and_read_with_the_exact_longest_span(
    namespace: Namespace, never: dict[str, str]
):
    client = namespace.client()
    path = "orders/x-servicebus-transfer/0"

    client.create_queue(
        path,
        max_size_in_megabytes=5120,
        max_delivery_count=2147483647,
        lock_duration=timedelta(minutes=1),
        dead_lettering_on_message_expiration=True,
        enable_batched_operations=True,
        **never,
    )
    # The SDK rounds the text that it was given.
    sent = namespace.requests[-1].body.decode()
    assert sent.count(">P10675199DT2H48M5.477581S<") == len(never)

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
        assert f"<{name}>{value}</{name}>" in namespace.last
    assert (queue.max_size_in_megabytes, queue.max_delivery_count) == (5120, 2147483647)
    assert queue.default_message_time_to_live == queue.auto_delete_on_idle == MAX_TIME_SPAN
    assert queue.lock_duration == timedelta(minutes=1)
    assert queue.dead_lettering_on_message_expiration
    assert queue.enable_batched_operations


@pytest.mark.parametrize("kind", ["queue", "subscription"])
def test_an_entity_forwards_to_another_and_stops(namespace: Namespace, kind: str):
    client = prepare(namespace, kind)
    client.create_queue("x/target")
    client.create_topic("dead")

    getattr(client, f"create_{kind}")(
        *names(kind), forward_to="x/target", forward_dead_lettered_messages_to="dead"
    )
    made = getattr(client, f"get_{kind}")(*names(kind))
    assert made.forward_to == "sb://localhost:5671/x/target"
    assert made.forward_dead_lettered_messages_to == "sb://localhost:5671/dead"

    made.forward_to = made.forward_dead_lettered_messages_to = None
    getattr(client, f"update_{kind}")(*parent(kind), made)
    assert getattr(client, f"get_{kind}")(*names(kind)).forward_to is None


def test_a_disabled_entity_is_shown_as_such(namespace: Namespace):
    client = namespace.client()
    queue = client.create_queue("q")

    client.update_queue(queue, status="Disabled")

    assert namespace.entities.get("q").description.status is EntityStatus.DISABLED
    assert client.get_queue("q").status == "Disabled"


def test_links_lead_to_where_the_client_came_from(namespace: Namespace):
    for at in range(2):
        namespace.entities.create(QueueDescription(name=f"a/q{at}"), NOW_MS)
    namespace.scheme = "http"

    next(namespace.client().list_queues(max_page_size=1).by_page())

    version = "api-version=2024-05"
    assert (
        f'rel="next" href="http://localhost:5671/$Resources/queues?$skip=1&amp;$top=1&amp;{version}"'
        in (namespace.last)
    )
    assert f"<id>http://localhost:5671/a/q0?{version}</id>" in namespace.last


def test_an_answer_has_the_type_of_the_service(namespace: Namespace):
    client = namespace.client()
    client.create_queue("q")
    list(client.list_queues())
    client.delete_queue("q")
    with pytest.raises(ResourceNotFoundError):
        client.delete_queue("q")

    assert [response.content_type for response in namespace.responses] == [
        "application/atom+xml;type=entry;charset=utf-8",
        "application/atom+xml;type=feed;charset=utf-8",
        None,
        "application/xml; charset=utf-8",
    ]


def test_an_old_version_of_the_api_neither_shows_nor_resets_what_it_does_not_know(
    namespace: Namespace,
):
    client, old = namespace.client(), namespace.client(api_version=ApiVersion.V2017_04)
    client.create_queue("q", max_message_size_in_kilobytes=2048)
    client.create_topic("t")

    queue = old.get_queue("q")
    assert queue.max_message_size_in_kilobytes is None
    old.update_queue(queue, user_metadata="x")
    topic = old.get_topic_runtime_properties("t")

    assert client.get_queue("q").max_message_size_in_kilobytes == 2048
    assert topic.sql_filter_count is None
    assert "api-version=2017-04" in namespace.responses[-2].body.decode()


def test_every_request_is_metered_for_the_entity_that_it_is_about(namespace: Namespace):
    client = namespace.client()
    client.create_topic("A/Topic")
    client.create_subscription("a/topic", "Sub")
    client.get_rule("a/topic", "sub", "$Default")
    list(client.list_subscriptions("a/topic"))
    list(client.list_queues())
    client.get_namespace_properties()
    with pytest.raises(ResourceNotFoundError):
        client.get_queue("nothing")
    client.delete_topic("a/topic")

    assert namespace.metered == [
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
