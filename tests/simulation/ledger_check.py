"""Compares the usage ledgers of a simulation with the meters of its namespaces."""

import json
from collections import Counter
from pathlib import Path

from pairbus.usage.operations import OperationKind
from tests.simulation.journal import Journal
from tests.simulation.namespace import SimulatedNamespace
from tests.simulation.plan import Plan

LOSES_RECORDS = ("kill", "task-twice", "crash", "uneven", "disk", "stale-peek")
"""Parts of the names of faults after which records or counts may be missing: a killed process
loses what it did not write, a killed namespace counts no receive that it had begun, and a stale
peek shows less than it costs."""
KINDS = {
    "primary": ("send", "schedule", "cancel"),
    "secondary": ("send", "receive", "complete", "abandon", "dead-letter", "renew", "peek"),
}
"""The operations of pairings and syphons. Others receive from the primary."""


def is_comparable(plan: Plan) -> bool:
    """Return whether the ledger of a plan can be compared."""
    return plan.with_ledger and not any(
        part in fault.kind for fault in plan.faults for part in LOSES_RECORDS
    )


def check_ledger(
    journal: Journal, folder: str, primary: SimulatedNamespace, secondary: SimulatedNamespace
) -> None:
    """Check that a namespace has metered what the ledgers say that it answered, and no more than
    was asked. A client does not know how many messages were lost on their way to it."""
    answered: Counter[tuple[str, str]] = Counter()
    asked: Counter[tuple[str, str]] = Counter()
    for path in Path(folder).iterdir():
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if "kind" not in record:
                continue
            kind = OperationKind(record["kind"]).metered.value
            key = record["namespace"].partition(".")[0], kind
            asked[key] += record["operations"]
            if record["answered"]:
                answered[key] += record["operations"]
    host = secondary.options().host
    peeks, not_found = journal.peeks[host], journal.peeks_not_found[host]
    # Syphons do not record a peek at a queue that does not exist: its link is refused.
    if not peeks <= asked[secondary.name, "peek"] <= peeks + not_found:
        journal.violate(
            "C5",
            f"{peeks} peeks were made, {not_found} at queues that did not exist, and "
            f"{asked[secondary.name, 'peek']} are in the ledgers",
        )
    for namespace in (primary, secondary):
        metered: Counter[str] = Counter()
        messages: Counter[str] = Counter()
        for (_, kind), reading in namespace.runtime.meter.readings().items():
            metered[kind] += reading.operations
            messages[kind] += reading.messages
        for kind in KINDS[namespace.name]:
            key = namespace.name, kind
            lost = 0
            if kind in ("receive", "peek"):
                lost = messages[kind] - journal.arrivals[namespace.options().host, kind]
            if kind == "peek":
                lost += not_found
            if not answered[key] <= metered[kind] <= asked[key] + lost:
                journal.violate(
                    "C5",
                    f"{namespace.name} metered {metered[kind]} of {kind}; the ledgers have "
                    f"{answered[key]} answered and {asked[key]} in all, and {lost} were lost",
                )
