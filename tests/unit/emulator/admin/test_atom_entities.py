"""Atom entries of queues, topics and subscriptions: the SDK and this package read each other's."""

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
from pairbus.emulator.admin.atom_writer import ERROR_TYPE, entity_entry, write_entry, write_error
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.connections.http import HttpResponse
from pairbus.emulator.entities.descriptions import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.emulator.entities.runtime_properties import MessageCounts, RuntimeProperties
from pairbus.errors import ConfigurationError
from pairbus.servicebus.entity_status import EntityStatus
from pairbus.servicebus.time_spans import MAX_TIME_SPAN
from tests.unit.emulator.admin.echo import ENDPOINT, RUNTIME, TEXTS, EchoHandler
from tests.unit.emulator.admin.harness import CREATED_AT
from tests.unit.emulator.admin.sdk_client import KEY, connect_client

MAX_INT32 = 2147483647


def spans(minimum: timedelta, maximum: timedelta = MAX_TIME_SPAN) -> st.SearchStrategy[timedelta]:
    # The SDK rounds the maximum, which has a separate test.
    return st.timedeltas(minimum, maximum).filter(lambda span: span.days < 10675199)


COMMON = {
    "default_message_time_to_live": spans(timedelta(seconds=1)),
    "auto_delete_on_idle": spans(timedelta(minutes=5)),
    "enable_batched_operations": st.booleans(),
    "user_metadata": TEXTS,
}
RECEIVING = {
    "lock_duration": spans(timedelta(milliseconds=1), timedelta(minutes=5)),
    "requires_session": st.booleans(),
    "dead_lettering_on_message_expiration": st.booleans(),
    "max_delivery_count": st.integers(1, MAX_INT32),
    "forward_to": st.just("sb://localhost:5671/a/b"),
    "forward_dead_lettered_messages_to": st.just("sb://localhost:5671/c"),
}
SENDING = {
    "max_size_in_megabytes": st.integers(1, 81920),
    "duplicate_detection_history_time_window": spans(timedelta(seconds=20), timedelta(days=7)),
    "enable_partitioning": st.booleans(),
    "requires_duplicate_detection": st.booleans(),
    "max_message_size_in_kilobytes": st.integers(1, 102400),
}
SETTINGS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "queue": {**COMMON, **RECEIVING, **SENDING},
    "topic": {**COMMON, **SENDING},
    "subscription": {
        **COMMON,
        **RECEIVING,
        "dead_lettering_on_filter_evaluation_exceptions": st.booleans(),
    },
}
CASES = (
    st.sampled_from(sorted(SETTINGS))
    .flatmap(
        lambda kind: st.tuples(st.just(kind), st.fixed_dictionaries({}, optional=SETTINGS[kind]))
    )
    .filter(lambda case: not (case[1].get("requires_session") and "forward_to" in case[1]))
)


def describe(kind: str, **settings: Any) -> EntityDescription:
    if kind == "subscription":
        return SubscriptionDescription(topic="t", name="s", **settings)
    return {"queue": QueueDescription, "topic": TopicDescription}[kind](name="x/y", **settings)


def names_of(description: EntityDescription) -> list[str]:
    if isinstance(description, SubscriptionDescription):
        return [description.topic, description.name]
    return [description.name]


def sdk_settings(description: EntityDescription) -> dict[str, Any]:
    """Return the values that the SDK's properties object has for a description."""
    values = {field.name: getattr(description, field.name) for field in fields(description)}
    values.pop("topic", None)
    values.pop("enable_subscription_partitioning", None)
    if isinstance(description, TopicDescription):
        values["support_ordering"] = not description.enable_partitioning
    else:
        values.pop("support_ordering", None)
    if "authorization_rules" in values:
        values["authorization_rules"] = None
    return values


def settings_of(properties: Any) -> dict[str, Any]:
    """Return the values of an SDK object without its runtime properties."""
    runtime = ("availability_status", "size_in_bytes")
    return {name: value for name, value in properties.items() if name not in runtime}


def with_explicit_ordering(description: EntityDescription) -> EntityDescription:
    if isinstance(description, SubscriptionDescription):
        return description
    return replace(description, support_ordering=not description.enable_partitioning)


@given(CASES)
@settings(deadline=None)
def test_entity_that_the_sdk_creates_has_the_requested_settings(case: tuple[str, dict[str, Any]]):
    kind, requested = case
    handler = EchoHandler()
    expected = describe(kind, **requested)

    created = getattr(connect_client(handler), f"create_{kind}")(*names_of(expected), **requested)

    assert handler.description == expected
    assert settings_of(created) == sdk_settings(expected)


