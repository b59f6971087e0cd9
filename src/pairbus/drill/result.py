"""What came of a drill."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pairbus.drill.costs import DrillCost
from pairbus.drill.reconciliation import MessageKey, Reconciliation

MOST = 20
"""Messages that are named at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillResult:
    reckoning: Reconciliation
    reasons: dict[MessageKey, str]
    """Why messages were dead-lettered."""
    through_backlog: int
    errors: int
    """Calls that failed, whose messages were sent again."""
    pings: int
    moments: dict[str, datetime]
    """When things happened: the outage began (`down`), every path was in failover (`failover`), the
    outage ended (`back`), a ping had got through for every path (`pinged`), the syphon ran
    (`drain`), all paths were healthy and the backlog empty (`drained`). What did not happen is not
    there."""
    cost: DrillCost
    problem: str | None
    """What kept the drill from its end."""

    @property
    def passed(self) -> bool:
        return self.reckoning.complete and self.problem is None

    def plain(self) -> dict[str, Any]:
        """For programs. Money is text: no digit is lost."""
        cost = self.cost
        return {
            "passed": self.passed,
            "problem": self.problem,
            **_plain(self.reckoning),
            "paths": {path: _plain(one) for path, one in self.reckoning.by_path.items()},
            "dead_letter_reasons": sorted(set(self.reasons.values())),
            "through_backlog": self.through_backlog,
            "errors": self.errors,
            "pings": self.pings,
            "moments": {name: when.isoformat() for name, when in self.moments.items()},
            "cost": {
                "parts": [
                    {
                        "part": part,
                        "forecast_operations": cost.forecast[part].operations,
                        "operations": cost.ledger[part].operations,
                        "unanswered": cost.unanswered[part].operations,
                        "charges": cost.ledger[part].units,
                        "bytes": cost.ledger[part].bytes,
                    }
                    for part in cost.ledger
                ],
                "money": str(cost.money),
                "forecast_money": str(cost.forecast_money),
                "currency": cost.prices.currency,
                "prices": cost.prices.as_of.isoformat(),
            },
        }


def _plain(one: Reconciliation) -> dict[str, Any]:
    return {
        "sent": one.sent,
        "delivered": one.delivered,
        "in_backlog": one.in_backlog,
        "dead_lettered": one.dead_lettered,
        "lost": len(one.lost),
        "duplicated": sum(one.duplicated.values()),
        "out_of_order": len(one.out_of_order),
        "not_acknowledged": len(one.not_acknowledged),
        "lost_ids": [key.id for key in one.lost[:MOST]],
    }
