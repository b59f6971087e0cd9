"""Forwarding of messages to their destinations within one task.

A message is completed after its destination has accepted it. A message that its destination would
never accept is dead-lettered. All others stay in their queue.
"""

from collections.abc import Callable, Sequence

from pairbus.amqp.client import ClientOptions
from pairbus.spark.connections import batching_for, sender_for
from pairbus.spark.destination_sender import DestinationSender
from pairbus.spark.locks import LockMargin, wall_clock_ms
from pairbus.spark.messages import RestoredMessage
from pairbus.spark.outcome import Outcome, OutcomeRecorder
from pairbus.spark.pace import Pace
from pairbus.spark.settler import Settler
from pairbus.spark.usage import NO_USAGE, UsageRecorder


class Forwarder:
    """Sends messages of one task to their destinations, and settles them. Call `finish` last."""

    def __init__(
        self,
        target: ClientOptions,
        source: ClientOptions | None,
        *,
        usage: UsageRecorder = NO_USAGE,
        expired: frozenset[str] | None = None,
        recorder: OutcomeRecorder | None = None,
        pace: Pace | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """`target` is the namespace of the destinations. `source` is the namespace that holds the
        locks; None: messages have no locks. `expired` are the destinations whose messages are
        dead-lettered if they do not exist; None: all. `recorder` decides what happens to messages
        that are not delivered, if it is not what the syphon does. `pace` spreads the sends over
        time."""
        self._target = target
        self._expired = expired
        self._now_ms = now_ms
        self._pace = Pace() if pace is None else pace
        self._margin = LockMargin()
        self._margin_ms = 0
        self._recorder = recorder or OutcomeRecorder(Settler(source, usage), usage)
        self._senders: dict[str, DestinationSender] = {}

    def forward(self, messages: Sequence[RestoredMessage]) -> None:
        """Send messages, after those of earlier calls."""
        self._pace.max_slice()
        now = self._now_ms()
        longest = max((m.locked_until for m in messages if m.lock_token is not None), default=now)
        self._margin_ms = self._margin.update(longest - now)
        min_locked_until = self._min_locked_until()
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
        outcome = self._recorder.finish()
        outcome.limit = self._pace.limit
        return outcome

    def _min_locked_until(self) -> int:
        # A message whose lock expires sooner is not sent: it could not be completed in time.
        return self._now_ms() + self._margin_ms

    def _open(self, path: str) -> DestinationSender:
        sender = self._senders[path] = DestinationSender(
            path,
            sender_for(self._target, path),
            batching_for(self._target, path),
            self._recorder,
            min_locked_until=self._min_locked_until,
            pace=self._pace,
            hold_if_missing=self._expired is not None and path not in self._expired,
        )
        return sender
