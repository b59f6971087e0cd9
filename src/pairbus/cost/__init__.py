"""What a pairing costs: a forecast before, a ledger during, a report after.

forecast(pairing=Pairing(clients=4), traffic=Traffic(rate=100), outage=Outage(length=...))
"""

from pairbus.cost.alternatives import Alternative, OptionChange, alternatives, changes
from pairbus.cost.counts import CostKey, MessageGroup, Tally, TrafficCounts, lots, tally
from pairbus.cost.forecast import Bill, CostItem, Forecast, forecast
from pairbus.cost.plan import Outage, OutageTimeline, PairingProfile, Traffic
from pairbus.cost.prices import Prices, Tier, parse_prices, read_prices
from pairbus.usage.operations import Amount, NamespaceRole, OperationKind, Part, units

__all__ = [
    "Alternative",
    "Amount",
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
    "Part",
    "Prices",
    "Tally",
    "Tier",
    "Traffic",
    "TrafficCounts",
    "alternatives",
    "changes",
    "forecast",
    "lots",
    "parse_prices",
    "read_prices",
    "tally",
    "units",
]
