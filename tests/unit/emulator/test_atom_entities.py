"""Queues, topics and subscriptions through the SDK's administration client: what it writes we read,
and what we write it reads, for any settings."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.management import AuthorizationRule
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.emulator.admin.atom_reader import parse_description
from pairbus.emulator.admin.atom_writer import (
    entity_entry,
    write_entry,
)
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.entities.descriptions import (
    EntityDescription,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.emulator.entities.runtime_properties import MessageCounts, RuntimeProperties
from pairbus.errors import ConfigurationError
from pairbus.servicebus.time_spans import MAX_TIME_SPAN
from tests.unit.emulator.admin_bench import KEY, MOMENT, RUNTIME, SITE, Service, client_of, failed

MAX_INT32 = 2147483647

# What XML can hold. The SDK cuts "ns1:" and ":ns1" out of what it sends, and XML reads \r as \n.
TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff", codec="utf-8")
    | st.sampled_from("\t\n<>&\"'"),
    min_size=1,
    max_size=40,
).filter(lambda text: "ns1" not in text)


def spans(least: timedelta, most: timedelta = MAX_TIME_SPAN) -> st.SearchStrategy[timedelta]:
    # The SDK sends the longest span rounded in its own way: it has a test of its own.
    return st.timedeltas(least, most).filter(lambda span: span.days < 10675199)


COMMON = {
    "default_message_time_to_live": spans(timedelta(seconds=1)),
    "auto_delete_on_idle": spans(timedelta(minutes=5)),
    "enable_batched_operations": st.booleans(),
    "user_metadata": TEXTS,
}
RECEIVED = {
    "lock_duration": spans(timedelta(milliseconds=1), timedelta(minutes=5)),
    "requires_session": st.booleans(),
    "dead_lettering_on_message_expiration": st.booleans(),
    "max_delivery_count": st.integers(1, MAX_INT32),
    "forward_to": st.just("sb://localhost:5671/a/b"),
    "forward_dead_lettered_messages_to": st.just("sb://localhost:5671/c"),
}
SENT = {
    "max_size_in_megabytes": st.integers(1, 81920),
    "duplicate_detection_history_time_window": spans(timedelta(seconds=20), timedelta(days=7)),
    "enable_partitioning": st.booleans(),
    "requires_duplicate_detection": st.booleans(),
    "max_message_size_in_kilobytes": st.integers(1, 102400),
}
SETTINGS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "queue": {**COMMON, **RECEIVED, **SENT},
    "topic": {**COMMON, **SENT},
    "subscription": {
        **COMMON,
        **RECEIVED,
        "dead_lettering_on_filter_evaluation_exceptions": st.booleans(),
    },
}
KINDS = {"queue": QueueDescription, "topic": TopicDescription}
CASES = (
    st.sampled_from(sorted(SETTINGS))
    .flatmap(
        lambda kind: st.tuples(st.just(kind), st.fixed_dictionaries({}, optional=SETTINGS[kind]))
    )
    .filter(lambda case: not (case[1].get("requires_session") and "forward_to" in case[1]))
)


def described(kind: str, **settings: Any) -> EntityDescription:
    if kind == "subscription":
        return SubscriptionDescription(topic="t", name="s", **settings)
    return KINDS[kind](name="x/y", **settings)


def names_of(description: EntityDescription) -> list[str]:
    if isinstance(description, SubscriptionDescription):
        return [description.topic, description.name]
    return [description.name]


def seen_by_sdk(description: EntityDescription) -> dict[str, Any]:
    """The values that the SDK's own object is to have."""
    shown = {f.name: getattr(description, f.name) for f in fields(description)}
    shown.pop("topic", None)
    shown.pop("enable_subscription_partitioning", None)
    if isinstance(description, TopicDescription):
        shown["support_ordering"] = not description.enable_partitioning
    else:
        shown.pop("support_ordering", None)
    if "authorization_rules" in shown:
        shown["authorization_rules"] = None
    return shown


