"""Sending of messages to one destination: in batches, in order, several deliveries in flight."""

from collections import deque
from dataclasses import dataclass

from pairbus.amqp.batch import BATCH_FORMAT, batch_envelope, make_batch, size_in_batch
from pairbus.amqp.client import PendingDelivery, Sender
from pairbus.errors import AmqpError, Busy, NotAuthorized, QuotaExceeded, Refused
from pairbus.servicebus.limits import MAX_MESSAGE_SIZE_STANDARD
from pairbus.spark.messages import RestoredMessage
from pairbus.spark.outcome import OutcomeRecorder
from pairbus.spark.pace import Pace
from pairbus.spark.rate_control import requested_wait_s

MAX_BATCH_MESSAGES = 500
MAX_IN_FLIGHT = 4
"""Deliveries to one destination that are not answered yet."""
ENVELOPE_BYTES = 1024
"""Reserved for the envelope of a batch: message id, session and partition key of its first
message."""
MAX_THROTTLED_SENDS = 5
"""How often a delivery is sent that the namespace throttles."""


@dataclass(slots=True, eq=False)
class _BatchInFlight:
    """A batch that was sent and is not answered yet."""

    messages: list[RestoredMessage]
    sessions: set[str]
    delivery: PendingDelivery


class DestinationSender:
    """Sends messages to one destination, and reports what happened to each.

    After a failure it sends nothing more, so that no later message of a session overtakes the one
    that failed. If a batch is refused, its messages are sent individually, because one bad message
    fails the whole batch.
    """

    def __init__(
        self, path: str, sender: Sender, recorder: OutcomeRecorder, pace: Pace | None = None
    ) -> None:
        self._path = path
        self._pace = Pace() if pace is None else pace
        self._sender = sender
        self._recorder = recorder
        self._batch: list[RestoredMessage] = []
        self._batch_bytes = 0
        self._in_flight: deque[_BatchInFlight] = deque()
        self._error: AmqpError | None = None
        self._skipped_sessions: set[str] = set()
        """Sessions of which a message was not sent because its lock was about to expire."""
        try:
            sender.open()
        except AmqpError as exc:
            self._error = exc

    def add(self, message: RestoredMessage, min_locked_until: int) -> None:
        """Send a message after all earlier ones, unless its lock expires too early."""
        if self._error is not None:
            if is_permanent(self._error):
                reason = type(self._error).__name__
                self._recorder.dead_letter(message, reason, str(self._error))
            else:
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
        if self._error is None:
            self._send_batch()

    def wait(self) -> None:
        """Wait until every delivery is answered."""
        while self._in_flight:
            self._wait_for_oldest()

    def _add_to_batch(self, message: RestoredMessage) -> None:
        size = size_in_batch(len(message.payload))
        # A message that is larger is sent alone, and not as a batch.
        max_bytes = (self._sender.max_batch_size or MAX_MESSAGE_SIZE_STANDARD) - ENVELOPE_BYTES
        max_messages = min(MAX_BATCH_MESSAGES, self._pace.slice_size)
        if len(self._batch) >= max_messages or self._batch_bytes + size > max_bytes:
            self._send_batch()
            if self._error is not None:
                self._leave([message])
                return
        self._batch.append(message)
        self._batch_bytes += size

    def _take_batch(self) -> list[RestoredMessage]:
        messages, self._batch, self._batch_bytes = self._batch, [], 0
        return messages

    def _send_batch(self) -> None:
        messages = self._take_batch()
        if not messages:
            return
        sessions = {message.session_id for message in messages if message.session_id is not None}
        while self._in_flight and (
            len(self._in_flight) >= MAX_IN_FLIGHT
            or any(sessions & batch.sessions for batch in self._in_flight)
        ):
            self._wait_for_oldest()
        if self._error is not None:
            self._leave(messages)
            return
        self._pace.wait(len(messages))
        try:
            delivery = self._post(messages)
        except AmqpError as exc:
            self._handle_failure(messages, exc)
        else:
            self._in_flight.append(_BatchInFlight(messages, sessions, delivery))

    def _post(self, messages: list[RestoredMessage]) -> PendingDelivery:
        payloads = [message.payload for message in messages]
        if len(payloads) == 1:
            return self._sender.post(payloads[0])
        batch = make_batch(payloads, batch_envelope(payloads[0]))
        return self._sender.post(batch, message_format=BATCH_FORMAT)

    def _send_until_admitted(
        self, messages: list[RestoredMessage], error: AmqpError | None
    ) -> AmqpError | None:
        """Send messages again as long as the namespace throttles them, after the wait that it asks
        for. Return the last error. To receive the messages again would cost more."""
        for _ in range(MAX_THROTTLED_SENDS):
            if not isinstance(error, Busy) or requested_wait_s(error) is None:
                break
            self._recorder.not_delivered(self._path, messages)
            self._pace.note_throttled(error)
            self._pace.wait(len(messages))
            try:
                delivery = self._post(messages)
                self._sender.wait([delivery])
                error = delivery.error
            except AmqpError as exc:
                error = exc
        return error

    def _wait_for_oldest(self) -> None:
        batch = self._in_flight.popleft()
        try:
            self._sender.wait([batch.delivery])
        except AmqpError as exc:
            batch.delivery.error = batch.delivery.error or exc
        error = self._send_until_admitted(batch.messages, batch.delivery.error)
        if error is not None:
            self._handle_failure(batch.messages, error)
        else:
            self._pace.count(len(batch.messages))
            self._recorder.delivered(self._path, batch.messages)

    def _handle_failure(self, messages: list[RestoredMessage], error: AmqpError) -> None:
        self._recorder.not_delivered(self._path, messages)
        if is_permanent(error):
            if len(messages) > 1:
                self._send_individually(messages)
            else:
                self._recorder.dead_letter(messages[0], type(error).__name__, str(error))
            return
        self._error = error
        self._recorder.destination_failed(self._path, error)
        self._leave(messages)
        self._leave(self._take_batch())

    def _send_individually(self, messages: list[RestoredMessage]) -> None:
        for index, message in enumerate(messages):
            try:
                self._sender.send(message.payload)
            except AmqpError as exc:
                self._handle_failure([message], exc)
                if self._error is not None:
                    self._leave(messages[index + 1 :])
                    return
            else:
                self._recorder.delivered(self._path, [message])

    def _leave(self, messages: list[RestoredMessage]) -> None:
        self._recorder.leave(self._path, messages, self._error)


def is_permanent(error: AmqpError) -> bool:
    """Return True if the destination would refuse the same message again: the message is too large
    or malformed, or the entity does not exist."""
    return isinstance(error, Refused) and not isinstance(error, NotAuthorized | QuotaExceeded)
