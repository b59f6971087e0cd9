"""What a pairing did, for the ledger: each operation that a namespace may bill.

Sends are counted by what the SDK handed to its links. Of several attempts in one call only the last
can have been answered, and only if the call succeeded: the SDK retries what was not accepted.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pairbus.pairing.sdk import keep_transfers
from pairbus.usage.ledger import Ledger
from pairbus.usage.operations import OperationKind, Purpose

# For each send: Python 3.11 takes its time to find a member of an enum.
_PINGS, _AT_SECONDARY = Purpose.PINGS, (Purpose.BACKLOG, Purpose.DRAIN)
_PING, _SEND = OperationKind.PING, OperationKind.SEND


class PairingUsage:
    """Writes to a ledger. Can be used from any thread."""

    def __init__(self, folder: str | Path, primary: str, secondary: str) -> None:
        self._ledger = Ledger(folder, writer="pairing")
        self._ledger.start()
        self._primary = primary
        self._secondary = secondary

    def watch(self, sender: Any) -> Any:
        """Count what a sender of the SDK sends from now on."""
        keep_transfers(sender)
        return sender

    def sent(self, sender: Any, path: str, purpose: Purpose, *, answered: bool) -> None:
        """A call of a sender has ended."""
        kept = sender._pairbus_transfers
        while kept:
            namespace = self._secondary if purpose in _AT_SECONDARY else self._primary
            kind = _PING if purpose is _PINGS else _SEND
            self._ledger.add_messages(kept.pop(), namespace, path, kind, purpose, answered)
            answered = False

    def add(
        self,
        path: str,
        kind: OperationKind,
        purpose: Purpose,
        sizes: Sequence[int],
        *,
        answered: bool = True,
    ) -> None:
        """An operation on each of some messages, or one on none."""
        self._ledger.add_messages(
            sizes,
            namespace=self._secondary if purpose in _AT_SECONDARY else self._primary,
            entity=path,
            kind=kind,
            purpose=purpose,
            answered=answered,
        )

    def managed(self, entity: str, answered: bool, *, secondary: bool) -> None:
        """A request to the administration API."""
        self._ledger.add(
            namespace=self._secondary if secondary else self._primary,
            entity=entity,
            kind=OperationKind.MANAGEMENT,
            purpose=Purpose.BACKLOG if secondary else Purpose.TRAFFIC,
            messages=0,
            answered=answered,
        )

    def changed(self, path: str, from_state: str, to_state: str, cause: str | None) -> None:
        self._ledger.add_state_change(
            namespace=self._primary,
            entity=path,
            from_state=from_state,
            to_state=to_state,
            cause=cause,
        )

    def close(self) -> None:
        self._ledger.close()
