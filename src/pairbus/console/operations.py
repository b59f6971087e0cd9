"""Counts the billed operations of the console, and records them in the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass

from pairbus.spark.usage import UsageRecorder
from pairbus.usage.operations import OperationKind


@dataclass(slots=True)
class CountedOperations:
    """The operations of one inspection or peek."""

    usage: UsageRecorder
    count: int = 0

    def add_request(self, answered: bool) -> None:
        """Record a request to the administration API."""
        self.count += answered
        self.usage.add(OperationKind.MANAGEMENT, None, answered=answered)

    def add_peek(self, entity: str, payloads: Sequence[bytes] | None) -> None:
        """Record a peek. It is billed also without a message, but not if it failed (None)."""
        answered = payloads is not None
        sizes = [len(payload) for payload in payloads or ()]
        self.count += answered and max(1, len(sizes))
        self.usage.add(OperationKind.PEEK, entity, sizes, answered=answered)

    def flush(self) -> None:
        """Write the ledger to disk."""
        self.usage.flush()