@given(CASES, st.sampled_from(EntityStatus))
@settings(deadline=None)
def test_sdk_reads_the_settings_of_any_description(
    case: tuple[str, dict[str, Any]], status: EntityStatus
):
    kind, requested = case
    description = describe(kind, **requested, status=status)

    read = getattr(connect_client(EchoHandler(description)), f"get_{kind}")(*names_of(description))

    assert settings_of(read) == sdk_settings(description)


@given(CASES, st.sampled_from(EntityStatus))
def test_any_written_description_is_parsed_to_the_same(
    case: tuple[str, dict[str, Any]], status: EntityStatus
):
    kind, requested = case
    description = describe(kind, **requested, status=status)

    parsed = parse_description(write_entry(entity_entry(description, RUNTIME), ENDPOINT))

    assert parsed.kind is type(description)
    again = describe(kind, **parsed.settings)
    assert with_explicit_ordering(again) == with_explicit_ordering(description)


@pytest.mark.parametrize("kind", sorted(SETTINGS))
def test_update_with_unchanged_properties_changes_only_values_that_the_sdk_rounds(kind: str):
    handler = EchoHandler()
    requested = {"auto_delete_on_idle": timedelta(hours=1), "user_metadata": "x"}
    client = connect_client(handler)
    created = getattr(client, f"create_{kind}")(*names_of(describe(kind)), **requested)

    getattr(client, f"update_{kind}")(*(["t"] if kind == "subscription" else []), created)

    # The SDK rounds up the maximum, subtracts a microsecond, and computes in floating point.
    rounded = MAX_TIME_SPAN - timedelta(microseconds=42)
    assert handler.description is not None
    assert with_explicit_ordering(handler.description) == with_explicit_ordering(
        describe(kind, **requested, default_message_time_to_live=rounded)
    )
    assert handler.requests[-1].header("if-match") == "*"


@pytest.mark.parametrize("maximum", [MAX_TIME_SPAN, "P10675199DT2H48M5.4775807S"])
def test_sdk_reads_the_maximum_time_span_that_it_sent(maximum: timedelta | str):
    client = connect_client(EchoHandler())
    client.create_queue("q", default_message_time_to_live=maximum, auto_delete_on_idle=maximum)

    read = client.get_queue("q")

    assert read.default_message_time_to_live == read.auto_delete_on_idle
    assert MAX_TIME_SPAN - read.auto_delete_on_idle <= timedelta(microseconds=42)


def test_sdk_escapes_the_slashes_in_a_path():
    handler = EchoHandler()

    connect_client(handler).create_queue("a/b/c")

    assert handler.requests[-1].target.startswith("/a%2Fb%2Fc?")


def test_sdk_sends_tokens_for_forwarding_targets():
    handler = EchoHandler()
    client = connect_client(handler)

    client.create_queue("q", forward_to="x", forward_dead_lettered_messages_to="y")

    headers = [
        handler.requests[-1].header("ServiceBusSupplementaryAuthorization"),
        handler.requests[-1].header("ServiceBusDlqSupplementaryAuthorization"),
    ]
    targets = [header.split("&")[0].rpartition("%2F")[2] for header in headers if header]
    assert targets == ["x", "y"]


def test_authorization_rules_are_written_and_read():
    handler = EchoHandler()
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=["Send", "Listen"],
        created_at_utc=CREATED_AT,
        modified_at_utc=CREATED_AT,
        key_name="both",
        primary_key=KEY,
        secondary_key=KEY[::-1],
    )

    created = connect_client(handler).create_queue("q", authorization_rules=[rule])

    assert isinstance(handler.description, QueueDescription)
    assert handler.description.authorization_rules == (
        SharedAccessRule(
            name="both",
            primary_key=KEY,
            secondary_key=KEY[::-1],
            rights=frozenset({Right.SEND, Right.LISTEN}),
            created_at=CREATED_AT,
            modified_at=CREATED_AT,
        ),
    )
    assert [vars(read) for read in created.authorization_rules] == [vars(rule)]


