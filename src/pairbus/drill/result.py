"""The result of a drill."""

from dataclasses import dataclass
from typing import Any

from pairbus.drill.costs import DrillCost
from pairbus.drill.milestones import MilestoneTimes
from pairbus.drill.reconciliation import MessageKey, Reconciliation

MAX_LOST_IDS = 20
"""The maximum number of lost messages that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillResult:
    """The reconciliation, the times and the cost of a drill."""

    reconciliation: Reconciliation
    dead_letter_reasons: dict[MessageKey, str]
    through_backlog: int
    """The number of messages that were sent to the backlog."""
    errors: int
    """The number of calls that failed. Their messages were sent again."""
    pings: int
    times: MilestoneTimes
    cost: DrillCost
    problem: str | None
    """The reason why the drill was not completed."""

    @property
    def passed(self) -> bool:
        return self.reconciliation.complete and self.problem is None

    def to_json(self) -> dict[str, Any]:
        """Return everything for `json.dumps`. Amounts of money are strings, without rounding."""
        cost = self.cost
        paths = self.reconciliation.by_path
        return {
            "passed": self.passed,
            "problem": self.problem,
            **_counts(self.reconciliation),
            "paths": {path: _counts(reconciliation) for path, reconciliation in paths.items()},
            "dead_letter_reasons": sorted(set(self.dead_letter_reasons.values())),
            "through_backlog": self.through_backlog,
            "errors": self.errors,
            "pings": self.pings,
            "times": {milestone: time.isoformat() for milestone, time in self.times.items()},
            "cost": {
                "purposes": [
                    {
                        "purpose": purpose,
                        "forecast_operations": cost.forecast[purpose].operations,
                        "operations": cost.ledger[purpose].operations,
                        "unanswered": cost.unanswered[purpose].operations,
                        "units": cost.ledger[purpose].units,
                        "bytes": cost.ledger[purpose].bytes,
                    }
                    for purpose in cost.ledger
                ],
                "money": str(cost.money),
                "forecast_money": str(cost.forecast_money),
                "currency": cost.prices.currency,
                "prices": cost.prices.as_of.isoformat(),
            },
        }


def _counts(reconciliation: Reconciliation) -> dict[str, Any]:
    return {
        "sent": reconciliation.sent,
        "delivered": reconciliation.delivered,
        "in_backlog": reconciliation.in_backlog,
        "dead_lettered": reconciliation.dead_lettered,
        "lost": len(reconciliation.lost),
        "duplicated": sum(reconciliation.duplicated.values()),
        "out_of_order": len(reconciliation.out_of_order),
        "not_acknowledged": len(reconciliation.not_acknowledged),
        "lost_ids": [key.id for key in reconciliation.lost[:MAX_LOST_IDS]],
    }
