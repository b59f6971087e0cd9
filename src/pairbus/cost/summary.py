"""A forecast as plain data, for programs. Money is text: no digit is lost."""

from dataclasses import asdict
from decimal import Decimal
from typing import Any

from pairbus.cost.alternatives import alternatives, changes
from pairbus.cost.forecast import DAY, HOUR, MONTH, Bill, CostItem, Forecast

PERIODS = {"hour": HOUR, "day": DAY, "30 days": MONTH}


def summary(found: Forecast) -> dict[str, Any]:
    """What `pairbus cost forecast --json` prints."""
    course = found.course
    prices = found.prices
    return {
        "prices": {
            "file": prices.name,
            "as_of": prices.as_of.isoformat(),
            "source": prices.source,
            "currency": prices.currency,
            "region": prices.region,
            "tier": str(found.tier),
        },
        "traffic_30_days": _bill(found.month),
        "second_namespace_30_days": money(found.second_namespace),
        "idle": {name: _bill(found.idle[span]) for name, span in PERIODS.items()},
        "message_through_backlog": asdict(found.per_message),
        "outage": {
            "paths_in_failover": course.paths,
            "messages_refused": course.refused,
            "messages_through_backlog": course.through_backlog,
            "pings": course.pings,
            "failover_seconds": course.failover.total_seconds(),
            "drain_seconds": course.drain.total_seconds(),
            **_bill(found.outage_bill),
            "instead_of": _charge(found.instead),
            "adds": money(found.outage_adds),
            "operations": [
                {"part": slot.part, "namespace": slot.place, "kind": slot.kind, **asdict(amount)}
                for slot, amount in found.operations.slots.items()
            ],
        },
        "changes": [_plain(asdict(one)) for one in changes(found)],
        "alternatives_30_days": [_plain(asdict(one)) for one in alternatives(found)],
    }


def money(value: Decimal) -> str:
    """An amount of money without zeros that say nothing: 0.0144, 10.00."""
    text = f"{value:f}"
    whole, _, part = text.partition(".")
    return f"{whole}.{part.rstrip('0').ljust(2, '0')}"


def _bill(bill: Bill) -> dict[str, Any]:
    return {
        "parts": {str(part): _charge(charge) for part, charge in bill.parts.items()},
        "total": _charge(bill.total),
    }


def _charge(charge: CostItem) -> dict[str, Any]:
    return {
        **asdict(charge.amount),
        "for_operations": money(charge.for_operations),
        "for_bandwidth": money(charge.for_bandwidth),
        "money": money(charge.money),
    }


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: money(value) if isinstance(value, Decimal) else value
        for name, value in fields.items()
    }
