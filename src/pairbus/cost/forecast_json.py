"""A forecast as JSON values. Amounts of money are text, so that no digit is lost."""

from dataclasses import asdict
from decimal import Decimal
from typing import Any

from pairbus.cost.alternatives import alternatives, option_changes
from pairbus.cost.forecast import DAY, HOUR, MONTH, Bill, CostItem, Forecast
from pairbus.cost.money import exact_money

PERIODS = {"hour": HOUR, "day": DAY, "30 days": MONTH}


def forecast_to_json(result: Forecast) -> dict[str, Any]:
    """Return what `pairbus cost forecast --json` prints."""
    timeline = result.timeline
    return {
        "prices": result.prices.to_json(result.tier),
        "normal_traffic_30_days": _bill_to_json(result.normal_traffic),
        "secondary_base_cost_30_days": exact_money(result.secondary_base_cost),
        "idle": {name: _bill_to_json(result.idle[period]) for name, period in PERIODS.items()},
        "message_through_backlog": asdict(result.per_message),
        "outage": {
            "paths_in_failover": timeline.paths,
            "failed_sends": timeline.failed_sends,
            "messages_through_backlog": timeline.through_backlog,
            "pings": timeline.pings,
            "failover_seconds": timeline.failover.total_seconds(),
            "drain_seconds": timeline.drain.total_seconds(),
            **_bill_to_json(result.outage_bill),
            "without_outage": _item_to_json(result.without_outage),
            "extra_cost": exact_money(result.outage_extra_cost),
            "operations": [
                {"purpose": key.purpose, "namespace": key.role, "kind": key.kind, **asdict(usage)}
                for key, usage in result.outage_usage.by_key.items()
            ],
        },
        "option_changes": [_decimals_to_text(asdict(change)) for change in option_changes(result)],
        "alternatives_30_days": [
            _decimals_to_text(asdict(alternative)) for alternative in alternatives(result)
        ],
    }


def _bill_to_json(bill: Bill) -> dict[str, Any]:
    return {
        "by_purpose": {
            str(purpose): _item_to_json(item) for purpose, item in bill.by_purpose.items()
        },
        "total": _item_to_json(bill.total),
    }


def _item_to_json(item: CostItem) -> dict[str, Any]:
    return {
        **asdict(item.usage),
        "operations_cost": exact_money(item.operations_cost),
        "bandwidth_cost": exact_money(item.bandwidth_cost),
        "cost": exact_money(item.cost),
    }


def _decimals_to_text(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: exact_money(value) if isinstance(value, Decimal) else value
        for name, value in fields.items()
    }
