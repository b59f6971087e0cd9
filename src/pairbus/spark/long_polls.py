"""Long polls: one receive that waits on each queue, independent of Spark's triggers.

Spark asks a source several times a second whether there is new data, so the answer must be cheap.
A thread in the driver therefore keeps one credit on each queue. The message that arrives is the
first one of the next micro-batch. Its lock is renewed until that micro-batch has ended, because the
task that settles it may start late.
"""

import logging
import threading
from collections.abc import Callable, Container, Iterable
from time import monotonic

from pairbus.amqp.client import Client, ClientOptions, Management, Receiver
from pairbus.amqp.events import Delivery
from pairbus.errors import AmqpError, EntityNotFound, LinkLost, LockLost
from pairbus.servicebus.management import ABANDONED
from pairbus.spark.locks import LockExpiry, wall_clock_ms
from pairbus.spark.messages import ReceivedMessage, destination_of
from pairbus.spark.usage import NO_USAGE, UsageRecorder
from pairbus.usage.operations import OperationKind, Purpose

logger = logging.getLogger(__name__)

STEP_S = 0.2
"""The longest time that the thread waits for the network before it checks its queues again."""
KNOWN_EMPTY_S = 0.5
"""A queue that has not used its credit for this long has no message to deliver."""
MISSING_RETRY_S = 60.0
"""The interval between two attempts to receive from a queue that does not exist."""
RETRY_S, MAX_RETRY_S = 1.0, 30.0
"""The pause after a failure. It doubles up to the maximum."""
MIN_POLL_S = 60.0
"""A poll whose link is detached sooner is a failure."""
RENEW_S = 20.0
"""The longest time after which the lock of a message is renewed. A lock of less than a minute is
renewed after a third of its duration."""


class _QueuePoll:
    """The poll of one queue."""

    def __init__(self, client: Client, queue: str) -> None:
        self.receiver = Receiver(client, queue, confirm=False)
        self.management = Management(client, queue)
        self.credit_since: float | None = None
        """The time when the credit was granted. None: no credit is outstanding."""
        self.message: ReceivedMessage | None = None
        """The message that arrived and was not taken."""
        self.taken: ReceivedMessage | None = None
        """The message that the current micro-batch has taken."""
        self.expiry = LockExpiry()
        self.renew_at = 0.0
        """The time at which the lock of the message is renewed."""
        self.released = False
        """The message is to be abandoned."""
        self.paused = False
        """A task reads the queue. A poll would take a message out of the order of the task."""
        self.suspended = False
        """No credit is to be outstanding, and a message is to be abandoned."""
        self.missing_until = 0.0
        """The queue does not exist, and is not tried again before this time."""


