"""The cost of a drill: by its ledger, and by the forecast for such an outage."""

from dataclasses import dataclass
from datetime import timedelta
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
from pairbus.drill.milestones import Milestone, MilestoneTimes
from pairbus.drill.plan import DrillOptions
from pairbus.options import SendAvailabilityOptions
from pairbus.usage.operations import Amount, Part

OVERHEAD_BYTES = 200
"""The approximate size of a message without its body."""
PARTS = (Part.TRAFFIC, Part.PINGS, Part.BACKLOG, Part.DRAIN)
"""The parts that both a forecast and a ledger contain. The ledger has no receives from the primary,
which the application does, and idle polls depend on how long the syphon runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillCost:
    """The cost of a drill, by part."""

    forecast: dict[Part, Amount]
    ledger: dict[Part, Amount]
    """Operations that the namespaces answered."""
    unanswered: dict[Part, Amount]
    """Operations that the namespaces did not answer. They are not billed."""
    money: Decimal
    """The price of the ledger, at the rate after the monthly included operations."""
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
) -> Tally:
    """Forecast the operations of the drill from its options and times, not from its messages."""
    traffic = Traffic(rate=options.rate, size=options.size + OVERHEAD_BYTES, entities=entities)
    profile = PairingProfile(options=pairing, drain_rate=round(times.drain_rate, 3))
    length = timedelta(seconds=round(times.down_s, 3))
    course = course_of(profile, traffic, Outage(length=length))
    healthy = options.before + options.after + min(options.failover_interval, options.outage)
    direct = tally(direct_counts(traffic, ceil(options.rate * (healthy / timedelta(seconds=1)))))
    return Tally({**direct.slots, **tally(outage_counts(profile, traffic, course)).slots})


def drill_cost(forecast: Tally, ledger: Path, primary: str) -> DrillCost:
    """Compare a forecast with the ledger of a drill."""
    prices = read_prices()
    answered = sums(ledger, primary)
    unanswered = sums(ledger, primary, answered=False).by_part()
    included = prices.tiers[Tier.STANDARD].bands[0].up_to or 0

    def money(operations: Tally) -> Decimal:
        parts = bill(operations, prices, Tier.STANDARD, before=included).parts
        return sum((parts[part].money for part in PARTS if part in parts), Decimal(0))

    return DrillCost(
        forecast={part: forecast.by_part().get(part, Amount()) for part in PARTS},
        ledger={part: answered.by_part().get(part, Amount()) for part in PARTS},
        unanswered={part: unanswered.get(part, Amount()) for part in PARTS},
        money=money(answered),
        forecast_money=money(forecast),
        prices=prices,
    )
