"""The counters of a path, which `PairedClient.status` shows. All of them count messages, not calls.

A healthy path must not pay for them. Its sends are counted per sender, under the lock that a send
holds anyway; everything else is counted under the lock of the state.
"""

from collections.abc import Iterable

from pairbus.options import FailureKind
from pairbus.pairing.snapshots import SendCounters


class SentCounter:
    """The messages of one sender that a healthy primary accepted. The lock of the sender must be
    held to change it."""

    __slots__ = ("messages",)

    def __init__(self) -> None:
        self.messages = 0


class PathCounters:
    """The counters of one path. The lock of the state must be held."""

    def __init__(self) -> None:
        self.stored = 0
        self.throttled = 0
        self.pings = 0
        self.pings_failed = 0
        self.failed = dict.fromkeys(FailureKind, 0)
        self._sent = 0
        self._senders: set[SentCounter] = set()

    def add_sender(self, counter: SentCounter) -> None:
        """Include the counter of a new sender."""
        self._senders.add(counter)

    def remove_sender(self, counter: SentCounter) -> None:
        """Keep the messages of a sender that does not exist any more."""
        self._senders.discard(counter)
        self._sent += counter.messages

    def add_sent(self, messages: int) -> None:
        """Count messages that the primary accepted and no sender has counted."""
        self._sent += messages

    def add_ping(self, error: BaseException | None) -> None:
        """Count a ping or probe of the primary."""
        self.pings += 1
        self.pings_failed += error is not None

    @property
    def sent(self) -> int:
        """The number of messages that the primary accepted."""
        return self._sent + sum([counter.messages for counter in self._senders])

    def snapshot(self) -> SendCounters:
        """Return the current values."""
        return SendCounters(
            sent=self.sent,
            stored=self.stored,
            failed=dict(self.failed),
            throttled=self.throttled,
            pings=self.pings,
            pings_failed=self.pings_failed,
        )


def total(counters: Iterable[SendCounters]) -> SendCounters:
    """Return the sums of the counters of several paths."""
    counters = list(counters)
    return SendCounters(
        sent=sum(item.sent for item in counters),
        stored=sum(item.stored for item in counters),
        failed={kind: sum(item.failed[kind] for item in counters) for kind in FailureKind},
        throttled=sum(item.throttled for item in counters),
        pings=sum(item.pings for item in counters),
        pings_failed=sum(item.pings_failed for item in counters),
    )
