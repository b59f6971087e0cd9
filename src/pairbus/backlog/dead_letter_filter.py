"""The choice of some dead letters. No I/O."""

from dataclasses import dataclass

from pairbus.backlog.message import BacklogMessage
from pairbus.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Chooses dead letters by reason, destination and time. Empty: all of them.

    The time is that at which the message was enqueued. A message keeps it when it is dead-lettered,
    and the service does not record the time of dead-lettering.
    """

    reasons: tuple[str, ...] = ()
    """Dead-letter reasons. The empty string stands for messages without a reason."""
    destinations: tuple[str, ...] = ()
    since_ms: int | None = None
    """Unix time in milliseconds; messages that were enqueued then are chosen."""
    until_ms: int | None = None
    """Unix time in milliseconds; messages that were enqueued then are not chosen."""
    count: int | None = None
    """The largest number of messages, the oldest of each queue first."""

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise ConfigurationError(
                f"The number of messages must be at least 1, not {self.count}."
            )
        since_ms, until_ms = self.since_ms, self.until_ms
        if since_ms is not None and until_ms is not None and since_ms >= until_ms:
            raise ConfigurationError(
                "The start of the time range is not before its end, so no message is in it. Check "
                "--since and --until."
            )

    @property
    def takes_all(self) -> bool:
        """True if every message matches."""
        return not (self.reasons or self.destinations) and self.since_ms is self.until_ms is None

    def matches(self, message: BacklogMessage) -> bool:
        """Return True if a message is chosen, apart from `count`."""
        if self.reasons and (message.dead_letter_reason or "") not in self.reasons:
            return False
        if self.destinations and message.destination not in self.destinations:
            return False
        if self.since_ms is None and self.until_ms is None:
            return True
        time = message.enqueued_ms
        return (
            time is not None
            and (self.since_ms is None or time >= self.since_ms)
            and (self.until_ms is None or time < self.until_ms)
        )


ALL = DeadLetterFilter()
