"""The cost of a pairing: a forecast before, a report after.

    forecast(
        pairing=PairingProfile(clients=4),
        traffic=Traffic(rate=100),
        outage=Outage(length=timedelta(hours=2)),
    )

The report needs Spark, and is in `pairbus.cost.report`.
"""

from pairbus.cost.alternatives import Alternative, OptionChange, alternatives, option_changes
from pairbus.cost.counts import (
    CostKey,
    MessageGroup,
    TrafficCounts,
    UsageBreakdown,
    calculate_usage,
    group_by_size,
)
from pairbus.cost.forecast import Bill, CostItem, Forecast, forecast
from pairbus.cost.inputs import Outage, PairingProfile, Traffic
from pairbus.cost.prices import Prices, Tier, parse_prices, read_prices
from pairbus.cost.timeline import OutageTimeline
from pairbus.usage.operations import NamespaceRole, OperationKind, Purpose, Usage, billable_units

__all__ = [
    "Alternative",
    "Bill",
    "CostItem",
    "CostKey",
    "Forecast",
    "MessageGroup",
    "NamespaceRole",
    "OperationKind",
    "OptionChange",
    "Outage",
    "OutageTimeline",
    "PairingProfile",
    "Prices",
    "Purpose",
    "Tier",
    "Traffic",
    "TrafficCounts",
    "Usage",
    "UsageBreakdown",
    "alternatives",
    "billable_units",
    "calculate_usage",
    "forecast",
    "group_by_size",
    "option_changes",
    "parse_prices",
    "read_prices",
]
