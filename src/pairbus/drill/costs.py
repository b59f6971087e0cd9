"""What a drill cost, by its ledger, beside what the forecast says of such an outage."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from math import ceil
from pathlib import Path

from pairbus.cost.counts import UsageBreakdown, calculate_usage
from pairbus.cost.forecast import make_bill
from pairbus.cost.inputs import Outage, PairingProfile, Traffic
from pairbus.cost.ledger_usage import read_ledger_usage
from pairbus.cost.prices import Prices, Tier, read_prices
from pairbus.cost.timeline import direct_counts, outage_counts, outage_timeline
from pairbus.drill.plan import DrillOptions
from pairbus.options import SendAvailabilityOptions
from pairbus.usage.operations import Purpose, Usage

HEADERS = 200
"""Bytes of a message besides its body, about."""
PARTS = (Purpose.TRAFFIC, Purpose.PINGS, Purpose.BACKLOG, Purpose.DRAIN)
"""What a forecast and a ledger both have. Receiving from the primary is the application's own, and
idle polls depend on how long the syphon is let run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillCost:
    forecast: dict[Purpose, Usage]
    ledger: dict[Purpose, Usage]
    """What the namespaces answered."""
    unanswered: dict[Purpose, Usage]
    """What they did not: it is not billed."""
    money: Decimal
    """For what the ledger has, at the price beyond the operations that a month includes."""
    forecast_money: Decimal
    prices: Prices

    @property
    def total(self) -> Usage:
        return sum(self.ledger.values(), Usage())

    @property
    def forecast_total(self) -> Usage:
        return sum(self.forecast.values(), Usage())


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
) -> UsageBreakdown:
    """What the forecast says of such an outage: from options and times, not from what was sent."""
    traffic = Traffic(rate=options.rate, size=options.size + HEADERS, entities=entities)
    plan = PairingProfile(options=pairing, drain_rate=round(times.drain_rate, 3))
    length = timedelta(seconds=round(times.down_s, 3))
    course = outage_timeline(plan, traffic, Outage(length=length))
    healthy = options.before + options.after + min(options.failover_interval, options.outage)
    direct = calculate_usage(
        direct_counts(traffic, ceil(options.rate * (healthy / timedelta(seconds=1))))
    )
    outage = calculate_usage(outage_counts(plan, traffic, course))
    return UsageBreakdown({**direct.by_key, **outage.by_key})


def drill_cost(foretold: UsageBreakdown, ledger: Path, primary: str) -> DrillCost:
    prices = read_prices()
    done = read_ledger_usage(ledger, primary)
    vain = read_ledger_usage(ledger, primary, answered=False).by_purpose()
    included = prices.tiers[Tier.STANDARD].bands[0].up_to or 0

    def money(of: UsageBreakdown) -> Decimal:
        found = make_bill(of, prices, Tier.STANDARD, before=included).by_purpose
        return sum((found[part].cost for part in PARTS if part in found), Decimal(0))

    return DrillCost(
        forecast={part: foretold.by_purpose().get(part, Usage()) for part in PARTS},
        ledger={part: done.by_purpose().get(part, Usage()) for part in PARTS},
        unanswered={part: vain.get(part, Usage()) for part in PARTS},
        money=money(done),
        forecast_money=money(foretold),
        prices=prices,
    )
