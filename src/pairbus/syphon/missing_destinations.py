"""Destinations that do not exist: how long their messages wait for them. No I/O.

A primary that is rebuilt starts without its entities, so the messages of a missing destination are
not dead-lettered at once. Times are in seconds since 1970.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

DAY_S = 24 * 3600.0


def expired_destinations(
    missing_since: Mapping[str, float], grace: timedelta | None, now: float
) -> frozenset[str] | None:
    """Return the missing destinations whose messages are dead-lettered now. None: all, also those
    that were not known to be missing."""
    if grace is None:
        return frozenset()
    grace_s = grace.total_seconds()
    if grace_s == 0:
        return None
    return frozenset(path for path, since in missing_since.items() if now - since >= grace_s)


def next_attempt(now: float, block_s: float, since: float, grace: timedelta | None) -> float:
    """Return when to try a missing destination again: after `block_s`, but not later than the time
    at which its messages are dead-lettered."""
    retry_at = now + block_s
    if grace is None:
        return retry_at
    deadline = since + grace.total_seconds()
    return min(retry_at, deadline) if deadline > now else retry_at


def describe_missing(since: float, grace: timedelta | None, now: float, *, running: bool) -> str:
    """Return what happens to the messages of a missing destination, to follow its path."""
    if not running:
        return "does not exist; its messages stay in the backlog until it is created"
    if grace is None:
        return "does not exist; its messages wait until it is created"
    deadline = since + grace.total_seconds()
    if deadline <= now:
        return "does not exist; its messages are dead-lettered"
    time_format = "%H:%M UTC" if deadline - now < DAY_S else "%Y-%m-%d %H:%M UTC"
    until = datetime.fromtimestamp(deadline, UTC).strftime(time_format)
    return f"does not exist; its messages wait until {until}, then they are dead-lettered"
