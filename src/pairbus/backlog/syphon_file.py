"""The status file of a syphon, as `pairbus status` reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pairbus.errors import ConfigurationError

STALE_S: Final = 15.0
"""A syphon writes its status file about once a second. If the file is older than this, the syphon
was killed or hangs."""


_ENDS: Final = {
    "drained": "it has drained the backlog and ended",
    "stopped": "it was stopped",
    "stuck": "it ended without progress",
    "failed": "it failed",
}


@dataclass(frozen=True, slots=True)
class SyphonSummary:
    """The part of a status file that matters for the status of a pairing."""

    running: bool
    problem: str | None = None
    """The reason why the syphon is unhealthy or does not run."""
    moved: int = 0
    remaining: int | None = None
    rate: float = 0.0
    dead_letter_reasons: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The number of dead letters of this syphon, by destination and reason."""
    seconds_to_go: float | None = None
    """The time until the backlog is empty. None: it is unknown, or the syphon does not run."""
    paused: bool = False
    """An operator has paused it."""
    throttled_sends: int | None = None
    """Deliveries that the primary throttled. None: a syphon of an older version."""
    throttled_receives: int | None = None
    """Receives, polls and peeks that the secondary throttled."""

    @property
    def throttled(self) -> int | None:
        """Throttled operations, or None if they are not known."""
        if self.throttled_sends is None or self.throttled_receives is None:
            return None
        return self.throttled_sends + self.throttled_receives


def parse_syphon_status(values: Any, now: float) -> SyphonSummary:
    """Summarize the values of a status file; None stands for a file that does not exist. Raises
    ConfigurationError if it is not the status file of a syphon."""
    if values is None:
        return SyphonSummary(False, "the file does not exist, so the syphon has not started")
    match values:
        case {
            "running": bool(running),
            "healthy": bool(healthy),
            "problem": str() | None as problem,
            "moved": dict() as moved,
            "remaining": int() | None as remaining,
            "rate": int() | float() as rate,
            "time": int() | float() as time,
        }:
            pass
        case _:
            raise ConfigurationError("This is not the status file of a syphon.")
    total = sum(count for count in moved.values() if isinstance(count, int))
    age_s = now - time
    if not running:
        problem = problem or _ENDS.get(str(values.get("ended")), "it has stopped")
    elif age_s > STALE_S:
        problem = f"it has not reported for {age_s:,.0f} s, so it was killed or hangs"
    elif healthy:
        problem = None
    else:
        problem = problem or "it is unhealthy"
    running = running and age_s <= STALE_S
    seconds = values.get("seconds_to_go") if running else None
    return SyphonSummary(
        running,
        problem,
        total,
        remaining,
        float(rate) if running else 0.0,
        _dead_letter_reasons(values),
        float(seconds) if isinstance(seconds, int | float) else None,
        running and values.get("paused") is True,
        _count(values.get("throttled_sends")),
        _count(values.get("throttled_receives")),
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _dead_letter_reasons(values: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return the dead letters by destination and reason. A file of an older version has none."""
    reasons = values.get("dead_letter_reasons")
    return {
        path: {reason: count for reason, count in by_reason.items() if isinstance(count, int)}
        for path, by_reason in (reasons.items() if isinstance(reasons, dict) else ())
        if isinstance(by_reason, dict)
    }
