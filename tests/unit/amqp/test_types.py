"""Python types for AMQP values."""

import datetime

import pytest

from pairbus.amqp.types import Array, Char, Described, Int32, Symbol, Timestamp, UByte, UInt


def test_typed_number_behaves_like_an_int() -> None:
    assert UInt(7) == 7
    assert UByte(7) + Int32(1) == 8
    assert {UInt(7): "seven"}[7] == "seven"


def test_symbol_equals_the_string_of_its_name() -> None:
    assert Symbol("amqp:accepted:list") == "amqp:accepted:list"
    assert {Symbol("x-opt-offset"): 1}["x-opt-offset"] == 1


def test_timestamp_counts_milliseconds_from_1970_in_any_time_zone() -> None:
    plus_two = datetime.timezone(datetime.timedelta(hours=2))
    time = datetime.datetime(1970, 1, 1, 2, 0, 1, 234_999, tzinfo=plus_two)

    timestamp = Timestamp.from_datetime(time)

    assert timestamp == 1234
    assert timestamp.to_datetime() == datetime.datetime(1970, 1, 1, 0, 0, 1, 234_000, datetime.UTC)


def test_timestamp_before_1970_rounds_down_too() -> None:
    time = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_500, datetime.UTC)

    assert Timestamp.from_datetime(time) == -1


def test_timestamp_needs_a_time_zone() -> None:
    with pytest.raises(ValueError, match="time zone"):
        Timestamp.from_datetime(datetime.datetime(2024, 1, 1))  # noqa: DTZ001


def test_timestamp_beyond_the_year_9999_has_no_datetime() -> None:
    with pytest.raises(OverflowError):
        Timestamp(2**63 - 1).to_datetime()


def test_described_values_and_arrays_compare_by_their_parts() -> None:
    assert Described(Symbol("a"), [1]) == Described(Symbol("a"), [1])
    assert Described(Symbol("a"), 1) != Described(Symbol("b"), 1)
    assert Array(UInt, (1, 2)) != Array(Int32, (1, 2))
    assert Array(Char, ("a",), Symbol("x")) != Array(Char, ("a",))
