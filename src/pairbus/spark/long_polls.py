"""Long polls: one receive that waits on each queue, independent of Spark's triggers.

Spark asks a source several times a second whether there is new data, so the answer must be cheap.
A thread in the driver therefore keeps one credit on each queue. The message that arrives stays
locked, and is the first one of the next micro-batch.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from time import monotonic
from uuid import UUID

from pairbus.amqp.client import Client, ClientOptions, Management, Receiver
from pairbus.amqp.events import Delivery
from pairbus.errors import AmqpError, EntityNotFound, LinkLost, LockLost
from pairbus.servicebus.management import ABANDONED
from pairbus.spark.messages import ReceivedMessage, destination_of, lock_expiry_ms
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
RENEW_S = 20.0
"""The age at which the lock of a message that was not taken yet is renewed."""


class _QueuePoll:
    """The poll of one queue."""

    def __init__(self, client: Client, queue: str) -> None:
        self.receiver = Receiver(client, queue, confirm=False)
        self.management = Management(client, queue)
        self.credit_since: float | None = None
        """The time when the credit was granted. None: no credit is outstanding."""
        self.message: ReceivedMessage | None = None
        self.locked_at = 0.0
        self.paused = False
        """A task reads the queue. A poll would take a message out of the order of the task."""
        self.releasing = False
        """The message and the credit are to be given back."""
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
    ) -> None:
        """With `allow_missing`, a queue that does not exist is not an error."""
        self.error: AmqpError | None = None
        """The reason why the namespace cannot be polled at the moment."""
        self._usage = usage
        self._client = Client(options)
        self._poll_s = poll_s
        self._allow_missing = allow_missing
        self._now = now
        self._polls = {queue: _QueuePoll(self._client, queue) for queue in queues}
        self._changed = threading.Condition()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def resume(self) -> None:
        """Poll all queues, also those whose messages were taken."""
        with self._changed:
            for poll in self._polls.values():
                poll.paused = False
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="pairbus long polls", daemon=True
            )
            self._thread.start()

    def release(self) -> None:
        """Hold no message and no credit until `resume`. The messages that were not taken can be
        received again, in their positions. Returns at once."""
        with self._changed:
            for poll in self._polls.values():
                if not poll.paused or poll.message is not None:
                    poll.paused = poll.releasing = True
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

    def take(self) -> dict[str, ReceivedMessage]:
        """Return the messages by queue, and pause the polls of these queues until `resume`."""
        # Each lock was taken or renewed at most RENEW_S ago.
        locked_until = lock_expiry_ms() - int(RENEW_S * 1000)
        taken = {}
        with self._changed:
            for queue, poll in self._polls.items():
                if poll.message is not None:
                    taken[queue] = poll.message._replace(locked_until=locked_until)
                    poll.message = None
                    poll.paused = True
        return taken

    def _is_known(self, poll: _QueuePoll) -> bool:
        now = self._now()
        waited = poll.credit_since is not None and now - poll.credit_since >= KNOWN_EMPTY_S
        return poll.message is not None or waited or now < poll.missing_until

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
                        if poll.credit_since is not None and poll.receiver.error is not None:
                            # A namespace that detaches a link counts its receive as answered.
                            answered = isinstance(poll.receiver.error, LinkLost)
                            self._record_empty_poll(poll, answered=answered)
                        poll.credit_since = None
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._stopped, pause_s)
                pause_s = min(pause_s * 2, MAX_RETRY_S)
        self._client.close()
        self._usage.flush()

    def _step(self) -> None:
        """Grant credit where it is due, and collect what has arrived."""
        for poll in self._polls.values():
            if poll.releasing:
                self._release(poll)
            self._grant(poll)
            self._renew(poll)
            self._client.renew_token(poll.receiver.path)
        if any(poll.credit_since is not None for poll in self._polls.values()):
            self._client.step(self._now() + STEP_S)
        else:
            with self._changed:
                self._changed.wait(STEP_S)
        with self._changed:
            for poll in self._polls.values():
                if poll.credit_since is not None:
                    self._store(poll, poll.receiver.take_received())
            self._changed.notify_all()

    def _grant(self, poll: _QueuePoll) -> None:
        now = self._now()
        if poll.credit_since is not None and now - poll.credit_since >= self._poll_s:
            deliveries = poll.receiver.drain()
            poll.credit_since = None
            if not deliveries:
                self._record_empty_poll(poll)
            with self._changed:
                self._store(poll, deliveries)
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

    def _release(self, poll: _QueuePoll) -> None:
        if poll.credit_since is not None:
            deliveries = poll.receiver.drain()
            if not deliveries:
                self._record_empty_poll(poll)
            poll.credit_since = None
            with self._changed:
                self._store(poll, deliveries)
        poll.releasing = False
        message = poll.message
        if message is None or message.lock_token is None:
            return
        with self._changed:
            poll.message = None
        with contextlib.suppress(LockLost):
            poll.management.settle([UUID(bytes_le=message.lock_token)], ABANDONED)
        if self._usage.enabled:
            destination = destination_of(message.payload) or ""
            self._usage.add_settlements(OperationKind.ABANDON, [destination])
            self._usage.flush()

    def _store(self, poll: _QueuePoll, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if self._usage.enabled:
                destination = destination_of(delivery.payload)
                self._usage.add(OperationKind.RECEIVE, destination, [len(delivery.payload)])
                self._usage.flush()
            poll.message = ReceivedMessage(poll.receiver.path, delivery.payload, delivery.tag)
            poll.credit_since, poll.locked_at = None, self._now()
            # Messages are settled by lock token, so the session need not track the delivery.
            delivery.link.session.incoming.unsettled.pop(delivery.id, None)

    def _renew(self, poll: _QueuePoll) -> None:
        """Renew the lock of a message that waits to be taken, so that it keeps its position."""
        message = poll.message
        if message is None or message.lock_token is None or self._now() < poll.locked_at + RENEW_S:
            return
        try:
            poll.management.renew_locks([UUID(bytes_le=message.lock_token)])
            poll.locked_at = self._now()
            if self._usage.enabled:
                destination = destination_of(message.payload) or ""
                self._usage.add_settlements(OperationKind.RENEW, [destination])
                self._usage.flush()
        except LockLost:
            with self._changed:
                if poll.message is message:
                    poll.message = None

    def _record_empty_poll(self, poll: _QueuePoll, *, answered: bool = True) -> None:
        self._usage.add(
            OperationKind.POLL, poll.receiver.path, purpose=Purpose.IDLE, answered=answered
        )
        self._usage.flush()
