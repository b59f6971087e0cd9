"""Billable operations: their kinds, namespaces and purposes, and how much was used.

Ledger, forecast and report share these definitions.
"""

from dataclasses import dataclass
from enum import StrEnum

from pairbus.servicebus.limits import BILLING_UNIT


class OperationKind(StrEnum):
    """A billable operation.

    The names are those of the emulator's meter, and two more: a namespace counts a ping as a send
    and an empty poll as a receive; see `metered`.
    """

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
        """The kind under which a namespace counts this operation."""
        return _METERED.get(self, self)


_METERED = {OperationKind.PING: OperationKind.SEND, OperationKind.POLL: OperationKind.RECEIVE}


class NamespaceRole(StrEnum):
    """The role of a namespace in a pairing."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


class Purpose(StrEnum):
    """The purpose of an operation, in the order of the tables."""

    TRAFFIC = "normal traffic"
    """Sends of the application to the primary."""
    IDLE = "idle polls"
    """Receives of the syphon that end without a message."""
    PINGS = "pings"
    BACKLOG = "backlog"
    """Sends to the backlog."""
    DRAIN = "drain"
    """Receives and completes at the backlog, sends of the syphon to the primary, and peeks that
    test if the backlog is empty."""
    DELIVERY = "delivery"
    """Receives and completes of the application at the primary."""


@dataclass(frozen=True, slots=True)
class Usage:
    """An amount of billable usage."""

    operations: int = 0
    """Operations, each on one message or on none."""
    units: int = 0
    """Billable units: one for each 64 KB of an operation's message, and at least one."""
    bytes: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.operations + other.operations, self.units + other.units, self.bytes + other.bytes
        )

    def __mul__(self, factor: int) -> "Usage":
        return Usage(self.operations * factor, self.units * factor, self.bytes * factor)


def billable_units(size: int) -> int:
    """Return the billable units of an operation on a message of `size` bytes."""
    return max(1, -(-size // BILLING_UNIT))


def usage_of_messages(messages: int, size: int = 0) -> Usage:
    """Return the usage of one operation on each of some messages of the same size."""
    return Usage(messages, messages * billable_units(size), messages * size)
