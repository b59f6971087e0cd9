"""Text for times, sizes, counts, and values that come from other systems."""

from datetime import UTC, datetime

from pairbus.backlog.contents import BacklogContents

_UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"))
_SIZES = ("kB", "MB", "GB", "TB")


def age(milliseconds: int | None, now_ms: int) -> str:
    """Return the time since a Unix time, in at most two units. Empty if it is unknown."""
    if milliseconds is None:
        return ""
    seconds = max(now_ms - milliseconds, 0) // 1000
    for large, name, small, smaller in _UNITS:
        if seconds >= large:
            rest = seconds % large // small
            return f"{seconds // large:,} {name} {rest} {smaller}"
    return f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"


def duration(seconds: float) -> str:
    """Return a time as hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def size(count: int | None) -> str:
    """Return a number of bytes in decimal units. Empty if it is unknown."""
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
    """Return a Unix time as date and time in UTC. Empty if it is unknown or out of range."""
    if milliseconds is None:
        return ""
    try:
        return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return ""


def count(number: int | None, *, more: bool = False) -> str:
    """Return a number, with a plus sign if there may be more. A question mark if it is unknown."""
    if number is None:
        return "?"
    return f"{number:,}+" if more and number else f"{number:,}"


def messages(number: str) -> str:
    """Return a formatted number with the word "message" or "messages"."""
    return f"{number} message" if number == "1" else f"{number} messages"


def queues_found(backlog: BacklogContents) -> str:
    """Return the number of backlog queues that exist, as far as they were searched."""
    found = len(backlog.found)
    queues = "1 backlog queue" if found == 1 else f"{found} backlog queues"
    if backlog.searched_to is None:
        return queues
    return f"{queues} found up to index {backlog.searched_to}"


def printable(value: object) -> str:
    """Return text from another system without characters that control a terminal."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
