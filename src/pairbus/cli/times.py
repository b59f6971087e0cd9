"""Times in options: a date and time, or an age."""

import re
from datetime import UTC, datetime

from pairbus.errors import ConfigurationError

_AGE = re.compile(r"(\d{1,9})\s*(s|m|min|h|d)", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def parse_time(option: str, text: str | None, now_ms: int) -> int | None:
    """Return a time as Unix time in milliseconds, or None if it is not given. A time without a zone
    is in UTC. Raises ConfigurationError."""
    if text is None:
        return None
    age = _AGE.fullmatch(text.strip())
    if age is not None:
        return now_ms - int(age[1]) * _SECONDS[age[2]] * 1000
    try:
        time = datetime.fromisoformat(text.strip())
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        return int(time.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ConfigurationError(
            f"{option}: {text!r} is not a time. Use a time such as 2026-11-17T09:30Z (UTC without "
            "a zone), or an age such as 90m, 12h or 3d."
        ) from None
