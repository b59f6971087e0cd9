"""The outcome of a redrive or purge, as data. No I/O."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class RedriveOutcome:
    """Numbers of dead letters, by destination. A purge has no destinations: it counts by the
    empty string."""

    moved: Counter[str] = field(default_factory=Counter)
    """Messages that their destination accepted, or that a purge deleted."""
    bytes: int = 0
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Messages that their destination refused and that stay dead letters, by destination and
    reason."""
    left: Counter[str] = field(default_factory=Counter)
    """Messages that stay dead letters because their destination did not accept any message, or
    because another receiver has locked them."""
    errors: dict[str, str] = field(default_factory=dict)
    """The last error of each destination that has messages in `left`."""
    gone: int = 0
    """Messages that another receiver has taken in the meantime."""
    unsettled: int = 0
    """Messages that were moved and could not be completed, so that they are still dead letters."""
    cancelled: bool = False

    @property
    def handled(self) -> int:
        """The number of messages that need no further attempt."""
        return self.moved.total() + self.refused.total() + self.gone

    @property
    def finished(self) -> bool:
        """True if no message of the plan is left to be tried."""
        return not self.cancelled and not self.left

    def add(self, other: "RedriveOutcome") -> None:
        """Add the outcome of another queue or round."""
        self.moved += other.moved
        self.bytes += other.bytes
        self.refused += other.refused
        self.left += other.left
        self.errors |= other.errors
        self.gone += other.gone
        self.unsettled += other.unsettled
        self.cancelled = self.cancelled or other.cancelled

    def add_end(self, other: "RedriveOutcome", *, not_started: int = 0) -> None:
        """Add what is known at the end of a round only: the rest is reported as it happens.
        `not_started` messages of the same queue are not tried."""
        self.left += other.left
        self.errors |= other.errors
        self.unsettled += other.unsettled
        self.cancelled = self.cancelled or other.cancelled
        if not_started:
            self.left[""] += not_started

    def to_json(self) -> dict[str, object]:
        """Return the outcome for `json.dumps`."""
        return {
            "moved": dict(self.moved),
            "bytes": self.bytes,
            "refused": [
                {"destination": destination, "reason": reason, "messages": count}
                for (destination, reason), count in sorted(self.refused.items())
            ],
            "left": dict(self.left),
            "errors": self.errors,
            "gone": self.gone,
            "unsettled": self.unsettled,
            "cancelled": self.cancelled,
        }


def outcome_from_json(values: Any) -> RedriveOutcome:
    """Return the outcome that `RedriveOutcome.to_json` returned."""
    return RedriveOutcome(
        moved=Counter(values["moved"]),
        bytes=values["bytes"],
        refused=Counter(
            {(item["destination"], item["reason"]): item["messages"] for item in values["refused"]}
        ),
        left=Counter(values["left"]),
        errors=dict(values["errors"]),
        gone=values["gone"],
        unsettled=values["unsettled"],
        cancelled=values["cancelled"],
    )
