"""What happened, or will, in numbers; and the operations that it makes. Integers only.

A forecast estimates the counts, a measured run has them: the arithmetic is the same.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pairbus.errors import ConfigurationError
from pairbus.usage.operations import Amount, NamespaceRole, OperationKind, Part, amount_of

PING_SIZE = 164
"""The bytes of a ping; a test makes one."""


class MessageGroup(NamedTuple):
    """Messages of one size, which is that of the whole encoded message."""

    messages: int
    size: int


Lots = tuple[MessageGroup, ...]


class CostKey(NamedTuple):
    """What is counted by itself."""

    part: Part
    place: NamespaceRole
    kind: OperationKind


def lots(sizes: Iterable[int]) -> Lots:
    """Messages, given by the size of each, as lots."""
    return tuple(MessageGroup(count, size) for size, count in sorted(Counter(sizes).items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficCounts:
    """How often things happened that a namespace answered. Raises ConfigurationError where a count
    is negative."""

    direct: Lots = ()
    """Sent by the application to the primary."""
    stored: Lots = ()
    """Sent to the backlog. The size is the one there: the aliases are in it."""
    taken: Lots = ()
    """Received from the backlog, each time that it was."""
    settled: int = 0
    """Completed at the backlog."""
    homed: Lots = ()
    """Sent to the primary by the syphon."""
    delivered: Lots = ()
    """Received from the primary, by the application."""
    completed: int = 0
    """Completed at the primary."""
    pings: int = 0
    ping_size: int = PING_SIZE
    polls: int = 0
    """Long polls that ended without a message."""
    others: Mapping[CostKey, Lots] = field(default_factory=dict)
    """All else: peeks, renewals, dead letters, calls to the management; of size 0 where no message
    was moved."""

    def __post_init__(self) -> None:
        for name in ("settled", "completed", "pings", "ping_size", "polls"):
            _check(name, getattr(self, name))
        for name in ("direct", "stored", "taken", "homed", "delivered"):
            _check_lots(name, getattr(self, name))
        for slot, some in self.others.items():
            _check_lots(f"{slot.part} {slot.kind}", some)

    @classmethod
    def through_backlog(cls, messages: Lots, *, alias_bytes: int = 0) -> "TrafficCounts":
        """Messages, of the sizes that they have at the primary, that went once through the backlog
        and were delivered: four operations each, or six with the completes."""
        stored = tuple(MessageGroup(lot.messages, lot.size + alias_bytes) for lot in messages)
        count = sum(lot.messages for lot in messages)
        return cls(
            stored=stored,
            taken=stored,
            settled=count,
            homed=messages,
            delivered=messages,
            completed=count,
        )


@dataclass(frozen=True, slots=True)
class Tally:
    """Operations by part, namespace and kind."""

    slots: Mapping[CostKey, Amount]

    @property
    def total(self) -> Amount:
        return sum(self.slots.values(), Amount())

    @property
    def without_completes(self) -> Amount:
        """All but the completes of peek-lock."""
        return sum(
            (
                amount
                for slot, amount in self.slots.items()
                if slot.kind is not OperationKind.COMPLETE
            ),
            Amount(),
        )

    def by_part(self) -> dict[Part, Amount]:
        """The sums of the parts, in the order of `Part`."""
        found = {part: Amount() for part in Part}
        for slot, amount in self.slots.items():
            found[slot.part] += amount
        return {part: amount for part, amount in found.items() if amount != Amount()}

    def by_kind(
        self, place: NamespaceRole | None = None, *, metered: bool = False
    ) -> dict[OperationKind, Amount]:
        """The sums of the kinds, at one namespace or at both. With `metered`, as a namespace counts
        them: pings are sends, empty polls receives."""
        found: dict[OperationKind, Amount] = {}
        for slot, amount in self.slots.items():
            if place is None or slot.place is place:
                kind = slot.kind.metered if metered else slot.kind
                found[kind] = found.get(kind, Amount()) + amount
        return found


def tally(counts: TrafficCounts) -> Tally:
    """The operations that some counts make, exactly."""
    done: dict[CostKey, Amount] = {}

    def add(slot: CostKey, messages: int, size: int = 0) -> None:
        if messages:
            done[slot] = done.get(slot, Amount()) + amount_of(messages, size)

    for slot, some in (
        (CostKey(Part.TRAFFIC, NamespaceRole.PRIMARY, OperationKind.SEND), counts.direct),
        (CostKey(Part.BACKLOG, NamespaceRole.SECONDARY, OperationKind.SEND), counts.stored),
        (CostKey(Part.DRAIN, NamespaceRole.SECONDARY, OperationKind.RECEIVE), counts.taken),
        (CostKey(Part.DRAIN, NamespaceRole.PRIMARY, OperationKind.SEND), counts.homed),
        (CostKey(Part.DELIVERY, NamespaceRole.PRIMARY, OperationKind.RECEIVE), counts.delivered),
        *counts.others.items(),
    ):
        for lot in some:
            add(slot, lot.messages, lot.size)
    add(CostKey(Part.DRAIN, NamespaceRole.SECONDARY, OperationKind.COMPLETE), counts.settled)
    add(CostKey(Part.DELIVERY, NamespaceRole.PRIMARY, OperationKind.COMPLETE), counts.completed)
    add(
        CostKey(Part.PINGS, NamespaceRole.PRIMARY, OperationKind.PING),
        counts.pings,
        counts.ping_size,
    )
    add(CostKey(Part.IDLE, NamespaceRole.SECONDARY, OperationKind.POLL), counts.polls)
    return Tally(done)


def _check(name: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ConfigurationError(f"{name} is a whole number, 0 or more, not {count!r}")


def _check_lots(name: str, some: Lots) -> None:
    for messages, size in some:
        _check(f"messages of {name}", messages)
        _check(f"the size of {name}", size)
