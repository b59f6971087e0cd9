"""Comparisons: other options of the pairing, and other ways to survive an outage."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal

from pairbus.cost.counts import calculate_usage
from pairbus.cost.forecast import MONTH, MONTH_HOURS, Forecast, forecast, make_bill
from pairbus.cost.inputs import PairingProfile
from pairbus.cost.prices import GB, Tier
from pairbus.cost.timeline import normal_counts
from pairbus.errors import ConfigurationError
from pairbus.usage.operations import Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionChange:
    """The difference that another value of one option makes."""

    description: str
    idle_units: int
    """Additional billable units in 30 days without an outage; negative if there are fewer."""
    idle_cost: Decimal
    outage_units: int
    """Additional billable units in the outage."""
    outage_cost: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """30 days with one outage, with one way to survive it."""

    name: str
    units: int
    """Billable units of the operations. Premium does not charge them."""
    bytes: int
    cost: Decimal
    """The total cost of namespaces, operations and bandwidth."""
    in_outage: str
    """The effect of an outage on the application."""


def option_changes(current: Forecast) -> list[OptionChange]:
    """Compare with twice the backlog queues, twice the pings, one more syphon and `after-drain`.

    Changes that are not possible are left out.
    """
    return [
        OptionChange(
            description=description,
            idle_units=_idle_units(changed) - _idle_units(current),
            idle_cost=changed.idle[MONTH].total.cost - current.idle[MONTH].total.cost,
            outage_units=_outage_extra_units(changed) - _outage_extra_units(current),
            outage_cost=changed.outage_extra_cost - current.outage_extra_cost,
        )
        for description, changed in _changed_forecasts(current)
    ]


def _idle_units(result: Forecast) -> int:
    return result.idle[MONTH].total.usage.units


def _outage_extra_units(result: Forecast) -> int:
    return result.outage_bill.total.usage.units - result.without_outage.usage.units


def _changed_forecasts(current: Forecast) -> Iterator[tuple[str, Forecast]]:
    for description, pairing in _changed_pairings(current.pairing):
        try:
            changed = forecast(
                pairing=pairing,
                traffic=current.traffic,
                outage=current.outage,
                prices=current.prices,
                tier=current.tier,
                messaging_units=current.messaging_units,
            )
        except ConfigurationError:  # The drain rate is too low for `after-drain`.
            continue
        yield description, changed


def _changed_pairings(current: PairingProfile) -> Iterator[tuple[str, PairingProfile]]:
    options = current.options
    queues = options.backlog_queue_count
    yield (
        f"{2 * queues} backlog queues, not {queues}",
        replace(current, options=replace(options, backlog_queue_count=2 * queues)),
    )
    interval = options.ping_primary_interval
    shorter = max(interval / 2, timedelta(seconds=1))
    if shorter < interval:
        yield (
            f"pings every {shorter.total_seconds():g} s, not {interval.total_seconds():g} s",
            replace(current, options=replace(options, ping_primary_interval=shorter)),
        )
    yield (
        f"{current.syphons + 1} syphons, not {current.syphons}",
        replace(current, syphons=current.syphons + 1),
    )
    if options.failback == "immediate":
        yield (
            "failback after-drain",
            replace(current, options=replace(options, failback="after-drain")),
        )


def alternatives(current: Forecast) -> list[Alternative]:
    """Compare the pairing with no protection, active replication and Premium geo-replication."""
    prices, tier, traffic = current.prices, current.tier, current.traffic
    one_namespace, two_namespaces = (
        prices.base_cost(
            tier, MONTH_HOURS, namespaces=count, messaging_units=current.messaging_units
        )
        for count in (1, 2)
    )
    two_premium_namespaces = prices.base_cost(
        Tier.PREMIUM, MONTH_HOURS, namespaces=2, messaging_units=current.messaging_units
    )
    traffic_item = current.normal_traffic.total
    idle, outage = current.idle[MONTH].total, current.outage_bill.total
    units, size = traffic_item.usage.units, traffic_item.usage.bytes
    usage = calculate_usage(normal_counts(traffic, MONTH))
    # The copy of each message is billed after the first 30 days' worth of operations.
    copies = make_bill(usage, prices, tier, before=units).total
    sent_usage = usage.by_purpose().get(Purpose.TRAFFIC)
    replicated = 0 if sent_usage is None else sent_usage.bytes
    return [
        Alternative(
            name="no protection",
            units=units,
            bytes=size,
            cost=one_namespace + traffic_item.cost,
            in_outage="sends fail",
        ),
        Alternative(
            name="pairing",
            units=units + idle.usage.units + _outage_extra_units(current),
            bytes=size + outage.usage.bytes - current.without_outage.usage.bytes,
            cost=two_namespaces + traffic_item.cost + idle.cost + current.outage_extra_cost,
            in_outage="delivered later",
        ),
        Alternative(
            name="active replication",
            units=2 * units,
            bytes=2 * size,
            cost=two_namespaces + traffic_item.cost + copies.cost,
            in_outage="continues",
        ),
        Alternative(
            name="geo-replication",
            units=units,
            bytes=size + replicated,
            cost=two_premium_namespaces
            + prices.bandwidth_cost(size)
            + replicated * prices.geo_replication_per_gb / GB,
            in_outage="manual promotion",
        ),
    ]
