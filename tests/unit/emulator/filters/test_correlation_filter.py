"""Correlation filters: a message matches if all values are equal and of the same kind."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pairbus.amqp.types import Described, Int32, Symbol, Timestamp, UInt
from pairbus.emulator.filters.rules import CorrelationFilter, compile_filter
from pairbus.errors import ConfigurationError
from tests.unit.emulator.filters.fake_message import FakeMessage

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SYSTEM = [
    ("correlation_id", "CorrelationId"),
    ("message_id", "MessageId"),
    ("to", "To"),
    ("reply_to", "ReplyTo"),
    ("label", "Label"),
    ("session_id", "SessionId"),
    ("reply_to_session_id", "ReplyToSessionId"),
    ("content_type", "ContentType"),
]


@pytest.mark.parametrize(("field", "name"), SYSTEM)
def test_system_property_is_compared_case_sensitively(field: str, name: str) -> None:
    test = compile_filter(CorrelationFilter(**{field: "Red"}))  # type: ignore[arg-type]

    assert test(FakeMessage(**{name: "Red"}))
    assert not test(FakeMessage(**{name: "red"}))
    assert not test(FakeMessage())


def test_documented_example_requires_all_of_its_values() -> None:
    correlation = CorrelationFilter(
        label="Important", reply_to="johndoe@contoso.com", properties={"color": "Red"}
    )
    test = compile_filter(correlation)
    system = {"Label": "Important", "ReplyTo": "johndoe@contoso.com"}

    assert test(FakeMessage({"color": "Red"}, **system))
    assert test(FakeMessage({"Color": "Red", "more": 1}, **system))
    assert not test(FakeMessage({"color": "red"}, **system))
    assert not test(FakeMessage({}, **system))
    assert not test(FakeMessage({"color": "Red"}, Label="Important"))


@pytest.mark.parametrize(
    ("value", "sent", "equal"),
    [
        ("2", "2", True),
        ("2", 2, False),
        (2, "2", False),
        (2, 2, True),
        (2, Int32(2), True),
        (Int32(2), UInt(2), True),
        (2, 2.0, True),
        (1, True, False),
        (True, True, True),
        (True, 1, False),
        ("", None, False),
        ("x", Symbol("x"), True),
        (NOON, Timestamp.from_datetime(NOON), True),
        (NOON.replace(tzinfo=None), Timestamp.from_datetime(NOON), True),
        (timedelta(seconds=1), Described(Symbol("com.microsoft:timespan"), 10_000_000), True),
        (uuid.UUID(int=1), uuid.UUID(int=1), True),
        (uuid.UUID(int=1), str(uuid.UUID(int=1)), False),
        ("x", b"x", False),
    ],
)
def test_user_property_is_compared_by_kind_and_value(value: Any, sent: Any, equal: bool) -> None:
    test = compile_filter(CorrelationFilter(properties={"version": value}))

    assert test(FakeMessage({"version": sent})) is equal
    assert test(FakeMessage({"VERSION": sent})) is equal
    assert test(FakeMessage()) is False


@pytest.mark.parametrize("value", [None, b"x", [1], {}])
def test_value_of_an_unsupported_type_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="Property 'version' of the filter"):
        CorrelationFilter(properties={"version": value})


def test_filter_without_values_matches_every_message() -> None:
    assert compile_filter(CorrelationFilter())(FakeMessage())
