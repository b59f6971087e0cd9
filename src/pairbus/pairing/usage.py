"""The usage of a pairing: every billable operation of its senders, for ledger and telemetry.

Sends are counted by the transfers of the SDK. Of several attempts in one call only the last can
have been answered, and only if the call succeeded: the SDK retries when a message was not accepted.
"""

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pairbus.pairing.sdk import encode
from pairbus.pairing.sdk_transfers import take_sizes
from pairbus.telemetry.senders import SenderTelemetry
from pairbus.usage.ledger import Ledger
from pairbus.usage.operations import OperationKind, Purpose

# Module constants for the hot path: Python 3.11 is slow to look up members of an enum.
_PINGS, _SECONDARY_PARTS = Purpose.PINGS, (Purpose.BACKLOG, Purpose.DRAIN)
_PING = OperationKind.PING, OperationKind.PING.value
_SEND = OperationKind.SEND, OperationKind.SEND.value


class ManagementUsage(NamedTuple):
    """The usage of a call over a management link: one operation for each message."""

    kind: OperationKind
    sizes: Callable[[], list[int]]
    """Returns the size of each message; called only if usage is recorded."""


class PairingUsage:
    """Writes the usage of a pairing to a ledger, and counts it for telemetry if that is on. Can be
    used from any thread."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        primary: str,
        secondary: str,
        telemetry: SenderTelemetry | None = None,
    ) -> None:
        self._ledger = Ledger(Path(folder), writer="pairing")
        self._ledger.start()
        self._telemetry = telemetry
        self._primary = primary
        self._secondary = secondary

    def add_transfers(self, sender: Any, path: str, purpose: Purpose, *, answered: bool) -> None:
        """Add the transfers of a call that has ended."""
        for sizes in take_sizes(sender):
            namespace = self._secondary if purpose in _SECONDARY_PARTS else self._primary
            kind, name = _PING if purpose is _PINGS else _SEND
            self._ledger.add_messages(sizes, namespace, path, kind, purpose, answered)
            if self._telemetry is not None and answered:
                self._telemetry.count_operations(name, namespace, sizes)
            answered = False

    def add_management(self, usage: ManagementUsage, path: str, *, answered: bool) -> None:
        """Add a call over the management link of a sender of the primary."""
        self._add(path, usage.kind, Purpose.TRAFFIC, usage.sizes(), answered=answered)

    def add_peek(self, path: str, messages: Sequence[Any] | None) -> None:
        """Add a peek at a backlog queue. None instead of the messages: it failed. The namespace may
        have answered it nevertheless."""
        sizes = [_size_of(message) for message in messages or ()]
        answered = messages is not None
        self._add(path, OperationKind.PEEK, Purpose.DRAIN, sizes, answered=answered)

    def _add(
        self,
        path: str,
        kind: OperationKind,
        purpose: Purpose,
        sizes: Sequence[int],
        *,
        answered: bool = True,
    ) -> None:
        namespace = self._secondary if purpose in _SECONDARY_PARTS else self._primary
        self._ledger.add_messages(
            sizes, namespace=namespace, entity=path, kind=kind, purpose=purpose, answered=answered
        )
        if self._telemetry is not None and answered:
            self._telemetry.count_operations(kind.value, namespace, sizes)

    def add_request(self, entity: str, answered: bool, *, secondary: bool) -> None:
        """Add a request to the administration API."""
        namespace = self._secondary if secondary else self._primary
        self._ledger.add(
            namespace=namespace,
            entity=entity,
            kind=OperationKind.MANAGEMENT,
            purpose=Purpose.BACKLOG if secondary else Purpose.TRAFFIC,
            messages=0,
            answered=answered,
        )
        if self._telemetry is not None and answered:
            self._telemetry.count_operations(OperationKind.MANAGEMENT.value, namespace, ())

    def add_change(
        self, path: str, from_state: str, to_state: str, cause: str | None, when: datetime
    ) -> None:
        """Add a change of the status of a path."""
        self._ledger.add_state_change(
            namespace=self._primary,
            entity=path,
            from_state=from_state,
            to_state=to_state,
            cause=cause,
            at=when.timestamp(),
        )

    def close(self) -> None:
        """Write the rest to the ledger and close it."""
        self._ledger.close()


def _size_of(received: Any) -> int:
    """Return the approximate size of a received message; 0 if the SDK cannot encode it."""
    try:
        return len(encode(received.raw_amqp_message))
    except Exception:  # noqa: BLE001  a size for the ledger must not fail a peek
        return 0
