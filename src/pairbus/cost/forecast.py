"""The forecast: the cost of a pairing when idle and in an outage.

A cost is the amount that something *adds* to the bill of 30 days with the given traffic. Prices
have bands, so the cost of an operation depends on the number of operations before it. The purposes
are billed one after the other, in the order of `Purpose`, so that their sum is the total. All
arithmetic is exact: integers and decimals.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

from pairbus.cost.counts import MessageGroup, TrafficCounts, UsageBreakdown, calculate_usage
from pairbus.cost.inputs import Outage, PairingProfile, Traffic
from pairbus.cost.prices import Prices, Tier, read_prices
from pairbus.cost.timeline import (
    OutageTimeline,
    direct_counts,
    idle_counts,
    normal_counts,
    outage_counts,
    outage_timeline,
)
from pairbus.errors import ConfigurationError
from pairbus.usage.operations import Purpose, Usage

HOUR, DAY, MONTH = timedelta(hours=1), timedelta(days=1), timedelta(days=30)
MONTH_HOURS = 720


@dataclass(frozen=True, slots=True, kw_only=True)
class CostItem:
    """An item of a bill: usage and its cost."""

    usage: Usage = field(default_factory=Usage)
    operations_cost: Decimal = Decimal(0)
    bandwidth_cost: Decimal = Decimal(0)
    """The cost of all bytes, each time that they enter or leave a namespace. This is an upper
    bound: transfers within a region are free."""

    @property
    def cost(self) -> Decimal:
        return self.operations_cost + self.bandwidth_cost

    def __add__(self, other: "CostItem") -> "CostItem":
        return CostItem(
            usage=self.usage + other.usage,
            operations_cost=self.operations_cost + other.operations_cost,
            bandwidth_cost=self.bandwidth_cost + other.bandwidth_cost,
        )


@dataclass(frozen=True, slots=True)
class Bill:
    """Cost items by purpose."""

    by_purpose: Mapping[Purpose, CostItem]

    @property
    def total(self) -> CostItem:
        return sum(self.by_purpose.values(), CostItem())


@dataclass(frozen=True, slots=True, kw_only=True)
class UsagePerMessage:
    """The usage of one message that goes through the backlog."""

    units: int
    """The billable units to send it to the backlog, receive it there, send it to the primary and
    receive it there: 4 up to 64 KB."""
    units_with_completes: int
    """The billable units with the two completes of peek-lock: 6 up to 64 KB."""
    bytes: int
    """The bytes that these operations transfer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The result of `forecast`, with its inputs."""

    pairing: PairingProfile
    traffic: Traffic
    outage: Outage
    prices: Prices
    tier: Tier
    messaging_units: int
    normal_traffic: Bill
    """The traffic of 30 days without pairing and without an outage."""
    idle: Mapping[timedelta, Bill]
    """The polls of the syphons in an hour, a day and 30 days."""
    secondary_base_cost: Decimal
    """The cost of the secondary namespace for 30 days, without any operation."""
    per_message: UsagePerMessage
    timeline: OutageTimeline
    outage_bill: Bill
    """All operations during the outage and the drain, with the delivery of the messages."""
    without_outage: CostItem
    """The cost of the same messages without an outage."""
    outage_usage: UsageBreakdown
    """The usage in `outage_bill`, by namespace and kind."""

    @property
    def outage_extra_cost(self) -> Decimal:
        """The amount that the outage adds to the bill."""
        return self.outage_bill.total.cost - self.without_outage.cost


def forecast(
    *,
    pairing: PairingProfile | None = None,
    traffic: Traffic | None = None,
    outage: Outage | None = None,
    prices: Prices | None = None,
    tier: Tier | str = Tier.STANDARD,
    messaging_units: int = 1,
) -> Forecast:
    """Forecast the cost of a pairing.

    Both namespaces have the same tier and belong to one subscription. `messaging_units` is the
    number for each namespace, and matters for Premium only. Raises ConfigurationError.
    """
    pairing = PairingProfile() if pairing is None else pairing
    traffic = Traffic() if traffic is None else traffic
    outage = Outage() if outage is None else outage
    prices = read_prices() if prices is None else prices
    tier = Tier.named(tier)
    if isinstance(messaging_units, bool) or messaging_units < 1:
        raise ConfigurationError(f"messaging_units must be at least 1, not {messaging_units!r}")

    normal = calculate_usage(normal_counts(traffic, MONTH))
    idle = {period: calculate_usage(idle_counts(pairing, period)) for period in (HOUR, DAY, MONTH)}
    timeline = outage_timeline(pairing, traffic, outage)
    during_outage = calculate_usage(outage_counts(pairing, traffic, timeline))
    without_outage = calculate_usage(direct_counts(traffic, timeline.through_backlog))
    # Messages that go through the backlog are part of the normal traffic of the month: their direct
    # sends are taken out before the operations of the outage are added.
    month_units = normal.total.units + idle[MONTH].total.units
    units_before = max(0, month_units - without_outage.total.units)
    one_namespace, two_namespaces = (
        prices.base_cost(tier, MONTH_HOURS, namespaces=count, messaging_units=messaging_units)
        for count in (1, 2)
    )
    return Forecast(
        pairing=pairing,
        traffic=traffic,
        outage=outage,
        prices=prices,
        tier=tier,
        messaging_units=messaging_units,
        normal_traffic=make_bill(normal, prices, tier),
        idle={
            period: make_bill(usage, prices, tier, before=normal.total.units)
            for period, usage in idle.items()
        },
        secondary_base_cost=two_namespaces - one_namespace,
        per_message=_usage_per_message(traffic),
        timeline=timeline,
        outage_bill=make_bill(during_outage, prices, tier, before=units_before),
        without_outage=make_bill(without_outage, prices, tier, before=units_before).total,
        outage_usage=during_outage,
    )


def make_bill(usage: UsageBreakdown, prices: Prices, tier: Tier, *, before: int = 0) -> Bill:
    """Return the bill for some usage, after `before` units in the same month."""
    items = {}
    for purpose, amount in usage.by_purpose().items():
        items[purpose] = CostItem(
            usage=amount,
            operations_cost=prices.operations_cost(tier, amount.units, before=before),
            bandwidth_cost=prices.bandwidth_cost(amount.bytes),
        )
        before += amount.units
    return Bill(items)


def _usage_per_message(traffic: Traffic) -> UsagePerMessage:
    message = (MessageGroup(1, traffic.size),)
    usage = calculate_usage(TrafficCounts.through_backlog(message, alias_bytes=traffic.alias_bytes))
    return UsagePerMessage(
        units=usage.without_completes.units,
        units_with_completes=usage.total.units,
        bytes=usage.total.bytes,
    )
