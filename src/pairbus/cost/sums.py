"""A ledger of a size that fits into memory, summed up without Spark: `pairbus cost report` is for
those that do not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pairbus.cost.counts import CostKey, Tally
from pairbus.usage.operations import Amount, NamespaceRole, OperationKind, Part


def records(folder: Path) -> Iterator[dict[str, Any]]:
    """What was done, by the ledgers of a folder; half a record at the end of a file is left out."""
    for file in sorted(folder.iterdir()):
        for line in file.read_bytes().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if "kind" in record:
                yield record


def sums(folder: Path, primary: str, *, answered: bool = True) -> Tally:
    """What the namespaces answered, or what they did not. `primary` is the primary as the ledger
    calls it."""
    slots: dict[CostKey, Amount] = {}
    for one in records(folder):
        if one["answered"] is answered:
            place = (
                NamespaceRole.PRIMARY if one["namespace"] == primary else NamespaceRole.SECONDARY
            )
            slot = CostKey(Part(one["part"]), place, OperationKind(one["kind"]))
            done = Amount(one["operations"], one["units"], one["bytes"])
            slots[slot] = slots.get(slot, Amount()) + done
    return Tally(slots)
