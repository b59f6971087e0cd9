"""Correlation filters: every value that is given must be equal, type and all."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pairbus.amqp.types import Described, Int32, Symbol, Timestamp, UInt
from pairbus.emulator.filters.rules import CorrelationFilter, compile_filter
from pairbus.errors import ConfigurationError
from tests.unit.emulator.rules_message import Seen

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
def test_a_system_property_must_be_equal_case_included(field: str, name: str) -> None:
    test = compile_filter(CorrelationFilter(**{field: "Red"}))  # type: ignore[arg-type]

    assert test(Seen(**{name: "Red"}))
    assert not test(Seen(**{name: "red"}))
    assert not test(Seen())


def test_the_documented_example_needs_all_of_its_values() -> None:
    wanted = CorrelationFilter(
        label="Important", reply_to="johndoe@contoso.com", properties={"color": "Red"}
    )
    test = compile_filter(wanted)
    system = {"Label": "Important", "ReplyTo": "johndoe@contoso.com"}

    assert test(Seen({"color": "Red"}, **system))
    assert test(Seen({"Color": "Red", "more": 1}, **system))
    assert not test(Seen({"color": "red"}, **system))
    assert not test(Seen({}, **system))
    assert not test(Seen({"color": "Red"}, Label="Important"))


@pytest.mark.parametrize(
    ("wanted", "sent", "equal"),
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
def test_a_user_property_must_be_equal_and_of_the_same_kind(
    wanted: Any, sent: Any, equal: bool
) -> None:
    test = compile_filter(CorrelationFilter(properties={"version": wanted}))

    assert test(Seen({"version": sent})) is equal
    assert test(Seen({"VERSION": sent})) is equal
    assert test(Seen()) is False


@pytest.mark.parametrize("value", [None, b"x", [1], {}])
def test_a_value_of_another_kind_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="Property 'version' of the filter"):
        CorrelationFilter(properties={"version": value})


def test_nothing_asked_for_is_found_in_every_message() -> None:
    assert compile_filter(CorrelationFilter())(Seen())
