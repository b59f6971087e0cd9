"""Time spans: compatible with those of the SDK, and exact for the longest span."""

from datetime import timedelta

import isodate
import pytest
from azure.servicebus.management._model_workaround import avoid_timedelta_overflow
from hypothesis import given
from hypothesis import strategies as st

from pairbus.errors import ConfigurationError
from pairbus.servicebus.time_spans import (
    MAX_TIME_SPAN,
    MAX_TIME_SPAN_TEXT,
    format_time_span,
    parse_time_span,
    to_milliseconds,
)

SPANS = st.timedeltas(timedelta(0), MAX_TIME_SPAN)


@given(SPANS)
def test_span_that_is_formatted_and_parsed_is_unchanged(span: timedelta):
    assert parse_time_span(format_time_span(span)) == span


@given(SPANS)
def test_text_of_the_sdk_is_parsed_to_the_same_span(span: timedelta):
    assert parse_time_span(isodate.duration_isoformat(span)) == span


@given(SPANS)
def test_sdk_parses_the_text_to_the_same_span(span: timedelta):
    assert isodate.parse_duration(format_time_span(span)) == span


def test_longest_span_is_formatted_exactly():
    assert (
        format_time_span(parse_time_span(MAX_TIME_SPAN_TEXT))
        == MAX_TIME_SPAN_TEXT
        == ("P10675199DT2H48M5.4775807S")
    )


def test_longest_span_is_the_value_that_the_sdk_parses():
    assert isodate.parse_duration(MAX_TIME_SPAN_TEXT) == MAX_TIME_SPAN


def test_longest_span_that_the_sdk_rounded_up_is_the_longest_span():
    rounded = isodate.duration_isoformat(isodate.parse_duration(MAX_TIME_SPAN_TEXT))

    assert rounded == "P10675199DT2H48M5.477581S"
    assert parse_time_span(rounded) == MAX_TIME_SPAN


def test_longest_span_that_the_sdk_reduced_in_an_update_is_kept_as_it_is():
    reduced = isodate.duration_isoformat(avoid_timedelta_overflow(MAX_TIME_SPAN))

    assert format_time_span(parse_time_span(reduced)) == reduced != MAX_TIME_SPAN_TEXT


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("PT0S", timedelta(0)),
        ("P0D", timedelta(0)),
        ("PT1M", timedelta(minutes=1)),
        ("PT90M", timedelta(minutes=90)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("P1Y2M3D", timedelta(days=365 + 60 + 3)),
        ("PT0.0000005S", timedelta(microseconds=1)),
        ("PT0.00000049S", timedelta(0)),
        ("-PT5S", timedelta(seconds=-5)),
        ("  PT1S ", timedelta(seconds=1)),
    ],
)
def test_text_is_parsed(text: str, span: timedelta):
    assert parse_time_span(text) == span


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "P",
            "PT",
            "P1DT",
            "1M",
            "PT1",
            "PT1.S",
            "PT.5S",
            "pt1m",
            "P1W",
            "00:01:00",
            "PT1M1H",
        ),
        *("PT\u0661S", "P1D\nPT1S", "PT" + "1" * 70 + "S"),
    ],
)
def test_text_of_another_form_is_refused(text: str):
    with pytest.raises(ConfigurationError, match="not an ISO 8601 duration"):
        parse_time_span(text)


@pytest.mark.parametrize(
    "text", ["P10675199DT2H48M5.477582S", "P10675200D", "P999999999D", "P" + "9" * 60 + "D"]
)
def test_span_longer_than_the_longest_is_refused(text: str):
    with pytest.raises(ConfigurationError, match="longer than the longest time span"):
        parse_time_span(text)


def test_negative_span_is_formatted_with_a_minus_sign():
    assert format_time_span(timedelta(seconds=-90)) == "-PT1M30S"


def test_milliseconds_are_rounded_down_and_do_not_overflow():
    assert to_milliseconds(timedelta(microseconds=1999)) == 1
    assert to_milliseconds(MAX_TIME_SPAN) == 922337203685477
