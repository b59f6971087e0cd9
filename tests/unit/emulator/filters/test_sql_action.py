"""SQL actions: the changes that statements make to a message."""

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
from tests.unit.emulator.filters.fake_message import FakeMessage

ID = uuid.UUID(int=1)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
AT_NOON = Timestamp.from_datetime(NOON)


def span(seconds: int) -> Described:
    return Described(Symbol("com.microsoft:timespan"), seconds * 10_000_000)


def run_action(expression: str, message: FakeMessage, **parameters: Any) -> MessageChanges:
    values = {f"@{name}": value for name, value in parameters.items()}
    return compile_action(SqlAction(expression, values), newid=lambda: ID)(message)


def test_documented_example() -> None:
    message = FakeMessage({"color": "red", "quantity": Int32(10), "priority": "high"})

    result = run_action(
        "SET quantity = quantity / 2; REMOVE priority;SET sys.CorrelationId = 'low';", message
    )

    assert result == MessageChanges(
        user_set={"quantity": 5},
        user_removed=frozenset({"priority"}),
        system_set={"CorrelationId": "low"},
    )
    assert message.user == {"color": "red", "quantity": 10, "priority": "high"}


def test_statement_sees_the_effects_of_earlier_ones() -> None:
    message = FakeMessage({"EventType": "a", "OriginalEventType": "b"}, Label="l")

    assert run_action("SET EventType = OriginalEventType; REMOVE OriginalEventType", message) == (
        MessageChanges(user_set={"EventType": "b"}, user_removed=frozenset({"OriginalEventType"}))
    )
    assert run_action("SET n = 1; SET n = n + 1; SET m = n * 2", message) == (
        MessageChanges(user_set={"n": 2, "m": 4})
    )
    assert run_action("SET sys.Label = 'x'; SET a = sys.Label + sys.Label", message) == (
        MessageChanges(user_set={"a": "xx"}, system_set={"Label": "x"})
    )
    assert run_action("REMOVE EventType; SET a = EventType", message) == (
        MessageChanges(user_set={"a": None}, user_removed=frozenset({"EventType"}))
    )


def test_existing_property_keeps_its_spelling() -> None:
    message = FakeMessage({"priority": "low"})

    assert run_action("SET Priority = 'high'", message).user_set == {"priority": "high"}
    assert run_action("REMOVE PRIORITY", message).user_removed == {"priority"}
    assert run_action("REMOVE Priority; SET Priority = 1", message) == (
        MessageChanges(user_set={"Priority": 1}, user_removed=frozenset({"priority"}))
    )


def test_property_that_the_message_does_not_have_is_not_removed() -> None:
    assert run_action("SET New = 1; REMOVE new", FakeMessage()) == MessageChanges()
    assert run_action("REMOVE missing", FakeMessage()) == MessageChanges()


def test_name_without_a_scope_is_a_user_property() -> None:
    result = run_action("Set CorrelationId = 'newValue'", FakeMessage(CorrelationId="c"))

    assert result == MessageChanges(user_set={"CorrelationId": "newValue"})


@pytest.mark.parametrize(
    ("old", "expression", "new"),
    [
        # A property keeps its type if the value can be converted.
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
        # Computed times are encoded as AMQP types, and copies are exact.
        (AT_NOON, "v + @span", Timestamp.from_datetime(NOON + timedelta(seconds=90))),
        (AT_NOON, "v - @noon", span(0)),
        (None, "@span", span(90)),
        (1, "other", b"other"),
        (1, "NULL", None),
        (1, "missing", None),
        (1, "missing + 1", None),
    ],
)
def test_user_property_is_set_in_its_previous_type_if_possible(
    old: Any, expression: str, new: Any
) -> None:
    message = FakeMessage({"v": old, "other": b"other"})

    result = run_action(f"SET v = {expression}", message, span=timedelta(seconds=90), noon=NOON)

    assert same(result.user_set, {"v": new})


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
def test_system_property_is_set_in_its_type(statement: str, name: str, value: Any) -> None:
    message = FakeMessage(
        {"order": Int32(17), "at": AT_NOON}, Label="label", TimeToLive=timedelta(seconds=10)
    )

    result = run_action(statement, message, span=timedelta(seconds=90))

    assert result == MessageChanges(system_set={name: value})


@pytest.mark.parametrize(
    ("statement", "reason"),
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
def test_impossible_action_is_an_evaluation_error(statement: str, reason: str) -> None:
    with pytest.raises(EvaluationError) as raised:
        run_action(statement, FakeMessage({"bytes": b"x", "long": "x" * 129}))

    assert reason in str(raised.value)


def test_parameter_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"line 1, column 9: parameter @x has no value"):
        compile_action(SqlAction("SET a = @x"))
