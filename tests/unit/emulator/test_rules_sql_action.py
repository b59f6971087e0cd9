"""SQL actions: what they change in a message, and what they leave."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pairbus.amqp.types import (
    Byte,
    Described,
    Float32,
    Int32,
    Symbol,
    Timestamp,
    UByte,
    ULong,
)
from pairbus.emulator.filters.actions import MessageChanges
from pairbus.emulator.filters.rules import SqlAction, compile_action
from pairbus.emulator.filters.values import EvaluationError
from pairbus.errors import ConfigurationError
from tests.unit.amqp.same import same
from tests.unit.emulator.rules_message import Seen

ID = uuid.UUID(int=1)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
AT_NOON = Timestamp.from_datetime(NOON)


def span(seconds: int) -> Described:
    return Described(Symbol("com.microsoft:timespan"), seconds * 10_000_000)


def changes(expression: str, message: Seen, **parameters: Any) -> MessageChanges:
    given = {f"@{name}": value for name, value in parameters.items()}
    return compile_action(SqlAction(expression, given), newid=lambda: ID)(message)


def test_the_documented_example() -> None:
    message = Seen({"color": "red", "quantity": Int32(10), "priority": "high"})

    made = changes(
        "SET quantity = quantity / 2; REMOVE priority;SET sys.CorrelationId = 'low';", message
    )

    assert made == MessageChanges(
        user_set={"quantity": 5},
        user_removed=frozenset({"priority"}),
        system_set={"CorrelationId": "low"},
    )
    assert message.user == {"color": "red", "quantity": 10, "priority": "high"}


def test_a_later_statement_sees_what_an_earlier_one_did() -> None:
    message = Seen({"EventType": "a", "OriginalEventType": "b"}, Label="l")

    assert changes("SET EventType = OriginalEventType; REMOVE OriginalEventType", message) == (
        MessageChanges(user_set={"EventType": "b"}, user_removed=frozenset({"OriginalEventType"}))
    )
    assert changes("SET n = 1; SET n = n + 1; SET m = n * 2", message) == (
        MessageChanges(user_set={"n": 2, "m": 4})
    )
    assert changes("SET sys.Label = 'x'; SET a = sys.Label + sys.Label", message) == (
        MessageChanges(user_set={"a": "xx"}, system_set={"Label": "x"})
    )
    assert changes("REMOVE EventType; SET a = EventType", message) == (
        MessageChanges(user_set={"a": None}, user_removed=frozenset({"EventType"}))
    )


def test_a_property_that_is_there_keeps_its_spelling() -> None:
    message = Seen({"priority": "low"})

    assert changes("SET Priority = 'high'", message).user_set == {"priority": "high"}
    assert changes("REMOVE PRIORITY", message).user_removed == {"priority"}
    assert changes("REMOVE Priority; SET Priority = 1", message) == (
        MessageChanges(user_set={"Priority": 1}, user_removed=frozenset({"priority"}))
    )


def test_what_was_only_set_by_the_action_is_not_removed_from_the_message() -> None:
    assert changes("SET New = 1; REMOVE new", Seen()) == MessageChanges()
    assert changes("REMOVE missing", Seen()) == MessageChanges()


def test_without_a_scope_a_system_name_is_a_user_property() -> None:
    made = changes("Set CorrelationId = 'newValue'", Seen(CorrelationId="c"))

    assert made == MessageChanges(user_set={"CorrelationId": "newValue"})


@pytest.mark.parametrize(
    ("before", "expression", "after"),
    [
        # The type that a property has is kept where the value can be converted.
        (Int32(10), "v / 3", Int32(3)),
        (UByte(1), "v + 254", UByte(255)),
        (UByte(1), "v + 255", 256),
        (ULong(1), "v - 2", -1),
        (Byte(1), "'-7'", Byte(-7)),
        (Int32(1), "' 12 '", Int32(12)),
        (Int32(1), "'twelve'", "twelve"),
        (Int32(1), "1.5", 1.5),
        (1.5, "2", 2.0),
        (Float32(1.5), "v * 2", Float32(3.0)),
        (1.5, "'0.25'", 0.25),
        (True, "'FALSE'", False),
        (True, "'no'", "no"),
        (True, "0", 0),
        (ID, "'00000000-0000-0000-0000-000000000002'", uuid.UUID(int=2)),
        (Timestamp(0), "'2026-05-01T12:00:00Z'", AT_NOON),
        (Timestamp(0), "'2026-05-01 14:00:00+02:00'", AT_NOON),
        (Timestamp(0), "'2026-05-01T12:00:00'", AT_NOON),
        (Timestamp(0), "'tomorrow'", "tomorrow"),
        (span(1), "'00:01:30'", span(90)),
        (span(1), "'-1.00:00'", span(-86400)),
        (span(1), "'PT2M'", span(120)),
        (span(1), "'soon'", "soon"),
        ("text", "5", 5),
        ("text", "newid()", ID),
        (None, "5", 5),
        (b"bytes", "'text'", "text"),
        # Computed times are written as AMQP has them, and copies are exact.
        (AT_NOON, "v + @span", Timestamp.from_datetime(NOON + timedelta(seconds=90))),
        (AT_NOON, "v - @noon", span(0)),
        (None, "@span", span(90)),
        (1, "other", b"other"),
        (1, "NULL", None),
        (1, "missing", None),
        (1, "missing + 1", None),
    ],
)
def test_a_user_property_is_set(before: Any, expression: str, after: Any) -> None:
    message = Seen({"v": before, "other": b"other"})

    made = changes(f"SET v = {expression}", message, span=timedelta(seconds=90), noon=NOON)

    assert same(made.user_set, {"v": after})


@pytest.mark.parametrize(
    ("statement", "name", "value"),
    [
        ("SET sys.Label = sys.Label + '.postfix'", "Label", "label.postfix"),
        ("SET sys.SessionId = newid()", "SessionId", str(ID)),
        ("SET sys.SessionId = 'o' + order + newid()", "SessionId", f"o17{ID}"),
        ("SET sys.SessionId = order", "SessionId", "17"),
        ("SET sys.To = NULL", "To", None),
        ("SET sys.To = missing", "To", None),
        ("SET sys.ReplyTo = TRUE", "ReplyTo", "True"),
        ("SET sys.Subject = 'x'", "Label", "x"),
        ("SET sys.TimeToLive = '00:01:30'", "TimeToLive", timedelta(seconds=90)),
        ("SET sys.TimeToLive = '1.02:03:04.5'", "TimeToLive", timedelta(1, 7384, 500000)),
        ("SET sys.TimeToLive = 'PT90S'", "TimeToLive", timedelta(seconds=90)),
        ("SET sys.TimeToLive = @span", "TimeToLive", timedelta(seconds=90)),
        ("SET sys.TimeToLive = sys.TimeToLive + @span", "TimeToLive", timedelta(seconds=100)),
        (
            "SET sys.ScheduledEnqueueTimeUtc = '2026-05-01T12:00:00Z'",
            "ScheduledEnqueueTimeUtc",
            NOON,
        ),
        ("SET sys.ScheduledEnqueueTimeUtc = at", "ScheduledEnqueueTimeUtc", NOON),
        ("SET sys.ForcePersistence = TRUE", "ForcePersistence", True),
        ("SET sys.ForcePersistence = 'false'", "ForcePersistence", False),
    ],
)
def test_a_system_property_is_set_in_its_own_type(statement: str, name: str, value: Any) -> None:
    message = Seen(
        {"order": Int32(17), "at": AT_NOON}, Label="label", TimeToLive=timedelta(seconds=10)
    )

    made = changes(statement, message, span=timedelta(seconds=90))

    assert made == MessageChanges(system_set={name: value})


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("SET sys.Label = bytes", "a value of type bytes cannot be converted to a string"),
        ("SET sys.TimeToLive = 5", "sys.TimeToLive cannot be set to a number"),
        ("SET sys.TimeToLive = 'soon'", "sys.TimeToLive cannot be set to 'soon'"),
        ("SET sys.TimeToLive = '00:00:00'", "it must be positive"),
        ("SET sys.TimeToLive = '-00:00:01'", "it must be positive"),
        ("SET sys.ScheduledEnqueueTimeUtc = 'soon'", "cannot be set to 'soon'"),
        ("SET sys.ScheduledEnqueueTimeUtc = '0001-01-01T00:00:00+12:00'", "cannot be set to"),
        ("SET sys.ForcePersistence = 'perhaps'", "cannot be set to a string"),
        ("SET sys.SessionId = long", "the maximum is 128"),
        ("SET a = 1 / 0", "division of an integer by zero"),
        ("SET a = 'a' - 1", "- cannot be applied to a string and a number"),
    ],
)
def test_an_action_that_cannot_be_done_is_an_evaluation_error(
    statement: str, complaint: str
) -> None:
    with pytest.raises(EvaluationError) as failed:
        changes(statement, Seen({"bytes": b"x", "long": "x" * 129}))

    assert complaint in str(failed.value)


def test_a_parameter_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"line 1, column 9: parameter @x has no value"):
        compile_action(SqlAction("SET a = @x"))
