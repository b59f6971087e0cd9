"""The states of the two namespace clients of a pairing: open, closed or faulted. No I/O, no clock.

An outage of a namespace does not change these states; it concerns the health of paths.
"""

import os
from enum import Enum

from pairbus.errors import PairingFaulted, PairingForked, StateError

PARTNER_TIMEOUT_S = 5.0
"""The time for which one client may be down alone before an embedded syphon faults the other."""


class ClientState:
    """The state of the client of one namespace. `name` is the name of the namespace."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = False
        self.fault: BaseException | None = None
        self.down = False
        """True if the client is closed or faulted. An attribute, because every send reads it."""
        self.closed_by_application = False
        """True if the application closed its SDK client, and with it this client."""
        self._pid = os.getpid()

    def set_closed(self) -> bool:
        """Close the client. Return False if it was closed before."""
        if self.closed:
            return False
        self.closed = self.down = True
        return True

    def set_closed_by_application(self) -> bool:
        """Record that the application closes its SDK client. Return False if this client was closed
        before, or in a child process."""
        if self.closed or self.forked:
            return False
        self.closed_by_application = self.down = True
        return True

    def set_fault(self, cause: BaseException) -> bool:
        """Fault the client. Return False if it was faulted before; the first cause is kept."""
        if self.fault is not None:
            return False
        self.fault = cause
        self.down = True
        return True

    def set_forked(self) -> None:
        """Fault the copy of the client in a child process."""
        if not self.forked:
            self.fault = _forked_error(self.name, self._pid)
            self.down = True

    @property
    def forked(self) -> bool:
        """True if this process is a child of the one that made the client."""
        return isinstance(self.fault, PairingForked)

    def error(self) -> StateError | None:
        """Return the error that calls raise; None if the client is open."""
        if self.forked:
            return _forked_error(self.name, self._pid)
        if self.fault is not None:
            error = PairingFaulted(f"The pairing was faulted: {self.fault}")
            error.__cause__ = self.fault
            return error
        if self.closed_by_application:
            return StateError(
                f"The application closed its ServiceBusClient of {self.name}, which the pairing "
                "uses. Pair the namespaces again, and close the pairing before its clients."
            )
        if self.closed:
            return StateError("The pairing is closed. Pair the namespaces again.")
        return None

    def check_open(self) -> None:
        """Raise PairingFaulted, PairingForked or StateError if the client is not open."""
        if (error := self.error()) is not None:
            raise error


def _forked_error(name: str, pid: int) -> PairingForked:
    return PairingForked(
        f"The pairing of {name} was made in process {pid} and cannot be used in process "
        f"{os.getpid()}, which was forked from it: both would use the same connections. Pair in "
        "each worker process, for example in the post_fork hook of gunicorn.",
        pid=pid,
    )


class PartnerAction(Enum):
    """An action of an embedded syphon on the two clients."""

    NONE = "none"
    FAULT_PRIMARY = "fault the client of the primary"
    FAULT_SECONDARY = "fault the client of the secondary"
    STOP = "stop the syphon"


class PartnerMonitor:
    """Decides when a client is faulted because its partner is down."""

    def __init__(self, primary: ClientState, secondary: ClientState) -> None:
        self._primary = primary
        self._secondary = secondary
        self._alone_since: float | None = None

    def check(self, now: float) -> PartnerAction:
        """Return what to do now."""
        primary_down, secondary_down = self._primary.down, self._secondary.down
        if primary_down and secondary_down:
            return PartnerAction.STOP
        if not primary_down and not secondary_down:
            return PartnerAction.NONE
        if self._alone_since is None:
            self._alone_since = now
        if now - self._alone_since < PARTNER_TIMEOUT_S:
            return PartnerAction.NONE
        return PartnerAction.FAULT_SECONDARY if primary_down else PartnerAction.FAULT_PRIMARY
