"""How commands write times, sizes, counts, and text that came from elsewhere."""

from datetime import UTC, datetime

_STEPS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"))
_SIZES = ("kB", "MB", "GB", "TB")


def age(milliseconds: int | None, now_ms: int) -> str:
    """How long ago something was, in at most two units; empty where it is not known."""
    if milliseconds is None:
        return ""
    seconds = max(now_ms - milliseconds, 0) // 1000
    for large, name, small, smaller in _STEPS:
        if seconds >= large:
            rest = seconds % large // small
            return f"{seconds // large:,} {name} {rest} {smaller}"
    return f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"


def size(count: int | None) -> str:
    """Bytes, in thousands; empty where they are not known."""
    if count is None:
        return ""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for name in _SIZES:
        value /= 1000
        if value < 999.95 or name == _SIZES[-1]:
            break
    return f"{value:,.1f} {name}"


def utc_time(milliseconds: int | None) -> str:
    """A time in UTC; empty where it is not known, or in no calendar."""
    if milliseconds is None:
        return ""
    try:
        return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return ""


def count(number: int | None, *, more: bool = False) -> str:
    """A number, with a plus where there may be more; a question mark where it is not known."""
    if number is None:
        return "?"
    return f"{number:,}+" if more and number else f"{number:,}"


def messages(shown: str) -> str:
    """So many messages, `shown` being their count as text."""
    return f"{shown} message" if shown == "1" else f"{shown} messages"


def printable(text: object) -> str:
    """Text that came from elsewhere, so that it can do nothing to a terminal."""
    found = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in found)