class LongPolls:
    """Long polls on some queues, from the first `resume` to `stop`."""

    def __init__(
        self,
        options: ClientOptions,
        queues: Iterable[str],
        *,
        poll_s: float,
        usage: UsageRecorder = NO_USAGE,
        allow_missing: bool = False,
        now: Callable[[], float] = monotonic,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """With `allow_missing`, a queue that does not exist is not an error."""
        self.error: AmqpError | None = None
        """The reason why the namespace cannot be polled at the moment."""
        self._usage = usage
        self._client = Client(options)
        self._poll_s = poll_s
        self._allow_missing = allow_missing
        self._now = now
        self._now_ms = now_ms
        self._polls = {queue: _QueuePoll(self._client, queue) for queue in queues}
        self._changed = threading.Condition()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def resume(self) -> None:
        """Poll all queues, also those whose messages were taken: their micro-batch has ended."""
        with self._changed:
            for poll in self._polls.values():
                poll.paused = poll.suspended = False
                poll.taken = None
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="pairbus long polls", daemon=True
            )
            self._thread.start()

    def suspend(self) -> None:
        """Hold no message and no credit until `resume`. Messages that were not taken can be
        received again, in their positions. Returns at once."""
        with self._changed:
            for poll in self._polls.values():
                poll.paused = poll.suspended = True
                poll.taken = None
            self._changed.notify_all()

    def stop(self) -> None:
        """End the polls. Messages that were not taken can be received again after their locks."""
        self._stopped = True
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(10)

    def wait_until_known(self, seconds: float) -> bool:
        """Wait until each queue has a message or is known to have none. False: timed out."""
        with self._changed:
            return self._changed.wait_for(
                lambda: all(map(self._is_known, self._polls.values())), seconds
            )

    def wait_for_message(self, seconds: float) -> None:
        """Wait until a message arrives, the namespace cannot be polled, or the time is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self.error is not None
                    or any(poll.message is not None for poll in self._polls.values())
                ),
                seconds,
            )

    def messages(self) -> list[ReceivedMessage]:
        """Return the messages that arrived and were not taken."""
        with self._changed:
            return [poll.message for poll in self._polls.values() if poll.message is not None]

    def take(self, queues: Container[str] | None = None) -> dict[str, ReceivedMessage]:
        """Return the messages of some queues, or of all, by queue. Until `resume`, these queues are
        not polled, and the locks of the messages are renewed."""
        taken = {}
        with self._changed:
            for queue, poll in self._polls.items():
                if poll.message is not None and (queues is None or queue in queues):
                    taken[queue] = poll.taken = poll.message
                    poll.message = None
                    poll.paused = True
        return taken

    def release(self, queue: str) -> None:
        """Abandon the message of a queue, and receive the one that is the first one then."""
        with self._changed:
            self._polls[queue].released = True
            self._changed.notify_all()

    def _is_known(self, poll: _QueuePoll) -> bool:
        now = self._now()
        waited = poll.credit_since is not None and now - poll.credit_since >= KNOWN_EMPTY_S
        is_empty = waited and self.error is None
        return poll.message is not None or is_empty or now < poll.missing_until

    def _run(self) -> None:
        pause_s = RETRY_S
        while not self._stopped:
            try:
                self._step()
                self.error, pause_s = None, RETRY_S
            except AmqpError as exc:
                if self.error is None:
                    logger.warning("%s cannot be polled: %s", self._client.options.host, exc)
                self.error = exc
                with self._changed:
                    for poll in self._polls.values():
                        # The credit of a link that did not end is still outstanding.
                        if poll.credit_since is not None and poll.receiver.error is not None:
                            poll.credit_since = None
                            self._record_empty_poll(poll, answered=_is_answered(poll))
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._stopped, pause_s)
                pause_s = min(pause_s * 2, MAX_RETRY_S)
        self._close()

    def _close(self) -> None:
        """Close the connection. A credit that is outstanding ends with it, which is a receive."""
        polls = [
            poll
            for poll in self._polls.values()
            if poll.credit_since is not None and poll.receiver.error is None
        ]
        answered = self._client.close()
        for poll in polls:
            self._record_empty_poll(poll, answered=answered)
        self._usage.flush()

    def _step(self) -> None:
        """Grant credit where it is due, and collect what has arrived."""
        for poll in self._polls.values():
            self._end_suspended(poll)
            self._abandon(poll)
            self._grant(poll)
            self._renew(poll)
            self._client.renew_token(poll.receiver.path)
        if any(poll.credit_since is not None for poll in self._polls.values()):
            self._client.step(self._client.now() + STEP_S)
        else:
            with self._changed:
                self._changed.wait(STEP_S)
        with self._changed:
            for poll in self._polls.values():
                if poll.credit_since is not None:
                    self._collect(poll, poll.credit_since)
            self._changed.notify_all()

    def _collect(self, poll: _QueuePoll, credit_since: float) -> None:
        try:
            deliveries = poll.receiver.take_received()
        except LinkLost as exc:
            if self._now() - credit_since < MIN_POLL_S:
                raise  # it would be detached again at once, and each poll is billed
            # The service may take a link for idle although it has credit. It is attached again.
            logger.info("The poll of %s was ended: %s", poll.receiver.path, exc)
            poll.credit_since = None
            self._record_empty_poll(poll)
        else:
            self._store(poll, deliveries)

    def _grant(self, poll: _QueuePoll) -> None:
        now = self._now()
        if poll.credit_since is not None and now - poll.credit_since >= self._poll_s:
            self._end(poll)
        if poll.paused or poll.message is not None or now < poll.missing_until:
            return
        if poll.credit_since is None:
            try:
                poll.receiver.grant_credit(1)
            except EntityNotFound:
                if not self._allow_missing:
                    raise
                poll.missing_until = now + MISSING_RETRY_S
            else:
                poll.credit_since = self._now()

    def _store(self, poll: _QueuePoll, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if self._usage.enabled:
                destination = destination_of(delivery.payload)
                self._usage.add(OperationKind.RECEIVE, destination, [len(delivery.payload)])
                self._usage.flush()
            poll.expiry = LockExpiry(self._now_ms)
            locked_until = poll.expiry.of(delivery.payload)
            lock_ms = locked_until - self._now_ms()
            poll.message = ReceivedMessage(
                poll.receiver.path, delivery.payload, delivery.tag, locked_until, lock_ms
            )
            poll.credit_since = None
            poll.renew_at = self._now() + renewal_s(lock_ms)
            # Messages are settled by lock token, so the session need not track the delivery.
            delivery.link.session.incoming.unsettled.pop(delivery.id, None)

    def _renew(self, poll: _QueuePoll) -> None:
        """Renew the lock of a message that is not settled yet, so that it keeps its position."""
        message = poll.message or poll.taken
        if message is None or message.lock_token is None or self._now() < poll.renew_at:
            return
        try:
            (expiry,) = poll.management.renew_locks([message.lock_token])
        except LockLost:  # it expired, or a task has settled the message
            renewed = None
        except AmqpError:
            self._record(OperationKind.RENEW, message, answered=False)
            raise
        else:
            renewed = message._replace(locked_until=poll.expiry.corrected(int(expiry)))
            self._record(OperationKind.RENEW, message)
        with self._changed:
            poll.renew_at = self._now() + renewal_s(message.lock_ms)
            if poll.message is message:
                poll.message = renewed
            elif poll.taken is message:
                poll.taken = renewed

    def _end_suspended(self, poll: _QueuePoll) -> None:
        """End the poll of a queue that was suspended."""
        if not poll.suspended:
            return
        if poll.credit_since is not None:
            self._end(poll)
        poll.released = True

    def _abandon(self, poll: _QueuePoll) -> None:
        """Abandon a message that was released."""
        with self._changed:
            message = poll.message if poll.released else None
            poll.released = False
            if message is None or message.lock_token is None:
                return
            poll.message = None
        try:
            poll.management.settle([message.lock_token], ABANDONED)
        except LockLost:
            return
        except AmqpError:
            self._record(OperationKind.ABANDON, message, answered=False)
            raise
        self._record(OperationKind.ABANDON, message)

    def _end(self, poll: _QueuePoll) -> None:
        """Take the credit back, and keep a message that arrives meanwhile."""
        deliveries = poll.receiver.drain()
        poll.credit_since = None
        if not deliveries:
            self._record_empty_poll(poll, answered=_is_answered(poll))
        with self._changed:
            self._store(poll, deliveries)

    def _record(
        self, kind: OperationKind, message: ReceivedMessage, *, answered: bool = True
    ) -> None:
        if self._usage.enabled:
            destination = destination_of(message.payload) or ""
            self._usage.add_settlements(kind, [destination], answered=answered)
            self._usage.flush()

    def _record_empty_poll(self, poll: _QueuePoll, *, answered: bool = True) -> None:
        self._usage.add(
            OperationKind.POLL, poll.receiver.path, purpose=Purpose.IDLE, answered=answered
        )
        self._usage.flush()


def _is_answered(poll: _QueuePoll) -> bool:
    """Return whether the namespace has answered a poll that ended without a message. A namespace
    that detaches a link counts its receive."""
    return poll.receiver.error is None or isinstance(poll.receiver.error, LinkLost)


def renewal_s(lock_ms: int) -> float:
    """Return the time after which a lock of this duration is renewed."""
    return min(RENEW_S, lock_ms / 3000)
