"""Time spans in the format of the administration API: ISO 8601, as .NET writes a TimeSpan.

The longest span, `P10675199DT2H48M5.4775807S`, means "never". It has a precision of 100 ns, which
`timedelta` does not have. It is represented by `MAX_TIME_SPAN`, the value to which the SDK rounds
it, and is written exactly. All other spans are exact to the microsecond.

The library isodate is not used: it accepts other forms (weeks, dates, commas), returns years and
months as another type, and rounds the longest span.
"""

import re
from datetime import timedelta
from functools import lru_cache
from typing import Final

from pairbus.errors import ConfigurationError

MAX_TIME_SPAN: Final = timedelta(days=10675199, hours=2, minutes=48, seconds=5, microseconds=477581)
MAX_TIME_SPAN_TEXT: Final = "P10675199DT2H48M5.4775807S"

_MAX_LENGTH = 64
_TIME_SPAN = re.compile(
    r"(?P<sign>-)?P(?=.)(?:(?P<years>\d+)Y)?(?:(?P<months>\d+)M)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+)(?:\.(?P<fraction>\d+))?S)?)?",
    re.ASCII,
)


def parse_time_span(text: str) -> timedelta:
    """Return the time span of a text such as `PT1M` or `P14DT0.5S`. A year has 365 days, and a
    month 30. Raises ConfigurationError for any other text, and for more than the longest span."""
    text = text.strip()
    match = _TIME_SPAN.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise ConfigurationError(
            f"{text[:_MAX_LENGTH]!r} is not an ISO 8601 duration such as PT30S, PT5M or P14D"
        )
    parts = {name: int(match[name] or 0) for name in ("hours", "minutes", "seconds")}
    days = 365 * int(match["years"] or 0) + 30 * int(match["months"] or 0) + int(match["days"] or 0)
    fraction = match["fraction"] or ""
    # More digits than microseconds are rounded half up.
    microseconds = int(f"{fraction:0<6}"[:6]) + (fraction[6:7] >= "5")
    try:
        span = timedelta(days=days, microseconds=microseconds, **parts)
    except OverflowError:
        span = timedelta.max
    if span > MAX_TIME_SPAN:
        raise ConfigurationError(
            f"{text} is longer than the longest time span, {MAX_TIME_SPAN_TEXT}"
        )
    return -span if match["sign"] else span


def format_time_span(span: timedelta) -> str:
    """Return a time span as .NET writes it: `PT1M`, `P1DT2H`, `PT0S`."""
    if span == MAX_TIME_SPAN:
        return MAX_TIME_SPAN_TEXT
    if span < timedelta(0):
        return f"-{format_time_span(-span)}"
    hours, seconds = divmod(span.seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    fraction = f".{span.microseconds:06}".rstrip("0") if span.microseconds else ""
    date = f"{span.days}D" if span.days else ""
    time = (
        (f"{hours}H" if hours else "")
        + (f"{minutes}M" if minutes else "")
        + (f"{seconds}{fraction}S" if seconds or fraction else "")
    )
    if not date and not time:
        return "PT0S"
    return f"P{date}T{time}" if time else f"P{date}"


@lru_cache  # Every message needs it, and there are few different spans.
def to_milliseconds(span: timedelta) -> int:
    """Return whole milliseconds, rounded down. The longest span has 15 digits, so it can be added
    to a time in milliseconds, where a datetime would overflow after the year 9999."""
    return span // timedelta(milliseconds=1)
