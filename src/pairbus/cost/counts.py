"""Counts of messages, pings and polls, and the billable operations that they make.

A forecast estimates the counts and a measured run has them; the arithmetic is the same, and uses
integers only.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pairbus.errors import ConfigurationError
from pairbus.usage.operations import (
    NamespaceRole,
    OperationKind,
    Purpose,
    Usage,
    usage_of_messages,
)

PING_SIZE = 164
"""The bytes of an encoded ping; a test encodes one."""


class MessageGroup(NamedTuple):
    """A number of messages of the same encoded size."""

    messages: int
    size: int


MessageGroups = tuple[MessageGroup, ...]


class CostKey(NamedTuple):
    """The key by which operations are counted."""

    purpose: Purpose
    role: NamespaceRole
    kind: OperationKind


def group_by_size(sizes: Iterable[int]) -> MessageGroups:
    """Group messages, given by the size of each, by their size."""
    return tuple(MessageGroup(count, size) for size, count in sorted(Counter(sizes).items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficCounts:
    """Counts of everything that a namespace answered.

    Raises ConfigurationError for a negative count.
    """

    direct_sends: MessageGroups = ()
    """Messages that the application sent to the primary."""
    backlog_sends: MessageGroups = ()
    """Messages that were sent to the backlog. Their size includes the aliases."""
    backlog_receives: MessageGroups = ()
    """Messages that were received from the backlog, once for each receive."""
    backlog_completes: int = 0
    drain_sends: MessageGroups = ()
    """Messages that the syphon sent to the primary."""
    primary_receives: MessageGroups = ()
    """Messages that the application received from the primary."""
    primary_completes: int = 0
    pings: int = 0
    ping_size: int = PING_SIZE
    empty_polls: int = 0
    """Long polls that ended without a message."""
    others: Mapping[CostKey, MessageGroups] = field(default_factory=dict)
    """All other operations: peeks, lock renewals, dead-lettering, management calls. The size is 0
    where no message is transferred."""

    def __post_init__(self) -> None:
        for name in (
            "backlog_completes",
            "primary_completes",
            "pings",
            "ping_size",
            "empty_polls",
        ):
            _check_count(name, getattr(self, name))
        for name in (
            "direct_sends",
            "backlog_sends",
            "backlog_receives",
            "drain_sends",
            "primary_receives",
        ):
            _check_groups(name, getattr(self, name))
        for key, groups in self.others.items():
            _check_groups(f"{key.purpose} {key.kind}", groups)

    @classmethod
    def through_backlog(cls, messages: MessageGroups, *, alias_bytes: int = 0) -> "TrafficCounts":
        """Count messages that went through the backlog once and were delivered.

        `messages` have the sizes that they have at the primary. Each message makes four operations,
        six with the completes.
        """
        stored = tuple(MessageGroup(group.messages, group.size + alias_bytes) for group in messages)
        count = sum(group.messages for group in messages)
        return cls(
            backlog_sends=stored,
            backlog_receives=stored,
            backlog_completes=count,
            drain_sends=messages,
            primary_receives=messages,
            primary_completes=count,
        )


@dataclass(frozen=True, slots=True)
class UsageBreakdown:
    """Usage by purpose, namespace and kind of operation."""

    by_key: Mapping[CostKey, Usage]

    @property
    def total(self) -> Usage:
        return sum(self.by_key.values(), Usage())

    @property
    def without_completes(self) -> Usage:
        """The usage without the completes of peek-lock."""
        return sum(
            (usage for key, usage in self.by_key.items() if key.kind is not OperationKind.COMPLETE),
            Usage(),
        )

    def by_purpose(self) -> dict[Purpose, Usage]:
        """Return the usage of each purpose that has any, in the order of `Purpose`."""
        totals = {purpose: Usage() for purpose in Purpose}
        for key, usage in self.by_key.items():
            totals[key.purpose] += usage
        return {purpose: usage for purpose, usage in totals.items() if usage != Usage()}

    def by_kind(
        self, role: NamespaceRole | None = None, *, metered: bool = False
    ) -> dict[OperationKind, Usage]:
        """Return the usage of each kind of operation, of one namespace or of both.

        With `metered` the kinds are those that a namespace counts: a ping is a send, and an empty
        poll is a receive.
        """
        totals: dict[OperationKind, Usage] = {}
        for key, usage in self.by_key.items():
            if role is None or key.role is role:
                kind = key.kind.metered if metered else key.kind
                totals[kind] = totals.get(kind, Usage()) + usage
        return totals


def calculate_usage(counts: TrafficCounts) -> UsageBreakdown:
    """Return the exact usage that some counts make."""
    by_key: dict[CostKey, Usage] = {}

    def add(key: CostKey, messages: int, size: int = 0) -> None:
        if messages:
            by_key[key] = by_key.get(key, Usage()) + usage_of_messages(messages, size)

    primary, secondary = NamespaceRole.PRIMARY, NamespaceRole.SECONDARY
    send, receive = OperationKind.SEND, OperationKind.RECEIVE
    for key, groups in (
        (CostKey(Purpose.TRAFFIC, primary, send), counts.direct_sends),
        (CostKey(Purpose.BACKLOG, secondary, send), counts.backlog_sends),
        (CostKey(Purpose.DRAIN, secondary, receive), counts.backlog_receives),
        (CostKey(Purpose.DRAIN, primary, send), counts.drain_sends),
        (CostKey(Purpose.DELIVERY, primary, receive), counts.primary_receives),
        *counts.others.items(),
    ):
        for group in groups:
            add(key, group.messages, group.size)
    complete = OperationKind.COMPLETE
    add(CostKey(Purpose.DRAIN, secondary, complete), counts.backlog_completes)
    add(CostKey(Purpose.DELIVERY, primary, complete), counts.primary_completes)
    add(CostKey(Purpose.PINGS, primary, OperationKind.PING), counts.pings, counts.ping_size)
    add(CostKey(Purpose.IDLE, secondary, OperationKind.POLL), counts.empty_polls)
    return UsageBreakdown(by_key)


def _check_count(name: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ConfigurationError(f"{name} must be an integer of at least 0, not {count!r}")


def _check_groups(name: str, groups: MessageGroups) -> None:
    for messages, size in groups:
        _check_count(f"the number of messages in {name}", messages)
        _check_count(f"the message size in {name}", size)