def settings_in(properties: Any) -> dict[str, Any]:
    """All that the SDK's object has, but for what is known at run time only."""
    runtime = ("availability_status", "size_in_bytes")
    return {name: value for name, value in properties.items() if name not in runtime}


@given(CASES)
@settings(deadline=None)
def test_what_the_sdk_creates_is_described_as_it_was_asked_for(case: tuple[str, dict[str, Any]]):
    kind, asked = case
    service = Service()
    wanted = described(kind, **asked)

    made = getattr(client_of(service), f"create_{kind}")(*names_of(wanted), **asked)

    assert service.entities == {wanted.path.lower(): wanted}
    assert settings_in(made) == seen_by_sdk(wanted)


@given(CASES, st.sampled_from(EntityStatus))
@settings(deadline=None)
def test_any_description_is_read_by_the_sdk_with_the_same_values(
    case: tuple[str, dict[str, Any]], status: EntityStatus
):
    kind, asked = case
    service = Service()
    described_ = described(kind, **asked, status=status)
    service.entities[described_.path.lower()] = described_

    read = getattr(client_of(service), f"get_{kind}")(*names_of(described_))

    assert settings_in(read) == seen_by_sdk(described_)


@given(CASES, st.sampled_from(EntityStatus))
def test_any_description_that_is_written_is_read_again(
    case: tuple[str, dict[str, Any]], status: EntityStatus
):
    kind, asked = case
    written = described(kind, **asked, status=status)

    given_ = parse_description(write_entry(entity_entry(written, RUNTIME), SITE))

    assert given_.kind is type(written)
    again = described(kind, **given_.settings)
    assert replace_ordering(again) == replace_ordering(written)


def replace_ordering(description: EntityDescription) -> EntityDescription:
    if isinstance(description, SubscriptionDescription):
        return description
    return replace(description, support_ordering=not description.enable_partitioning)


@pytest.mark.parametrize("kind", sorted(SETTINGS))
def test_an_update_of_what_was_read_changes_nothing_but_the_roundings_of_the_sdk(kind: str):
    service, asked = Service(), {"auto_delete_on_idle": timedelta(hours=1), "user_metadata": "x"}
    client = client_of(service)
    made = getattr(client, f"create_{kind}")(*names_of(described(kind)), **asked)

    getattr(client, f"update_{kind}")(*(["t"] if kind == "subscription" else []), made)

    (now,) = service.entities.values()
    # Rounded up when it was read, less a microsecond, in floating point.
    rounded = MAX_TIME_SPAN - timedelta(microseconds=42)
    assert replace_ordering(now) == replace_ordering(
        described(kind, **asked, default_message_time_to_live=rounded)
    )
    assert service.requests[-1].header("if-match") == "*"


@pytest.mark.parametrize("never", [MAX_TIME_SPAN, "P10675199DT2H48M5.4775807S"])
def test_the_longest_span_is_what_the_sdk_reads_however_it_was_sent(never: timedelta | str):
    service = Service()
    client = client_of(service)
    client.create_queue("q", default_message_time_to_live=never, auto_delete_on_idle=never)

    read = client.get_queue("q")

    assert read.default_message_time_to_live == read.auto_delete_on_idle
    assert MAX_TIME_SPAN - read.auto_delete_on_idle <= timedelta(microseconds=42)


def test_the_path_of_an_entity_may_have_slashes():
    service = Service()
    client_of(service).create_queue("a/b/c")

    assert service.requests[-1].target.startswith("/a%2Fb%2Fc?")
    assert client_of(service).get_queue("a/b/c").name == "a/b/c"


def test_forwarding_comes_with_a_token_for_its_target():
    service = Service()
    client_of(service).create_queue("q", forward_to="x", forward_dead_lettered_messages_to="y")

    request = service.requests[-1]
    sent = [
        request.header("ServiceBusSupplementaryAuthorization"),
        request.header("ServiceBusDlqSupplementaryAuthorization"),
    ]
    assert [header.split("&")[0].rpartition("%2F")[2] for header in sent if header] == ["x", "y"]


