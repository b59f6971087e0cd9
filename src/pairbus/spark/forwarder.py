"""Forwarding of messages to their destinations within one task.

A message is completed after its destination has accepted it. A message that its destination would
never accept is dead-lettered. All others stay in their queue.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable

from pairbus.amqp.client import ClientOptions
from pairbus.spark.connections import sender_for
from pairbus.spark.destination_sender import DestinationSender
from pairbus.spark.messages import RestoredMessage
from pairbus.spark.outcome import Outcome, OutcomeRecorder
from pairbus.spark.pace import Pace
from pairbus.spark.settler import Settler
from pairbus.spark.usage import NO_USAGE, UsageRecorder

LOCK_MARGIN_MS = 5_000
"""A message whose lock expires sooner is not sent: it could not be completed in time."""


class Forwarder:
    """Sends messages of one task to their destinations, and settles them. Call `finish` last."""

    def __init__(
        self,
        target: ClientOptions,
        source: ClientOptions | None,
        *,
        usage: UsageRecorder = NO_USAGE,
        pace: Pace | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`target` is the namespace of the destinations. `source` is the namespace that holds the
        locks; None: messages have no locks. `pace` spreads the sends over time."""
        self._target = target
        self._now_ms = now_ms
        self._pace = Pace() if pace is None else pace
        self._recorder = OutcomeRecorder(Settler(source, usage), usage)
        self._senders: dict[str, DestinationSender] = {}

    def forward(self, messages: Iterable[RestoredMessage]) -> None:
        """Send messages, after those of earlier calls."""
        self._pace.max_slice()
        for message in messages:
            # For each message anew: a send that is paced takes time.
            min_locked_until = self._now_ms() + LOCK_MARGIN_MS
            if message.problem is not None or message.destination is None:
                self._recorder.dead_letter(
                    message, message.problem or "", message.description or ""
                )
                continue
            sender = self._senders.get(message.destination)
            if sender is None:
                sender = self._open(message.destination)
            sender.add(message, min_locked_until)

    @property
    def moved(self) -> Counter[str]:
        """The messages that were delivered so far, by destination."""
        return self._recorder.outcome.moved

    def finish(self) -> Outcome:
        """Send the last batches, wait for all answers, and settle."""
        for sender in self._senders.values():
            sender.flush()
        for sender in self._senders.values():
            sender.wait()
        outcome = self._recorder.finish()
        outcome.limit = self._pace.limit
        return outcome

    def _open(self, path: str) -> DestinationSender:
        sender = DestinationSender(path, sender_for(self._target, path), self._recorder, self._pace)
        self._senders[path] = sender
        return sender
