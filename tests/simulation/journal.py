"""What applications were told, by message id: the truth that the checks compare with."""

from collections import Counter
from dataclasses import dataclass, field

from pairbus.amqp.sections import Message


@dataclass(slots=True)
class MessageRecord:
    """A message that an application sent, and what it was told."""

    id: str
    path: str
    session: str | None
    process: str
    begun: int = 0
    """The number of the event at which the first call began."""
    acknowledged: int | None = None
    """The number of the event at which a call succeeded; None: none has."""
    unknown: int = 0
    """Calls after which it is not known whether the message was sent."""
    cancelled: int = 0
    """Calls that the application cancelled."""
    not_sent: int = 0
    """Calls that said that the message was not sent."""
    transfers: int = 0
    """Transfers by the SDK, to the primary and to the backlog."""
    accepted: int = 0
    """Transfers that a namespace accepted."""
    rejected: int = 0
    """Transfers that a namespace rejected."""
    unanswered_by_backlog: int = 0
    """Transfers to the backlog without an answer."""
    scheduled_ms: int | None = None
    """The time for which it is scheduled."""
    is_revoked: bool = False
    """The namespace confirmed that a scheduled message was cancelled."""
    may_be_revoked: bool = False
    """The application has tried to cancel a scheduled message."""
    unanswered_before: int = 0
    """Transfers without an answer, when the current call began."""

    @property
    def unanswered(self) -> int:
        """Transfers without an answer."""
        return self.transfers - self.accepted - self.rejected


@dataclass(slots=True)
class Violation:
    """A promise that was broken."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass(slots=True)
class Journal:
    """All messages of a simulation, and the violations that were noticed while it ran."""

    messages: dict[str, MessageRecord] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    forwards: dict[str, int] = field(default_factory=dict)
    """Transfers by syphons, by message id."""
    stored: set[str] = field(default_factory=set)
    """The messages that a backlog queue accepted, without those whose transfers had no answer."""
    arrivals: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Messages that clients have received or peeked, by host and kind of the operation."""
    peeks: Counter[str] = field(default_factory=Counter)
    """Operations of the peeks of clients, by host. A peek without an answer is one."""
    peeks_not_found: Counter[str] = field(default_factory=Counter)
    """Peeks at queues that did not exist, or were deleted before the answer, by host."""
    marked_paths: set[str] = field(default_factory=set)
    """Paths that an operator has marked healthy, although messages were in the backlog: later ones
    may pass these."""
    refused_dead_letters: bool = False
    """A redrive has left a dead letter because its destination refused it. Later messages of its
    session may pass it."""
    _count: int = 0

    def next_event(self) -> int:
        self._count += 1
        return self._count

    def violate(self, rule: str, text: str) -> None:
        self.violations.append(Violation(rule, text))


def id_of(payload: bytes) -> str:
    """Return the id of an encoded message."""
    return str(Message.parse(payload).read_properties().message_id)
