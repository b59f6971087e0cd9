"""The usage in a ledger that fits into memory. `pairbus cost report` is for larger ones."""

from pathlib import Path

from pairbus.cost.counts import CostKey, UsageBreakdown
from pairbus.usage.operations import NamespaceRole, OperationKind, Purpose, Usage
from pairbus.usage.records import read_operations


def read_ledger_usage(folder: Path, primary: str, *, answered: bool = True) -> UsageBreakdown:
    """Return the usage that the namespaces answered, or with `answered=False` that they did not.

    `primary` is the name of the primary namespace in the ledger.
    """
    usage: dict[CostKey, Usage] = {}
    for record in read_operations(folder):
        if record["answered"] is not answered:
            continue
        is_primary = record["namespace"] == primary
        key = CostKey(
            Purpose(record["purpose"]),
            NamespaceRole.PRIMARY if is_primary else NamespaceRole.SECONDARY,
            OperationKind(record["kind"]),
        )
        added = Usage(record["operations"], record["units"], record["bytes"])
        usage[key] = usage.get(key, Usage()) + added
    return UsageBreakdown(usage)
