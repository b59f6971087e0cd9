"""Atom entries of rules: filters, actions and values of all types, written and read by the SDK."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.types import Described, Int32, Symbol, Timestamp, UByte
from pairbus.emulator.admin.atom_reader import parse_description, parse_rule
from pairbus.emulator.admin.atom_writer import rule_entry, write_entry
from pairbus.emulator.filters.rules import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from pairbus.errors import ConfigurationError
from tests.unit.emulator.admin.echo import ENDPOINT, TEXTS, EchoHandler
from tests.unit.emulator.admin.harness import CREATED_AT, AdminHarness
from tests.unit.emulator.admin.sdk_client import connect_client

ZONES = st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=30))])
# The values that the SDK can send: no fractions of a second, no integers beyond 64 bits.
VALUES = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(2**31, 2**63 - 1),
    st.floats(allow_nan=False),
    st.datetimes(timezones=ZONES).map(lambda time: time.replace(microsecond=0)),
    st.timedeltas(timedelta(0), timedelta(days=10675199)),
)
PAIRS = st.dictionaries(TEXTS, VALUES, max_size=4)
FIELDS = ("correlation_id", "message_id", "to", "reply_to", "label", "session_id")
FIELDS += ("reply_to_session_id", "content_type")


def put_and_get(filter_: Any, action: SqlRuleAction | None = None) -> tuple[Rule, RuleProperties]:
    """Return a rule as it was parsed from the SDK's request, and as the SDK reads it."""
    handler = EchoHandler()
    client = connect_client(handler)
    client.create_rule("t", "s", "r", filter=filter_, action=action)
    assert handler.rule is not None
    return handler.rule, client.get_rule("t", "s", "r")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, TEXTS)), PAIRS)
@settings(deadline=None)
def test_correlation_filter_is_written_and_read(texts: dict[str, str], pairs: dict[str, Any]):
    rule, read = put_and_get(CorrelationRuleFilter(**texts, properties=pairs))

    assert rule == Rule(name="r", filter=CorrelationFilter(**texts, properties=pairs))
    assert {**dict.fromkeys(FIELDS), **texts, "properties": pairs} == vars(read.filter)
    assert types_of(rule.filter.properties) == types_of(read.filter.properties) == types_of(pairs)


@given(TEXTS, PAIRS, TEXTS, PAIRS)
@settings(deadline=None)
def test_sql_is_written_and_read_with_its_parameters(
    condition: str,
    filter_parameters: dict[str, Any],
    statements: str,
    action_parameters: dict[str, Any],
):
    rule, read = put_and_get(
        SqlRuleFilter(condition, filter_parameters), SqlRuleAction(statements, action_parameters)
    )

    assert rule == Rule(
        name="r",
        filter=SqlFilter(condition, filter_parameters),
        action=SqlAction(statements, action_parameters),
    )
    assert (read.filter.sql_expression, read.filter.parameters) == (condition, filter_parameters)
    assert (read.action.sql_expression, read.action.parameters) == (statements, action_parameters)
    assert types_of(read.action.parameters) == types_of(action_parameters)
    assert read.created_at_utc == CREATED_AT


def types_of(values: Any) -> dict[str, str]:
    """Return type names, which differ for 1, True and 1.0, and for naive and aware times."""
    names: dict[str, str] = {}
    for key, value in values.items():
        name = "int" if isinstance(value, Int32) else type(value).__name__
        aware = isinstance(value, datetime) and value.tzinfo is not None
        names[key] = f"aware {name}" if aware else name
    return names


@pytest.mark.parametrize(
    ("sent", "parsed"),
    [(TrueRuleFilter(), TrueFilter()), (FalseRuleFilter(), FalseFilter())],
)
def test_true_and_false_filters_are_written_and_read(sent: SqlRuleFilter, parsed: Any):
    rule, read = put_and_get(sent)

    assert rule == Rule(name="r", filter=parsed)
    assert type(read.filter) is type(sent)
    assert read.action is None


def test_rule_is_updated_with_the_properties_that_were_read():
    handler = EchoHandler()
    client = connect_client(handler)
    client.create_rule("t", "s", "r", filter=SqlRuleFilter("a=@p", {"@p": 1}))
    rule = client.get_rule("t", "s", "r")
    rule.filter = SqlRuleFilter("b=@q", {"@q": "x"})

    client.update_rule("t", "s", rule)

    assert handler.requests[-1].header("if-match") == "*"
    assert handler.rule == Rule(name="r", filter=SqlFilter("b=@q", {"@q": "x"}))