def test_authorization_rules_go_there_and_back():
    service = Service()
    client = client_of(service)
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=["Send", "Listen"],
        created_at_utc=MOMENT,
        modified_at_utc=MOMENT,
        key_name="both",
        primary_key=KEY,
        secondary_key=KEY[::-1],
    )

    read = client.create_queue("q", authorization_rules=[rule]).authorization_rules

    assert service.entities["q"].authorization_rules == (
        SharedAccessRule(
            name="both",
            primary_key=KEY,
            secondary_key=KEY[::-1],
            rights=frozenset({Right.SEND, Right.LISTEN}),
            created_at=MOMENT,
            modified_at=MOMENT,
        ),
    )
    assert [vars(one) for one in read] == [vars(rule)]


def test_runtime_properties_are_read_by_the_sdk():
    service = Service()
    accessed = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    service.runtime = RuntimeProperties(
        created_at=MOMENT,
        updated_at=MOMENT + timedelta(seconds=1),
        accessed_at=accessed,
        size_in_bytes=12345678901,
        counts=MessageCounts(
            active=1, dead_letter=2, scheduled=3, transfer=4, transfer_dead_letter=5
        ),
        subscription_count=6,
        sql_filter_count=7,
        correlation_filter_count=8,
    )
    client = client_of(service)
    client.create_queue("q")
    client.create_topic("t")
    client.create_subscription("t", "s")

    queue = client.get_queue_runtime_properties("q")
    (topic,) = client.list_topics_runtime_properties()
    subscription = client.get_subscription_runtime_properties("t", "s")

    for one in (queue, topic, subscription):
        assert one.created_at_utc == MOMENT
        assert one.updated_at_utc == MOMENT + timedelta(seconds=1)
        assert one.accessed_at_utc == accessed
    for one in (queue, subscription):
        assert one.total_message_count == 15
        assert one.active_message_count == 1
        assert one.dead_letter_message_count == 2
        assert one.transfer_message_count == 4
        assert one.transfer_dead_letter_message_count == 5
    assert queue.scheduled_message_count == topic.scheduled_message_count == 3
    assert queue.size_in_bytes == topic.size_in_bytes == 12345678901
    assert topic.subscription_count == 6
    assert (topic.sql_filter_count, topic.correlation_filter_count) == (7, 8)


def test_an_entity_that_was_never_used_was_accessed_in_the_year_1():
    service = Service()
    client = client_of(service)
    client.create_queue("q")

    assert client.get_queue_runtime_properties("q").accessed_at_utc.year == 1


@pytest.mark.parametrize(
    ("count", "size", "pages"), [(0, 100, 1), (1, 100, 1), (100, 100, 1), (101, 100, 2), (7, 2, 4)]
)
def test_a_list_comes_in_pages(count: int, size: int, pages: int):
    service = Service()
    for at in range(count):
        service.entities[f"q{at}"] = QueueDescription(name=f"q{at}")

    listed = list(client_of(service).list_queues(max_page_size=size))

    assert [queue.name for queue in listed] == [f"q{at}" for at in range(count)]
    assert len(service.requests) == pages


def test_subscriptions_of_a_topic_with_slashes_are_listed():
    service = Service()
    client = client_of(service)
    service.entities["a"] = SubscriptionDescription(topic="a/b", name="s")
    service.entities["b"] = SubscriptionDescription(topic="other", name="s2")

    assert [one.name for one in client.list_subscriptions("a/b")] == ["s"]


def test_a_namespace_describes_itself():
    properties = client_of(Service()).get_namespace_properties()

    assert properties.name == "local"
    assert properties.messaging_sku == "Standard"
    assert properties.namespace_type == "Messaging"
    assert properties.created_at_utc == MOMENT


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, HttpResponseError),
        (401, ClientAuthenticationError),
        (403, HttpResponseError),
        (404, ResourceNotFoundError),
        (409, ResourceExistsError),
    ],
)
def test_an_error_becomes_the_error_of_the_sdk(status: int, error: type[Exception]):
    client = client_of(lambda _: failed(status, "SubCode=1. <why> & what"))

    with pytest.raises(HttpResponseError) as raised:
        client.create_queue("q")

    assert type(raised.value) is error
    assert raised.value.status_code == status
    if error is HttpResponseError:
        assert raised.value.message.startswith("SubCode=1. <why> & what")


