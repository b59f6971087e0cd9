"""The milestones of a drill."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum


class Milestone(StrEnum):
    """An event whose time a drill records. The names appear in the JSON output."""

    OUTAGE_STARTED = "outage_started"
    FAILED_OVER = "failed_over"
    """Every path is in failover."""
    OUTAGE_ENDED = "outage_ended"
    PING_SUCCEEDED = "ping_succeeded"
    """A ping of every path has succeeded."""
    DRAIN_STARTED = "drain_started"
    """The syphon is running."""
    DRAINED = "drained"
    """The backlog is empty, and every path is healthy."""


MilestoneTimes = Mapping[Milestone, datetime]
"""The times of the milestones that a drill has reached."""