def test_listed_rules_have_their_values(harness: AdminHarness):
    client = harness.client()
    client.create_topic("t")
    client.create_subscription("t", "s")
    client.delete_rule("t", "s", "$Default")
    assert list(client.list_rules("t", "s")) == []
    for number in range(5):
        client.create_rule("t", "s", f"r{number}", filter=SqlRuleFilter("a=@p", {"@p": number}))

    rules = list(client.list_rules("t", "s", max_page_size=2))

    assert [rule.filter.parameters for rule in rules] == [{"@p": number} for number in range(5)]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (UByte(3), 3),
        (Symbol("s"), "s"),
        (Timestamp(1000), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (Described("com.microsoft:timespan", 10_000_000), timedelta(seconds=1)),
        (float("inf"), float("inf")),
        (UUID(int=5), UUID(int=5)),
        (None, None),
        ("", ""),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
    ],
)
def test_amqp_values_are_written_as_plain_values(value: Any, read: Any):
    rule = Rule(name="r", filter=SqlFilter("a=@p", {"@p": value}))

    again = parse_rule(
        write_entry(rule_entry("t/Subscriptions/s", rule, CREATED_AT), ENDPOINT), "r"
    )

    assert again.filter == SqlFilter("a=@p", {"@p": read})


def test_parsed_integer_keeps_its_width():
    values = {"small": Int32(5), "large": 5}
    rule = Rule(name="r", filter=SqlFilter("a=@p", values))

    again = parse_rule(
        write_entry(rule_entry("t/Subscriptions/s", rule, CREATED_AT), ENDPOINT), "r"
    )

    assert {key: type(value) for key, value in again.filter.parameters.items()} == {
        "small": Int32,
        "large": int,
    }


CONNECT = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
XSI = 'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'


def body(content: str) -> bytes:
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<RuleDescription xmlns="{CONNECT}" {XSI}>{content}</RuleDescription></content></entry>'
    ).encode()


def value(kind: str, text: str) -> bytes:
    return body(
        '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>k</Key>'
        f'<Value xmlns:x="y" i:type="x:{kind}">{text}</Value>'
        "</KeyValueOfstringanyType></Properties></Filter>"
    )


def test_rule_without_a_filter_matches_all_messages():
    assert parse_rule(body(""), "r") == Rule(name="r", filter=TrueFilter())


def test_value_of_an_unknown_type_is_a_string():
    assert parse_rule(value("anyURI", " http://x "), "r").filter.properties == {"k": " http://x "}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<entry/>", "not an Atom entry"),
        (body("").replace(b"RuleDescription", b"QueueDescription"), "not a rule"),
        (body("<Filter/>"), "is not a filter. Use SqlFilter"),
        (body('<Filter i:type="DateFilter"/>'), "'DateFilter' is not a filter"),
        (body('<Filter i:type="SqlFilter"/>'), "A SqlFilter needs a SqlExpression"),
        (body('<Action i:type="Script"/>'), "'Script' is not an action"),
        (body('<Action i:type="SqlRuleAction"/>'), "SqlRuleAction needs"),
        (value("int", "2147483648"), "'2147483648' of 'k' is not of type int"),
        (value("long", str(2**63)), "is not of type long"),
        (value("long", "9" * 5000), "is not of type long"),
        (value("int", "x"), "'x' of 'k' is not of type int"),
        (value("boolean", "yes"), "is not of type boolean"),
        (value("double", "1,5"), "is not of type double"),
        (value("dateTime", "today"), "is not of type dateTime"),
        (value("duration", "1 h"), "is not of type duration"),
        (value("guid", "5"), "is not of type guid"),
        (value("int", "1").replace(b"Key>", b"Kex>"), "needs a Key and a Value"),
        (value("int", "1").replace(b"Value", b"Walue"), "needs a Key and a Value"),
    ],
)
def test_invalid_rule_is_refused_with_the_reason(data: bytes, reason: str):
    with pytest.raises(ConfigurationError, match=reason):
        parse_rule(data, "r")


def test_duplicate_property_is_refused():
    pair = "<KeyValueOfstringanyType><Key>k</Key><Value>1</Value></KeyValueOfstringanyType>"
    data = f'<Filter i:type="CorrelationFilter"><Properties>{pair}{pair}</Properties></Filter>'

    with pytest.raises(ConfigurationError, match="'k' occurs twice"):
        parse_rule(body(data), "r")


def test_too_long_name_of_a_rule_is_refused():
    with pytest.raises(ConfigurationError, match="50 characters"):
        parse_rule(body(""), "r" * 51)


def test_new_subscription_may_contain_its_default_rule():
    data = body("").replace(b"RuleDescription", b"SubscriptionDescription")
    rule = '<DefaultRuleDescription><Filter i:type="FalseFilter"/><Name>n</Name>'
    with_rule = data.replace(b"></Sub", f">{rule}</DefaultRuleDescription></Sub".encode())

    assert parse_description(with_rule).default_rule == Rule(name="n", filter=FalseFilter())
    assert parse_description(data).default_rule is None
