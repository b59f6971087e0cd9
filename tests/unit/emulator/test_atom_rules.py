"""Rules through the SDK's administration client: filters, actions and values of every type."""

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
from tests.unit.emulator.admin_bench import MOMENT, SITE, Service, client_of
from tests.unit.emulator.test_atom_entities import CONNECT, TEXTS

ZONES = st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=30))])
# What the SDK can send: it cuts fractions of a second, and knows no integers beyond 64 bits.
VALUES = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(2**31, 2**63 - 1),
    st.floats(allow_nan=False),
    st.datetimes(timezones=ZONES).map(lambda when: when.replace(microsecond=0)),
    st.timedeltas(timedelta(0), timedelta(days=10675199)),
)
PAIRS = st.dictionaries(TEXTS, VALUES, max_size=4)
FIELDS = ("correlation_id", "message_id", "to", "reply_to", "label", "session_id")
FIELDS += ("reply_to_session_id", "content_type")


def stored(filter_: Any, action: SqlRuleAction | None = None) -> tuple[Rule, RuleProperties]:
    """A rule as it was put by the SDK, and as the SDK reads it again."""
    service = Service()
    client = client_of(service)
    client.create_rule("t", "s", "r", filter=filter_, action=action)
    return service.rules["r"], client.get_rule("t", "s", "r")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, TEXTS)), PAIRS)
@settings(deadline=None)
def test_a_correlation_filter_goes_there_and_back(texts: dict[str, str], pairs: dict[str, Any]):
    rule, read = stored(CorrelationRuleFilter(**texts, properties=pairs))

    assert rule == Rule(name="r", filter=CorrelationFilter(**texts, properties=pairs))
    assert {**dict.fromkeys(FIELDS), **texts, "properties": pairs} == vars(read.filter)
    assert kinds(rule.filter.properties) == kinds(read.filter.properties) == kinds(pairs)


@given(TEXTS, PAIRS, TEXTS, PAIRS)
@settings(deadline=None)
def test_sql_goes_there_and_back_with_its_parameters(
    test: str, asked: dict[str, Any], change: str, given_: dict[str, Any]
):
    rule, read = stored(SqlRuleFilter(test, asked), SqlRuleAction(change, given_))

    assert rule == Rule(name="r", filter=SqlFilter(test, asked), action=SqlAction(change, given_))
    assert (read.filter.sql_expression, read.filter.parameters) == (test, asked)
    assert (read.action.sql_expression, read.action.parameters) == (change, given_)
    assert kinds(read.action.parameters) == kinds(given_)
    assert read.created_at_utc == MOMENT


def kinds(values: Any) -> dict[str, str]:
    """What tells 1 from True and 1.0, and a time with a zone from one without."""
    found: dict[str, str] = {}
    for key, value in values.items():
        name = "int" if isinstance(value, Int32) else type(value).__name__
        aware = isinstance(value, datetime) and value.tzinfo is not None
        found[key] = f"{name} with a zone" if aware else name
    return found


@pytest.mark.parametrize(
    ("sent", "kept"),
    [(TrueRuleFilter(), TrueFilter()), (FalseRuleFilter(), FalseFilter())],
)
def test_the_constant_filters_go_there_and_back(sent: SqlRuleFilter, kept: Any):
    rule, read = stored(sent)

    assert rule == Rule(name="r", filter=kept)
    assert type(read.filter) is type(sent)
    assert read.action is None


def test_a_rule_that_was_read_can_be_updated():
    service = Service()
    client = client_of(service)
    client.create_rule("t", "s", "r", filter=SqlRuleFilter("a=@p", {"@p": 1}))
    (rule,) = client.list_rules("t", "s")
    rule.filter = SqlRuleFilter("b=@q", {"@q": "x"})

    client.update_rule("t", "s", rule)

    assert service.requests[-1].header("if-match") == "*"
    assert service.rules == {"r": Rule(name="r", filter=SqlFilter("b=@q", {"@q": "x"}))}


def test_many_rules_are_listed_with_their_own_values():
    service = Service()
    for at in range(5):
        service.rules[f"r{at}"] = Rule(name=f"r{at}", filter=SqlFilter("a=@p", {"@p": Int32(at)}))

    listed = list(client_of(service).list_rules("t", "s", max_page_size=2))

    assert [rule.filter.parameters for rule in listed] == [{"@p": at} for at in range(5)]


def test_a_subscription_without_rules_has_an_empty_list():
    assert list(client_of(Service()).list_rules("t", "s")) == []


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
def test_values_that_came_over_amqp_are_written_too(value: Any, read: Any):
    rule = Rule(name="r", filter=SqlFilter("a=@p", {"@p": value}))

    again = parse_rule(write_entry(rule_entry("t/Subscriptions/s", rule, MOMENT), SITE), "r")

    assert again.filter == SqlFilter("a=@p", {"@p": read})


def test_what_is_read_keeps_the_width_of_an_integer():
    values = {"small": Int32(5), "large": 5}
    rule = Rule(name="r", filter=SqlFilter("a=@p", values))

    again = parse_rule(write_entry(rule_entry("t/Subscriptions/s", rule, MOMENT), SITE), "r")

    assert {key: type(value) for key, value in again.filter.parameters.items()} == {
        "small": Int32,
        "large": int,
    }


XSI = 'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'


def body(inside: str) -> bytes:
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<RuleDescription xmlns="{CONNECT}" {XSI}>{inside}</RuleDescription></content></entry>'
    ).encode()


def value(kind: str, text: str) -> bytes:
    return body(
        '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>k</Key>'
        f'<Value xmlns:x="y" i:type="x:{kind}">{text}</Value>'
        "</KeyValueOfstringanyType></Properties></Filter>"
    )


def test_a_rule_without_a_filter_takes_everything():
    assert parse_rule(body(""), "r") == Rule(name="r", filter=TrueFilter())


def test_a_type_that_is_unknown_is_a_string():
    assert parse_rule(value("anyURI", " http://x "), "r").filter.properties == {"k": " http://x "}


@pytest.mark.parametrize(
    ("data", "why"),
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
def test_a_rule_that_makes_no_sense_is_refused(data: bytes, why: str):
    with pytest.raises(ConfigurationError, match=why):
        parse_rule(data, "r")


def test_a_property_that_is_there_twice_is_refused():
    pair = "<KeyValueOfstringanyType><Key>k</Key><Value>1</Value></KeyValueOfstringanyType>"
    data = f'<Filter i:type="CorrelationFilter"><Properties>{pair}{pair}</Properties></Filter>'

    with pytest.raises(ConfigurationError, match="'k' occurs twice"):
        parse_rule(body(data), "r")


def test_the_name_of_a_rule_is_checked():
    with pytest.raises(ConfigurationError, match="50 characters"):
        parse_rule(body(""), "r" * 51)


def test_a_new_subscription_may_bring_its_first_rule():
    data = body("").replace(b"RuleDescription", b"SubscriptionDescription")
    rule = '<DefaultRuleDescription><Filter i:type="FalseFilter"/><Name>n</Name>'
    first = data.replace(b"></Sub", f">{rule}</DefaultRuleDescription></Sub".encode())

    assert parse_description(first).default_rule == Rule(name="n", filter=FalseFilter())
    assert parse_description(data).default_rule is None
