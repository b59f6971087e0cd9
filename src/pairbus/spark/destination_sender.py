"""Sending of messages to one destination: in batches, in order, several deliveries in flight."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from pairbus.amqp.batch import BATCH_FORMAT, batch_envelope, make_batch, size_in_batch
from pairbus.amqp.client import PendingDelivery, Sender
from pairbus.errors import AmqpError, Busy, EntityNotFound, MessageTooLarge
from pairbus.servicebus.limits import MAX_MESSAGE_SIZE_STANDARD
from pairbus.spark.connections import Batching
from pairbus.spark.messages import RestoredMessage
from pairbus.spark.outcome import OutcomeRecorder
from pairbus.spark.pace import Pace
from pairbus.spark.rate_control import requested_wait_s
from pairbus.spark.verdicts import Failure, Verdict, judge

_locked_until = attrgetter("locked_until")

MAX_BATCH_MESSAGES = 500
MAX_THROTTLED_SENDS = 20
"""The highest number of throttled deliveries in a row that are sent again."""
MAX_THROTTLED_S = 5.0
"""If the namespace asks for a longer wait, messages are left instead: they are locked."""
MAX_IN_FLIGHT = 4
"""Deliveries to one destination that are not answered yet."""
MAX_SINGLES_IN_FLIGHT = 50
"""The same, for a destination that gets no batches."""


@dataclass(slots=True, eq=False)
class _InFlight:
    """Messages that were sent as one delivery, which is not answered yet."""

    messages: list[RestoredMessage]
    sessions: set[str]
    delivery: PendingDelivery


class DestinationSender:
    """Sends messages to one destination, and reports what happened to each.

    After a failure of the destination it sends nothing more, so that no later message of a session
    overtakes the one that failed. A batch that is refused is halved until the messages that cause
    it stand alone: the others are sent in few deliveries.
    """

    def __init__(
        self,
        path: str,
        sender: Sender,
        batching: Batching,
        recorder: OutcomeRecorder,
        *,
        min_locked_until: Callable[[], int],
        pace: Pace | None = None,
        hold_if_missing: bool,
    ) -> None:
        """A delivery is sent if its locks last until `min_locked_until`, which depends on the time.
        With `hold_if_missing`, messages are left if the destination does not exist, and
        dead-lettered otherwise."""
        self._path = path
        self._min_locked_until = min_locked_until
        self._pace = Pace() if pace is None else pace
        self._sender = sender
        self._batching = batching
        self._recorder = recorder
        self._throttled = 0
        """The number of throttled deliveries in a row."""
        self._batch: list[RestoredMessage] = []
        self._batch_bytes = 0
        self._max_bytes, self._max_messages = 0, 0
        """The limits of the current batch."""
        self._in_flight: deque[_InFlight] = deque()
        self._error: AmqpError | None = None
        self._dead_letters_all = False
        """The destination does not exist, and its messages are not held."""
        self._skipped_sessions: set[str] = set()
        """Sessions of which a message was not sent because its lock was about to expire."""
        self._late_sessions: set[str] = set()
        """The same, for messages that were added before."""
        self._was_late = False
        """A delivery was left because locks were about to expire."""
        try:
            sender.open()
        except AmqpError as exc:
            self._error = exc
            if isinstance(exc, EntityNotFound):
                recorder.destination_missing(path)
                self._dead_letters_all = not hold_if_missing

    def add(self, message: RestoredMessage, min_locked_until: int) -> None:
        """Send a message after all earlier ones, unless its lock expires before
        `min_locked_until`."""
        if self._dead_letters_all:
            # Without the words of the service, which differ each time: the messages share requests.
            description = f"The queue or topic {self._path!r} does not exist."
            self._recorder.dead_letter(message, EntityNotFound.__name__, description)
        elif self._error is not None:
            self._leave([message])
        elif message.lock_token is not None and (
            message.locked_until < min_locked_until or message.session_id in self._skipped_sessions
        ):
            if message.session_id is not None:
                self._skipped_sessions.add(message.session_id)
            self._leave([message])
        else:
            self._add_to_batch(message)

    def flush(self) -> None:
        """Send the last batch, without waiting for the answer."""
        self._post(self._take_batch())

    def wait(self) -> None:
        """Wait until every delivery is answered."""
        self._wait_for_all()
        if isinstance(self._error, EntityNotFound):
            self._sender.detach()  # The entity may be created again, and needs a new link then.

    def _add_to_batch(self, message: RestoredMessage) -> None:
        # A message that is larger than a batch may be is sent alone, and not as a batch.
        size = size_in_batch(len(message.payload))
        if self._batch and (
            len(self._batch) >= self._max_messages or self._batch_bytes + size > self._max_bytes
        ):
            self._post(self._take_batch())
        if not self._batch:
            self._begin_batch(message)
        self._batch.append(message)
        self._batch_bytes += size

    def _begin_batch(self, message: RestoredMessage) -> None:
        if self._batching.refused:
            self._max_messages = 1
            return
        # The envelope repeats properties of the first message.
        self._batch_bytes = len(batch_envelope(message.payload))
        self._max_bytes = self._sender.max_batch_size or MAX_MESSAGE_SIZE_STANDARD
        self._max_messages = min(MAX_BATCH_MESSAGES, self._pace.slice_size)

    def _take_batch(self) -> list[RestoredMessage]:
        messages, self._batch, self._batch_bytes = self._batch, [], 0
        return messages

    def _post(self, messages: list[RestoredMessage]) -> None:
        """Send messages as one delivery when their sessions have none in flight. Its answer is
        handled later. If the destination refuses batches, each message is a delivery."""
        if self._batching.refused and len(messages) > 1:
            for message in messages:
                self._post([message])
            return
        if not messages:
            return
        sessions = {message.session_id for message in messages if message.session_id is not None}
        limit = MAX_SINGLES_IN_FLIGHT if self._batching.refused else MAX_IN_FLIGHT
        while self._in_flight and (
            len(self._in_flight) >= limit
            or any(sessions & batch.sessions for batch in self._in_flight)
        ):
            self._wait_for_oldest()
        result = self._start(messages)
        if isinstance(result, PendingDelivery):
            self._in_flight.append(_InFlight(messages, sessions, result))
        elif result is not None:
            self._handle(messages, *result)

    def _wait_for_all(self) -> None:
        while self._in_flight:
            self._wait_for_oldest()

    def _wait_for_oldest(self) -> None:
        batch = self._in_flight.popleft()
        result = self._finish(batch.delivery, batch.messages)
        if result is not None:
            self._handle(batch.messages, *result)

    def _deliver(self, messages: list[RestoredMessage], *, lost_before: bool = False) -> int:
        """Send messages as one delivery, wait for the answer, and return how many were
        dead-lettered in the end."""
        result = self._start(messages)
        if isinstance(result, PendingDelivery):
            result = self._finish(result, messages)
        return 0 if result is None else self._handle(messages, *result, lost_before=lost_before)

    def _start(
        self, messages: list[RestoredMessage]
    ) -> PendingDelivery | tuple[Failure, AmqpError] | None:
        """Send a delivery. Return its failure if it could not be sent, or None if the messages were
        left: the destination has failed before, or their locks are about to expire."""
        if self._error is not None:
            self._leave(messages)
            return None
        try:
            self._sender.open()
        except AmqpError as exc:
            return Failure.NOT_ATTACHED, exc
        payloads = [message.payload for message in messages]
        is_batch = len(payloads) > 1
        payload = make_batch(payloads, batch_envelope(payloads[0])) if is_batch else payloads[0]
        limit = self._sender.max_batch_size if is_batch else self._sender.max_message_size
        if limit is not None and len(payload) > limit:
            # Batches are built within the limit, but the link may have been replaced since.
            return Failure.TOO_LARGE, MessageTooLarge(
                f"{self._path!r} accepts at most {limit} bytes, and the "
                f"{'batch' if is_batch else 'message'} has {len(payload)}"
            )
        self._pace.wait(len(messages))
        if self._is_late(messages):
            self._pace.give_back(len(messages))
            self._leave(messages)
            return None
        try:
            return self._sender.post(payload, message_format=BATCH_FORMAT if is_batch else 0)
        except AmqpError as exc:
            self._recorder.not_delivered(self._path, messages, exc)
            return Failure.LINK_LOST, exc

    def _is_late(self, messages: list[RestoredMessage]) -> bool:
        """Return True if locks have become too short since the messages were added: deliveries
        wait for others and for their pace, and a process may have been frozen. The later messages
        of their sessions are late as well."""
        min_locked_until = self._min_locked_until()
        if not self._late_sessions and min(map(_locked_until, messages)) >= min_locked_until:
            return False
        if not any(
            message.lock_token is not None
            and (
                message.locked_until < min_locked_until or message.session_id in self._late_sessions
            )
            for message in messages
        ):
            return False
        self._was_late = True
        self._late_sessions.update(
            message.session_id for message in messages if message.session_id is not None
        )
        return True

    def _finish(
        self, delivery: PendingDelivery, messages: list[RestoredMessage]
    ) -> tuple[Failure, AmqpError] | None:
        """Wait for the answer to a delivery, and return its failure, if any."""
        try:
            self._sender.wait([delivery])
        except AmqpError as exc:
            delivery.error = delivery.error or exc
        if delivery.error is None:
            self._throttled = 0
            self._pace.count(len(messages))
            self._recorder.delivered(self._path, messages)
            return None
        self._recorder.not_delivered(self._path, messages, delivery.error)
        if self._is_throttled(delivery.error, delivery.sent_at):
            # To receive the messages again would cost more than to send them again.
            result = self._start(messages)
            if isinstance(result, PendingDelivery):
                return self._finish(result, messages)
            return result
        return Failure.REJECTED if delivery.rejected else Failure.LINK_LOST, delivery.error

    def _handle(
        self,
        messages: list[RestoredMessage],
        failure: Failure,
        error: AmqpError,
        *,
        lost_before: bool = False,
    ) -> int:
        """Handle a delivery that failed, and return how many messages were dead-lettered."""
        verdict = judge(failure, error, message_count=len(messages), lost_before=lost_before)
        if self._error is not None:
            self._leave(messages)
        elif verdict is Verdict.DEAD_LETTER:
            self._recorder.dead_letter(messages[0], type(error).__name__, str(error))
            return 1
        elif verdict is Verdict.SEND_AGAIN:
            return self._send_again(messages)
        elif verdict is Verdict.SPLIT:
            return self._split(messages, failure)
        else:
            self._error = error
            self._recorder.destination_failed(self._path, error)
            if verdict is Verdict.MISSING:
                self._recorder.destination_missing(self._path)
            self._leave(messages)
            self._leave(self._take_batch())
        return 0

    def _send_again(self, messages: list[RestoredMessage]) -> int:
        """Send a delivery that has lost its link, and those that were lost with it, one by one.
        Return how many messages of the first were dead-lettered."""
        lost = [messages]
        while self._in_flight:
            batch = self._in_flight.popleft()
            result = self._finish(batch.delivery, batch.messages)
            if result is not None:
                failure, error = result
                verdict = judge(failure, error, message_count=len(batch.messages))
                if verdict is Verdict.SEND_AGAIN:
                    lost.append(batch.messages)
                else:
                    self._handle(batch.messages, failure, error)
        dead_lettered = []
        for each in lost:
            # Nothing else may be in flight, or it could be the reason for another loss.
            self._wait_for_all()
            dead_lettered.append(self._deliver(each, lost_before=True))
        return dead_lettered[0]

    def _split(self, messages: list[RestoredMessage], failure: Failure) -> int:
        """Send the two halves of a batch that was refused, and return how many messages were
        dead-lettered."""
        if self._refuses_batches():  # as another batch has shown
            self._post(messages)
            return 0
        middle = len(messages) // 2
        first, second = messages[:middle], messages[middle:]
        dead_lettered = self._deliver(first)
        if self._refuses_batches():
            self._post(second)
            return dead_lettered
        if dead_lettered == len(first):
            # Probably all are bad, and halving would send most of them several times.
            dead_lettered += sum(self._deliver([message]) for message in second)
        else:
            dead_lettered += self._deliver(second)
        if (
            dead_lettered == 0
            and self._error is None
            and not self._was_late
            and failure is Failure.REJECTED
        ):
            # Each message was accepted, so the destination rejected the batch for being one. A
            # partitioned entity does so if the messages belong to different partitions.
            self._batching.refused = True
        return dead_lettered

    def _is_throttled(self, error: AmqpError, sent_at: float) -> bool:
        """Return True if a delivery is to be sent again, after the wait that the namespace asks
        for. Not for ever: the messages are locked."""
        if not isinstance(error, Busy) or (wait_s := requested_wait_s(error)) is None:
            return False  # if an entity is busy, the namespace names no wait
        self._pace.note_throttled(error, sent_at)
        self._throttled += 1
        return wait_s <= MAX_THROTTLED_S and self._throttled <= MAX_THROTTLED_SENDS

    def _refuses_batches(self) -> bool:
        return self._batching.refused

    def _leave(self, messages: list[RestoredMessage]) -> None:
        self._recorder.leave(self._path, messages, self._error)
