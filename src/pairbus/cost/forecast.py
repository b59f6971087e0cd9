"""What a pairing will cost: idle, in an outage, by part.

Money is what something *adds* to the bill of 30 days with the given traffic: with banded prices the
same operation costs more or less, by what was done before it. Parts are put on top of each other in
the order of `Part`, so that their sum is the whole. All of it is exact: integers and decimals.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

from pairbus.cost.counts import MessageGroup, Tally, TrafficCounts, tally
from pairbus.cost.plan import (
    Outage,
    OutageTimeline,
    PairingProfile,
    Traffic,
    course_of,
    direct_counts,
    idle_counts,
    normal_counts,
    outage_counts,
)
from pairbus.cost.prices import Prices, Tier, read_prices
from pairbus.errors import ConfigurationError
from pairbus.usage.operations import Amount, Part

HOUR, DAY, MONTH = timedelta(hours=1), timedelta(days=1), timedelta(days=30)
MONTH_HOURS = 720


@dataclass(frozen=True, slots=True, kw_only=True)
class CostItem:
    """What one part costs."""

    amount: Amount = field(default_factory=Amount)
    for_operations: Decimal = Decimal(0)
    for_bandwidth: Decimal = Decimal(0)
    """Each byte is charged at each stage, in and out. An upper bound: what stays within a region
    is free."""

    @property
    def money(self) -> Decimal:
        return self.for_operations + self.for_bandwidth

    def __add__(self, other: "CostItem") -> "CostItem":
        return CostItem(
            amount=self.amount + other.amount,
            for_operations=self.for_operations + other.for_operations,
            for_bandwidth=self.for_bandwidth + other.for_bandwidth,
        )


@dataclass(frozen=True, slots=True)
class Bill:
    """Charges by part."""

    parts: Mapping[Part, CostItem]

    @property
    def total(self) -> CostItem:
        return sum(self.parts.values(), CostItem())


@dataclass(frozen=True, slots=True, kw_only=True)
class PerMessage:
    """What one message through the backlog is billed, in units of 64 KB."""

    units: int
    """Send to backlog, receive from it, send to primary, receive from primary: 4 up to 64 KB."""
    units_with_completes: int
    """With the two completes of peek-lock: 6."""
    bytes: int
    """Moved in these four stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What `forecast` found."""

    pairing: PairingProfile
    traffic: Traffic
    outage: Outage
    prices: Prices
    tier: Tier
    messaging_units: int
    month: Bill
    """The traffic of 30 days without pairing and without an outage, from the first operation."""
    idle: Mapping[timedelta, Bill]
    """What the syphons add in an hour, a day and 30 days."""
    second_namespace: Decimal
    """What the secondary costs in 30 days, done anything or not."""
    per_message: PerMessage
    course: OutageTimeline
    outage_bill: Bill
    """All that is done for messages in failover, their delivery with it."""
    instead: CostItem
    """What the same messages would have cost without an outage."""
    operations: Tally
    """The operations of the outage by namespace and kind."""

    @property
    def outage_adds(self) -> Decimal:
        """What the outage adds to the bill."""
        return self.outage_bill.total.money - self.instead.money


def forecast(
    *,
    pairing: PairingProfile | None = None,
    traffic: Traffic | None = None,
    outage: Outage | None = None,
    prices: Prices | None = None,
    tier: Tier | str = Tier.STANDARD,
    messaging_units: int = 1,
) -> Forecast:
    """What a pairing will cost; where something is not given, its defaults are taken.

    Both namespaces are of one tier and in one subscription. `messaging_units`, of each namespace,
    matter with Premium only. Raises ConfigurationError.
    """
    pairing = PairingProfile() if pairing is None else pairing
    traffic = Traffic() if traffic is None else traffic
    outage = Outage() if outage is None else outage
    prices = read_prices() if prices is None else prices
    tier = Tier.named(tier)
    if isinstance(messaging_units, bool) or messaging_units < 1:
        raise ConfigurationError(f"messaging_units is at least 1, not {messaging_units!r}")

    normal = tally(normal_counts(traffic, MONTH))
    idle = {span: tally(idle_counts(pairing, span)) for span in (HOUR, DAY, MONTH)}
    course = course_of(pairing, traffic, outage)
    lost = tally(outage_counts(pairing, traffic, course))
    instead = tally(direct_counts(traffic, course.through_backlog))
    # What goes through the backlog does not go straight to the primary.
    before = normal.total.units + idle[MONTH].total.units
    rest = max(0, before - instead.total.units)
    fixed = [
        prices.fixed(tier, MONTH_HOURS, namespaces=count, messaging_units=messaging_units)
        for count in (1, 2)
    ]
    return Forecast(
        pairing=pairing,
        traffic=traffic,
        outage=outage,
        prices=prices,
        tier=tier,
        messaging_units=messaging_units,
        month=bill(normal, prices, tier),
        idle={
            span: bill(done, prices, tier, before=normal.total.units) for span, done in idle.items()
        },
        second_namespace=fixed[1] - fixed[0],
        per_message=_per_message(traffic),
        course=course,
        outage_bill=bill(lost, prices, tier, before=rest),
        instead=bill(instead, prices, tier, before=rest).total,
        operations=lost,
    )


def bill(done: Tally, prices: Prices, tier: Tier, *, before: int = 0) -> Bill:
    """What operations cost in a month that had some units before. Raises nothing."""

    def charges() -> Iterator[tuple[Part, CostItem]]:
        reached = before
        for part, amount in done.by_part().items():
            yield (
                part,
                CostItem(
                    amount=amount,
                    for_operations=prices.operations(tier, amount.units, before=reached),
                    for_bandwidth=prices.bandwidth(amount.bytes),
                ),
            )
            reached += amount.units

    return Bill(dict(charges()))


def _per_message(traffic: Traffic) -> PerMessage:
    one = tally(
        TrafficCounts.through_backlog(
            (MessageGroup(1, traffic.size),), alias_bytes=traffic.alias_bytes
        )
    )
    return PerMessage(
        units=one.without_completes.units,
        units_with_completes=one.total.units,
        bytes=one.total.bytes,
    )
