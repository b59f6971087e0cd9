"""A namespace of the Standard tier: its credits, its outages, and queues that are lists."""

from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusServerBusyError

from pairbus.emulator.tiers import CREDITS, STANDARD, Throttle
from pairbus.errors import Busy


class StoredMessage(NamedTuple):
    number: int
    stored_at: float


class CreditedNamespace:
    """Admits operations by the emulator's credits, and counts them by second and purpose."""

    def __init__(self, name: str, now: Callable[[], float]) -> None:
        self._now = now
        self._throttle = Throttle(name, STANDARD, lambda: int(now() * 1000))
        self.is_down = False
        self.credits: dict[str, Counter[int]] = {}
        """Credits by purpose and second."""
        self.throttled: dict[str, Counter[int]] = {}
        """Throttled calls by purpose and second."""
        self.throttled_at = 0.0

    def call(self, purpose: str, kind: str, messages: int = 1) -> None:
        """Make one call. Raises an error of the SDK if the namespace is down or throttles."""
        if self.is_down:
            raise ServiceBusConnectionError(message="connection refused")
        try:
            self._throttle.admit(kind)
        except Busy as exc:
            self.throttled.setdefault(purpose, Counter())[int(self._now())] += 1
            raise ServiceBusServerBusyError(message=str(exc)) from None
        self.count(purpose, kind, messages)

    def count(self, purpose: str, kind: str, messages: int) -> None:
        """Take the credits of messages that were admitted."""
        for _ in range(messages):
            self._throttle.count(kind, 0)
        spent = self.credits.setdefault(purpose, Counter())
        spent[int(self._now())] += CREDITS[kind] * messages

    def max_messages(self, kind: str, limit: int) -> int:
        return 0 if self.is_down else self._throttle.max_messages(kind, limit)


class StoredQueue:
    """A queue that is read from its start."""

    def __init__(self) -> None:
        self.messages: deque[StoredMessage] = deque()
        self._last = 0

    def store(self, now: float) -> None:
        self._last += 1
        self.messages.append(StoredMessage(self._last, now))

    def peek(self, number: int, count: int) -> list[StoredMessage]:
        """Return messages from a number on. Numbers have no gaps, because only the first messages
        are taken out."""
        if not self.messages:
            return []
        start = max(0, number - self.messages[0].number)
        return [self.messages[i] for i in range(start, min(start + count, len(self.messages)))]
