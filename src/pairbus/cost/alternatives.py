"""What a user could do instead: other options of the pairing, other ways to survive an outage."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal

from pairbus.cost.counts import tally
from pairbus.cost.forecast import MONTH, MONTH_HOURS, Bill, Forecast, bill, forecast
from pairbus.cost.plan import PairingProfile, normal_counts
from pairbus.cost.prices import GB, Tier
from pairbus.errors import ConfigurationError
from pairbus.usage.operations import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionChange:
    """What another value of one option would change."""

    what: str
    idle_units: int
    """More units in 30 days without an outage; below 0: fewer."""
    idle_money: Decimal
    outage_units: int
    """More units in the outage."""
    outage_money: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """30 days with one outage, done in some way."""

    name: str
    units: int
    """Of operations, billed or, with Premium, not."""
    bytes: int
    money: Decimal
    """The whole: namespaces, operations, bandwidth."""
    outage: str
    """What becomes of a message in an outage."""


def changes(found: Forecast) -> list[OptionChange]:
    """What each option would change: twice the queues, twice the pings, one more syphon, the other
    failback. Those that cannot be are left out."""
    return [
        OptionChange(
            what=what,
            idle_units=_idle(other).total.amount.units - _idle(found).total.amount.units,
            idle_money=_idle(other).total.money - _idle(found).total.money,
            outage_units=(
                other.outage_bill.total.amount.units
                - other.instead.amount.units
                - found.outage_bill.total.amount.units
                + found.instead.amount.units
            ),
            outage_money=other.outage_adds - found.outage_adds,
        )
        for what, other in _others(found)
    ]


def _idle(found: Forecast) -> Bill:
    return found.idle[MONTH]


def _others(found: Forecast) -> Iterator[tuple[str, Forecast]]:
    for what, pairing in _pairings(found.pairing):
        try:
            yield (
                what,
                forecast(
                    pairing=pairing,
                    traffic=found.traffic,
                    outage=found.outage,
                    prices=found.prices,
                    tier=found.tier,
                    messaging_units=found.messaging_units,
                ),
            )
        except ConfigurationError:  # the syphons are too slow for `after-drain`
            continue


def _pairings(now: PairingProfile) -> Iterator[tuple[str, PairingProfile]]:
    options = now.options
    queues = options.backlog_queue_count
    yield (
        f"{2 * queues} backlog queues, not {queues}",
        replace(now, options=replace(options, backlog_queue_count=2 * queues)),
    )
    ping = options.ping_primary_interval
    shorter = max(ping / 2, timedelta(seconds=1))
    if shorter < ping:
        yield (
            f"pings every {shorter.total_seconds():g} s, not {ping.total_seconds():g} s",
            replace(now, options=replace(options, ping_primary_interval=shorter)),
        )
    yield (
        f"{now.syphons + 1} syphons, not {now.syphons}",
        replace(now, syphons=now.syphons + 1),
    )
    if options.failback == "immediate":
        yield (
            "failback after-drain",
            replace(now, options=replace(options, failback="after-drain")),
        )


def alternatives(found: Forecast) -> list[Alternative]:
    """The ways to survive an outage, beside doing nothing."""
    prices, tier, traffic = found.prices, found.tier, found.traffic
    fixed = [
        prices.fixed(tier, MONTH_HOURS, namespaces=count, messaging_units=found.messaging_units)
        for count in (1, 2)
    ]
    month = found.month.total
    idle, lost, instead = found.idle[MONTH].total, found.outage_bill.total, found.instead
    once = tally(normal_counts(traffic, MONTH))
    again = bill(once, prices, tier, before=once.total.units).total
    sent = once.by_part()[Part.TRAFFIC].bytes if once.slots else 0
    premium = prices.fixed(
        Tier.PREMIUM, MONTH_HOURS, namespaces=2, messaging_units=found.messaging_units
    )
    return [
        Alternative(
            name="nothing",
            units=month.amount.units,
            bytes=month.amount.bytes,
            money=fixed[0] + month.money,
            outage="senders fail",
        ),
        Alternative(
            name="pairing",
            units=month.amount.units + idle.amount.units + lost.amount.units - instead.amount.units,
            bytes=month.amount.bytes + lost.amount.bytes - instead.amount.bytes,
            money=fixed[1] + month.money + idle.money + found.outage_adds,
            outage="kept for later",
        ),
        Alternative(
            name="active replication",
            units=2 * month.amount.units,
            bytes=2 * month.amount.bytes,
            money=fixed[1] + month.money + again.money,
            outage="goes on",
        ),
        Alternative(
            name="geo-replication",
            units=month.amount.units,
            bytes=month.amount.bytes + sent,
            money=premium
            + prices.bandwidth(month.amount.bytes)
            + sent * prices.geo_replication_per_gb / GB,
            outage="promote by hand",
        ),
    ]
