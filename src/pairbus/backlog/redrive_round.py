"""Moves or deletes some dead letters of one queue. It needs neither Spark nor Java; a Spark task
runs it too.

Messages are received in the order of the queue, under locks. A message that is part of the round is
sent to its destination, and completed after the destination has accepted it. All others stay locked
until the end of the round, because an abandoned message would be delivered again at once.

A message of a session is sent only when no earlier message of the round is missing, which a dead
predecessor may still have locked: otherwise it could overtake one of its session.
"""

import logging
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import chain

from pairbus.amqp.client import Receiver
from pairbus.backlog.dead_letter_peek import missing_entity
from pairbus.backlog.dead_letter_source import DeadLetterSource
from pairbus.backlog.duplicate_detection import WOULD_BE_DROPPED, describe, would_be_dropped
from pairbus.backlog.message import read_message
from pairbus.backlog.redrive_locks import LockedMessage, LockRenewal
from pairbus.backlog.redrive_outcome import RedriveOutcome
from pairbus.backlog.redrive_pace import Backoff, RedriveRate
from pairbus.backlog.redrive_recorder import RedriveRecorder
from pairbus.errors import AmqpError, Busy, EntityNotFound, Unavailable
from pairbus.servicebus.management import ABANDONED, COMPLETED
from pairbus.spark.connections import client_for, management_for
from pairbus.spark.forwarder import Forwarder
from pairbus.spark.messages import (
    ReceivedMessage,
    RestoredMessage,
    locked_until_of,
    sequence_number_of,
)
from pairbus.spark.settler import Settler
from pairbus.spark.usage import UsageRecorder
from pairbus.usage.operations import OperationKind

logger = logging.getLogger(__name__)

CHUNK = 1000
"""Messages that are received before they are sent."""
MAX_WAITING = 5000
"""Messages that wait for a destination that does not accept them, before fewer are received."""
PATIENCE_S = 60.0
"""The time without progress after which destinations that accept nothing are given up."""
FULL_CHUNK = 100
"""Messages that are received at once when so many wait."""
LOCK_MARGIN_MS = 5_000
"""A message whose lock expires sooner is not kept for another attempt: it is delivered again."""
LOCKED_PATIENCE_S = 330.0
"""The time to wait for messages that another receiver has locked. The longest lock duration of
Service Bus is 5 minutes."""


