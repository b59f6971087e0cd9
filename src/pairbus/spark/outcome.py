"""The outcome of a task: each message is delivered, dead-lettered, or left where it is."""

from collections import Counter
from dataclasses import dataclass, field

from pairbus.errors import AmqpError, Busy
from pairbus.servicebus.management import ABANDONED, COMPLETED
from pairbus.spark.drain_recorder import DrainRecorder
from pairbus.spark.messages import RestoredMessage
from pairbus.spark.rate_control import NO_LIMIT, RateLimit
from pairbus.spark.settler import Settler
from pairbus.spark.usage import UsageRecorder
from pairbus.usage.operations import OperationKind


@dataclass(slots=True)
class Outcome:
    """Numbers of messages of a task, by destination."""

    moved: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    dead_lettered: Counter[str] = field(default_factory=Counter)
    dead_letter_reasons: dict[str, Counter[str]] = field(default_factory=dict)
    """The number of dead letters by destination and reason."""
    left: Counter[str] = field(default_factory=Counter)
    """Messages that stay in their queue and are tried again."""
    errors: dict[str, str] = field(default_factory=dict)
    """The last error of each destination that did not accept messages."""
    missing: set[str] = field(default_factory=set)
    """Destinations that do not exist."""
    busy: bool = False
    """A destination throttled the task."""
    unsettled: int = 0
    """Messages that were delivered and could not be completed: they are delivered again."""
    throttled: int = 0
    """Deliveries that the namespace of the destinations throttled."""
    limit: RateLimit = NO_LIMIT
    """The rate limit, as the task knew it at its end."""


class OutcomeRecorder:
    """Settles and counts messages according to what happened to them."""

    def __init__(
        self, settler: Settler, usage: UsageRecorder, drains: DrainRecorder | None = None
    ) -> None:
        """`drains` records the messages for telemetry, if it is on."""
        self.outcome = Outcome()
        self._drains = drains
        self._settler = settler
        self._usage = usage
        self._still_locked: list[RestoredMessage] = []

    def delivered(self, destination: str, messages: list[RestoredMessage]) -> None:
        """Complete messages that the destination accepted."""
        self._record_sends(destination, messages, answered=True)
        self.outcome.moved[destination] += len(messages)
        if self._drains is not None:
            self._drains.delivered(destination, messages)
        self.outcome.bytes += sum([len(message.payload) for message in messages])
        self._settler.add(messages, COMPLETED)

    def not_delivered(
        self, destination: str, messages: list[RestoredMessage], error: AmqpError
    ) -> None:
        """Record sends that the destination did not accept."""
        self.outcome.throttled += isinstance(error, Busy)
        self._record_sends(destination, messages, answered=False)

    def destination_failed(self, destination: str, error: AmqpError) -> None:
        """Record that a destination cannot accept messages at the moment."""
        self.outcome.busy = self.outcome.busy or isinstance(error, Busy)
        self.outcome.errors[destination] = str(error)

    def destination_missing(self, destination: str) -> None:
        """Record that a destination does not exist."""
        self.outcome.missing.add(destination)

    def leave(
        self, destination: str, messages: list[RestoredMessage], error: AmqpError | None
    ) -> None:
        """Leave messages in their queue.

        Messages of sessions are abandoned, so that they keep their position in the queue, and so
        are those of a busy destination, which accepts them soon. Others stay locked for now, so
        that later messages in the queue can be received.
        """
        self.outcome.left[destination] += len(messages)
        if error is not None:
            self.outcome.errors.setdefault(destination, str(error))
        for message in messages:
            if message.session_id is not None or isinstance(error, Busy):
                self._settler.add([message], ABANDONED)
            else:
                self._still_locked.append(message)

    def dead_letter(self, message: RestoredMessage, reason: str, description: str) -> None:
        """Dead-letter a message. One without a lock cannot be: it counts as left, with an error."""
        destination = message.destination or ""
        if self._settler.can_settle(message):
            self._settler.dead_letter(message, reason, description)
        else:
            self.outcome.left[destination] += 1
            self.outcome.errors.setdefault(destination, f"{reason}: {description}")

    def current_outcome(self) -> Outcome:
        """Return the outcome so far, with the dead letters that the namespace has confirmed."""
        reasons: dict[str, Counter[str]] = {}
        for (path, reason), count in self._settler.settlements.dead_lettered.items():
            reasons.setdefault(path, Counter())[reason] += count
        self.outcome.dead_letter_reasons = reasons
        self.outcome.dead_lettered = Counter({path: reasons[path].total() for path in reasons})
        return self.outcome

    def finish(self) -> Outcome:
        """Settle everything, and return the outcome."""
        if not self.outcome.moved:
            # There are no other messages behind these, so they need not stay locked.
            self._settler.add(self._still_locked, ABANDONED)
        self.outcome.unsettled += self._settler.finish()
        self.outcome.left.update(self._settler.settlements.not_dead_lettered)
        return self.current_outcome()

    def _record_sends(
        self, destination: str, messages: list[RestoredMessage], *, answered: bool
    ) -> None:
        if self._usage.enabled:
            sizes = [len(message.payload) for message in messages]
            self._usage.add(OperationKind.SEND, destination, sizes, answered=answered)
