"""What a drill cost, by its ledger, beside what the forecast says of such an outage."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from math import ceil
from pathlib import Path

from pairbus.cost.counts import Tally, tally
from pairbus.cost.forecast import bill
from pairbus.cost.plan import (
    Outage,
    PairingProfile,
    Traffic,
    course_of,
    direct_counts,
    outage_counts,
)
from pairbus.cost.prices import Prices, Tier, read_prices
from pairbus.cost.sums import sums
from pairbus.drill.plan import DrillOptions
from pairbus.options import SendAvailabilityOptions
from pairbus.usage.operations import Amount, Part

HEADERS = 200
"""Bytes of a message besides its body, about."""
PARTS = (Part.TRAFFIC, Part.PINGS, Part.BACKLOG, Part.DRAIN)
"""What a forecast and a ledger both have. Receiving from the primary is the application's own, and
idle polls depend on how long the syphon is let run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillCost:
    forecast: dict[Part, Amount]
    ledger: dict[Part, Amount]
    """What the namespaces answered."""
    unanswered: dict[Part, Amount]
    """What they did not: it is not billed."""
    money: Decimal
    """For what the ledger has, at the price beyond the operations that a month includes."""
    forecast_money: Decimal
    prices: Prices

    @property
    def total(self) -> Amount:
        return sum(self.ledger.values(), Amount())

    @property
    def forecast_total(self) -> Amount:
        return sum(self.forecast.values(), Amount())


@dataclass(frozen=True, slots=True)
class OutageTimes:
    """How long things lasted, which no forecast knows: how fast Spark starts and drains here."""

    down_s: float
    """From the outage to the start of the drain."""
    drain_rate: float
    """Messages a second."""

    @classmethod
    def of(cls, moments: dict[str, datetime], moved: int, options: DrillOptions) -> "OutageTimes":
        """What there is of the moments of a drill; where it did not get so far, its plan."""
        if "drained" not in moments:
            return cls(options.outage.total_seconds(), options.rate * 2)
        down, drain, drained = (moments[name] for name in ("down", "drain", "drained"))
        lasted = (drained - drain).total_seconds()
        # In a drain that ends, more goes out than comes in.
        rate = max(moved / lasted, options.rate * 1.01)
        return cls((drain - down).total_seconds(), rate)


def forecast_counts(
    options: DrillOptions, pairing: SendAvailabilityOptions, entities: int, times: OutageTimes
) -> Tally:
    """What the forecast says of such an outage: from options and times, not from what was sent."""
    traffic = Traffic(rate=options.rate, size=options.size + HEADERS, entities=entities)
    plan = PairingProfile(options=pairing, drain_rate=round(times.drain_rate, 3))
    length = timedelta(seconds=round(times.down_s, 3))
    course = course_of(plan, traffic, Outage(length=length))
    healthy = options.before + options.after + min(options.failover_interval, options.outage)
    direct = tally(direct_counts(traffic, ceil(options.rate * (healthy / timedelta(seconds=1)))))
    return Tally({**direct.slots, **tally(outage_counts(plan, traffic, course)).slots})


def drill_cost(foretold: Tally, ledger: Path, primary: str) -> DrillCost:
    prices = read_prices()
    done = sums(ledger, primary)
    vain = sums(ledger, primary, answered=False).by_part()
    included = prices.tiers[Tier.STANDARD].bands[0].up_to or 0

    def money(of: Tally) -> Decimal:
        found = bill(of, prices, Tier.STANDARD, before=included).parts
        return sum((found[part].money for part in PARTS if part in found), Decimal(0))

    return DrillCost(
        forecast={part: foretold.by_part().get(part, Amount()) for part in PARTS},
        ledger={part: done.by_part().get(part, Amount()) for part in PARTS},
        unanswered={part: vain.get(part, Amount()) for part in PARTS},
        money=money(done),
        forecast_money=money(foretold),
        prices=prices,
    )
