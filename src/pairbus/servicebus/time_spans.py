"""Time spans as the management API writes them: ISO 8601, as .NET reads and prints a TimeSpan.

The longest span, `P10675199DT2H48M5.4775807S`, is the service's word for "never". It counts in
tenths of a microsecond, which `timedelta` cannot: it is kept as `MAX_TIME_SPAN`, the value to which
the SDK rounds it, and printed in full again. Every other span is exact to the microsecond.
"""

import re
from datetime import timedelta

from pairbus.errors import ConfigurationError

MAX_TIME_SPAN = timedelta(days=10675199, hours=2, minutes=48, seconds=5, microseconds=477581)
MAX_TIME_SPAN_TEXT = "P10675199DT2H48M5.4775807S"

_MAX_TEXT = 64
_FORM = re.compile(
    r"(?P<minus>-)?P(?=.)(?:(?P<years>\d+)Y)?(?:(?P<months>\d+)M)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<part>\d+))?S)?)?",
    re.ASCII,
)


def parse_time_span(text: str) -> timedelta:
    """The span that a text such as `PT1M` or `P14DT0.5S` means; a year is 365 days, a month 30.

    Raises ConfigurationError for another form, and for more than the longest span.
    """
    text = text.strip()
    found = _FORM.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if found is None:
        raise ConfigurationError(
            f"{text[:_MAX_TEXT]!r} is not an ISO 8601 duration such as PT30S, PT5M or P14D"
        )
    part = found["part"] or ""
    # Rounded where it has more digits than microseconds, as the SDK does.
    microseconds = int((part + "000000")[:6]) + (part[6:7] >= "5")
    days = 365 * int(found["years"] or 0) + 30 * int(found["months"] or 0) + int(found["days"] or 0)
    try:
        span = timedelta(
            days=days,
            hours=int(found["hours"] or 0),
            minutes=int(found["minutes"] or 0),
            seconds=int(found["seconds"] or 0),
            microseconds=microseconds,
        )
    except OverflowError:
        span = timedelta.max
    if span > MAX_TIME_SPAN:
        raise ConfigurationError(
            f"{text} is longer than the longest time span, {MAX_TIME_SPAN_TEXT}"
        )
    return -span if found["minus"] else span


def format_time_span(span: timedelta) -> str:
    """The span as .NET prints it: `PT1M`, `P1DT2H`, `PT0S`."""
    if span == MAX_TIME_SPAN:
        return MAX_TIME_SPAN_TEXT
    if span < timedelta(0):
        return "-" + format_time_span(-span)
    hours, rest = divmod(span.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    part = f".{span.microseconds:06}".rstrip("0") if span.microseconds else ""
    day = f"{span.days}D" if span.days else ""
    time = "".join(
        [
            f"{hours}H" if hours else "",
            f"{minutes}M" if minutes else "",
            f"{seconds}{part}S" if seconds or part else "",
        ]
    )
    if not day and not time:
        return "PT0S"
    return f"P{day}T{time}" if time else f"P{day}"


def to_milliseconds(span: timedelta) -> int:
    """Whole milliseconds, rounded down. The longest span has 15 digits: added to a time in
    milliseconds it overflows nothing, where a datetime would end with the year 9999."""
    return span // timedelta(milliseconds=1)
