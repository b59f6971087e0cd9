"""The cost of a drill: by its ledger, and by the forecast for such an outage."""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from math import ceil
from pathlib import Path

from pairbus.cost.counts import UsageBreakdown, calculate_usage
from pairbus.cost.forecast import make_bill
from pairbus.cost.inputs import Outage, PairingProfile, Traffic
from pairbus.cost.ledger_usage import read_ledger_usage
from pairbus.cost.prices import Prices, Tier, read_prices
from pairbus.cost.timeline import direct_counts, outage_counts, outage_timeline
from pairbus.drill.milestones import Milestone, MilestoneTimes
from pairbus.drill.plan import DrillOptions
from pairbus.options import SendAvailabilityOptions
from pairbus.usage.operations import Purpose, Usage

OVERHEAD_BYTES = 200
"""The approximate size of a message without its body."""
PURPOSES = (Purpose.TRAFFIC, Purpose.PINGS, Purpose.BACKLOG, Purpose.DRAIN)
"""The purposes that both a forecast and a ledger contain. The ledger has no receives from the
primary, which the application does, and idle polls depend on how long the syphon runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillCost:
    """The usage and the cost of a drill, by purpose."""

    forecast: dict[Purpose, Usage]
    ledger: dict[Purpose, Usage]
    """Operations that the namespaces answered."""
    unanswered: dict[Purpose, Usage]
    """Operations that the namespaces did not answer. They are not billed."""
    money: Decimal
    """The price of the ledger, at the rate after the monthly included operations."""
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
    """Measured times that a forecast cannot know, because they depend on this machine."""

    down_s: float
    """The time from the start of the outage to the start of the drain."""
    drain_rate: float
    """Messages a second."""

    @classmethod
    def measure(cls, times: MilestoneTimes, moved: int, options: DrillOptions) -> "OutageTimes":
        """Compute the times from the milestones. If the drill was not completed, estimate them from
        its options."""
        if Milestone.DRAINED not in times:
            return cls(options.outage.total_seconds(), options.rate * 2)
        down_s = (times[Milestone.DRAIN_STARTED] - times[Milestone.OUTAGE_STARTED]).total_seconds()
        drain_s = (times[Milestone.DRAINED] - times[Milestone.DRAIN_STARTED]).total_seconds()
        # The drain has ended, so its rate was higher than that of the senders.
        return cls(down_s, max(moved / drain_s, options.rate * 1.01))


def forecast_counts(
    options: DrillOptions, pairing: SendAvailabilityOptions, entities: int, times: OutageTimes
) -> UsageBreakdown:
    """Forecast the operations of the drill from its options and times, not from its messages."""
    traffic = Traffic(rate=options.rate, size=options.size + OVERHEAD_BYTES, entities=entities)
    profile = PairingProfile(options=pairing, drain_rate=round(times.drain_rate, 3))
    length = timedelta(seconds=round(times.down_s, 3))
    timeline = outage_timeline(profile, traffic, Outage(length=length))
    healthy = options.before + options.after + min(options.failover_interval, options.outage)
    direct = calculate_usage(
        direct_counts(traffic, ceil(options.rate * (healthy / timedelta(seconds=1))))
    )
    outage = calculate_usage(outage_counts(profile, traffic, timeline))
    return UsageBreakdown({**direct.by_key, **outage.by_key})


def drill_cost(forecast: UsageBreakdown, ledger: Path, primary: str) -> DrillCost:
    """Compare a forecast with the ledger of a drill."""
    prices = read_prices()
    answered = read_ledger_usage(ledger, primary)
    unanswered = read_ledger_usage(ledger, primary, answered=False).by_purpose()
    included = prices.tiers[Tier.STANDARD].bands[0].up_to or 0

    def money(usage: UsageBreakdown) -> Decimal:
        costs = make_bill(usage, prices, Tier.STANDARD, before=included).by_purpose
        return sum((costs[purpose].cost for purpose in PURPOSES if purpose in costs), Decimal(0))

    return DrillCost(
        forecast={purpose: forecast.by_purpose().get(purpose, Usage()) for purpose in PURPOSES},
        ledger={purpose: answered.by_purpose().get(purpose, Usage()) for purpose in PURPOSES},
        unanswered={purpose: unanswered.get(purpose, Usage()) for purpose in PURPOSES},
        money=money(answered),
        forecast_money=money(forecast),
        prices=prices,
    )
