"""Durations on the command line."""

import re
from datetime import timedelta

from pairbus.errors import ConfigurationError

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", re.ASCII)


def parse_duration(option: str, text: str) -> timedelta:
    """Parse a duration such as 90s, 15m, 2h or 1h30m. A number without a unit is in seconds. Raises
    ConfigurationError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ConfigurationError(
            f"--{option} must be a duration such as 90s, 15m, 2h or 1d12h, not {text!r}"
        )
    days, hours, minutes, seconds = (float(group or 0) for group in match.groups())
    try:
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        raise ConfigurationError(f"--{option}: the duration {text!r} is too long") from None


def parse_optional_duration(option: str, text: str, unlimited: str) -> timedelta | None:
    """Parse a duration, or return None for the word `unlimited`. Raises ConfigurationError."""
    return None if text.strip().lower() == unlimited else parse_duration(option, text)
