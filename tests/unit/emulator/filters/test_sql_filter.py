"""SQL filters on messages: the documented examples, three-valued logic, types, LIKE."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pairbus.amqp.types import (
    Byte,
    Char,
    Decimal64,
    Described,
    Float32,
    Int32,
    Symbol,
    Timestamp,
    UByte,
    ULong,
)
from pairbus.emulator.filters.rules import SqlFilter, compile_filter
from pairbus.emulator.filters.values import EvaluationError
from pairbus.errors import ConfigurationError
from tests.unit.emulator.filters.fake_message import FakeMessage

CRM = "http://schemas.microsoft.com/xrm/2011/Claims/EntityLogicalName"
STORES = "('Store1','Store2','Store3','Store4','Store5','Store6','Store7','Store8')"
ID = uuid.UUID(int=1)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SPAN = Described(Symbol("com.microsoft:timespan"), 90 * 10_000_000)
SINCE_YEAR_1 = NOON - datetime(1, 1, 1, tzinfo=UTC)
OFFSET = Described(
    Symbol("com.microsoft:datetime-offset"), SINCE_YEAR_1 // timedelta(microseconds=1) * 10
)

# The examples of Microsoft's pages "SQL filter syntax", "Filter examples" and "Topic filters".
DOCUMENTED: list[tuple[str, FakeMessage, bool]] = [
    ("color='blue' AND quantity=10", FakeMessage({"color": "blue", "quantity": Int32(10)}), True),
    ("color='blue' AND quantity=10", FakeMessage({"color": "blue", "quantity": 5}), False),
    ("Color = 'blue' and Quantity = 10", FakeMessage({"color": "blue", "quantity": 10}), True),
    ("Color = 'blue' or Quantity = 10", FakeMessage({"color": "red", "quantity": 10}), True),
    ("user.color='red'", FakeMessage({"color": "red"}), True),
    ("sys.label LIKE '%bus%'", FakeMessage(Label="omnibus"), True),
    ("sys.label LIKE '%bus%'", FakeMessage(Label="tram"), False),
    (
        "sys.Label LIKE '%bus%' OR user.tag IN ('queue', 'topic')",
        FakeMessage({"tag": "topic"}),
        True,
    ),
    ("sys.messageid = 'xxxx'", FakeMessage(MessageId="xxxx"), True),
    ("sys.correlationid like 'abc-%'", FakeMessage(CorrelationId="abc-1"), True),
    ("user.SuperHero like 'SuperMan%'", FakeMessage({"SuperHero": "SuperMan II"}), True),
    (f"\"{CRM}\" = 'account'", FakeMessage({CRM: "account"}), True),
    ("MessageProperty > 2.08", FakeMessage({"MessageProperty": 2.09}), True),
    ("MessageProperty > 2.08", FakeMessage({"MessageProperty": 2}), False),
    (
        "MessageProperty1 - MessageProperty2 = 80",
        FakeMessage({"MessageProperty1": 90, "MessageProperty2": 10}),
        True,
    ),
    ('Exists("Message Property AA")', FakeMessage({"Message Property AA": None}), True),
    ("StoreId IN('Store1', 'Store2', 'Store3')", FakeMessage({"StoreId": "Store2"}), True),
    (
        "sys.To IN ('Store5','Store6','Store7') OR StoreId = 'Store8'",
        FakeMessage({"StoreId": "Store8"}, To="x"),
        True,
    ),
    (
        f"sys.To NOT IN {STORES} OR StoreId NOT IN {STORES}",
        FakeMessage({"StoreId": "Store9"}, To="Store9"),
        True,
    ),
    (
        f"sys.To NOT IN {STORES} OR StoreId NOT IN {STORES}",
        FakeMessage({"StoreId": "Store1"}, To="Store1"),
        False,
    ),
    ("property LIKE 'ABC\\%' ESCAPE '\\'", FakeMessage({"property": "ABC%"}), True),
    ("property LIKE 'ABC\\%' ESCAPE '\\'", FakeMessage({"property": "ABCD"}), False),
    (
        """sys.CorrelationId = 'email' AND sender = 'joseph'
           AND (importance IS NULL OR importance = 'high')""",
        FakeMessage({"sender": "joseph"}, CorrelationId="email"),
        True,
    ),
]

UNKNOWN_LOGIC = [
    ("missing = 1", False),
    ("missing <> 1", False),
    ("NOT missing = 1", False),
    ("NOT missing <> 1", False),
    ("missing = missing", False),
    ("missing + 1 = missing + 1", False),
    ("-missing < 0", False),
    ("missing LIKE '%'", False),
    ("missing NOT LIKE '%'", False),
    ("'x' LIKE missing", False),
    ("'x' NOT LIKE 'x' ESCAPE missing", False),
    ("missing IN (1)", False),
    ("missing NOT IN (1)", False),
    ("1 IN (missing, 1)", True),
    ("1 NOT IN (missing, 2)", False),
    ("p('missing') = 1", False),
    ("p(missing) = 1", False),
    ("missing IS NULL", True),
    ("missing IS NOT NULL", False),
    ("EXISTS(missing)", False),
    ("NOT EXISTS(missing)", True),
    # The tables of AND and OR: true is 1=1, false is 1=0, unknown is missing=1.
    ("1=1 AND 1=1", True),
    ("1=1 AND missing=1", False),
    ("NOT (1=1 AND missing=1)", False),
    ("NOT (1=0 AND missing=1)", True),
    ("NOT (missing=1 AND 1=0)", True),
    ("NOT (missing=1 AND missing=1)", False),
    ("1=1 OR missing=1", True),
    ("missing=1 OR 1=1", True),
    ("1=0 OR missing=1", False),
    ("NOT (1=0 OR missing=1)", False),
    ("NOT (1=0 OR 1=0)", True),
    ("NOT (missing=1 OR 1=0 OR 1=0)", False),
    ("1=0 OR 1=0 OR 1=1", True),
    ("1=1 AND 1=1 AND 1=0", False),
]

# NULL is a value: the property `empty` exists and is null, and so is sys.Label.
NULL_LOGIC = [
    ("empty IS NULL", True),
    ("EXISTS(empty)", True),
    ("sys.Label IS NULL", True),
    ("EXISTS(sys.Label)", False),
    ("empty = NULL", True),
    ("empty = 'x'", False),
    ("empty <> 'x'", True),
    ("sys.Label <> 'x'", True),
    ("NOT sys.Label = 'x'", True),
    ("empty > 1", False),
    ("NOT empty > 1", True),
    ("empty <= NULL", False),
    ("empty + 1 = NULL", True),
    ("empty LIKE '%'", False),
    ("empty NOT LIKE '%'", True),
    ("empty IN (1, NULL)", True),
    ("empty NOT IN (1, 2)", True),
    ("'x' + empty = 'x'", True),
]

VALUES: list[tuple[str, Any, bool]] = [
    # Numbers of all AMQP types.
    ("v = 5", Int32(5), True),
    ("v = 5", UByte(5), True),
    ("v = 5", ULong(5), True),
    ("v = 5.0", 5, True),
    ("v = 5", 5.0, True),
    ("v < 5.5", Int32(5), True),
    ("5 < v", Byte(6), True),
    ("5 <= v", 5, True),
    ("5 > v", 5, False),
    ("v > 0.5", Float32(0.75), True),
    ("v IN (1, 5)", Int32(5), True),
    ("v IN (1, 5)", 5.0, True),
    ("v NOT IN (1, 5)", Int32(6), True),
    # Strings, by code point.
    ("v = 'Red'", "red", False),
    ("v > 'a'", "b", True),
    ("v = 'x'", Symbol("x"), True),
    ("v = 'x'", Char("x"), True),
    ("v LIKE 'x'", Symbol("x"), True),
    ("v + '-' + 1 = 'a-1'", "a", True),
    ("1 + v = '1a'", "a", True),
    ("v + TRUE = 'aTrue'", "a", True),
    ("v + 2.5 = 'a2.5'", "a", True),
    ("v + 2.0 = 'a2'", "a", True),
    ("'id ' + v = 'id 00000000-0000-0000-0000-000000000001'", ID, True),
    # Booleans are not numbers.
    ("v = TRUE", True, True),
    ("v <> TRUE", False, True),
    ("v IN (TRUE, FALSE)", False, True),
    # Arithmetic as in C#.
    ("v / 2 = -3", -7, True),
    ("v % 2 = -1", -7, True),
    ("v / -2 = -3", 7, True),
    ("v % -2 = 1", 7, True),
    ("v / 2.0 = 3.5", 7, True),
    ("v % 2.5 = 2.0", 7, True),
    ("v / 0.0 > 1e308", 1, True),
    ("v / -0.0 < -1e308", 1.0, True),
    ("v / 0.0 = v / 0.0", 0.0, False),
    ("v % 0.0 <> 1", 1.0, True),
    ("v + 1 = -9223372036854775807 - 1", 2**63 - 1, True),
    ("-v = v", -(2**63), True),
    ("v + 1 > 9223372036854775807", ULong(2**63), True),
    ("+v = 9223372036854775807 + v - 9223372036854775807", ULong(2**63), True),
    ("2 + 3 * 4 - 6 / 3 = v", 12, True),
    ("-(v) = -5", 5, True),
    # Times and durations.
    ("v = @noon", Timestamp.from_datetime(NOON), True),
    ("v < @noon", Timestamp(0), True),
    ("v - @noon = @span", Timestamp.from_datetime(NOON + timedelta(seconds=90)), True),
    ("v - @span < @noon", Timestamp.from_datetime(NOON), True),
    ("@noon + @span > v", Timestamp.from_datetime(NOON), True),
    ("v = @span", SPAN, True),
    ("v + v > @span", SPAN, True),
    ("-v < @span", SPAN, True),
    ("v = @noon", OFFSET, True),
    ("v = 'sb://host'", Described(Symbol("com.microsoft:uri"), "sb://host"), True),
    # UUIDs.
    ("v = v", ID, True),
    ("newid() <> v", ID, True),
    ("newid() = newid()", ID, False),
    # Values of any type can be tested for existence.
    ("EXISTS(v)", b"bytes", True),
    ("v IS NOT NULL", [1, 2], True),
]

NOT_EVALUATED: list[tuple[str, Any, str]] = [
    ("v > 5", "10", "> cannot compare a string with a number"),
    ("5 < v", "10", "> cannot compare a string with a number"),
    ("v = 5", "5", "= cannot compare a string with a number"),
    ("v = '5'", 5, "= cannot compare a number with a string"),
    ("v IN ('5', '6')", 5, "= cannot compare a number with a string"),
    ("v = 1", True, "= cannot compare a boolean with a number"),
    ("v > FALSE", True, "> cannot compare a boolean with a boolean"),
    ("v = '00000000-0000-0000-0000-000000000001'", ID, "= cannot compare a UUID with a string"),
    ("v > newid()", ID, "> cannot compare a UUID with a UUID"),
    ("v = 5", Timestamp(5), "= cannot compare a time with a number"),
    ("v = 'x'", b"x", "= cannot compare a value of type bytes with a string"),
    ("v = v", b"x", "= cannot compare a value of type bytes"),
    ("v = 1", Decimal64(bytes(8)), "= cannot compare a value of type Decimal64"),
    ("v / 0 = 1", 1, "division of an integer by zero"),
    ("v % 0 = 1", 1, "division of an integer by zero"),
    ("v - 1 = 1", "2", "- cannot be applied to a string and a number"),
    ("v + 1 = 2", True, "+ cannot be applied to a boolean and a number"),
    ("v * 2 = 2", SPAN, "* cannot be applied to a duration and a number"),
    ("-v = 1", "1", "- cannot be applied to a string"),
    ("'a' + v = 'a'", b"x", "a value of type bytes cannot be converted to a string"),
    ("v LIKE '5%'", 5, "LIKE compares strings, not a number"),
    ("'x' LIKE v", 5, "LIKE compares strings, not a number"),
    ("'x' LIKE 'x' ESCAPE v", "ab", "the escape of LIKE must be one character, not 'ab'"),
    ("'x' LIKE v ESCAPE '!'", "x!", "ends with its escape character"),
    ("p(v) = 1", 5, "property() expects a name, not a number"),
    ("v = @noon", Timestamp(2**62), "is outside the supported range"),
    (
        "@noon + v > @noon",
        Described(Symbol("com.microsoft:timespan"), 2**62),
        "outside the supported range",
    ),
]


def matches(expression: str, message: FakeMessage, **parameters: Any) -> bool:
    values = {f"@{name}": value for name, value in parameters.items()}
    return compile_filter(SqlFilter(expression, values))(message)


@pytest.mark.parametrize(("expression", "message", "expected"), DOCUMENTED)
def test_documented_example_has_the_documented_result(
    expression: str, message: FakeMessage, expected: bool
) -> None:
    assert matches(expression, message) is expected


@pytest.mark.parametrize(("expression", "expected"), UNKNOWN_LOGIC)
def test_missing_property_is_unknown(expression: str, expected: bool) -> None:
    assert matches(expression, FakeMessage()) is expected


@pytest.mark.parametrize(("expression", "expected"), NULL_LOGIC)
def test_null_equals_only_null(expression: str, expected: bool) -> None:
    assert matches(expression, FakeMessage({"empty": None})) is expected


@pytest.mark.parametrize(("expression", "value", "expected"), VALUES)
def test_values_are_compared_and_computed_as_in_csharp(
    expression: str, value: Any, expected: bool
) -> None:
    message = FakeMessage({"v": value})

    assert matches(expression, message, noon=NOON, span=timedelta(seconds=90)) is expected
    assert (
        matches(f"NOT ({expression})", message, noon=NOON, span=timedelta(seconds=90))
        is (not expected)
        or "newid" in expression
    )


@pytest.mark.parametrize(("expression", "value", "reason"), NOT_EVALUATED)
def test_incompatible_types_are_an_evaluation_error(
    expression: str, value: Any, reason: str
) -> None:
    with pytest.raises(EvaluationError) as raised:
        matches(expression, FakeMessage({"v": value}), noon=NOON)

    assert reason in str(raised.value)


def test_and_and_or_are_short_circuited() -> None:
    message = FakeMessage({"v": "text"})

    assert matches("1=0 AND v > 5", message) is False
    assert matches("1=1 OR v > 5", message) is True
    with pytest.raises(EvaluationError):
        matches("v > 5 OR 1=1", message)


def test_exact_spelling_takes_precedence() -> None:
    message = FakeMessage({"COLOR": "red", "color": "blue"})

    assert matches("color = 'blue' AND COLOR = 'red'", message)


def test_keys_that_are_not_strings_are_ignored() -> None:
    assert matches("color = 'red'", FakeMessage({1: 2, "Color": "red"}))  # type: ignore[dict-item]


def test_name_of_a_property_can_be_computed() -> None:
    message = FakeMessage({"which": "SIZE", "size": 5, "sys.Label": "mine"}, Label="l")

    assert matches("p(which) = 5", message)
    assert matches("property('si' + 'ze') = 5", message)
    # The functions find user properties only.
    assert matches("property('sys.Label') = 'mine'", message)
    assert matches("EXISTS(sys.Label) AND NOT EXISTS(Label)", message)


def test_parameters_are_case_insensitive_and_may_be_unused() -> None:
    parameters = {"@Priority": 3, "@unused": "x", "@none": None}
    test = compile_filter(SqlFilter("Priority >= @priority AND other = @NONE", parameters))

    assert test(FakeMessage({"priority": 3, "other": None}))


def test_parameter_without_a_value_is_refused_with_its_position() -> None:
    with pytest.raises(ConfigurationError) as raised:
        compile_filter(SqlFilter("a = 1 AND\nb = @size", {"@colour": "red"}))

    assert str(raised.value) == (
        "line 2, column 5: parameter @size has no value; parameters with values: @colour"
    )


@pytest.mark.parametrize("value", [b"x", [1], object(), Timestamp(2**62)])
def test_parameter_of_an_unsupported_type_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="Parameter @p"):
        compile_filter(SqlFilter("a = @p", {"@p": value}))


def test_naive_time_is_in_utc() -> None:
    naive = NOON.replace(tzinfo=None)

    assert matches("v = @t", FakeMessage({"v": Timestamp.from_datetime(NOON)}), t=naive)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("a LIKE 5", "LIKE compares strings, not a number"),
        ("a LIKE 'x' ESCAPE 'ab'", "the escape of LIKE must be one character, not 'ab'"),
        ("a LIKE 'x' ESCAPE ''", "the escape of LIKE must be one character"),
        ("a LIKE 'x!' ESCAPE '!'", "the pattern 'x!' ends with its escape character"),
    ],
)
def test_invalid_constant_pattern_is_refused_at_compilation(expression: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        compile_filter(SqlFilter(expression))


def test_newid_uses_the_given_function() -> None:
    test = compile_filter(SqlFilter("newid() = v"), newid=lambda: ID)

    assert test(FakeMessage({"v": ID}))
