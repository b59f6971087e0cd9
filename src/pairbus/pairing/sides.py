"""The two clients of a pairing, one for each namespace, and what it means when one is down.

No I/O and no clock of its own. An outage is not here: that is the health of paths.
"""

from enum import Enum

from pairbus.errors import PairingFaulted, StateError

PARTNER_S = 5.0
"""How long one may be down alone before a syphon in the application faults the other."""


class Side:
    """A client of one namespace: open, closed, or faulted. `name` is the namespace's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = False
        self.fault: BaseException | None = None

    @property
    def down(self) -> bool:
        return self.closed or self.fault is not None

    def give_up(self, cause: BaseException) -> bool:
        """Every later call says this cause. False: it was given up before, and that cause stays."""
        if self.fault is not None:
            return False
        self.fault = cause
        return True

    def error(self) -> StateError | None:
        """What calls raise; None: it is open."""
        if self.fault is not None:
            error = PairingFaulted(f"the pairing was given up: {self.fault}")
            error.__cause__ = self.fault
            return error
        if self.closed:
            return StateError("the pairing is closed: pair the namespaces again")
        return None

    def check_open(self) -> None:
        """Raises PairingFaulted or StateError where nothing more can be done."""
        if self.down and (error := self.error()) is not None:
            raise error


class Duty(Enum):
    """What is to be done about two clients."""

    NOTHING = "nothing"
    FAULT_PRIMARY = "fault the primary's client"
    FAULT_SECONDARY = "fault the secondary's client"
    STOP = "stop the syphon"


class Partners:
    """Looks after two clients: one that is alone for too long is to be faulted."""

    def __init__(self, primary: Side, secondary: Side) -> None:
        self._sides = primary, secondary
        self._alone_since: float | None = None

    def look(self, now: float) -> Duty:
        primary, secondary = self._sides
        if primary.down and secondary.down:
            return Duty.STOP
        if not primary.down and not secondary.down:
            return Duty.NOTHING
        if self._alone_since is None:
            self._alone_since = now
        if now - self._alone_since < PARTNER_S:
            return Duty.NOTHING
        return Duty.FAULT_SECONDARY if primary.down else Duty.FAULT_PRIMARY
