"""What a pairing costs: a forecast before, a ledger during, a report after.

forecast(pairing=Pairing(clients=4), traffic=Traffic(rate=100), outage=Outage(length=...))
"""

from pairbus.cost.alternatives import Alternative, Change, alternatives, changes
from pairbus.cost.counts import Counts, Lot, Slot, Tally, lots, tally
from pairbus.cost.forecast import Bill, Charge, Forecast, forecast
from pairbus.cost.plan import Course, Outage, Pairing, Traffic
from pairbus.cost.prices import Prices, Tier, parse_prices, read_prices
from pairbus.usage.operations import Amount, Kind, Part, Place, units

__all__ = [
    "Alternative",
    "Amount",
    "Bill",
    "Change",
    "Charge",
    "Counts",
    "Course",
    "Forecast",
    "Kind",
    "Lot",
    "Outage",
    "Pairing",
    "Part",
    "Place",
    "Prices",
    "Slot",
    "Tally",
    "Tier",
    "Traffic",
    "alternatives",
    "changes",
    "forecast",
    "lots",
    "parse_prices",
    "read_prices",
    "tally",
    "units",
]
