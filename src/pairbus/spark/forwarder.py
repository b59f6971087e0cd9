"""Forwarding of messages to their destinations within one task.

A message is completed after its destination has accepted it. A message that its destination would
never accept is dead-lettered. All others stay in their queue.
"""

import time
from collections.abc import Callable, Iterable

from pairbus.amqp.client import ClientOptions
from pairbus.spark.connections import sender_for
from pairbus.spark.destination_sender import DestinationSender
from pairbus.spark.messages import RestoredMessage
from pairbus.spark.outcome import Outcome, OutcomeRecorder
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
        settler: Settler | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`target` is the namespace of the destinations. `source` is the namespace that holds the
        locks; None: messages have no locks. `settler` replaces the usual one for it."""
        self._target = target
        self._now_ms = now_ms
        self._recorder = OutcomeRecorder(settler or Settler(source, usage), usage)
        self._senders: dict[str, DestinationSender] = {}

    def forward(self, messages: Iterable[RestoredMessage]) -> None:
        """Send messages, after those of earlier calls."""
        min_locked_until = self._now_ms() + LOCK_MARGIN_MS
        for message in messages:
            if message.problem is not None or message.destination is None:
                self._recorder.dead_letter(
                    message, message.problem or "", message.description or ""
                )
                continue
            sender = self._senders.get(message.destination)
            if sender is None:
                sender = self._open(message.destination)
            sender.add(message, min_locked_until)

    def finish(self) -> Outcome:
        """Send the last batches, wait for all answers, and settle."""
        for sender in self._senders.values():
            sender.flush()
        for sender in self._senders.values():
            sender.wait()
        return self._recorder.finish()

    def _open(self, path: str) -> DestinationSender:
        sender = DestinationSender(path, sender_for(self._target, path), self._recorder)
        self._senders[path] = sender
        return sender