def test_what_was_deleted_is_gone():
    service = Service()
    client = client_of(service)
    client.create_queue("q")

    client.delete_queue("q")

    assert service.entities == {}
    with pytest.raises(ResourceNotFoundError):
        client.get_queue("q")


def test_mistakes_of_a_client_are_the_errors_that_the_service_gives():
    client = client_of(Service())
    queue = client.create_queue("q")

    with pytest.raises(ResourceExistsError):
        client.create_queue("Q")
    with pytest.raises(ResourceNotFoundError, match="'nothing' does not exist"):
        client.get_queue("nothing")
    with pytest.raises(ResourceNotFoundError):
        client.delete_queue("nothing")
    with pytest.raises(HttpResponseError, match="LockDuration"):
        client.create_queue("q2", lock_duration=timedelta(days=25))
    with pytest.raises(HttpResponseError, match="RequiresSession property of an existing Queue"):
        client.update_queue(queue, requires_session=True)
    queue.name = "nothing"
    with pytest.raises(ResourceNotFoundError):
        client.update_queue(queue)


CONNECT = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"


def body(inside: str, name: str = "QueueDescription") -> bytes:
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<{name} xmlns="{CONNECT}">{inside}</{name}></content></entry>'
    ).encode()


def test_elements_that_are_unknown_empty_or_the_services_own_are_passed_over():
    given_ = parse_description(
        body(
            "<SizeInBytes>x</SizeInBytes><New>1</New><ForwardTo/><LockDuration>PT2S</LockDuration>"
            "<CreatedAt>now</CreatedAt><UserMetadata></UserMetadata><Name>z</Name>"
        )
    )

    assert given_.settings == {"lock_duration": timedelta(seconds=2)}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not XML"),
        (b"{}", "not XML"),
        (b"\xff\xfe\x00", "not XML"),
        (b"<entry/>", "not an Atom entry"),
        (b"<feed><content><a/></content></feed>", "not an Atom entry"),
        (b"<entry><content/></entry>", "not an Atom entry"),
        (b"<entry><content><a/><b/></content></entry>", "not an Atom entry"),
        (body("", "RuleDescription"), "describes a 'RuleDescription'"),
        (body("", "Queue"), "describes a 'Queue'"),
        (body("<LockDuration>1m</LockDuration>"), "LockDuration: '1m' is not"),
        (body("<RequiresSession>maybe</RequiresSession>"), "RequiresSession: 'maybe'"),
        (body("<MaxDeliveryCount>many</MaxDeliveryCount>"), "MaxDeliveryCount: 'many'"),
        (body("<Status>Busy</Status>"), "Status: 'Busy' is not a status"),
        (
            body("<AuthorizationRules><AuthorizationRule/></AuthorizationRules>"),
            "needs KeyName",
        ),
        (b'<!DOCTYPE a [<!ENTITY x "y">]><entry>&x;</entry>', "document type"),
        (b"<a>" * 33, "nested more than 32"),
        (b"<entry>" + b" " * (1 << 20), "maximum is 1048576"),
        (b"<?xml version='1.0' encoding='klingon'?><entry/>", "not XML"),
    ],
)
def test_a_body_that_describes_nothing_is_refused(data: bytes, why: str):
    with pytest.raises(ConfigurationError, match=why):
        parse_description(data)


@given(st.binary(max_size=200))
def test_bytes_that_are_anything_are_refused_and_nothing_worse(data: bytes):
    with pytest.raises(ConfigurationError):
        parse_description(data)


def test_a_character_that_xml_cannot_hold_does_not_spoil_the_document():
    service = Service()
    service.entities["q"] = QueueDescription(name="q", user_metadata="a\x00b\x1b\ud800\uffffc\rd")

    assert client_of(service).get_queue("q").user_metadata == "a\ufffdb\ufffd\ufffd\ufffdc\rd"