class RedriveRound:
    """Handles the given dead letters of one entity, until none is left or there is no progress."""

    def __init__(
        self,
        source: DeadLetterSource,
        entity: str,
        numbers: Iterable[int],
        *,
        purge: bool = False,
        duplicate_window: timedelta | None = None,
        max_rate: float | None = None,
        usage: UsageRecorder,
        wait: Callable[[float], bool],
        on_progress: Callable[[RedriveOutcome], None] = lambda outcome: None,
        patience_s: float = PATIENCE_S,
        locked_patience_s: float = LOCKED_PATIENCE_S,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`wait` sleeps for some seconds, and returns True to cancel. With `purge`, messages are
        deleted and not sent. `duplicate_window` is that of the destination, if messages return to
        where they came from: those that it would drop stay. `on_progress` gets the changes since
        its last call."""
        self._source = source
        self._entity = entity
        self._queue = source.queue_of(entity)
        self._purge = purge
        self._duplicate_window = duplicate_window
        self._usage = usage
        self._wait = wait
        self._on_progress = on_progress
        self._patience_s = patience_s
        self._locked_patience_s = locked_patience_s
        self._now_ms = now_ms
        self._locks = LockRenewal(source.namespace, self._queue, entity, usage, now_ms)
        self._rate = RedriveRate(max_rate)
        self._remaining = set(numbers)
        self._accepted: set[int] = set()
        """Messages that were accepted, and may still be in the queue because a completion failed.
        They are completed when they are delivered again, and not sent."""
        self._waiting: dict[int, LockedMessage] = {}
        """Messages to be sent, by sequence number."""
        self._held: dict[int, LockedMessage] = {}
        """Messages that stay, and are locked until the end of the round."""
        self._backoffs: dict[str, Backoff] = {}
        self._errors: dict[str, str] = {}
        self._idle = Backoff()
        self._progress_at = time.monotonic()
        self._outcome = RedriveOutcome()

    def run(self) -> RedriveOutcome:
        """Run the round, and return its outcome. Raises NotAuthorized and EntityNotFound, and other
        errors of the client after some attempts. Nothing is lost then."""
        try:
            with Receiver(client_for(self._source.namespace), self._queue, confirm=False) as link:
                while self._remaining or self._accepted:
                    if self._wait(0):
                        self._outcome.cancelled = True
                        break
                    if not self._step(link):
                        break
        finally:
            self._release()
            self._usage.flush()
        self._count_left()
        return self._outcome

    def _step(self, link: Receiver) -> bool:
        """Receive and handle some messages. Return False to give up."""
        self._locks.renew(self._held)
        self._locks.renew(self._waiting)
        missing = self._first_missing()
        received = 0 if missing is None else self._receive(link)
        handled = self._complete_all() if self._purge else self._send()
        now = time.monotonic()
        if handled:
            self._progress_at = now
            self._idle.reset()
            pause_s = self._rate.pause_s(handled, now)
            return pause_s <= 0 or not self._wait(pause_s) or self._cancel()
        if received and len(self._waiting) < MAX_WAITING:
            return True
        missing = self._first_missing()
        if missing is not None and not received and not self._is_there():
            return True
        patience_s = self._patience_s if missing is None else self._locked_patience_s
        if now - self._progress_at > patience_s:
            return False
        return not self._wait(self._idle.next_s()) or self._cancel()

    def _first_missing(self) -> int | None:
        """Return the smallest number of the round that was not received yet, or None."""
        expected = chain(self._remaining, self._accepted)
        return min((number for number in expected if number not in self._waiting), default=None)

    def _cancel(self) -> bool:
        self._outcome.cancelled = True
        return False

    def _receive(self, link: Receiver) -> int:
        """Receive some messages and sort them. Return how many arrived."""
        sizes: list[int] = []
        count = 0
        empty_receives, failed_receives = link.empty_receives, link.failed_receives
        size = CHUNK if len(self._waiting) < MAX_WAITING else FULL_CHUNK
        try:
            for deliveries in link.receive_available(self._rate.chunk(size)):
                for delivery in deliveries:
                    sizes.append(len(delivery.payload))
                    # Settled by lock token, so the session need not track the delivery.
                    delivery.link.session.incoming.unsettled.pop(delivery.id, None)
                    count += self._sort(delivery.payload, delivery.tag)
        except EntityNotFound as exc:
            raise missing_entity(self._source, self._entity) from exc
        except (Unavailable, Busy) as exc:
            if time.monotonic() - self._progress_at > self._patience_s:
                raise
            logger.warning("%s: receiving failed and is tried again: %s", self._queue, exc)
        finally:
            for _ in range(link.empty_receives - empty_receives):
                self._usage.add(OperationKind.POLL, self._entity)
            for _ in range(link.failed_receives - failed_receives):
                self._usage.add(OperationKind.POLL, self._entity, answered=False)
            if sizes:
                self._usage.add(OperationKind.RECEIVE, self._entity, sizes)
        return count

    def _sort(self, payload: bytes, lock_token: bytes) -> bool:
        """Keep a message for sending, or until the end. Return True if it is new."""
        number, now_ms = sequence_number_of(payload), self._now_ms()
        locked_until = locked_until_of(payload) or now_ms + 2 * LOCK_MARGIN_MS
        renew_ms = (now_ms + locked_until) // 2
        if number in self._remaining or number in self._accepted:
            received = ReceivedMessage(self._queue, payload, lock_token, locked_until)
            message = self._check_duplicate(self._source.restore(self._entity, received), payload)
            self._waiting[number] = LockedMessage(number, message, renew_ms)
            return True
        is_new = number not in self._held
        kept = RestoredMessage(self._queue, lock_token, locked_until, None, None, b"")
        self._held[number] = LockedMessage(number, kept, renew_ms)
        return is_new

    def _check_duplicate(self, message: RestoredMessage, payload: bytes) -> RestoredMessage:
        """Return a message with a problem if its destination would drop it as a duplicate."""
        window = self._duplicate_window
        if window is None or message.problem is not None:
            return message
        enqueued_ms = read_message(self._entity, payload).enqueued_ms
        if not would_be_dropped(enqueued_ms, window, self._now_ms()):
            return message
        text = describe(message.destination or self._entity, window)
        return message._replace(problem=WOULD_BE_DROPPED, description=text)

    def _complete_all(self) -> int:
        """Delete the messages that were received."""
        settler = Settler(self._source.namespace, self._usage)
        settler.add(self._of_entity(self._waiting), COMPLETED)
        change = RedriveOutcome()
        failed = settler.finish()
        for number, locked in self._waiting.items():
            if number not in self._accepted:
                change.moved[""] += 1
                change.bytes += len(locked.message.payload)
            self._remaining.discard(number)
            if failed:  # it is not known which of them
                self._accepted.add(number)
            else:
                self._accepted.discard(number)
        self._waiting.clear()
        self._report(change)
        return change.moved.total()

    def _send(self) -> int:
        """Send messages, except to destinations that failed a moment ago. Return how many were
        handled."""
        now = time.monotonic()
        ready: list[RestoredMessage] = []
        numbers: dict[bytes | None, int] = {}
        settler = Settler(self._source.namespace, self._usage)
        missing = self._first_missing()
        for number in sorted(self._waiting):
            message = self._waiting[number].message
            if number in self._accepted:
                settler.add([message], COMPLETED)
                continue
            backoff = self._backoffs.get(message.destination or "")
            is_next = message.session_id is None or missing is None or number < missing
            if is_next and (backoff is None or backoff.is_due(now)):
                ready.append(message)
                numbers[message.lock_token] = number
        if self._accepted and settler.finish() == 0:
            for number in self._accepted.intersection(self._waiting):
                del self._waiting[number]
                self._accepted.discard(number)
        if not ready:
            return 0
        recorder = RedriveRecorder(settler, self._usage)
        forwarder = Forwarder(
            self._source.target_namespace,
            self._source.namespace,
            usage=self._usage,
            recorder=recorder,
            now_ms=self._now_ms,
        )
        forwarder.forward(ready)
        unsettled = forwarder.finish().unsettled
        return self._note(recorder, numbers, unsettled)

    def _note(
        self, recorder: RedriveRecorder, numbers: dict[bytes | None, int], unsettled: int
    ) -> int:
        """Take note of what happened to messages that were sent. Return how many were handled."""
        change = RedriveOutcome()
        for message in recorder.accepted:
            number = numbers[message.lock_token]
            del self._waiting[number]
            self._remaining.discard(number)
            destination = message.destination or ""
            change.moved[destination] += 1
            change.bytes += len(message.payload)
            self._backoffs.pop(destination, None)
            if unsettled:  # it is not known which of them
                self._accepted.add(number)
        for message, reason in recorder.refused:
            number = numbers[message.lock_token]
            self._held[number] = self._waiting.pop(number)
            self._remaining.discard(number)
            change.refused[message.destination or "", reason] += 1
        now, now_ms = time.monotonic(), self._now_ms()
        failed: set[str] = set()
        for message, error in recorder.not_sent:
            destination = message.destination or ""
            if error is None or message.locked_until < now_ms + LOCK_MARGIN_MS:
                del self._waiting[numbers[message.lock_token]]  # it is delivered again
            else:
                self._errors[destination] = error
                failed.add(destination)
        for destination in failed:
            self._backoffs.setdefault(destination, Backoff()).fail(now)
        self._report(change)
        return change.handled

    def _report(self, change: RedriveOutcome) -> None:
        self._outcome.add(change)
        if change.handled:
            self._on_progress(change)

    def _is_there(self) -> bool:
        """Return True if one of the missing messages is still in the queue, locked by another
        receiver. Forget messages that are not there any more."""
        expected = sorted((self._remaining | self._accepted).difference(self._waiting))
        while expected:
            try:
                payloads = management_for(self._source.namespace, self._queue).peek(expected[0], 1)
            except EntityNotFound:
                raise
            except AmqpError as exc:
                self._usage.add(OperationKind.PEEK, self._entity, answered=False)
                if isinstance(exc, Unavailable | Busy):
                    return True
                raise
            self._usage.add(OperationKind.PEEK, self._entity, [len(data) for data in payloads])
            number = sequence_number_of(payloads[0]) if payloads else None
            gone = [n for n in expected if number is None or n < number]
            taken = self._remaining.intersection(gone)
            if taken:
                self._report(RedriveOutcome(gone=len(taken)))
            self._remaining.difference_update(gone)
            self._accepted.difference_update(gone)
            expected = expected[len(gone) :]
            if expected and expected[0] == number:
                return True
        return False

    def _release(self) -> None:
        """Abandon all messages that are still locked."""
        settler = Settler(self._source.namespace, self._usage)
        for kept in (self._held, self._waiting):
            settler.add(self._of_entity(kept), ABANDONED)
        settler.finish()

    def _of_entity(self, kept: dict[int, LockedMessage]) -> list[RestoredMessage]:
        """Return messages, for the ledger as messages of the entity that holds them."""
        return [locked.message._replace(destination=self._entity) for locked in kept.values()]

    def _count_left(self) -> None:
        """Count the messages that were neither moved nor refused."""
        self._outcome.unsettled = len(self._accepted)
        for number in self._remaining:
            locked = self._waiting.get(number)
            self._outcome.left[(locked and locked.message.destination) or ""] += 1
        for destination in self._outcome.left:
            if destination in self._errors:
                self._outcome.errors[destination] = self._errors[destination]
