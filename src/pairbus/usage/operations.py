"""The words that forecast, ledger and report share: what can be billed, where, and for what."""

from dataclasses import dataclass
from enum import StrEnum

from pairbus.servicebus.limits import BILLING_UNIT


class OperationKind(StrEnum):
    """A billable operation. The names are those of the emulator's meter, and two more: the meter
    counts a ping as a send, and an empty poll as a receive; see `metered`."""

    SEND = "send"
    RECEIVE = "receive"
    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"
    RENEW = "renew"
    PEEK = "peek"
    SCHEDULE = "schedule"
    CANCEL = "cancel"
    SESSION_STATE = "session-state"
    MANAGEMENT = "management"
    PING = "ping"
    POLL = "poll"
    """A long poll that ended without a message."""

    @property
    def metered(self) -> "OperationKind":
        """The kind under which a namespace counts it."""
        return _METERED.get(self, self)


_METERED = {OperationKind.PING: OperationKind.SEND, OperationKind.POLL: OperationKind.RECEIVE}


class NamespaceRole(StrEnum):
    """The namespace where it was done."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


class Part(StrEnum):
    """What it was done for, in the order of the tables."""

    TRAFFIC = "normal traffic"
    """Sends straight to the primary."""
    IDLE = "idle polls"
    """Receives of the syphon that end without a message."""
    PINGS = "pings"
    BACKLOG = "backlog"
    """Sends to the backlog."""
    DRAIN = "drain"
    """Receive and complete at the backlog, send to the primary; also peeks that ask whether it is
    empty."""
    DELIVERY = "delivery"
    """Receive and complete at the primary, as for any message."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How much was done."""

    operations: int = 0
    """Operations, each on one message or on none."""
    units: int = 0
    """What is billed: 64 KB each, at least one for an operation."""
    bytes: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            self.operations + other.operations, self.units + other.units, self.bytes + other.bytes
        )

    def __mul__(self, times: int) -> "Amount":
        return Amount(self.operations * times, self.units * times, self.bytes * times)


def units(size: int) -> int:
    """What an operation on a message of so many bytes is billed as."""
    return max(1, -(-size // BILLING_UNIT))


def amount_of(messages: int, size: int = 0) -> Amount:
    """One operation on each of some messages of one size."""
    return Amount(messages, messages * units(size), messages * size)