def test_sdk_reads_runtime_properties():
    accessed_at = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    runtime = RuntimeProperties(
        created_at=CREATED_AT,
        updated_at=CREATED_AT + timedelta(seconds=1),
        accessed_at=accessed_at,
        size_in_bytes=12345678901,
        counts=MessageCounts(
            active=1, dead_letter=2, scheduled=3, transfer=4, transfer_dead_letter=5
        ),
        subscription_count=6,
        sql_filter_count=7,
        correlation_filter_count=8,
    )
    queue, topic, subscription = (
        getattr(
            connect_client(EchoHandler(describe(kind), runtime)), f"get_{kind}_runtime_properties"
        )(*names_of(describe(kind)))
        for kind in ("queue", "topic", "subscription")
    )

    for properties in (queue, topic, subscription):
        assert properties.created_at_utc == CREATED_AT
        assert properties.updated_at_utc == CREATED_AT + timedelta(seconds=1)
        assert properties.accessed_at_utc == accessed_at
    for properties in (queue, subscription):
        assert properties.total_message_count == 15
        assert properties.active_message_count == 1
        assert properties.dead_letter_message_count == 2
        assert properties.transfer_message_count == 4
        assert properties.transfer_dead_letter_message_count == 5
    assert queue.scheduled_message_count == topic.scheduled_message_count == 3
    assert queue.size_in_bytes == topic.size_in_bytes == 12345678901
    assert topic.subscription_count == 6
    assert (topic.sql_filter_count, topic.correlation_filter_count) == (7, 8)


def test_access_time_of_an_unused_entity_is_in_the_year_1():
    client = connect_client(EchoHandler(QueueDescription(name="q")))

    assert client.get_queue_runtime_properties("q").accessed_at_utc.year == 1


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
def test_sdk_raises_its_exception_for_an_error(status: int, error: type[Exception]):
    body = write_error(status, "SubCode=1. <reason> & more")
    response = HttpResponse(status=status, body=body, content_type=ERROR_TYPE)
    client = connect_client(lambda _: response)

    with pytest.raises(HttpResponseError) as raised:
        client.create_queue("q")

    assert type(raised.value) is error
    assert raised.value.status_code == status
    if error is HttpResponseError:
        assert raised.value.message.startswith("SubCode=1. <reason> & more")


CONNECT = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"


def entry(content: str, name: str = "QueueDescription") -> bytes:
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<{name} xmlns="{CONNECT}">{content}</{name}></content></entry>'
    ).encode()


def test_unknown_empty_and_read_only_elements_are_ignored():
    parsed = parse_description(
        entry(
            "<SizeInBytes>x</SizeInBytes><New>1</New><ForwardTo/><LockDuration>PT2S</LockDuration>"
            "<CreatedAt>now</CreatedAt><UserMetadata></UserMetadata><Name>z</Name>"
        )
    )

    assert parsed.settings == {"lock_duration": timedelta(seconds=2)}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not XML"),
        (b"{}", "not XML"),
        (b"\xff\xfe\x00", "not XML"),
        (b"<entry/>", "not an Atom entry"),
        (b"<feed><content><a/></content></feed>", "not an Atom entry"),
        (b"<entry><content/></entry>", "not an Atom entry"),
        (b"<entry><content><a/><b/></content></entry>", "not an Atom entry"),
        (entry("", "RuleDescription"), "describes a 'RuleDescription'"),
        (entry("", "Queue"), "describes a 'Queue'"),
        (entry("<LockDuration>1m</LockDuration>"), "LockDuration: '1m' is not"),
        (entry("<RequiresSession>maybe</RequiresSession>"), "RequiresSession: 'maybe'"),
        (entry("<MaxDeliveryCount>many</MaxDeliveryCount>"), "MaxDeliveryCount: 'many'"),
        (entry("<Status>Busy</Status>"), "Status: 'Busy' is not a status"),
        (
            entry("<AuthorizationRules><AuthorizationRule/></AuthorizationRules>"),
            "needs KeyName",
        ),
        (b'<!DOCTYPE a [<!ENTITY x "y">]><entry>&x;</entry>', "document type"),
        (b"<a>" * 33, "nested more than 32"),
        (b"<entry>" + b" " * (1 << 20), "maximum is 1048576"),
        (b"<?xml version='1.0' encoding='klingon'?><entry/>", "not XML"),
    ],
)
def test_invalid_body_is_refused_with_the_reason(body: bytes, reason: str):
    with pytest.raises(ConfigurationError, match=reason):
        parse_description(body)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_a_configuration_error(body: bytes):
    with pytest.raises(ConfigurationError):
        parse_description(body)


def test_character_that_xml_cannot_contain_is_replaced():
    metadata = "a\x00b\x1b\ud800\uffffc\rd"
    client = connect_client(EchoHandler(QueueDescription(name="q", user_metadata=metadata)))

    assert client.get_queue("q").user_metadata == "a\ufffdb\ufffd\ufffd\ufffdc\rd"
